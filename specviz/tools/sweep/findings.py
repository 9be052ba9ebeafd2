"""What the findings of a sweep's report rest on: rules on the figures; their sentences are the template's.

"Surely" means that an interval excludes 0 (or 1, of a ratio). Knows `Results`; measures and estimates nothing.
"""

from __future__ import annotations

from typing import Any

from specviz.analysis.sweep.claim import above_both, claim
from specviz.analysis.sweep.results import COMPARED, Estimate, Point, Results
from specviz.core.methods import METHODS, get_method

BASELINES = ("verifier_only", "drafter_only")


def all_findings(results: Results) -> dict[str, Any]:
    """Every group of findings, for the template `findings.md.j2`."""
    temperatures = results.temperatures
    return {
        "claims": [claim(results, t) for t in temperatures],
        "beating": [found for t in temperatures if (found := _beating(results, t))],
        "beside_speed": [_beside_speed(results, name) for name in COMPARED],
        "helping": [found for t in temperatures if (found := _helping(results, t))],
        "faster": [_faster(results, t) for t in temperatures],
        "lost": [point for point in results.points if _loses_both(point)],
        "several": len(temperatures) > 1,
    }


def _beating(results: Results, temperature: float) -> dict[str, Any] | None:
    """Cascade settings that get more right than both models."""
    judged, surely, chance = above_both(results, temperature)
    if not judged or any(value(results.point(temperature, name), "accuracy") is None for name in BASELINES):
        return None
    ahead = [point for point in judged if point.beats_both != "no"]
    return {
        "temperature": temperature,
        "judged": judged,
        "ahead": ahead,
        "surely": surely,
        "best": max(ahead, key=lambda point: value(point, "accuracy") or 0.0, default=None),
        "chance": chance,
    }


def _beside_speed(results: Results, name: str) -> dict[str, Any]:
    """Cascade settings that are better or worse than lenient speculative decoding that rejects as much."""
    compared = [(point, point.against_speed[name]) for point in results.points if name in point.against_speed]
    return {
        "figure": name,
        "compared": compared,
        "better": [point for point, one in compared if one.low > 0],
        "worse": [point for point, one in compared if one.high < 0],
        "chance": len(compared) / 20,
    }


def _helping(results: Results, temperature: float) -> dict[str, Any] | None:
    """Cascades that are nowhere on their curve surely better than lenient speculative decoding."""
    compared = [point for point in _cascades(results, temperature) if point.against_speed]
    helped = {p.setting.method for p in compared if any(one.low > 0 for one in p.against_speed.values())}
    methods = dict.fromkeys(point.setting.method for point in compared)
    useless = [METHODS[name].title for name in methods if name not in helped]
    return {"temperature": temperature, "useless": useless} if methods else None


def _faster(results: Results, temperature: float) -> dict[str, Any]:
    """Settings with both models that take less time than the verifier alone."""
    timed = [point for point in both_models(results, temperature) if "relative_latency" in point.figures]
    faster = [point for point in timed if point.figures["relative_latency"].high < 1]
    return {
        "temperature": temperature,
        "timed": timed,
        "faster": faster,
        "slower": [point for point in timed if point.figures["relative_latency"].low > 1],
        "best": min(faster or timed, key=lambda p: p.figures["relative_latency"].value, default=None),
        "good": [p for p in faster if (one := p.against_verifier.get("accuracy")) and one.high >= 0],
        "lossless": figure(results.point(temperature, "speed", 0.0), "relative_latency"),
        "drafter": figure(results.point(temperature, "drafter_only"), "relative_latency"),
    }


def _loses_both(point: Point) -> bool:
    """Whether a setting is surely slower and surely less accurate than the verifier alone."""
    time, right = point.figures.get("relative_latency"), point.against_verifier.get("accuracy")
    return time is not None and right is not None and time.low > 1 and right.high < 0


# --- points and their figures


def figure(point: Point | None, name: str, side: str = "figures") -> Estimate | None:
    """A figure of a point, or of one of its comparisons; None if there is none."""
    found: Estimate | None = getattr(point, side).get(name) if point else None
    return found


def value(point: Point | None, name: str) -> float | None:
    """A figure of a point, without its interval."""
    found = figure(point, name)
    return found.value if found else None


def both_models(results: Results, temperature: float) -> list[Point]:
    """Settings in which both models run."""
    return [point for point in results.at(temperature) if point.setting.method not in BASELINES]


def curves(results: Results, temperature: float) -> list[str]:
    """Methods that have a curve, in order."""
    return list(dict.fromkeys(point.setting.method for point in both_models(results, temperature)))


def _cascades(results: Results, temperature: float) -> list[Point]:
    return [point for point in results.at(temperature) if get_method(point.setting.method).has_rule]
