"""Other libraries driving SpecViz: transformers' `generate`, lm-evaluation-harness."""
