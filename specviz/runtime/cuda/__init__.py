"""Forward passes on a CUDA device: captured graphs and the buffers they run over."""
