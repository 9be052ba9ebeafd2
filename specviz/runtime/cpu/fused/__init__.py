"""The fused CPU pass: decoders of the llama kind, read in the precision in which their weights were published."""
