"""A sweep's report in Markdown. Its sentences follow from the estimates by rule; the text is in `templates/`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from specviz.analysis.sweep.claim import FEWER, KEPT, MODELS, best_settings, claim, share
from specviz.analysis.sweep.estimates import REPLICATES
from specviz.analysis.sweep.gains import Gain, find_gains, findings
from specviz.analysis.sweep.items import kind_words
from specviz.analysis.sweep.results import Point, Results
from specviz.core.method import LOSSLESS
from specviz.core.methods import METHODS
from specviz.tools.templates import NONE, Templates

_BESIDE = {
    "against_speed": "At the same rejection rate as lenient speculative decoding",
    "against_min_p": "Beside the best lossless min-p that rejects no more drafts, or beside all of them where none does",
}


def markdown(results: Results, pictures: Mapping[float, Path], *, command: str, source: str) -> str:
    """The report of a finished sweep.

    Args:
        results: to be reported.
        pictures: the picture of each temperature, by a path relative to the report.
        command: how the sweep was made.
        source: where its questions are from.
    """
    has_kinds = len({item.kind for item in results.items}) > 1
    return _TEMPLATES.render(
        "results.md.j2",
        results=results,
        kinds=kind_words(results.items),
        source=source,
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
    """What the report says of a temperature."""
    baselines = [p for name in (*MODELS, LOSSLESS) if (p := results.point(temperature, name))]
    both = [point for point in results.at(temperature) if point.setting.method not in MODELS]
    saving = [
        point
        for point in best_settings(results, temperature).values()
        if (ratio := point.ratios.get("rejection_rate")) is None or ratio.value <= 1 - FEWER
    ]
    lenient = dict.fromkeys(p.setting.method for p in both if METHODS[p.setting.method].has_lenience)
    shown = {point.setting.method for point in (*baselines, *saving)}
    timed = [point for point in both if "relative_latency" in point.figures]
    return {
        "temperature": temperature,
        "claim": claim(results, temperature),
        "rows": baselines + saving,
        "others": [METHODS[name].title for name in lenient if name not in shown],
        "comparisons": [_comparison(title, side, both) for side, title in _BESIDE.items()],
        "fastest": min(timed, key=lambda point: point.value("relative_latency"), default=None),
    }


def _comparison(title: str, side: str, points: Sequence[Point]) -> dict[str, Any]:
    """Which points surely answer more questions, and which fewer, than another method."""
    compared = [(p, found) for p in points if (found := getattr(p, side).get("accuracy"))]
    return {
        "title": title,
        "compared": len(compared),
        "better": [point for point, found in compared if found.low > 0],
        "worse": [point for point, found in compared if found.high < 0],
    }


# ---- filters of the template


def _cells(point: Point) -> list[str]:
    """A row of a temperature's table."""
    method, calls = METHODS[point.setting.method], point.figures.get("verifier_calls")
    accuracy, rejected, latency = (
        share(found) if (found := point.figures.get(name)) else NONE
        for name in ("accuracy", "rejection_rate", "relative_latency")
    )
    alpha = point.setting.alpha if method.has_lenience else NONE
    return [method.title, alpha, accuracy, rejected, f"{calls.value:.2f}" if calls else NONE, latency]


def _settings(points: Sequence[Point]) -> str:
    """Points by method: "Chow (α = 0.6, 0.8); Diff (α = 0)"."""
    return "; ".join(
        f"{METHODS[name].title} (α = {', '.join(point.setting.alpha for point in own)})"
        for name, own in groupby(points, key=lambda point: point.setting.method)
    )


def _gain(gain: Gain) -> list[str]:
    """A row of the table of gains."""
    cells = [gain.title + (" (α chosen)" if gain.method and gain.lenience is None else "")]
    cells += [share(found) for found in gain.accuracy.values()]
    cells.append(share(gain.above_models) if gain.method not in MODELS else NONE)
    return cells + [NONE if one is None else f"{one:.2f}" for one in (gain.accepted, gain.verifier_calls)]


_TEMPLATES = Templates(
    Path(__file__).parent / "templates",
    {
        "named": lambda point: point.setting.named("{title} (α\u00a0=\u00a0{alpha})"),
        "share": lambda point, name: share(point.figures[name]),
        "cells": _cells,
        "settings": _settings,
        "gain": _gain,
        "findings": findings,
    },
)
