"""The report of a sweep: its sentences follow from the numbers, in both directions, and it shows what there is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specviz.analysis.sweep.claim import claim
from specviz.analysis.sweep.cost_model import CostModel
from specviz.analysis.sweep.estimates import estimate_points
from specviz.analysis.sweep.grid import Setting
from specviz.analysis.sweep.items import Item
from specviz.analysis.sweep.results import Estimate, Point, Results
from specviz.analysis.sweep.sample import Sample
from specviz.core.methods import METHODS, PAPER
from specviz.tools.sweep.report import Picture, findings, markdown

COSTS = CostModel(drafter=0.2, per_token=0.1, draft_length=3)


def _near(value: float, half: float = 0.05) -> Estimate:
    return Estimate(value, value - half, value + half)


def _point(
    method: str, lenience: float = 0.0, temperature: float = 1.0, /, beats_both: str = "no", **values: Any
) -> Point:
    """A point with `accuracy=0.5` and the like; `verifier=` and `speed=` are differences of accuracy to those, `kept=` and
    `rejects=` ratios to the verifier's accuracy and to lossless decoding's rejections."""
    named = {"accuracy": "kept", "rejection_rate": "rejects"}
    ratios = {
        name: _near(values.pop(key)) if isinstance(values[key], float) else values.pop(key)
        for name, key in named.items()
        if key in values
    }
    sides = {
        side: {"accuracy": values.pop(name)} if name in values else {}
        for side, name in (("against_verifier", "verifier"), ("against_speed", "speed"))
    }
    figures = {name: one if isinstance(one, Estimate) else _near(one) for name, one in values.items()}
    return Point(
        Setting(temperature, method, lenience),
        10,
        100,
        figures,
        **sides,
        ratios=ratios,
        beats_both=beats_both,
    )


BASELINES = (
    _point("drafter_only", accuracy=0.2, rejection_rate=0.0, verifier=_near(-0.4)),
    _point("verifier_only", accuracy=0.6, rejection_rate=1.0),
)
LOSSLESS = _point(
    "speed", accuracy=0.6, rejection_rate=0.7, verifier=_near(0.0), kept=1.0, rejects=_near(1.0, 0.0)
)


def _results(*points: Point, **more: Any) -> Results:
    plan = {
        "prompts": "built-in",
        "trials": 2,
        "draft_length": 3,
        "max_new_tokens": 24,
        "seed": 5,
        "timed": 8,
    }
    return Results(plan, "Small", "Large", "float32", 200, points, **more)


def _findings(*points: Point) -> str:
    return " ".join(findings(_results(*BASELINES, *points))).replace("\u00a0", " ")


def _markdown(results: Results, **more: Any) -> str:
    usual: dict[str, Any] = {"items": [], "versions": {"torch": "2"}, "command": "do it", "date": "today"}
    return markdown(results, **usual | more).replace("\u00a0", " ")


def test_who_keeps_the_accuracy_with_fewest_rejections() -> None:
    """The claim leads, and every method has its place: below lossless decoding's rejections, at them, or nowhere."""
    good = _point("cascade_opt", 0.2, accuracy=0.57, rejection_rate=0.3, kept=0.95, rejects=_near(0.43))
    dearer = _point("cascade_opt", 0.0, accuracy=0.6, rejection_rate=0.5, kept=1.0, rejects=_near(0.71))
    bad = _point("cascade_chow", 0.4, accuracy=0.5, rejection_rate=0.1, kept=0.83, rejects=_near(0.14))
    no_gain = _point("cascade_diff", -1.0, accuracy=0.6, rejection_rate=0.7, kept=1.0, rejects=_near(1.0))
    found = _findings(LOSSLESS, bad, no_gain, dearer, good)
    assert (
        claim(_results(*BASELINES, LOSSLESS, bad, no_gain, dearer, good), 1.0).headline.replace("\u00a0", " ")
        in found
    )
    assert "Kept with fewer rejections by OPT, α = 0.2 (rejects 0.300), each at the lowest" in found
    assert "With no fewer: Speculative decoding and Diff." in found
    assert "Nowhere on its curve: Chow." in found
    worse = replace(good, ratios=good.ratios | {"accuracy": _near(0.94)})
    assert "by OPT, α = 0 (rejects 0.500)" in _findings(LOSSLESS, dearer, worse)
    assert "no method keeps 95 % of the verifier’s accuracy with fewer rejections" in _findings(
        LOSSLESS, worse
    )


def test_items_that_do_not_separate_the_models() -> None:
    """Where the drafter is not surely worse, nothing is concluded from accuracy in between."""
    level = replace(BASELINES[0], against_verifier={"accuracy": Estimate(-0.1, -0.25, 0.05)})
    found = " ".join(findings(_results(level, BASELINES[1], LOSSLESS)))
    assert "do not tell the two models apart" in found
    assert "keeps" not in found


@pytest.mark.parametrize(
    ("marks", "said", "unsaid"),
    [
        (("no", "no"), "none of the 2 cascade settings gets more", "lie above 0"),
        (("yes", "no"), "1 of the 2 cascade settings gets more", "lies above 0 for"),
        (("yes", "yes"), "does not show that a cascade is better than both", "lies above 0 for"),
        (("surely", "yes"), "lies above 0 for Chow at α = 0.2; were none better", "does not show"),
    ],
)
def test_better_than_both(marks: tuple[str, str], said: str, unsaid: str) -> None:
    """A cascade that beats both models is named, with how sure that is; where none does, that is said."""
    points = [
        _point("cascade_chow", lenience, accuracy=0.65 + lenience / 10, beats_both=mark)
        for lenience, mark in zip((0.2, 0.4), marks, strict=True)
    ]
    found = _findings(*points)
    assert said in found
    assert unsaid not in found


def test_beating_both_no_more_often_than_chance() -> None:
    """One of forty settings that surely beats both is what chance alone gives, and the report says so."""
    leniences = [number / 50 for number in range(41)]
    points = [
        _point("cascade_chow", a, accuracy=0.6, beats_both="surely" if a == 0.2 else "no") for a in leniences
    ]
    assert "1.0 of 41 would do so by chance, and there are no more than that." in _findings(*points)
    assert "0.1 of 4 would do so by chance." in _findings(*points[8:12])


def test_beside_speed_at_equal_rejection() -> None:
    """Better and worse are counted and named; how many chance alone would give stands beside."""
    better = _point("cascade_opt", 0.2, accuracy=0.5, speed=_near(0.1))
    worse = _point("cascade_chow", 0.4, accuracy=0.5, speed=_near(-0.1))
    even = _point("cascade_diff", 0.0, accuracy=0.5, speed=_near(0.01))
    found = _findings(better, worse, even)
    assert "rejects as much: 3 comparisons. Surely better: 1 (OPT at α = 0.2)" in found
    assert "Surely worse: 1 (Chow at α = 0.4)" in found
    assert "here 0.1, would exclude 0 by chance alone." in found
    assert "Verifier log-likelihood: no cascade could be held against" in found
    assert "No help at temperature 1: at equal rejection rate, Chow and Diff are at no lenience" in found
    assert "1 comparison. Surely better: none. Surely worse: none." in _findings(even)
    assert "by chance alone; there are no more than that." in _findings(even)
    assert "every cascade is somewhere on its curve surely better" in _findings(better)


def test_faster_than_the_verifier_or_not() -> None:
    """Only an interval below 1 counts as faster; what is faster and no less accurate is named."""
    slow = _point("cascade_chow", 0.2, relative_latency=_near(1.2), verifier=_near(-0.2))
    unsure = _point("cascade_chow", 0.4, relative_latency=_near(0.97))
    assert "None is surely faster than the verifier alone; the least is 0.970 (0.920–1.020)" in _findings(
        slow, unsure
    )
    assert (
        "Surely slower than the verifier alone and surely less accurate: 1 (Chow at α = 0.2)."
        in _findings(slow)
    )
    good = _point("cascade_opt", 0.2, relative_latency=_near(0.9), verifier=_near(-0.02))
    bad = _point("cascade_opt", 0.7, relative_latency=_near(0.8), verifier=_near(-0.3))
    found = _findings(slow, unsure, good, bad)
    assert "Surely faster than the verifier alone: 2; the fastest is OPT, α = 0.7, which takes 0.800" in found
    assert "not surely less accurate than the verifier: 1 (OPT at α = 0.2). Surely slower: 1." in found
    assert "Surely slower than the verifier alone and" not in _findings(good, bad)
    assert "latency was not measured" in _findings(LOSSLESS)


def test_sentences_name_the_temperature_where_there_are_several() -> None:
    """Settings of different temperatures are told apart in one list."""
    points = [_point("cascade_opt", 0.2, t, accuracy=0.5, speed=_near(0.1)) for t in (0.5, 1.0)]
    assert "Surely better: 2 (OPT at T = 0.5, α = 0.2; OPT at T = 1, α = 0.2)" in _findings(*points)


def test_nothing_measured_nothing_claimed() -> None:
    """Empty and partial results make a report, too, that says it is not whole."""
    text = _markdown(_results(complete=False))
    assert "**Incomplete" in text
    assert "Surely" not in text.split("## How to read")[0]
    assert "Incomplete" not in _markdown(_results(*BASELINES))


def test_ends_of_the_curves() -> None:
    """An end lands where all quality figures agree within their intervals; which do not is told, with numbers."""
    strict = _point(
        "cascade_chow", 0.0, accuracy=0.55, distance=Estimate(1e-7, 0, 2e-7), verifier=_near(-0.02)
    )
    lax = _point("cascade_chow", 1.0, accuracy=_near(0.2), distance=_near(0.4))
    models = (
        replace(BASELINES[0], figures={"accuracy": _near(0.2), "distance": _near(0.4)}),
        replace(BASELINES[1], figures={"accuracy": _near(0.6), "distance": Estimate(0, 0, 0)}),
    )
    assert "| 1 | Chow | α = 0 | yes | α = 1 | the same |" in _markdown(_results(*models, strict, lax))
    off = replace(
        strict, figures=dict(strict.figures, distance=_near(0.2)), against_verifier={"accuracy": _near(-0.1)}
    )
    far = replace(lax, figures=dict(lax.figures, accuracy=_near(0.35)))
    text = _markdown(_results(*models, off, far))
    assert (
        "| α = 0 | no: Task accuracy 0.550 beside 0.600; TV(π, p) 0.200 beside 0.000 "
        "| α = 1 | no: Task accuracy 0.350 beside 0.200 |"
    ) in text
    assert "| Chow | α = 0 | yes | α = 1 | – |" in _markdown(_results(*models, strict))


def test_ends_that_differ_by_definition() -> None:
    """What speed at temperature 0 and Token V3 above it cannot reach is explained, where they took part there."""
    cold, warm = _point("speed", 0.0, 0.0, accuracy=0.5), _point("cascade_tokenV3", 0.0, 1.0, accuracy=0.5)
    text = _markdown(_results(*BASELINES, cold, warm))
    assert "At temperature 0 speculative decoding ignores α" in text
    assert "TV(π, p) = q(a)·(1 − p(a))" in text
    other = _markdown(
        _results(_point("speed", 0.0, 1.0, accuracy=0.5), _point("cascade_tokenV3", 0.0, 0.0, accuracy=0.5))
    )
    assert "ignores α" not in other
    assert "q(a)" not in other


def test_table_of_points_and_cost_model() -> None:
    """Every point has its row: differences, marks, and latency as measured and as modelled, side by side."""
    point = _point(
        "cascade_opt",
        -0.3,
        beats_both="surely",
        accuracy=0.7,
        verifier=_near(0.1),
        speed=_near(-0.2, 0.1),
        rejection_rate=0.5,
        relative_latency=1.2,
        block_efficiency=1.75,
    )
    text = _markdown(_results(*BASELINES, point), costs=COSTS, machine="2 cores")
    modelled = (2.25 * 0.2 + 1.2) / 1.75
    assert (
        "| OPT | −0.3 | 0.700 (0.650–0.750) ★ | +0.100 (+0.050 to +0.150) | −0.200 (−0.300 to −0.100) | – | – | – | 0.500 "
        f"| 1.75 | 1.20 (1.15–1.25) | {modelled:.2f} |"
    ) in text
    assert f"| 1 | 1 | {modelled / 1.2:.2f} ({modelled / 1.2:.2f}–{modelled / 1.2:.2f}) |" in text
    assert "for 0 of 1 settings; for 0 it says too much, for 1 too little." in text
    assert "measured on 2 cores: a drafter pass takes c = 0.200" in text
    exact = replace(point, figures=dict(point.figures, relative_latency=_near(modelled)))
    assert "for 1 of 1 settings" in _markdown(_results(exact), costs=COSTS)
    bare = _markdown(_results(*BASELINES, point))
    assert "Too little was timed" in bare
    assert "| 1.75 | 1.20 (1.15–1.25) | – |" in bare


def test_scores_of_both_models_by_kind() -> None:
    """How well the items separate the models, over all and by kind, and how many texts were cut."""
    settings = [Setting(1.0, name, 0.0) for name in ("drafter_only", "verifier_only")]
    items = [Item(f"key-{i}", ("facts", "sums")[i % 2], "?") for i in range(20)]
    right = {0: {1, 3}, 1: set(range(0, 20, 2))}
    samples = [
        Sample(
            s,
            i,
            0,
            0,
            "",
            5,
            0,
            0,
            5,
            0,
            float(i in right[s]),
            0.0,
            -5.0,
            2,
            "length" if i < 5 and s else "eos",
        )
        for s in (0, 1)
        for i in range(20)
    ]
    found = replace(_results(), items=20, points=estimate_points(settings, 20, samples))
    text = _markdown(found, items=items, settings=settings, samples=samples)
    rows = {
        line.split(" | ")[1]: line for line in text.splitlines() if line.startswith("| 1 |") and "to" in line
    }
    assert (
        "| facts | 10 | 1.000 (1.000–1.000) | 0.000 (0.000–0.000) | −1.000 (−1.000 to −1.000) |"
        in rows["facts"]
    )
    assert "| sums | 10 | 0.000 (0.000–0.000) | 0.200 (" in rows["sums"]
    assert "| all | 20 | 0.500 (" in rows["all"]
    assert "10 facts and 10 sums" in text
    assert "25 % of the verifier’s and 0 % of the drafter’s texts" in text


def test_what_was_swept_and_pictures() -> None:
    """The plan in words, a picture for each temperature, no folder of anybody's machine."""
    results = _results(
        *BASELINES, *(replace(p, setting=replace(p.setting, temperature=0.0)) for p in BASELINES)
    )
    own = replace(results, plan=dict(results.plan, prompts="/home/somebody/questions.jsonl"))
    text = _markdown(
        own,
        pictures=[
            Picture(1.0, "rejection_rate", Path("../warm.svg")),
            Picture(0.0, "rejection_rate", Path("../cold.svg")),
            Picture(0.0, "relative_latency", Path("../cold-latency.svg")),
        ],
    )
    assert "Pair: Small → Large, float32." in text
    assert "Texts: 2 of an item at a setting (one at temperature 0), 40 in all" in text
    assert "K = 3; seeds from 5 on" in text
    assert text.index("## Temperature 0") < text.index("(../cold.svg)") < text.index("## Temperature 1")
    assert text.index("## Temperature 1") < text.index("(../warm.svg)")
    assert "![Task accuracy against relative latency at temperature 0" in text
    assert (
        text.index("## Temperature 0") < text.index("(../cold-latency.svg)") < text.index("## Temperature 1")
    )
    assert "somebody" not in text
    assert "Versions: torch 2." in text
    bare = _markdown(results, versions={}, date="")
    assert "\n- Pair: Small" in bare
    assert "![" not in bare
    assert "Versions" not in bare


def test_tables_are_whole() -> None:
    """Every row of a table has as many cells as its head, for all methods."""
    points = [
        _point(name, a, accuracy=0.5, rejection_rate=0.5)
        for name in PAPER
        for a in METHODS[name].offered_range
    ]
    blocks = _markdown(_results(*points), costs=COSTS).split("\n\n")
    tables = [block.splitlines() for block in blocks if block.startswith("|")]
    assert len(tables) >= 3
    for table in tables:
        assert len({line.count(" | ") for line in table}) == 1, table[0]
