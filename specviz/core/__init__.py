"""The methods: their rules, distributions and draws, and a plain reference generator. Tensors in, tensors out."""
