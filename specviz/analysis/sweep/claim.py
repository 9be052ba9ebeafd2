"""What a sweep claims: one finding a temperature with its uncertainty, and the curves that matter for it, all by rule.

The rule, decided before any sweep was made: a setting of both models *keeps* the verifier's accuracy where it has at least
`KEPT` of it. Of each method the setting counts that keeps it with the fewest rejections; of the methods that one which then rejects
least. It is held against lossless decoding (`speed` at its strict end), and against the other methods: where intervals
overlap, which of them is ahead is left open. Whether a cascade is better than both models alone is said beside it. "Surely" means that a
95 % interval excludes no difference, and that more settings do so than chance alone would let.

What the rule cannot help: a setting that is chosen among many looks a little better than it is.

Knows `Results` and the methods; estimates nothing and draws nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from specviz.analysis.sweep.results import Estimate, Point, Results
from specviz.core.methods import get_method
from specviz.wording import joined

KEPT = 0.95
"""The share of the verifier's accuracy from which on it counts as kept."""
FEWER = 0.01
"""By how much, as a share of lossless decoding's, rejections must be fewer to count as fewer."""
FEWEST_ITEMS = 30
"""Items below which nothing is claimed: intervals by resampling are too narrow then, and of one item have no width."""
CURVES = 3
"""Curves that matter, at most."""
LOSSLESS = "speed"
_CHANCE = 1 / 40
"""How often an interval of 95 % lies above 0 by chance, where nothing is there."""


@dataclass(frozen=True)
class Claim:
    """The finding at one temperature.

    Attributes:
        headline: the finding in one sentence; what stands in brackets are 95 % intervals.
        details: sentences about how far it can be trusted.
        curves: names of the methods whose curves matter, the most telling first, at most `CURVES`.
        saving: of each method that keeps the verifier's accuracy with fewer rejections than lossless decoding the setting
            that rejects least, fewest rejections first.
        level: methods that keep it with no fewer.
        never: methods that keep it nowhere on their curve.
    """

    temperature: float
    headline: str
    details: tuple[str, ...] = ()
    curves: tuple[str, ...] = ()
    saving: tuple[Point, ...] = ()
    level: tuple[str, ...] = ()
    never: tuple[str, ...] = ()


def claim(results: Results, temperature: float) -> Claim:
    """The finding at one of `results.temperatures`; where there is none to be had, the headline says why."""
    saving, level, never = _keeping(results, temperature)
    order = [*(point.setting.method for point in saving), *level, *never]
    judged, surely, chance = above_both(results, temperature)
    if len(surely) > chance:
        order.insert(1, _best(surely).setting.method)
    curves = _telling(order)
    if refusal := _refusal(results, temperature):
        return Claim(temperature, f"At temperature {temperature:g}, {refusal}", curves=curves)
    headline = f"At temperature {temperature:g}, {_kept(results, temperature, saving)}"
    above = _above_both(judged, surely, chance)
    return Claim(
        temperature,
        f"{headline}{'; ' + above[0] if above else ''}.",
        (*_doubts(saving), *above[1:], _reading(results, temperature)),
        curves,
        tuple(saving),
        tuple(level),
        tuple(never),
    )


def above_both(results: Results, temperature: float) -> tuple[list[Point], list[Point], float]:
    """Cascade settings that were judged, those of them that are surely more accurate than both models, and how many chance would give."""
    judged = [
        point
        for point in results.at(temperature)
        if get_method(point.setting.method).has_rule and "accuracy" in point.figures
    ]
    return judged, [point for point in judged if point.beats_both == "surely"], len(judged) * _CHANCE


def _refusal(results: Results, temperature: float) -> str:
    """Why nothing can be claimed, as the rest of a sentence; "" where something can."""
    verifier, drafter = (results.point(temperature, name) for name in ("verifier_only", "drafter_only"))
    alone = [point.figures.get("accuracy") for point in (verifier, drafter) if point]
    right = [found for found in alone if found]
    if not results.complete:
        return "nothing is claimed: the sweep is not at its end."
    if verifier is None or drafter is None or len(right) < 2:
        return "nothing is claimed: without both models’ accuracy there is nothing to hold a method against."
    if results.items < FEWEST_ITEMS:
        asked = "1 item was asked" if results.items == 1 else f"{results.items} items were asked"
        return f"nothing is claimed: {asked}, and it takes {FEWEST_ITEMS} for an interval to be trusted."
    apart = drafter.against_verifier.get("accuracy")
    if apart is None or apart.high >= 0:
        return (
            f"these items do not tell the two models apart: the verifier gets {_share(right[0])} of them right, the drafter "
            f"{_share(right[1])}. What accuracy says about the settings in between is mostly chance."
        )
    return ""


def _keeping(results: Results, temperature: float) -> tuple[list[Point], list[str], list[str]]:
    """The fields `saving`, `level` and `never` of a claim."""
    reached, never = [], []
    both = [point for point in results.at(temperature) if _runs_both(point)]
    for name in dict.fromkeys(point.setting.method for point in both):
        enough = [
            point
            for point in both
            if point.setting.method == name
            and "rejection_rate" in point.figures
            and (kept := point.ratios.get("accuracy"))
            and kept.value >= KEPT
        ]
        if enough:
            reached.append(min(enough, key=_rejects))
        else:
            never.append(name)
    reached.sort(key=_rejects)
    fewer = [point for point in reached if _rejections(point).value <= 1 - FEWER]
    return fewer, [point.setting.method for point in reached if point not in fewer], never


def _runs_both(point: Point) -> bool:
    method = get_method(point.setting.method)
    return method.drafts and method.verifies


def _rejects(point: Point) -> float:
    return point.figures["rejection_rate"].value


def _rejections(point: Point) -> Estimate:
    """Rejections ÷ lossless decoding's, where that is in the sweep; else ÷ the verifier's alone, which are all."""
    return point.ratios.get("rejection_rate") or point.figures["rejection_rate"]


def _best(points: list[Point]) -> Point:
    return max(points, key=lambda point: point.figures["accuracy"].value)


def _telling(order: list[str]) -> tuple[str, ...]:
    """The first in order, `speed` to hold it against, and who comes next."""
    return tuple(dict.fromkeys([*order[:1], *(name for name in order if name == LOSSLESS), *order]))[:CURVES]


def _kept(results: Results, temperature: float, saving: list[Point]) -> str:
    """The first half of the headline."""
    lossless = results.point(temperature, LOSSLESS)
    beside = "fewer rejections than " + ("lossless decoding" if lossless else "the verifier alone")
    if not saving:
        own = lossless.figures.get("rejection_rate") if lossless else None
        rate = f" ({_share(own)})" if own else ""
        return f"no method keeps {_percent(KEPT)} of the verifier’s accuracy with {beside}{rate}"
    best = saving[0]
    rejections = _rejections(best)
    fewer = Estimate(1 - rejections.value, 1 - rejections.high, 1 - rejections.low)
    accuracy = best.ratios["accuracy"]
    kept = f"{_named(best)} keeps {_share(accuracy)} of the verifier’s accuracy with {_share(fewer)} {beside}"
    if fewer.low <= 0:
        return f"no method surely saves rejections: {kept}"
    if accuracy.high < 1:
        return f"{kept}, and is surely less accurate"
    return kept


def _doubts(saving: list[Point]) -> list[str]:
    """What keeps the first half of the headline from being sure."""
    if not saving:
        return []
    best, *others = saving
    said = []
    if (low := best.ratios["accuracy"].low) < KEPT:
        said.append(
            f"That it keeps less than {_percent(KEPT)} is not excluded: its interval begins at {_percent(low)}."
        )
    if close := [one for one in others if _rejections(one).low <= _rejections(best).high]:
        said.append(
            f"Its rejections are not surely fewer than those of {joined([_named(one) for one in close])}: the intervals overlap, "
            "and which of them saves most is left open."
        )
    elif others:
        said.append("Every other method that keeps as much surely rejects more.")
    return said


def _reading(results: Results, temperature: float) -> str:
    """What the brackets are, and where the verifier's accuracy comes from."""
    said = f"In brackets: 95\u00a0% intervals over {results.items:,} items."
    if temperature > 0 and results.point(temperature, LOSSLESS):
        said += " The verifier’s accuracy is the mean of its own and of lossless decoding’s, whose texts have the same distribution."
    return said


def _above_both(judged: list[Point], surely: list[Point], chance: float) -> list[str]:
    """The second half of the headline, and a sentence about it, from what `above_both` found; nothing without a cascade."""
    if not judged:
        return []
    ahead = [point for point in judged if point.beats_both != "no"]
    if len(surely) > chance:
        best = _best(surely)
        right = f"{_named(best)} is surely more accurate than both models ({_share(best.figures['accuracy'])} right)"
        return [
            right,
            f"{len(surely)} of {len(judged)} cascade settings are; chance alone would give {chance:.1f}.",
        ]
    if not ahead:
        return ["no cascade is more accurate than both models"]
    counted = f"{len(ahead)} of {len(judged)} cascade settings {'gets' if len(ahead) == 1 else 'get'} more items right than both"
    by_chance = (
        f", {len(surely)} of them by more than its interval, as often as chance alone would have it"
        if surely
        else ""
    )
    return ["no cascade surely beats both models", f"{counted}{by_chance}."]


# ---- words

_SIGN = "\u00a0%"


def _named(point: Point) -> str:
    """The setting's title, with its lenience in brackets: commas are the sentence's."""
    method, _, lenience = point.setting.title.rpartition(", α")
    return f"{method} (α{lenience})" if method else lenience


def _share(found: Estimate) -> str:
    """A share and its interval in percent: "95 % (88–102 %)"."""
    if found.low == found.high:
        return _percent(found.value)
    low, high = _percent(found.low), _percent(found.high)
    between = "–\u2060" if found.low >= 0 else " to "  # one word, which no line ends in
    return f"{_percent(found.value)} ({low.removesuffix(_SIGN)}{between}{high})"


def _percent(share: float) -> str:
    text = f"{abs(share):.0%}"
    return ("−" if share < 0 and text != "0%" else "") + text.removesuffix("%") + _SIGN
