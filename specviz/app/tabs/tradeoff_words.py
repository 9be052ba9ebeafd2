"""The words of the tab Speed or quality: the finding, what was asked, and the card of a chosen point. All plain text."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from specviz.analysis.sweep.claim import claim
from specviz.analysis.sweep.estimates import REPLICATES
from specviz.analysis.sweep.folder import Recorded
from specviz.analysis.sweep.items import ARITHMETIC, Item
from specviz.analysis.sweep.results import FIGURES, Estimate, Point, Results, Sample
from specviz.app.figures.tradeoff import differences, number
from specviz.app.link import Pane
from specviz.core.methods import METHODS

MAX_TEXTS = 50
"""Most texts of a point on its card."""
MAX_CHARACTERS = 400
"""Most characters of a text on the card."""


@dataclass(frozen=True)
class Text:
    """A text of the chosen point, the verifier's text for the same item, and the settings to write it again."""

    pane: Pane
    item: Item
    seed: int
    own: Sample
    verifier: Sample | None


def finding(results: Results, temperature: float) -> list[str]:
    """The sweep's claim at this temperature: the headline, then its details."""
    found = claim(results, temperature)
    brackets = f"In brackets: 95\u00a0% intervals over {results.items:,} questions."
    return [found.headline, *found.details, brackets] if found.details else [found.headline]


def source(results: Results, temperature: float) -> str:
    """The source of a figure, for saved pictures."""
    return (
        f"{results.drafter} → {results.verifier}, {results.items:,} items, temperature {temperature:g}, "
        "bars are 95\u00a0% intervals. SpecViz, after Narasimhan et al. (ICLR 2025)"
    )


def asked(sweep: Recorded) -> list[list[str]]:
    """What was measured, as pairs of a term and its meaning."""
    plan = sweep.results.plan
    kinds = Counter(item.kind for item in sweep.items)
    items = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    said = [
        [
            "Task",
            f"{len(sweep.items)} questions ({items}), each asked with the same coins at every setting; answers of at most "
            f"{plan.max_new_tokens} tokens, draft length {plan.draft_length}.",
        ]
    ]
    if example := next((item for item in sweep.items if item.answers), None):
        right = "The last number counts" if example.kind == ARITHMETIC else "The words must be in the answer"
        said.append(["Example", f"{_cut(example.prompt)} Right: {' or '.join(example.answers)}. {right}."])
    return [
        *said,
        ["Accuracy", "The share of the questions answered right. The rest of an answer does not matter."],
        [
            "Rejection rate",
            "Rejected ÷ examined draft tokens, the paper’s cost: each rejection ends a block and costs a verifier pass.",
        ],
        [
            "Intervals",
            f"The middle 95 % of {REPLICATES:,} resamples of the questions: how much depends on which questions were asked. "
            "All methods answered the same ones, so a difference is often surer than two bars suggest.",
        ],
    ]


def texts_of(sweep: Recorded, point: Point) -> list[Text]:
    """The texts of a point, `MAX_TEXTS` at most, each with the verifier's text for the same item and trial."""
    settings = sweep.results.plan.settings
    verifier = sweep.results.point(point.setting.temperature, "verifier_only")
    others = sweep.samples(settings.index(verifier.setting)) if verifier else []
    beside = {(sample.item, sample.trial): sample for sample in others}
    pane = Pane(point.setting.method, point.setting.lenience, sweep.results.plan.draft_length)
    return [
        Text(pane, sweep.items[own.item], own.seed, own, beside.get((own.item, own.trial)))
        for own in sweep.samples(settings.index(point.setting))[:MAX_TEXTS]
    ]


def card(results: Results, point: Point, texts: list[Text]) -> dict[str, Any]:
    """A point's card: up to four figures, each with the verifier's value, and the texts.

    It begins with the first text that differs from the verifier's.
    """
    verifier = results.point(point.setting.temperature, "verifier_only")
    quality = next(name for name in FIGURES if name in point.figures)
    shown = [
        _figure(name, point.figures[name], verifier.figures.get(name) if verifier else None)
        for name in (quality, "rejection_rate", "verifier_calls", "relative_latency")
        if name in point.figures
    ]
    said = f"{point.samples:,} texts at temperature {point.setting.temperature:g}. {FIGURES[quality].title}: "
    compared = differences(point, quality)
    changed = (at for at, text in enumerate(texts) if text.verifier and text.own.text != text.verifier.text)
    return {
        "title": point.setting.title,
        "said": [f"{said}{'; '.join(compared)}."] if compared else [],
        "figures": shown,
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


def _figure(name: str, own: Estimate, verifier: Estimate | None) -> dict[str, str]:
    ends = f"{number(name, own.low)} to {number(name, own.high)}"
    return {
        "title": FIGURES[name].title,
        "value": number(name, own.value),
        "interval": "" if own.low == own.high else ends,
        "beside": f"verifier {number(name, verifier.value)}" if verifier else "",
    }


def _shown(sample: Sample | None, who: str) -> dict[str, Any] | None:
    if sample is None:
        return None
    right = None if sample.score is None else sample.score >= 1
    return {"who": who, "text": sample.text[:MAX_CHARACTERS], "right": right}


def _cut(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else text[:MAX_CHARACTERS] + "…"
