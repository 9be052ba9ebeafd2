"""Draws accuracy against rejection rate as an SVG: the methods that the claim shows first, and both models alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from html import escape

from specviz.analysis.sweep.claim import claim, percent
from specviz.analysis.sweep.grid import MODELS
from specviz.analysis.sweep.results import FIGURES, Results
from specviz.core.methods import METHODS

X, Y = "rejection_rate", "accuracy"
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 900, 520, 60, 710, 60, 450
_COLOURS = ("#14161b", "#a08a00", "#6a46b8", "#8d1f8e")
_INK, _MUTED, _GRID = "#14161b", "#565b66", "#dddbd2"
_LINE = 20
"""Height of a line of text."""
_PAD = 0.05


def picture(results: Results, temperature: float) -> str:
    """The SVG of one of `results.temperatures`."""
    points = [point for point in results.at(temperature) if {X, Y} <= point.figures.keys()]
    curves = [
        (METHODS[name].title, own)
        for name in claim(results, temperature).curves
        if (own := [point for point in points if point.setting.method == name])
    ]
    alone = [point for point in points if point.setting.method in MODELS]
    drawn = [point for _, own in curves for point in own]
    across, x_ticks = _axis([point.value(X) for point in drawn], _LEFT, _RIGHT)
    ends = [end for point in drawn for end in (point.figures[Y].low, point.figures[Y].high)]
    up, y_ticks = _axis([*ends, *(point.value(Y) for point in alone)], _BOTTOM, _TOP)
    parts = []
    for value in y_ticks:
        y = up(value)
        parts += [_path(f"M{_LEFT} {y:.1f}H{_RIGHT}", _GRID), _text(percent(value), _LEFT - 8, y + 5, "end")]
    for value in x_ticks:
        x = across(value)
        parts += [
            _path(f"M{x:.1f} {_TOP}V{_BOTTOM}", _GRID),
            _text(percent(value), x, _BOTTOM + 22, "middle"),
        ]
    for at, point in enumerate(alone):
        y = up(point.value(Y))
        words = f"{METHODS[point.setting.method].title} {percent(point.value(Y))}"
        parts += [_path(f"M{_LEFT} {y:.1f}H{_RIGHT}", _MUTED, ' stroke-dasharray="6 5"')]
        parts += [_text(words, (_RIGHT - 4, _LEFT + 4)[at], y - 6, ("end", "start")[at])]
    right = [up(max(own, key=lambda point: point.value(X)).value(Y)) for _, own in curves]
    for (title, own), top, colour in zip(curves, _apart(right), _COLOURS, strict=False):
        places = [(across(point.value(X)), up(point.value(Y))) for point in own]
        parts.append(
            _path("M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places), colour, ' stroke-width="2.5"')
        )
        for point, (x, y) in zip(own, places, strict=True):
            low, high = up(point.figures[Y].low), up(point.figures[Y].high)
            parts.append(_path(f"M{x:.1f} {low:.1f}V{high:.1f}", colour, ' opacity="0.35"'))
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{colour}"/>')
        parts.append(_text(title, _RIGHT + 12, top + 5, "start", colour, ' font-weight="600"'))
    parts.append(_text(f"{FIGURES[Y].title}, temperature {temperature:g}", 8, 28, "start", _INK))
    parts.append(_text(FIGURES[X].title, _RIGHT, _BOTTOM + 50, "end", _INK))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" '
        f'font-family="Inter, Helvetica, Arial, sans-serif" font-size="14"><rect width="100%" height="100%" fill="#fff"/>'
        f"{''.join(parts)}</svg>\n"
    )


def _axis(values: list[float], first: float, last: float) -> tuple[Callable[[float], float], list[float]]:
    """A linear scale from values to the pixels `first` to `last`, with a small margin around the values, and its ticks."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    pad = _PAD * (high - low) or _PAD
    low, high = low - pad, high + pad
    step = 0.05 if high - low < 0.45 else 0.1
    ticks = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    return lambda value: first + (value - low) / (high - low) * (last - first), [step * at for at in ticks]


def _apart(wanted: list[float]) -> list[float]:
    """The labels' heights, moved from the wanted ones so that they are at least a line apart."""
    found, least = list(wanted), -math.inf
    for at in sorted(range(len(wanted)), key=wanted.__getitem__):
        found[at] = least = max(wanted[at], least + _LINE)
    return found


def _text(words: str, x: float, y: float, anchor: str, fill: str = _MUTED, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}"{more}>{escape(words)}</text>'


def _path(d: str, stroke: str, more: str = "") -> str:
    return f'<path d="{d}" fill="none" stroke="{stroke}"{more}/>'
