"""Finished figures, drawn with plotly."""
