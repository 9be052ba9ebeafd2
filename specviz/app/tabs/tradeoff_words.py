"""The words of the tab Speed or quality about a sweep and a chosen point. All are plain text."""

from __future__ import annotations

from dataclasses import asdict, astuple
from typing import Any

from specviz.analysis.sweep.claim import (
    KEPT,
    chance_words,
    claim,
    of_hundred,
    opening_temperature,
    percent,
    reading,
)
from specviz.analysis.sweep.estimates import REPLICATES
from specviz.analysis.sweep.items import ARITHMETIC, Item, kind_words
from specviz.analysis.sweep.results import FIGURES, Point, Results, Sample
from specviz.core.methods import METHODS
from specviz.models.registry import PAIRS
from specviz.wording import joined

MAX_TEXTS = 50
"""Maximum texts on the card of a point."""
MAX_CHARACTERS = 400
"""Maximum characters of a text on the card."""
TINY = 1_000_000_000
"""Models with fewer parameters are called tiny; chat assistants have many times more."""
_ON_CARD = ("accuracy", "rejection_rate", "verifier_calls", "relative_latency")


def told(sweep: Results) -> dict[str, Any]:
    """All that the view shows of a sweep, except the texts of its points."""
    points = [
        {"index": index, **asdict(point.setting), "title": point.setting.title}
        | {"figures": {name: astuple(found) for name, found in point.figures.items()}}
        for index, point in enumerate(sweep.points)
    ]
    return {
        "complete": sweep.complete,
        "temperatures": sweep.temperatures,
        "opens": opening_temperature(sweep),
        "claims": [_claim(sweep, temperature) for temperature in sweep.temperatures],
        "points": points,
        "task": _task(sweep),
        "models": _sizes(sweep),
        "source": f"{sweep.drafter} → {sweep.verifier}, {len(sweep.items):,} questions. SpecViz",
        "about": _about(sweep),
        "csv": sweep.to_csv(),
    }


def _claim(sweep: Results, temperature: float) -> dict[str, Any]:
    found = claim(sweep, temperature)
    shown = sweep.points.index(found.shown)
    words = {name: getattr(found, name) for name in ("headline", "doubt", "curves")}
    return words | {"shown": shown, "named": shown if found.is_named else None}


def _task(sweep: Results) -> str:
    """Sentences about the task, the size of the models, and the terms that the claim uses."""
    return (
        f"Task: {len(sweep.items)} questions ({kind_words(sweep.items)}). {_sizes(sweep)} Each point is one "
        "method at one lenience α, which says how readily it takes what the drafter proposes. Lossless: the verifier’s own "
        "distribution, unchanged."
    ).replace("  ", " ")


def _sizes(sweep: Results) -> str:
    """A sentence that the models are tiny, or "" if they are larger or of unknown size."""
    pair = PAIRS.get(sweep.plan.pair)
    if not pair or not 0 < pair.verifier_parameters < TINY:
        return ""
    sizes = [
        f"{round(count / 1e6)}" for count in (pair.drafter_parameters, pair.verifier_parameters) if count
    ]
    return (
        f"Both models are tiny ({joined(sizes)} million parameters; chat assistants have billions), so expect many wrong "
        "answers."
    )


def _about(sweep: Results) -> list[list[str]]:
    """How the sweep was measured and how the claim is chosen, as pairs of a term and its explanation."""
    plan = sweep.plan
    said = [
        ["Models", f"{sweep.drafter} drafts, {sweep.verifier} verifies."],
        [
            "Answers",
            f"At most {plan.max_new_tokens} tokens, draft length {plan.draft_length}; the same coins for a question at every "
            "setting.",
        ],
    ]
    if example := next((item for item in sweep.items if item.answers), None):
        right = "The last number counts" if example.kind == ARITHMETIC else "The words must be in the answer"
        said.append(["Example", f"{_cut(example.prompt)} Right: {_right(example)}. {right}."])
    said += [[figure.title, figure.meaning] for figure in FIGURES.values()]
    return [
        *said,
        [
            "± and intervals",
            f"The middle 95\u00a0% of {REPLICATES:,} resamples of the questions: how much depends on which questions were asked. "
            "All methods answered the same ones, so a difference is often surer than two intervals suggest.",
        ],
        [
            "The sentence",
            "A fixed rule writes it. If more cascades are surely more accurate than both models than chance would give, it names the "
            f"most accurate one. Otherwise it names the setting that rejects least among those that keep {percent(KEPT)} of the "
            "verifier’s right answers. These are averaged with lossless decoding’s, which follows the same distribution.",
        ],
        [
            "Cascade",
            "A method that lets the drafter’s word stand by a rule, though the verifier would write another.",
        ],
    ]


def texts_of(sweep: Results, point: Point) -> list[tuple[Sample, Sample | None]]:
    """At most `MAX_TEXTS` texts of a point, each with the verifier's text for the same item and trial, or None."""
    settings = sweep.plan.settings
    verifier = sweep.point(point.setting.temperature, "verifier_only")
    others = sweep.samples(settings.index(verifier.setting)) if verifier else []
    beside = {(other.item, other.trial): other for other in others}
    own = sweep.samples(settings.index(point.setting))[:MAX_TEXTS]
    return [(one, beside.get((one.item, one.trial))) for one in own]


def card(sweep: Results, point: Point) -> dict[str, Any]:
    """A point's card: figures beside those of the models or of lossless decoding, and the texts.

    `first` is the index of the text to show first. If more texts score below the verifier's text than above it, this is the first text
    that scores below, otherwise the first that scores above. If all scores are equal: the first that differs from the verifier's, or 0.
    """
    texts, method = texts_of(sweep, point), METHODS[point.setting.method]
    beside = [(at, own, verifier) for at, (own, verifier) in enumerate(texts) if verifier]
    by = {at: (own.score or 0.0) - (other.score or 0.0) for at, own, other in beside}
    changed = max([at for at in by if by[at] > 0], [at for at in by if by[at] < 0], key=len)
    changed += [at for at, own, other in beside if own.text != other.text]
    return {
        "title": point.setting.title,
        "rule": method.sentence,
        "reading": reading(sweep, point),
        "figures": [_figure(sweep, point, name) for name in _ON_CARD if name in point.figures],
        "said": _compared(point),
        "texts": [
            {
                "prompt": _cut(sweep.items[own.item].prompt),
                "right": _right(sweep.items[own.item]),
                "own": _shown(own, method.title),
                "verifier": _shown(verifier, "Verifier alone"),
                "opens": not sweep.items[own.item].raw,
            }
            for own, verifier in texts
        ],
        "first": next(iter(changed), 0),
    }


def _right(item: Item) -> str:
    """The answers that count as right, for both questions if the item asks two; "" if the item has no answers."""
    return " and ".join(" or ".join(each) for each in (item.answers, item.also) if each)


def _figure(sweep: Results, point: Point, name: str) -> dict[str, str]:
    own = point.figures[name]
    others = {"lossless": "speed"} if name == "rejection_rate" else {"verifier": "verifier_only"}
    if name == "accuracy":
        others["drafter"] = "drafter_only"
    beside = [
        f"{title} {_number(name, other.value(name))}"
        for title, method in others.items()
        if (other := sweep.point(point.setting.temperature, method)) and name in other.figures
    ]
    return {
        "title": FIGURES[name].title,
        "value": _number(name, own.value) + (" of 100" if name == "accuracy" else ""),
        "interval": "" if own.low == own.high else f" {_number(name, own.low)} to {_number(name, own.high)}",
        "beside": ", ".join(beside),
    }


def _number(name: str, value: float) -> str:
    if name == "accuracy":
        return str(of_hundred(value))
    return percent(value) if FIGURES[name].is_share else f"{value:.2f}".replace("-", "−")


def _compared(point: Point) -> list[str]:
    """Sentences that compare the point's accuracy with the verifier's, speculative decoding's and lossless min-p's."""
    sides = {
        "Against the verifier": point.against_verifier,
        "Against speculative decoding with as many rejected": point.against_speed,
        "Against the best lossless min-p": point.against_min_p,
    }
    said = []
    for title, side in sides.items():
        if found := side.get("accuracy"):
            ends = (f"{of_hundred(one):+d}".replace("+0", "0").replace("-", "−") for one in astuple(found))
            said.append("{}: {} right ({} to {}), {}.".format(title, *ends, chance_words(found)))
    return said


def _shown(sample: Sample | None, who: str) -> dict[str, Any] | None:
    if sample is None:
        return None
    right = None if sample.score is None else sample.score >= 1
    return {"who": who, "text": sample.text[:MAX_CHARACTERS], "right": right}


def _cut(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else text[:MAX_CHARACTERS] + "…"
