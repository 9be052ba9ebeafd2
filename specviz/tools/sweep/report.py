"""A sweep's report in Markdown. Its sentences follow from the estimates by rule; the text is in `templates/`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from specviz.analysis.sweep.claim import FEWER, KEPT, claim, share
from specviz.analysis.sweep.estimates import REPLICATES, Gain, find_gains
from specviz.analysis.sweep.grid import MODELS
from specviz.analysis.sweep.items import kind_words
from specviz.analysis.sweep.results import Estimate, Point, Results
from specviz.core.method import LOSSLESS
from specviz.core.methods import METHODS
from specviz.tools.templates import NONE, Templates
from specviz.wording import joined

_NAMED = "{title} (α\u00a0=\u00a0{alpha})"
_BESIDE = {
    "against_speed": "Against lenient speculative decoding at the same rejection rate, where it reaches that rate",
    "against_min_p": "Against the most accurate lossless min-p that rejects no more drafts (the most accurate of all, if none does)",
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
    """A figure over that of the verifier or of lossless decoding; 0 if unknown."""
    return point.ratios[name].value if name in point.ratios else 0.0


def _comparison(title: str, side: str, points: Sequence[Point]) -> dict[str, Any]:
    """Which points surely answer more questions than another method, and how many fewer."""
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
    """A share in percent and its interval, without the signs."""
    return share(found).replace("\u00a0%", "") if found else NONE


def _gain(gain: Gain) -> list[str]:
    """A row of the table of gains."""
    shown = (*gain.accuracy.values(), gain.above_models, gain.above_models_chosen)
    return [gain.title, *map(_number, shown)]


_TEMPLATES = Templates(
    Path(__file__).parent / "templates",
    {
        "named": lambda point: point.setting.named(_NAMED),
        "share": share,
        "cells": _cells,
        "methods": _methods,
        "number": _number,
        "gain": _gain,
    },
)
