"""A sweep's report in Markdown: pictures, tables, and findings that follow from the figures by rule.

The prose is in `templates/`; what it is filled with is computed here and in `findings`. Knows how to lay out
`Results`; measures and estimates nothing but the two models' scores by kind of item.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from specviz.analysis.statistics import quartiles
from specviz.analysis.sweep.bootstrap import REPLICATES
from specviz.analysis.sweep.claim import FEWEST_ITEMS, KEPT
from specviz.analysis.sweep.cost_model import CostModel
from specviz.analysis.sweep.estimates import estimate_points
from specviz.analysis.sweep.grid import Setting
from specviz.analysis.sweep.items import Item
from specviz.analysis.sweep.results import FIGURES, Estimate, Point, Results
from specviz.analysis.sweep.sample import Sample
from specviz.core.methods import METHODS, get_method
from specviz.tools.sweep.findings import BASELINES, all_findings, both_models, curves, figure, value
from specviz.tools.templates import NONE, Templates

_SAME, _CLOSE = 1e-4, 1e-3
"""Up to where two figures are called the same; up to where rounding may part them."""


@dataclass(frozen=True)
class Picture:
    """A drawn plot: accuracy at one temperature against one cost, by its name in `specviz.analysis.sweep.results.FIGURES`."""

    temperature: float
    cost: str
    path: Path


def markdown(
    results: Results,
    items: Sequence[Item],
    costs: CostModel | None = None,
    machine: str | None = None,
    *,
    versions: Mapping[str, str],
    command: str,
    date: str,
    pictures: Sequence[Picture] = (),
    settings: Sequence[Setting] = (),
    samples: Sequence[Sample] = (),
) -> str:
    """The report of a sweep.

    Args:
        results: of the sweep; all its points are shown.
        items: that were asked, as the header has them.
        costs: of the pair if latency was measured, and `machine` in words; None if it was not.
        versions: what is installed.
        command, date: how and when the sweep was made.
        pictures: with their paths relative to the report.
        settings, samples: the grid's settings and the texts, for the scores by kind of item; none leaves those out.
    """
    baselines = [one for one in samples if settings[one.setting].method in BASELINES]
    modelled = partial(_modelled, costs)
    temperatures = results.temperatures
    ratios = [(each, _ratios(modelled, both_models(results, each))) for each in temperatures]
    at = defaultdict(set)
    for point in results.points:
        at[point.setting.method].add(point.setting.temperature)
    return _TEMPLATES.render(
        "results.md.j2",
        results=results,
        costs=costs,
        machine=machine,
        versions=versions,
        command=command,
        date=date,
        pictures=pictures,
        kinds=Counter(item.kind for item in items).items(),
        # Of a file, its name only: its folder may name a person.
        source=Path(str(results.plan.get("prompts", NONE))).name,
        methods=[METHODS[name].title for name in METHODS if name in at],
        findings=findings(results),
        alone=_alone(results, items, settings, baselines),
        cut=_cut(settings, baselines),
        modelled=modelled,
        ends=_ends(results),
        at={name: at[name] for name in ("speed", "cascade_tokenV3", "cascade_opt")},
        same=_SAME,
        close=_CLOSE,
        ratios=ratios,
        every_ratio=(every := [ratio for _, found in ratios for ratio in found]),
        near=sum(abs(ratio - 1) <= 0.1 for ratio in every),
        replicates=REPLICATES,
        kept=KEPT,
        fewest_items=FEWEST_ITEMS,
        figures=FIGURES,
        measured=[name for name in FIGURES if any(name in point.figures for point in results.points)],
    )


def findings(results: Results) -> list[str]:
    """The findings, in sentences that follow from the figures."""
    text = _TEMPLATES.render("findings.md.j2", figures=FIGURES, **all_findings(results))
    return [line for line in text.splitlines() if line]


def _modelled(costs: CostModel | None, point: Point) -> float | None:
    """The relative latency of a setting by arithmetic, if its costs and its rejection rate are known."""
    rejected = value(point, "rejection_rate")
    if costs is None or rejected is None:
        return None
    return costs.relative_latency(point.setting.method, 1 - rejected)


def _ratios(modelled: Callable[[Point], float | None], points: Iterable[Point]) -> list[float]:
    """Modelled ÷ measured relative latency of the points that have both."""
    pairs = ((modelled(point), value(point, "relative_latency")) for point in points)
    return [model / measured for model, measured in pairs if model and measured]


def _alone(
    results: Results, items: Sequence[Item], settings: Sequence[Setting], samples: Sequence[Sample]
) -> list[dict[str, Any]]:
    """Both models' scores at each temperature, over all items and by kind."""
    groups = [("all", results.items, results)]
    for kind, count in Counter(item.kind for item in items if samples).items():
        chosen = [one for one in samples if items[one.item].kind == kind]
        points = estimate_points(settings, len(items), chosen)
        groups.append((kind, count, replace(results, points=points)))
    rows = []
    for temperature in results.temperatures:
        for kind, count, found in groups:
            verifier, drafter = (found.point(temperature, name) for name in BASELINES)
            scores = {"verifier": figure(verifier, "accuracy"), "drafter": figure(drafter, "accuracy")}
            apart = figure(drafter, "accuracy", "against_verifier")
            rows.append({"temperature": temperature, "kind": kind, "count": count, "apart": apart} | scores)
    return rows


def _cut(settings: Sequence[Setting], samples: Sequence[Sample]) -> list[tuple[str, float]]:
    """Share of each model's texts that ended at the most tokens allowed."""
    found = []
    for name, model in zip(BASELINES, ("verifier", "drafter"), strict=True):
        if own := [one for one in samples if settings[one.setting].method == name]:
            found.append((model, sum(one.stop_reason == "length" for one in own) / len(own)))
    return found


def _ends(results: Results) -> list[dict[str, Any]]:
    """Whether each curve begins at the verifier and ends at the drafter."""
    rows = []
    for temperature in results.temperatures:
        for method in curves(results, temperature):
            ends = [
                {"lenience": lenience}
                | _landing(results.point(temperature, method, lenience), results.point(temperature, model))
                for lenience, model in zip(METHODS[method].offered_range, BASELINES, strict=True)
            ]
            rows.append({"temperature": temperature, "method": method, "ends": ends})
    return rows


def _landing(point: Point | None, model: Point | None) -> dict[str, Any]:
    """How a curve's end compares with the model it should end at; figures that differ are in "apart"."""
    if point is None or model is None:
        return {"landing": None}
    pairs = {
        name: (point.figures[name], model.figures[name])
        for name, one in FIGURES.items()
        if one.is_quality and name in point.figures and name in model.figures
    }
    if not pairs:
        return {"landing": None}
    if all(abs(own.value - other.value) <= _SAME for own, other in pairs.values()):
        return {"landing": "the same"}
    paired = point.against_verifier if model.setting.method == "verifier_only" else {}
    apart = []
    for name, (own, other) in pairs.items():
        if difference := paired.get(name):
            gap = max(difference.low, -difference.high)
        else:
            gap = max(own.low - other.high, other.low - own.high)
        if gap > _CLOSE:
            apart.append((name, own.value, other.value))
    return {"landing": "apart" if apart else "yes", "apart": apart}


# --- filters of the templates


def _number(number: float | None, form: str = ".3f") -> str:
    return NONE if number is None else f"{number:{form}}".replace("-", "−")


def _interval(found: Estimate | None, form: str = ".3f") -> str:
    if found is None:
        return NONE
    return f"{_number(found.value, form)} ({_number(found.low, form)}–{_number(found.high, form)})"


def _signed(found: Estimate | None) -> str:
    if found is None:
        return NONE
    number, low, high = (_number(each, "+.3f") for each in (found.value, found.low, found.high))
    return f"{number} ({low} to {high})"


def _quartiles(values: Sequence[float]) -> str:
    found = quartiles(values)
    return f"{found.median:.2f} ({found.low:.2f}–{found.high:.2f})" if found else NONE


def _lenience(setting: Setting) -> str:
    return _number(setting.lenience, "g") if get_method(setting.method).has_lenience else NONE


def _names(points: Sequence[Point], with_temperature: bool = False) -> str:
    leniences: dict[tuple[float, str], list[str]] = defaultdict(list)
    for point in points:
        key = point.setting.temperature, get_method(point.setting.method).title
        leniences[key].append(_number(point.setting.lenience, "g"))
    return "; ".join(
        f"{title} at {f'T = {temperature:g}, ' if with_temperature else ''}α = {', '.join(found)}"
        for (temperature, title), found in leniences.items()
    )


def _listed(points: Sequence[Point], with_temperature: bool = False) -> str:
    return f"{len(points)} ({_names(points, with_temperature)})" if points else "none"


_TEMPLATES = Templates(
    Path(__file__).parent / "templates",
    {
        "number": _number,
        "interval": _interval,
        "signed": _signed,
        "quartiles": _quartiles,
        "figure": figure,
        "value": value,
        "figure_title": lambda name: FIGURES[name].title,
        "method_title": lambda name: get_method(name).title,
        "lenience": _lenience,
        "name": lambda point: point.setting.title,
        "names": _names,
        "listed": _listed,
    },
)
