"""Lets other libraries use SpecViz: transformers' `generate` and lm-evaluation-harness."""
