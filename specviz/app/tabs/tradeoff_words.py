"""What the tab Speed or quality says in words: the finding, what was asked, and the card of a chosen point.

Knows sweeps and their figures; what it returns is plain text for the components, and part of it a model's. Draws nothing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from specviz.analysis.sweep.bootstrap import REPLICATES
from specviz.analysis.sweep.claim import claim
from specviz.analysis.sweep.cost_model import CostModel
from specviz.analysis.sweep.folder import Recorded
from specviz.analysis.sweep.grid import SweepGrid
from specviz.analysis.sweep.items import ARITHMETIC, Item
from specviz.analysis.sweep.results import FIGURES, Estimate, Point, Results
from specviz.analysis.sweep.sample import Sample
from specviz.app.figures.tradeoff import COSTS, MODELLED, cost, differences, number
from specviz.app.link import Pane
from specviz.core.methods import METHODS

MAX_TEXTS = 50
"""Texts of a point that its card goes through."""
MAX_CHARACTERS = 400
"""Of a text on the card."""


@dataclass(frozen=True)
class Text:
    """A text of the chosen point beside the verifier's own of the same item, and how to write it again."""

    pane: Pane
    item: Item
    seed: int
    own: Sample
    verifier: Sample | None


def finding(results: Results, temperature: float) -> list[str]:
    """The sweep's claim at this temperature: the headline, then the sentences that qualify it."""
    found = claim(results, temperature)
    return [found.headline, *found.details]


def source(results: Results, temperature: float) -> str:
    """Where a figure comes from, for a picture of it."""
    return (
        f"{results.drafter} → {results.verifier}, {results.items:,} items, temperature {temperature:g}, "
        "bars are 95\u00a0% intervals. SpecViz, after Narasimhan et al. (ICLR 2025)"
    )


def asked(sweep: Recorded) -> list[list[str]]:
    """Task, items and intervals, each as a word and what it is, with an example."""
    plan = sweep.results.plan
    kinds = Counter(item.kind for item in sweep.items)
    items = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    said = [
        [
            "Task",
            f"{len(sweep.items)} questions ({items}), each put to every method at every lenience and temperature with the "
            f"same coins; answers of at most {plan['max_new_tokens']} tokens, draft length {plan['draft_length']}.",
        ]
    ]
    if example := next((item for item in sweep.items if item.answers), None):
        how = (
            "The last number counts"
            if example.kind == ARITHMETIC
            else "It counts where it stands in the answer as whole words"
        )
        said.append(["For example", f"{_cut(example.prompt)} Right: {' or '.join(example.answers)}. {how}."])
    said += [
        [
            "Accuracy",
            "The share of the questions that were answered right. What else an answer says does not matter.",
        ],
        [
            "Rejection rate",
            "Rejected ÷ examined draft tokens: the paper’s cost. Each rejection ends a block and costs a pass of the verifier.",
        ],
        [
            "Intervals",
            f"The middle 95\u00a0% of {REPLICATES:,} resamples of the questions. They say how much hangs on which questions were "
            "asked. Two methods answered the same ones, so that their difference is often surer than their bars suggest.",
        ],
    ]
    return said


def texts_of(sweep: Recorded, point: Point) -> list[Text]:
    """The texts of a point, `MAX_TEXTS` at most, each beside the verifier's own of the same item and trial."""
    settings = SweepGrid.from_record(sweep.results.plan).settings
    verifier = sweep.results.point(point.setting.temperature, "verifier_only")
    others = sweep.samples(settings.index(verifier.setting)) if verifier else []
    beside = {(sample.item, sample.trial): sample for sample in others}
    pane = Pane(point.setting.method, point.setting.lenience, sweep.results.plan["draft_length"])
    return [
        Text(pane, sweep.items[own.item], own.seed, own, beside.get((own.item, own.trial)))
        for own in sweep.samples(settings.index(point.setting))[:MAX_TEXTS]
    ]


def card(results: Results, point: Point, texts: list[Text], costs: CostModel) -> dict[str, Any]:
    """A point's card: four figures, each beside the verifier's own, and its texts.

    Begins with the first text that is not the verifier's, since that shows what the method changes.
    """
    verifier = results.point(point.setting.temperature, "verifier_only")
    quality = next((name for name in FIGURES if FIGURES[name].is_quality and name in point.figures), None)
    latency = "relative_latency" if "relative_latency" in point.figures else MODELLED
    figures = []
    for name in filter(None, (quality, "rejection_rate", "verifier_calls", latency)):
        own, other = _value(point, name, costs), _value(verifier, name, costs)
        if own:
            figures.append(
                {
                    "title": COSTS.get(name) or FIGURES[name].title,
                    "value": number(name, own.value),
                    "interval": ""
                    if own.low == own.high
                    else f"{number(name, own.low)} to {number(name, own.high)}",
                    "beside": f"verifier {number(name, other.value)}" if other else "",
                }
            )
    changed = (at for at, text in enumerate(texts) if text.verifier and text.own.text != text.verifier.text)
    return {
        "title": point.setting.title,
        "said": [
            f"{point.samples:,} texts at temperature {point.setting.temperature:g}. {FIGURES[quality].title}: "
            f"{'; '.join(found)}."
        ]
        if quality and (found := differences(point, quality))
        else [],
        "figures": figures,
        "texts": [
            {
                "prompt": _cut(text.item.prompt),
                "answers": list(text.item.answers),
                "own": _shown(text.own, METHODS[point.setting.method].title),
                "verifier": _shown(text.verifier, METHODS["verifier_only"].title),
                "opens": not text.item.raw,
            }
            for text in texts
        ],
        "first": next(changed, 0),
    }


def _value(point: Point | None, name: str, costs: CostModel) -> Estimate | None:
    return cost(point, name, costs) if point else None


def _shown(sample: Sample | None, who: str) -> dict[str, Any] | None:
    if sample is None:
        return None
    right = None if sample.score is None else sample.score >= 1
    return {"who": who, "text": sample.text[:MAX_CHARACTERS], "right": right}


def _cut(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else text[:MAX_CHARACTERS] + "…"
