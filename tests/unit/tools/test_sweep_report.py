"""The report of a sweep: its sentences and tables follow from the numbers, and it shows what there is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from specviz.analysis.sweep.claim import claim
from specviz.analysis.sweep.grid import Setting, SweepGrid
from specviz.analysis.sweep.items import Item
from specviz.analysis.sweep.results import Estimate, Point, Results
from specviz.cli.sweep_job import report
from specviz.tools.sweep.picture import picture


def _near(value: float, half: float = 0.05) -> Estimate:
    return Estimate(value, value - half, value + half)


def _point(
    method: str,
    lenience: float,
    accuracy: float,
    rejected: float,
    *,
    verifier: float = 0.0,
    speed: float | None = None,
    **more: Any,
) -> Point:
    """A point at temperature 1; `verifier` and `speed` are its accuracy's differences to those."""
    figures = {"accuracy": _near(accuracy), "rejection_rate": _near(rejected, 0.02)}
    if latency := more.get("latency"):
        figures |= {"relative_latency": _near(latency), "verifier_calls": _near(rejected)}
    return Point(
        Setting(1.0, method, lenience),
        10,
        100,
        figures,
        against_verifier={"accuracy": _near(verifier)},
        against_speed={} if speed is None else {"accuracy": _near(speed)},
        ratios={"accuracy": _near(accuracy / 0.6), "rejection_rate": _near(rejected / 0.7)},
    )


BOTH = (
    _point("drafter_only", 0.0, 0.2, 0.0, verifier=-0.4, latency=0.2),
    _point("verifier_only", 0.0, 0.6, 1.0, latency=1.0),
)
LOSSLESS = _point("speed", 0.0, 0.6, 0.7, latency=0.8)
GOOD = _point("cascade_opt", 0.2, 0.57, 0.3, speed=0.1, latency=0.7)
DEARER = _point("cascade_opt", 0.0, 0.6, 0.5, speed=0.01)
BAD = _point("cascade_chow", 0.4, 0.5, 0.1, speed=-0.1, latency=0.6)


def _results(*points: Point, **more: Any) -> Results:
    kinds = ("facts", "sums", "facts") * 20
    items = tuple(Item(str(number), kind, "?") for number, kind in enumerate(kinds))
    names = "Small", "Large", "float32"
    return Results(SweepGrid(trials=2, seed=5), *names, items, points, machine=MACHINE, **more)


MACHINE = {"machine": "2 cores", "versions": {"torch": "2"}, "date": "today"}


def _markdown(results: Results) -> str:
    pictures = {temperature: Path(f"../{temperature:g}.svg") for temperature in results.temperatures}
    text = report(results, pictures)
    return text.replace("\u00a0", " ").replace("\u2060", "")


def test_each_method_stands_at_the_setting_that_rejects_least_and_answers_enough() -> None:
    """The claim leads; a method that saves only with fewer answers is named below the table."""
    results = _results(*BOTH, LOSSLESS, BAD, DEARER, GOOD)
    text = _markdown(results)
    assert f"- Temperature 1: **{claim(results, 1.0).headline}**".replace("\u00a0", " ") in text
    rows = [line for line in text.splitlines() if line.startswith("| ")][2:]
    assert rows == [
        "| Verifier only | – | 60 % (55–65 %) | 100 % (98–102 %) | 1.00 | 100 % (95–105 %) |",
        "| Drafter only | – | 20 % (15–25 %) | 0 % (−2 to 2 %) | 0.00 | 20 % (15–25 %) |",
        "| Speculative decoding | 0 | 60 % (55–65 %) | 70 % (68–72 %) | 0.70 | 80 % (75–85 %) |",
        "| OPT | 0.2 | 57 % (52–62 %) | 30 % (28–32 %) | 0.30 | 70 % (65–75 %) |",
    ]
    assert "only where they answer fewer questions: Chow." in text
    assert "The fastest setting with both models is Chow (α = 0.4): 60 % (55–65 %)" in text


def test_comparison_at_equal_rejection() -> None:
    """Better and worse are counted and named, with what chance would give."""
    text = _markdown(_results(*BOTH, LOSSLESS, BAD, DEARER, GOOD))
    assert "1 of 3 cascade settings surely answer more questions: OPT (α = 0.2), and 1 fewer: Chow" in text
    assert "Chow (α = 0.4). Chance would give 0.1 in all." in text
    assert "none of 1 cascade settings surely answer more questions, and none fewer." in _markdown(
        _results(*BOTH, LOSSLESS, DEARER)
    )
    assert "same rejection rate" not in _markdown(_results(*BOTH, LOSSLESS))


def test_what_was_measured_is_said_without_a_folder_of_anybodys_machine() -> None:
    """What was not timed is a dash, each temperature has its picture, and of a file of questions it has the name."""
    cold = [replace(p, setting=replace(p.setting, temperature=0.0)) for p in (*BOTH, DEARER)]
    results = _results(*cold, *BOTH)
    own = replace(results, plan=replace(results.plan, prompts="/home/somebody/questions.jsonl"))
    text = _markdown(own)
    assert "| OPT | 0 | 60 % (55–65 %) | 50 % (48–52 %) | – | – |" in text
    assert "Small → Large, float32" in text
    assert "40 facts and 20 sums" in text
    assert "served one at a time on 2 cores" in text
    assert "--prompts questions.jsonl --trials 2 --seed 5`, today; torch 2." in text
    assert text.index("## Temperature 0") < text.index("(../0.svg)") < text.index("## Temperature 1")
    assert "somebody" not in text


def test_a_picture_has_the_claims_curves_their_points_and_both_models() -> None:
    """It is an XML file, in which names are text."""
    results = _results(*BOTH, LOSSLESS, BAD, DEARER, replace(GOOD, setting=Setting(1.0, "cascade_opt", 0.4)))
    drawn = ElementTree.fromstring(picture(results, 1.0))
    found = [each.tag.rpartition("}")[2] for each in drawn.iter()]
    assert found.count("circle") == 4
    words = [each.text or "" for each in drawn.iter()]
    for title in ("Speculative decoding", "OPT", "Chow"):
        assert title in words
    assert any(each.startswith("Verifier only 60") for each in words)
