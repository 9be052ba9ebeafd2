"""The method itself: the rules of the paper, distributions and draws, a plain reference generator. Tensors in, tensors out."""
