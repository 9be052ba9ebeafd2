"""Request settings, traces and the trace file format. Plain data."""
