"""Model pairs: which there are, how they are loaded, and the tokenizer they share."""
