"""A sweep's report in Markdown. Its sentences follow from the estimates by rule; the text is in `templates/`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from specviz.analysis.sweep.claim import FEWER, KEPT, MODELS, best_settings, claim, named, share
from specviz.analysis.sweep.estimates import REPLICATES
from specviz.analysis.sweep.folder import Recorded
from specviz.analysis.sweep.gains import Gain, described, find_gains, findings
from specviz.analysis.sweep.grid import SweepGrid
from specviz.analysis.sweep.items import kind_words
from specviz.analysis.sweep.results import Point, Results
from specviz.core.methods import METHODS
from specviz.tools.templates import NONE, Templates


def markdown(
    sweep: Recorded,
    *,
    command: str,
    versions: Mapping[str, str] = MappingProxyType({}),
    date: str = "",
    pictures: Mapping[float, Path] = MappingProxyType({}),
) -> str:
    """The report of a sweep.

    Args:
        sweep: to be reported.
        command, versions, date: how the sweep was made, with which packages, and when.
        pictures: the picture of each temperature, by a path relative to the report.
    """
    results = sweep.results
    settings = results.plan.settings
    samples = [one for index in range(len(settings)) for one in sweep.samples(index)]
    gains = {t: find_gains(settings, sweep.items, samples, t) for t in results.temperatures}
    return _TEMPLATES.render(
        "results.md.j2",
        results=results,
        kinds=kind_words(sweep.items),
        source=source_of(results.plan),
        temperatures=[
            _temperature(results, t)
            | {
                "picture": pictures.get(t),
                "gains": gains[t] if len({item.kind for item in sweep.items}) > 1 else None,
            }
            for t in results.temperatures
        ],
        machine=sweep.machine,
        command=command,
        versions=versions,
        date=date,
        kept=KEPT,
        replicates=REPLICATES,
    )


def source_of(plan: SweepGrid) -> str:
    """The source of the plan's questions. Of a file, only its name, since the folder may contain a person's name."""
    return Path(plan.prompts).name


def _temperature(results: Results, temperature: float) -> dict[str, Any]:
    """What the report says of a temperature."""
    points = results.at(temperature)
    lossless = results.point(temperature, "speed")
    alone = [results.point(temperature, name) for name in MODELS]
    both = [point for point in points if point.setting.method not in MODELS]
    saving = [
        point
        for point in best_settings(results, temperature).values()
        if (ratio := point.ratios.get("rejection_rate")) is None or ratio.value <= 1 - FEWER
    ]
    beside = (
        ("At the same rejection rate as lenient speculative decoding", "against_speed"),
        (
            "Beside the best lossless min-p that rejects no more drafts, or beside all of them where none does",
            "against_min_p",
        ),
    )
    timed = [point for point in both if "relative_latency" in point.figures]
    named_so_far = {point.setting.method for point in (lossless, *saving) if point}
    return {
        "temperature": temperature,
        "claim": claim(results, temperature),
        "baselines": [point for point in (*alone, lossless) if point],
        "saving": saving,
        "others": list(
            dict.fromkeys(
                name
                for p in both
                if METHODS[name := p.setting.method].has_lenience and name not in named_so_far
            )
        ),
        "comparisons": [_comparison(title, side, both) for title, side in beside],
        "fastest": min(timed, key=lambda point: point.figures["relative_latency"].value, default=None),
    }


def _comparison(title: str, side: str, points: Sequence[Point]) -> dict[str, Any]:
    """Which points surely answer more questions, and which fewer, than another method."""
    found = {point.setting: getattr(point, side).get("accuracy") for point in points}
    compared = [point for point in points if found[point.setting]]
    return {
        "title": title,
        "compared": compared,
        "better": [point for point in compared if found[point.setting].low > 0],
        "worse": [point for point in compared if found[point.setting].high < 0],
    }


# ---- filters of the template


def _share(point: Point, name: str) -> str:
    found = point.figures.get(name)
    return share(found) if found else NONE


def _number(point: Point, name: str) -> str:
    found = point.figures.get(name)
    return f"{found.value:.2f}" if found else NONE


def _lenience(point: Point) -> str:
    has = METHODS[point.setting.method].has_lenience
    return f"{point.setting.lenience:g}".replace("-", "−") if has else NONE


def _settings(points: Sequence[Point]) -> str:
    """Points by method: "Chow (α = 0.6, 0.8) and Diff (α = 0)"."""
    leniences: dict[str, list[str]] = defaultdict(list)
    for point in points:
        leniences[METHODS[point.setting.method].title].append(_lenience(point))
    words = [f"{title} (α = {', '.join(found)})" for title, found in leniences.items()]
    return "; ".join(words)


def _gain(gain: Gain) -> list[str]:
    """A row of the table of gains."""
    cells = [
        described(gain) if gain.lenience is not None or not gain.method else f"{described(gain)} (α chosen)"
    ]
    cells += [share(found) for found in gain.accuracy.values()]
    cells.append(share(gain.above_models) if gain.method not in MODELS else NONE)
    return cells + [NONE if one is None else f"{one:.2f}" for one in (gain.accepted, gain.verifier_calls)]


_TEMPLATES = Templates(
    Path(__file__).parent / "templates",
    {
        "title": lambda name: METHODS[name].title,
        "named": named,
        "share": _share,
        "number": _number,
        "lenience": _lenience,
        "settings": _settings,
        "gain": _gain,
        "findings": findings,
    },
)
