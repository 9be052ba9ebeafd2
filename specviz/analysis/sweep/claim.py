"""What a sweep shows at one temperature: a sentence that can be read aloud, how sure it is, and the curves to show first.

A fixed rule derives the sentence from the estimates. Where cascades are surely more accurate than both
models, it names the most accurate of them. Otherwise it names, among the settings that keep the verifier's accuracy, the
one that rejects the fewest drafts. "Surely" means that the 95 % interval of a difference does not contain 0, and that more
settings have such an interval than chance would give.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from specviz.analysis.sweep.results import Estimate, Point, Results
from specviz.core.methods import get_method

KEPT = 0.95
"""Share of the verifier's accuracy at or above which a setting answers "about as many questions"."""
FEWER = 0.01
"""Share of lossless decoding's rejections that a method must save; anything less counts as no saving."""
FEWEST_ITEMS = 30
"""With fewer items there is no finding, because intervals by resampling would be too narrow."""
CURVES = 4
"""Most curves that are shown first."""
LOSSLESS = "speed"
MODELS = ("verifier_only", "drafter_only")
"""The methods that are one model alone."""
_CHANCE = 1 / 40
"""How often a 95 % interval lies above 0 by chance."""


@dataclass(frozen=True)
class Claim:
    """The finding at one temperature.

    Attributes:
        headline: one sentence without intervals, or the reason why there is none.
        doubt: how sure the headline is, and whether a cascade beats both models; "" without a finding.
        curves: the methods to show first, most important first, at most `CURVES`.
        shown: the setting that the headline is about. Without a finding: lossless decoding, or any setting.
        is_named: whether the headline is about `shown` alone.
    """

    headline: str
    doubt: str = ""
    curves: tuple[str, ...] = ()
    shown: Point | None = None
    is_named: bool = False


def claim(results: Results, temperature: float) -> Claim:
    """The finding at one of `results.temperatures`."""
    points, lossless = results.at(temperature), results.point(temperature, LOSSLESS)
    reached = best_settings(results, temperature)
    best = next((point for point in reached.values() if _rejections(point).value <= 1 - FEWER), None)
    judged, surely, chance = above_both(results, temperature)
    winner = _winner(surely, chance)
    about = winner or best or lossless
    order = [*([about.setting.method] if about else []), LOSSLESS, *reached, *_methods(results, temperature)]
    here = {point.setting.method for point in points}
    curves = tuple(dict.fromkeys(name for name in order if name in here))[:CURVES]
    alone = [point for name in MODELS if (point := results.point(temperature, name))]
    if refusal := _refusal(results, alone) or ("" if winner else _alike(*alone)):
        return Claim(refusal, "", curves, lossless or next(iter(points), None))
    verifier, drafter = (of_hundred(_accuracy(point)) for point in alone)
    if winner:
        headline = (
            f"{_spoken(winner)} answers {of_hundred(_accuracy(winner))} of 100 questions right, the verifier alone "
            f"{verifier}, the drafter alone {drafter}{_also_rejects(winner, lossless)}."
        )
        doubt = (
            f"This is hardly chance: of {len(judged)} cascade settings, {len(surely)} are surely above both models, where chance "
            f"would give {chance:.1f}. But it is the best of many settings: expect a little less from new questions."
        )
    elif best and _rejections(best).high < 1:
        headline = reading(results, best)
        doubt = f"{_sureness(best)} {_no_cascade(judged)}"
    else:
        surely_ = "surely " if best else ""
        headline = (
            f"No method {surely_}rejects fewer drafts{_than(lossless)} and still answers about as many questions "
            f"as the verifier, {verifier} of 100."
        )
        doubt = f"“About as many” means at least {percent(KEPT)}. {_no_cascade(judged)}"
        about = lossless
    is_named = about is not None and about is (winner or best)
    return Claim(headline, doubt.strip(), curves, about, is_named)


def opening_temperature(results: Results) -> float:
    """The lowest temperature if a cascade surely beats both models there, else the middle one.

    At a higher temperature a rule may gain by leaving out unlikely tokens alone.
    """
    temperatures = results.temperatures
    _, surely, chance = above_both(results, temperatures[0])
    return temperatures[0 if _winner(surely, chance) else len(temperatures) // 2]


def reading(results: Results, point: Point) -> str:
    """What one setting does, in the words of the headline; "" while figures are missing."""
    temperature, method = point.setting.temperature, point.setting.method
    lossless, verifier = results.point(temperature, LOSSLESS), results.point(temperature, MODELS[0])
    needed = {"accuracy"} if method in MODELS else {"accuracy", "rejection_rate"}
    if not needed <= point.figures.keys():
        return ""
    right = _right(point, verifier if verifier and "accuracy" in verifier.figures else None)
    if method in MODELS:
        return f"The {method.removesuffix('_only')} alone {right}."
    return f"{_spoken(point)} {_rejects(point, lossless)}, and {right}."


def best_settings(results: Results, temperature: float) -> dict[str, Point]:
    """The settings that keep the verifier's accuracy: of each method the one with the fewest rejections. Fewest rejections first."""
    found: dict[str, Point] = {}
    for point in results.at(temperature):
        method, kept = point.setting.method, point.ratios.get("accuracy")
        if method not in _methods(results, temperature) or kept is None or kept.value < KEPT:
            continue
        if method not in found or _rejected(point) < _rejected(found[method]):
            found[method] = point
    return dict(sorted(found.items(), key=lambda one: _rejected(one[1])))


def above_both(results: Results, temperature: float) -> tuple[list[Point], list[Point], float]:
    """All cascade settings, those that are surely more accurate than both models, and how many such chance would give."""
    judged = [
        point
        for point in results.at(temperature)
        if get_method(point.setting.method).has_rule and "accuracy" in point.figures
    ]
    return judged, [point for point in judged if point.beats_both == "surely"], len(judged) * _CHANCE


def _winner(surely: Sequence[Point], chance: float) -> Point | None:
    """The most accurate of the settings that surely beat both models, where there are more of them than by chance."""
    return max(surely, key=_accuracy) if len(surely) > chance else None


def _methods(results: Results, temperature: float) -> list[str]:
    """Methods that run both models, in order."""
    names = dict.fromkeys(point.setting.method for point in results.at(temperature))
    return [name for name in names if get_method(name).drafts and get_method(name).verifies]


def _refusal(results: Results, alone: Sequence[Point]) -> str:
    """What is missing for a finding, given the points of the `MODELS` that were measured; "" if nothing is."""
    if not results.complete:
        return "Nothing is claimed yet: the sweep is not finished."
    if sum("accuracy" in point.figures for point in alone) < len(MODELS):
        return "Nothing is claimed: the sweep lacks the accuracy of both models alone."
    if results.items < FEWEST_ITEMS:
        few = "1 question is" if results.items == 1 else f"{results.items} questions are"
        return f"Nothing is claimed: {few} too few for an interval to be trusted; it takes {FEWEST_ITEMS}."
    return ""


def _alike(verifier: Point, drafter: Point) -> str:
    """That the verifier is not surely better than the drafter, so that nothing is saved by keeping its accuracy; "" if it is."""
    apart = drafter.against_verifier.get("accuracy")
    if apart and apart.high < 0:
        return ""
    right, others = (of_hundred(_accuracy(point)) for point in (verifier, drafter))
    return (
        f"These questions do not tell the two models apart: of 100, the verifier answers {right} right, "
        f"the drafter {others}."
    )


# ---- parts of the sentences


def _spoken(point: Point) -> str:
    method, lenience = get_method(point.setting.method), f"{point.setting.lenience:g}".replace("-", "−")
    return f"{method.title} at lenience\u00a0{lenience}" if method.has_lenience else method.title


def _rejects(point: Point, lossless: Point | None) -> str:
    own = f"rejects {percent(_rejected(point))} of the drafts"
    if point is lossless:
        return f"is lossless: it {own}"
    if not lossless:
        return f"{own} instead of all, as the verifier alone"
    usual = percent(_rejected(lossless))
    if usual == percent(_rejected(point)):
        return f"{own}, as lossless decoding does"
    return f"{own} instead of the lossless {usual}"


def _also_rejects(point: Point, lossless: Point | None) -> str:
    saves = lossless and _rejections(point).high < 1
    return f", and {_rejects(point, lossless)}" if saves else ""


def _than(lossless: Point | None) -> str:
    return f" than lossless decoding, {percent(_rejected(lossless))}," if lossless else ""


def _right(point: Point, verifier: Point | None) -> str:
    own = of_hundred(_accuracy(point))
    said = f"answers {own} of 100 questions right"
    if not verifier or point is verifier:
        return said
    other = of_hundred(_accuracy(verifier))
    if own == other:
        return f"{said}, as many as the verifier"
    return f"{said}, {'not' if own < other else 'more than'} the verifier’s {other}"


def _sureness(point: Point) -> str:
    """What is sure of a setting that surely saves rejections, against the verifier alone."""
    found = point.against_verifier["accuracy"]
    by_chance = chance_words(found)
    verb = "" if by_chance.startswith("may") else "is "
    return f"The saving is sure; the difference in answers (±{margin(found)} of 100) {verb}{by_chance}."


def _no_cascade(judged: list[Point]) -> str:
    """That no cascade surely beats both models; "" if no cascade was measured."""
    if not judged:
        return ""
    ahead = sum(point.beats_both != "no" for point in judged)
    if not ahead:
        return "No cascade beats both models here."
    return f"No cascade surely beats both models here; {ahead} of {len(judged)} settings are ahead, perhaps by chance."


def _accuracy(point: Point) -> float:
    return point.figures["accuracy"].value


def _rejected(point: Point) -> float:
    return point.figures["rejection_rate"].value


def _rejections(point: Point) -> Estimate:
    """Rejections over those of lossless decoding. If the sweep lacks it, over the verifier alone, which accepts nothing."""
    return point.ratios.get("rejection_rate") or point.figures["rejection_rate"]


# ---- words

_SIGN = "\u00a0%"


def named(point: Point) -> str:
    """The setting's title, with its lenience in brackets."""
    method, _, lenience = point.setting.title.rpartition(", α")
    return f"{method} (α{lenience})" if method else lenience


def chance_words(difference: Estimate) -> str:
    """Whether a difference may be chance: whether its interval contains 0."""
    return "may be chance" if difference.low <= 0 <= difference.high else "hardly chance"


def margin(found: Estimate) -> int:
    """Half the width of a share's interval, in whole hundredths."""
    return of_hundred((found.high - found.low) / 2)


def of_hundred(share: float) -> int:
    """A share in whole hundredths, halves up, as `static/figure_view/` rounds too."""
    return math.floor(round(100 * share, 6) + 0.5)


def share(found: Estimate) -> str:
    """A share and its interval in percent: "95 % (88–102 %)"."""
    if found.low == found.high:
        return percent(found.value)
    low, high = percent(found.low), percent(found.high)
    between = "–\u2060" if found.low >= 0 else " to "  # no line break after the dash
    return f"{percent(found.value)} ({low.removesuffix(_SIGN)}{between}{high})"


def percent(part: float) -> str:
    """A share in whole percent."""
    return f"{of_hundred(part)}{_SIGN}".replace("-", "−")
