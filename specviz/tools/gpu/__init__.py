"""What is to be found out on a real GPU, in stages of a few minutes each. Begins in `stages`."""
