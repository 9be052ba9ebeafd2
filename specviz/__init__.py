"""SpecViz: speculative cascades, exact, fast, and visible token by token."""

__version__ = "0.1.0"
