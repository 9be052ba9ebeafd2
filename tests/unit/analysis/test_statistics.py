"""Quartiles against numbers made by hand."""

from __future__ import annotations

from specviz.analysis.statistics import quartiles


def test_quartiles_are_the_median_and_the_quartiles() -> None:
    found = quartiles([4.0, 1.0, 3.0, 2.0, 5.0])
    assert found is not None
    assert (found.low, found.median, found.high) == (2.0, 3.0, 4.0)
    assert quartiles([]) is None
    assert quartiles([7.0]) == quartiles([7.0, 7.0][:1])
