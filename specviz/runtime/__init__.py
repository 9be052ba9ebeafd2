"""A model's forward passes: runners, KV caches, and fast implementations for CPU and CUDA."""
