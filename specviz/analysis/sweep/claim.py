"""What a sweep shows at one temperature: a sentence that can be read aloud, how sure it is, and the curves to show first.

A fixed rule derives the sentence from the estimates. If cascades are surely more accurate than both models, the sentence names
the most accurate of them. Otherwise it names, among the settings that keep the verifier's accuracy, the setting that rejects
the fewest drafts. "Surely" means that the 95 % interval of a difference does not contain 0, and that more settings have such an
interval than chance would give.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from specviz.analysis.sweep.grid import MODELS
from specviz.analysis.sweep.results import Estimate, Point, Results
from specviz.core.method import LOSSLESS
from specviz.core.methods import METHODS

KEPT = 0.95
"""Share of the verifier's accuracy at or above which a setting answers "about as many questions"."""
FEWER = 0.01
"""Share of lossless decoding's rejections that a method must save; anything less counts as no saving."""
FEWEST_ITEMS = 30
"""With fewer items there is no finding, because intervals by resampling would be too narrow."""
CURVES = 4
"""Maximum number of curves that are shown first."""
_CHANCE = 1 / 40
"""How often a 95 % interval lies above 0 by chance."""


@dataclass(frozen=True)
class Claim:
    """The finding at one temperature.

    Attributes:
        headline: one sentence without intervals, or the reason why there is no finding.
        doubt: how sure the headline is, and whether a cascade beats both models; "" without a finding.
        curves: the methods to show first, most important first, at most `CURVES`.
        shown: the setting that the headline names; if it names none, lossless decoding, or else the first setting.
        is_named: whether the headline is about one setting.
    """

    headline: str
    doubt: str
    curves: tuple[str, ...]
    shown: Point
    is_named: bool = False


def claim(results: Results, temperature: float) -> Claim:
    """The finding at one of `results.temperatures`."""
    lossless, reached = results.point(temperature, LOSSLESS), best_settings(results, temperature)
    best = next((point for point in reached.values() if _rejections(point).value <= 1 - FEWER), None)
    judged, surely, winner = _cascades(results, temperature)
    usual = lossless or results.at(temperature)[0]
    about = winner or best or usual
    methods = dict.fromkeys(point.setting.method for point in results.at(temperature) if _runs_both(point))
    order = dict.fromkeys([about.setting.method, LOSSLESS, *reached, *methods])
    curves = tuple(name for name in order if name in methods)[:CURVES]
    if refusal := _refusal(results, temperature, winner):
        return Claim(refusal, "", curves, usual)
    verifier, drafter = (_right(point) for name in MODELS if (point := results.point(temperature, name)))
    if winner:
        saves = lossless and _rejections(winner).high < 1
        headline = (
            f"{_spoken(winner)} answers {_right(winner)} of 100 questions right, the verifier alone {verifier}, the drafter "
            f"alone {drafter}{f', and {_rejects(winner, lossless)}' if saves else ''}."
        )
        doubt = (
            f"This is hardly chance: of {len(judged)} cascade settings, {len(surely)} are surely above both models, where chance "
            f"would give {len(judged) * _CHANCE:.1f}. But it is the best of many settings: expect a little less from new questions."
        )
    elif best and _rejections(best).high < 1:
        headline, difference = reading(results, best), best.against_verifier["accuracy"]
        by_chance = chance_words(difference)
        doubt = (
            f"The saving is sure; the difference in answers (±{margin(difference)} of 100) "
            f"{'' if by_chance.startswith('may') else 'is '}{by_chance}. {_no_cascade(judged)}"
        )
    else:
        than = f" than lossless decoding, {percent(lossless.value('rejection_rate'))}," if lossless else ""
        headline = (
            f"No method {'surely ' if best else ''}rejects fewer drafts{than} and still answers about as many questions "
            f"as the verifier, {verifier} of 100."
        )
        doubt = f"“About as many” means at least {percent(KEPT)}. {_no_cascade(judged)}"
        return Claim(headline, doubt.strip(), curves, usual)
    return Claim(headline, doubt.strip(), curves, about, is_named=True)


def opening_temperature(results: Results) -> float:
    """The temperature to show first: the lowest one if a cascade surely beats both models there, otherwise the middle one.

    At a higher temperature a rule may gain merely because it leaves out unlikely tokens.
    """
    temperatures = results.temperatures
    _, _, winner = _cascades(results, temperatures[0])
    return temperatures[0 if winner else len(temperatures) // 2]


def reading(results: Results, point: Point) -> str:
    """What one setting does, in the words of the headline; "" for a model alone, or if figures are missing."""
    verifier = results.point(point.setting.temperature, "verifier_only")
    has_figures = {"accuracy", "rejection_rate"} <= point.figures.keys()
    if not (verifier and has_figures and _runs_both(point)):
        return ""
    own, other = _right(point), _right(verifier)
    beside = f"not the verifier’s {other}" if own < other else f"more than the verifier’s {other}"
    rejects = _rejects(point, results.point(point.setting.temperature, LOSSLESS))
    right = f"answers {own} of 100 questions right, {'as many as the verifier' if own == other else beside}"
    return f"{_spoken(point)} {rejects}, and {right}."


def best_settings(results: Results, temperature: float) -> dict[str, Point]:
    """By method, the setting that rejects the fewest drafts while it keeps the verifier's accuracy; methods with fewer rejections first."""
    found: dict[str, Point] = {}
    for point in sorted(
        (each for each in results.at(temperature) if _runs_both(each) and "accuracy" in each.ratios),
        key=lambda each: each.value("rejection_rate"),
    ):
        if point.ratios["accuracy"].value >= KEPT:
            found.setdefault(point.setting.method, point)
    return found


def _cascades(results: Results, temperature: float) -> tuple[list[Point], list[Point], Point | None]:
    """All cascade settings; the settings among them that are surely more accurate than both models; and the most accurate of
    the latter, or None if chance alone would give as many of them.
    """
    judged = [
        point
        for point in results.at(temperature)
        if METHODS[point.setting.method].has_rule and "accuracy" in point.figures
    ]
    surely = [point for point in judged if point.beats_both == "surely"]
    is_finding = len(surely) > len(judged) * _CHANCE
    return judged, surely, max(surely, key=lambda point: point.value("accuracy")) if is_finding else None


def _runs_both(point: Point) -> bool:
    return point.setting.method not in MODELS


def _refusal(results: Results, temperature: float, winner: Point | None) -> str:
    """Why there is no finding; "" if there is one."""
    alone = [point for name in MODELS if (point := results.point(temperature, name))]
    if not results.complete:
        return "Nothing is claimed yet: the sweep is not finished."
    if sum("accuracy" in point.figures for point in alone) < len(MODELS):
        return "Nothing is claimed: the sweep lacks the accuracy of both models alone."
    if (count := len(results.items)) < FEWEST_ITEMS:
        few = "1 question is" if count == 1 else f"{count} questions are"
        return f"Nothing is claimed: {few} too few for an interval to be trusted; it takes {FEWEST_ITEMS}."
    verifier, drafter = alone
    if winner or drafter.against_verifier["accuracy"].high < 0:
        return ""
    # Nothing is saved by keeping the verifier's accuracy.
    return (
        f"These questions do not tell the two models apart: of 100, the verifier answers {_right(verifier)} right, "
        f"the drafter {_right(drafter)}."
    )


def _spoken(point: Point) -> str:
    return point.setting.named("{title} at lenience\u00a0{alpha}")


def _rejects(point: Point, lossless: Point | None) -> str:
    share = percent(point.value("rejection_rate"))
    own = f"rejects {share} of the drafts"
    if point is lossless:
        return f"is lossless: it {own}"
    if not lossless:
        return f"{own} instead of all, as the verifier alone"
    usual = percent(lossless.value("rejection_rate"))
    return f"{own}, as lossless decoding does" if usual == share else f"{own} instead of the lossless {usual}"


def _no_cascade(judged: list[Point]) -> str:
    """The sentence which says that no cascade surely beats both models; "" if no cascade was measured."""
    if not judged:
        return ""
    ahead = sum(point.beats_both != "no" for point in judged)
    if not ahead:
        return "No cascade beats both models here."
    return f"No cascade surely beats both models here; {ahead} of {len(judged)} settings are ahead, perhaps by chance."


def _right(point: Point) -> int:
    """Number of questions answered right, of 100."""
    return of_hundred(point.value("accuracy"))


def _rejections(point: Point) -> Estimate:
    """Rejection rate divided by that of lossless decoding; if the sweep lacks lossless decoding, the rejection rate itself."""
    return point.ratios.get("rejection_rate") or point.figures["rejection_rate"]


# ---- words

_SIGN = "\u00a0%"


def chance_words(difference: Estimate) -> str:
    """Whether a difference may be chance: whether its interval contains 0."""
    return "may be chance" if difference.low <= 0 <= difference.high else "hardly chance"


def margin(found: Estimate) -> int:
    """Half the width of a share's interval, in whole hundredths."""
    return of_hundred((found.high - found.low) / 2)


def of_hundred(share: float) -> int:
    """A share in whole hundredths, halves up."""
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
