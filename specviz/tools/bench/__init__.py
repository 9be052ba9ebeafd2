"""The benchmark: contenders on the same weights, prompts, seeds and threads, in one process. Start reading in `benchmark`."""
