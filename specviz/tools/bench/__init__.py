"""The benchmark: everybody on the same weights, prompts, seeds and threads, in one run. See `job`, where it begins."""
