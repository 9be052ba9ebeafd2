"""The shell: one module for each command."""
