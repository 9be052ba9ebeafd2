"""Measures runs: metrics, quality, comparisons, and sweeps over the lenience."""
