"""Measures runs: quality, comparisons, predicted speed-ups, and sweeps over the lenience."""
