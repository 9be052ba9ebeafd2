"""A sweep's report in Markdown, and its pictures. Its sentences follow from the estimates by rule; the text is in `templates/`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from specviz.analysis.sweep.claim import FEWER, KEPT, claim, percent, share
from specviz.analysis.sweep.estimates import REPLICATES, Gain, find_gains
from specviz.analysis.sweep.grid import MODELS
from specviz.analysis.sweep.items import kind_words
from specviz.analysis.sweep.results import FIGURES, Estimate, Point, Results
from specviz.core.method import LOSSLESS
from specviz.core.methods import METHODS
from specviz.tools.templates import NONE, render
from specviz.wording import joined

_NAMED = "{title} (α\u00a0=\u00a0{alpha})"
_BESIDE = {
    "against_speed": "Against lenient speculative decoding at the same rejection rate, where it reaches that rate",
    "against_min_p": "Against the most accurate lossless min-p that rejects no more drafts (the most accurate of all, if none does)",
}


def markdown(results: Results, pictures: Mapping[float, Path], command: str) -> str:
    """The report of a finished sweep that `command` made. `pictures` has the path of each temperature's picture, relative to the report."""
    has_kinds = len({item.kind for item in results.items}) > 1
    return render(
        Path(__file__).parent / "templates" / "results.md.j2",
        _FILTERS,
        results=results,
        kinds=kind_words(results.items),
        source=Path(results.plan.prompts).name,  # no folder, since it may contain a person's name
        temperatures=[
            _temperature(results, t)
            | {"picture": pictures[t], "gains": find_gains(results, t) if has_kinds else None}
            for t in results.temperatures
        ],
        machine=results.machine_words,
        command=command,
        versions=results.machine.get("versions", {}),
        date=results.machine.get("date"),
        kept=KEPT,
        replicates=REPLICATES,
    )


def _temperature(results: Results, temperature: float) -> dict[str, Any]:
    """The template's values for one temperature."""
    baselines = [p for name in (*MODELS, LOSSLESS) if (p := results.point(temperature, name))]
    both = [point for point in results.at(temperature) if point.setting.method not in MODELS]
    saving = [p for p in both if _ratio(p, "accuracy") >= KEPT and _ratio(p, "rejection_rate") <= 1 - FEWER]
    front: list[Point] = []
    for point in sorted(saving, key=lambda point: (point.value("rejection_rate"), -point.value("accuracy"))):
        if not front or point.value("accuracy") > front[-1].value("accuracy"):
            front.append(point)
    lenient = dict.fromkeys(p.setting.method for p in both if METHODS[p.setting.method].has_lenience)
    shown = {point.setting.method for point in (*baselines, *saving)}
    timed = [point for point in both if "relative_latency" in point.figures]
    return {
        "temperature": temperature,
        "claim": claim(results, temperature),
        "rows": baselines + front,
        "others": [METHODS[name].title for name in lenient if name not in shown],
        "comparisons": [_comparison(title, side, both) for side, title in _BESIDE.items()],
        "fastest": min(timed, key=lambda point: point.value("relative_latency"), default=None),
    }


def _ratio(point: Point, name: str) -> float:
    """The value of one of the point's `ratios`; 0 if unknown."""
    return point.ratios[name].value if name in point.ratios else 0.0


def _comparison(title: str, side: str, points: Sequence[Point]) -> dict[str, Any]:
    """Which points surely answer more questions than another method, and the number of points that surely answer fewer."""
    compared = [(p, found) for p in points if (found := getattr(p, side).get("accuracy"))]
    return {
        "title": title,
        "compared": len(compared),
        "better": [point for point, found in compared if found.low > 0],
        "worse": sum(found.high < 0 for _, found in compared),
    }


# ---- filters of the template


def _cells(point: Point) -> list[str]:
    """A row of a temperature's table."""
    figures = [point.figures.get(name) for name in ("accuracy", "rejection_rate", "relative_latency")]
    return [point.setting.named(_NAMED), *map(_number, figures)]


def _methods(points: Sequence[Point]) -> str:
    """The titles of these points' methods."""
    return joined(list(dict.fromkeys(METHODS[point.setting.method].title for point in points)))


def _number(found: Estimate | None) -> str:
    """A share in percent and its interval, without percent signs; `NONE` if unknown."""
    return share(found).replace("\u00a0%", "") if found else NONE


def _gain(gain: Gain) -> list[str]:
    """A row of the table of gains."""
    shown = (*gain.accuracy.values(), gain.above_models, gain.above_models_chosen)
    return [gain.title, *map(_number, shown)]


_FILTERS = {
    "named": lambda point: point.setting.named(_NAMED),
    "share": share,
    "cells": _cells,
    "methods": _methods,
    "number": _number,
    "gain": _gain,
}


# ---- pictures

X, Y = "rejection_rate", "accuracy"
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 900, 520, 60, 710, 60, 450
_COLOURS = ("#14161b", "#a08a00", "#6a46b8", "#8d1f8e")
_INK, _MUTED, _GRID = "#14161b", "#565b66", "#dddbd2"
_LINE = 20
"""Height of a line of text."""
_PAD = 0.05


def picture(results: Results, temperature: float) -> str:
    """Accuracy against rejection rate at one of `results.temperatures`, as an SVG: the curves of the claim, and both models alone."""
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
    """The heights of labels: the wanted heights, moved down where labels would be less than `_LINE` apart."""
    found, least = list(wanted), -math.inf
    for at in sorted(range(len(wanted)), key=wanted.__getitem__):
        found[at] = least = max(wanted[at], least + _LINE)
    return found


def _text(words: str, x: float, y: float, anchor: str, fill: str = _MUTED, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}"{more}>{escape(words)}</text>'


def _path(d: str, stroke: str, more: str = "") -> str:
    return f'<path d="{d}" fill="none" stroke="{stroke}"{more}/>'
