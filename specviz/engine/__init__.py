"""Draft, verify, accept: the generator, the batch of sequences it serves, and the scheduler."""
