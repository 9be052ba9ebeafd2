"""Executing a model's forward passes: the model runner, its KV cache, and what makes both fast on a device."""
