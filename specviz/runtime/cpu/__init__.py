"""Forward passes on a CPU: fused passes, prepacked products, and the number of threads."""
