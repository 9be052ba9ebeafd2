"""What runs come to: metrics, quality, comparisons, and sweeps over the lenience."""
