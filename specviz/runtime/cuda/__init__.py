"""Forward passes on a CUDA device: kernels, captured graphs, and the buffers that they use."""
