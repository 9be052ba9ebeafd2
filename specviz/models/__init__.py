"""Model pairs: their registry, how they are loaded, and the tokenizer that the two models share."""
