"""What a sweep found, in words: numbers with their intervals, and one point as a sentence.

Knows results and how their figures are written; knows no figure to draw and no page.
"""

from __future__ import annotations

from specviz.analysis.sweep.results import FIGURES, Estimate, Point
from specviz.core.methods import METHODS

COMPARED = ("accuracy", "log_probability")
"""The figures that are held against the other methods' own."""


def number(name: str, value: float, difference: bool = False) -> str:
    """A figure's value as people write it: shares in percent, their differences in points, others with two places."""
    if name in FIGURES and FIGURES[name].is_share:
        text = f"{abs(100 * value):.1f}" + ("" if difference else "%")
    else:
        text = f"{abs(value):.2f}"
    sign = "" if float(text.rstrip("%")) == 0 else "−" if value < 0 else "+" if difference else ""
    return sign + text


def estimate(name: str, found: Estimate, difference: bool = False) -> str:
    """A figure's value and, where it has any width, its 95 % interval."""
    value = number(name, found.value, difference)
    if difference and FIGURES[name].is_share:
        value += " points"
    if found.low == found.high:
        return value
    return f"{value} ({number(name, found.low, difference)} to {number(name, found.high, difference)})"


def differences(point: Point, name: str) -> list[str]:
    """What one of `COMPARED` comes to against the verifier alone, and against `speed` at equal rejection rate."""
    against = (
        (point.against_verifier, METHODS["verifier_only"].title),
        (point.against_speed, f"{METHODS['speed'].title} at this rejection rate"),
    )
    return [
        f"{estimate(name, side[name], difference=True)} against {title}"
        for side, title in against
        if name in side
    ]


def sentence(point: Point) -> str:
    """All that is known of a point, for people; plain text."""
    figures = [
        f"{_within(figure.title)} {estimate(name, point.figures[name])}"
        for name, figure in FIGURES.items()
        if name in point.figures
    ]
    parts = [
        f"{point.setting.title}, temperature {point.setting.temperature:g}: {', '.join(figures)}; "
        f"from {point.samples:,} texts of {point.tokens:,} tokens in all."
    ]
    for name in COMPARED:
        if told := differences(point, name):
            parts.append(f"{FIGURES[name].title}: {'; '.join(told)}.")
    if point.beats_both == "surely":
        parts.append("It is more accurate than either model alone, by more than chance explains.")
    elif point.beats_both == "yes":
        parts.append("It is more accurate than either model alone, by no more than chance may explain.")
    parts.append("In brackets: 95% intervals.")
    return " ".join(parts)


def _within(title: str) -> str:
    """A title as it stands inside a sentence; what begins with two capitals is a name."""
    return title if title[:2].isupper() else title[:1].lower() + title[1:]
