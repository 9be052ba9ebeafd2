"""The finding of a sweep at one temperature, as a sentence, and the curves that matter for it.

A fixed rule, written before any sweep was run, derives the finding. A setting that runs both models answers "about as
many questions" as the verifier if it has at least `KEPT` of the verifier's accuracy. Each method is represented by the
setting that does so with the fewest rejections. The headline names the method that rejects least and compares it with
lossless decoding (`speed` at lenience 0). "Surely" means that the 95 % interval of a difference does not contain 0, and
that more settings have such an interval than chance would give. A setting chosen among many looks a little better than
it is.
"""

from __future__ import annotations

from dataclasses import dataclass

from specviz.analysis.sweep.results import Estimate, Point, Results
from specviz.core.methods import get_method
from specviz.wording import joined

KEPT = 0.95
"""Share of the verifier's accuracy at or above which a setting answers "about as many questions"."""
FEWER = 0.01
"""Share of lossless decoding's rejections that a method must save; anything less counts as no saving."""
FEWEST_ITEMS = 30
"""With fewer items there is no finding, because intervals by resampling would be too narrow."""
CURVES = 3
"""Most curves that stand out."""
LOSSLESS = "speed"
_CHANCE = 1 / 40
"""How often a 95 % interval lies above 0 by chance."""


@dataclass(frozen=True)
class Claim:
    """The finding at one temperature.

    Attributes:
        headline: the finding in one or two sentences without intervals, or the reason why there is none.
        details: sentences with the numbers behind the headline and their 95 % intervals.
        curves: methods whose curves matter, most important first, at most `CURVES`.
        best: the setting that the headline names.
    """

    headline: str
    details: tuple[str, ...] = ()
    curves: tuple[str, ...] = ()
    best: Point | None = None


def claim(results: Results, temperature: float) -> Claim:
    """The finding at one of `results.temperatures`."""
    reached = best_settings(results, temperature)
    order = [*reached, *(name for name in _methods(results, temperature) if name not in reached)]
    judged, surely, chance = above_both(results, temperature)
    if len(surely) > chance:
        order.insert(1, _most_accurate(surely).setting.method)
    # The best method, `speed` for comparison, and the next best.
    telling = dict.fromkeys([*order[:1], *(name for name in order if name == LOSSLESS), *order])
    curves, at = tuple(telling)[:CURVES], f"At temperature {temperature:g},"
    if refusal := _refusal(results, temperature):
        return Claim(f"{at} {refusal}", curves=curves)
    saving = [point for point in reached.values() if _rejections(point).value <= 1 - FEWER]
    headline = f"{at} {_saving(saving[:1])}"
    details = _saving_details(results, temperature, saving)
    if judged:
        cascades, more = _cascades(judged, surely, chance)
        headline += f" {cascades}"
        details += more
    return Claim(headline, tuple(details), curves, next(iter(saving), None))


def best_settings(results: Results, temperature: float) -> dict[str, Point]:
    """The settings that keep the verifier's accuracy: of each method the one with the fewest rejections. Fewest rejections first."""
    found: dict[str, Point] = {}
    for point in results.at(temperature):
        method, kept = point.setting.method, point.ratios.get("accuracy")
        if method not in _methods(results, temperature) or kept is None or kept.value < KEPT:
            continue
        if method not in found or _rejects(point) < _rejects(found[method]):
            found[method] = point
    return dict(sorted(found.items(), key=lambda one: _rejects(one[1])))


def above_both(results: Results, temperature: float) -> tuple[list[Point], list[Point], float]:
    """All cascade settings, those that are surely more accurate than both models, and how many such chance would give."""
    judged = [
        point
        for point in results.at(temperature)
        if get_method(point.setting.method).has_rule and "accuracy" in point.figures
    ]
    return judged, [point for point in judged if point.beats_both == "surely"], len(judged) * _CHANCE


def _methods(results: Results, temperature: float) -> list[str]:
    """Methods that run both models, in order."""
    names = dict.fromkeys(point.setting.method for point in results.at(temperature))
    return [name for name in names if get_method(name).drafts and get_method(name).verifies]


def _refusal(results: Results, temperature: float) -> str:
    """Why there is no finding, as the rest of a sentence; "" if there is one."""
    alone = [results.point(temperature, name) for name in ("verifier_only", "drafter_only")]
    right = [point.figures["accuracy"] for point in alone if point and "accuracy" in point.figures]
    if not results.complete:
        return "nothing is claimed: the sweep is not finished."
    if len(right) < 2:
        return "nothing is claimed: the sweep lacks the accuracy of both models alone."
    if results.items < FEWEST_ITEMS:
        few = "1 question is" if results.items == 1 else f"{results.items} questions are"
        return f"nothing is claimed: {few} too few for an interval to be trusted; it takes {FEWEST_ITEMS}."
    apart = alone[1].against_verifier.get("accuracy") if alone[1] else None
    if apart is None or apart.high >= 0:
        return (
            f"these questions do not tell the two models apart: the verifier answers {share(right[0])} of them, "
            f"the drafter {share(right[1])}."
        )
    return ""


def _saving(best: list[Point]) -> str:
    """The first sentence of the headline, after the temperature."""
    if not best:
        return "no method rejects fewer drafts and still answers about as many questions."
    [point] = best
    fewer, accuracy = _rejections(point), point.ratios["accuracy"]
    if fewer.high >= 1:
        return "no method surely rejects fewer drafts and still answers about as many questions."
    who = named(point)
    if point.setting.method == LOSSLESS:
        who = f"accepting more ({who[0].lower()}{who[1:].replace(' (', ', ')}"
    answers = "answers about as many questions"
    if accuracy.high < 1:
        answers = f"answers {percent(1 - accuracy.value)} fewer questions"
    return f"{who} rejects {percent(1 - fewer.value)} fewer drafts and {answers}."


def _saving_details(results: Results, temperature: float, saving: list[Point]) -> list[str]:
    """The numbers behind the first sentence, and the methods that come close."""
    lossless = results.point(temperature, LOSSLESS)
    if not saving:
        own = lossless.figures.get("rejection_rate") if lossless else None
        return [f"Lossless decoding rejects {share(own)} of its drafts."] if own else []
    best, *others = saving
    ratio = _rejections(best)
    fewer = Estimate(1 - ratio.value, 1 - ratio.high, 1 - ratio.low)
    beside = "lossless decoding" if lossless else "the verifier alone, which accepts none"
    said = [
        f"{named(best)} rejects {share(fewer)} fewer drafts than {beside}, and gets {share(best.ratios['accuracy'])} "
        f"as many answers right as the verifier. “About as many” means at least {percent(KEPT)}."
    ]
    if close := [named(one) for one in others if _rejections(one).low <= ratio.high]:
        said.append(f"The interval overlaps with that of {joined(close)}.")
    elif others:
        said.append("Every other method that answers as many surely rejects more.")
    return said


def _cascades(judged: list[Point], surely: list[Point], chance: float) -> tuple[str, list[str]]:
    """Whether a cascade beats both models, from the results of `above_both`: a sentence, and the numbers behind it."""
    if len(surely) > chance:
        best = _most_accurate(surely)
        numbers = (
            f"{named(best)} answers {share(best.figures['accuracy'])} of the questions. {len(surely)} of {len(judged)} "
            f"cascade settings surely beat both models; chance would give {chance:.1f}."
        )
        return f"{named(best)} beats both models.", [numbers]
    if ahead := sum(point.beats_both != "no" for point in judged):
        numbers = (
            f"{ahead} of {len(judged)} cascade settings answer{'s' * (ahead == 1)} more questions than both models, "
            "but chance may explain that."
        )
        return "No cascade surely beats both models here.", [numbers]
    return "No cascade beats both models here.", []


def _rejects(point: Point) -> float:
    return point.figures["rejection_rate"].value


def _rejections(point: Point) -> Estimate:
    """Rejections over those of lossless decoding. If the sweep lacks it, over the verifier alone, which accepts nothing."""
    return point.ratios.get("rejection_rate") or point.figures["rejection_rate"]


def _most_accurate(points: list[Point]) -> Point:
    return max(points, key=lambda point: point.figures["accuracy"].value)


# ---- words

_SIGN = "\u00a0%"


def named(point: Point) -> str:
    """The setting's title, with its lenience in brackets."""
    method, _, lenience = point.setting.title.rpartition(", α")
    return f"{method} (α{lenience})" if method else lenience


def share(found: Estimate) -> str:
    """A share and its interval in percent: "95 % (88–102 %)"."""
    if found.low == found.high:
        return percent(found.value)
    low, high = percent(found.low), percent(found.high)
    between = "–\u2060" if found.low >= 0 else " to "  # no line break after the dash
    return f"{percent(found.value)} ({low.removesuffix(_SIGN)}{between}{high})"


def percent(part: float) -> str:
    """A share in whole percent."""
    text = f"{abs(part):.0%}"
    return ("−" if part < 0 and text != "0%" else "") + text.removesuffix("%") + _SIGN
