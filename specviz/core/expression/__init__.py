"""The language of rules: `p1(v) >= (1 - a) * max p1 and H(p1) > 0.5`, from text to tensors. Nothing in it is ever evaluated as Python."""
