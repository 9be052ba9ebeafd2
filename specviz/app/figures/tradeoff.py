"""Quality against cost as a figure: one curve a method over its leniences, both models alone, the Pareto front.

The curves that matter for the sweep's claim stand out and have their names beside them; the others are faint. Light on white,
for documents; `DARK` maps its colours to those of a dark page. Knows results and plotly; knows neither how anything was measured
nor the page.
"""

from __future__ import annotations

import html
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go

from specviz.analysis.sweep.claim import claim
from specviz.analysis.sweep.cost_model import CostModel
from specviz.analysis.sweep.results import COMPARED, FIGURES, Estimate, Point, Results
from specviz.app.marks import method_colour, method_symbol, method_token
from specviz.app.tokens import colours
from specviz.core.methods import METHODS
from specviz.errors import RequestError

MODELLED = "modelled_latency"
"""The cost that is not measured but follows from the rejection rate."""
COSTS: dict[str, str] = {
    "rejection_rate": FIGURES["rejection_rate"].title,
    "relative_latency": f"{FIGURES['relative_latency'].title}, measured",
    MODELLED: f"{FIGURES['relative_latency'].title}, modelled",
    "verifier_calls": FIGURES["verifier_calls"].title,
}
"""What may stand on the x axis, by name; less is better."""
QUALITIES: dict[str, str] = {name: figure.title for name, figure in FIGURES.items() if figure.is_quality}
"""What may stand on the y axis, by name."""

_INK, _MUTED, _FRONT, _GRID, _PAPER = (
    colours("light")[name] for name in ("text", "muted", "line", "sunken", "panel")
)
_FAINT = 0.22
"""Opacity of a curve that does not matter for the claim; `figure_view.js` lights it when it is asked for."""
_ALONE = ("drafter_only", "verifier_only")
_STARS = {
    "surely": ("star", "above both models"),
    "yes": ("star-open", "above both, perhaps by chance"),
}


def _faint(colour: str) -> str:
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, 0.45)"


_DRAWN = ("text", "muted", "line", "sunken", "panel", *dict.fromkeys(method_token(name) for name in METHODS))
_SWAPS = {colours("light")[name]: colours("dark")[name] for name in _DRAWN}
DARK: dict[str, str] = _SWAPS | {_faint(light): _faint(dark) for light, dark in _SWAPS.items()}
"""Colours of the figure that a dark page cannot show, and those it shows instead."""


_LETTER, _LINE = 0.009, 0.07
"""A letter's width and a line's height in a figure, as shares of its own; what a label takes is reckoned with them."""


@dataclass(frozen=True)
class _Mark:
    """A point in the plane; `index` is its index in the results."""

    index: int
    point: Point
    x: Estimate
    y: Estimate


def figure(
    results: Results,
    *,
    temperature: float,
    x: str = "rejection_rate",
    y: str = "accuracy",
    costs: CostModel | None = None,
) -> go.Figure:
    """The points of one temperature.

    A curve has a trace for the legend and one of points, both with the method as `legendgroup`, and an annotation of that
    `name`: where it is faint, `meta` is "faint" and the annotation is not visible. A trace that only explains a symbol has `meta`
    "key". Each trace of points has their indices in `results.points` as `customdata` and their titles as `text`. A point that
    lacks either figure is left out; where none is left, the figure says so.

    Args:
        results: of a sweep, whole or so far.
        temperature: one of `results.temperatures`.
        x: one of `COSTS`.
        y: one of `QUALITIES`.
        costs: of the models that "modelled_latency" is computed for.

    Raises:
        RequestError: an unknown axis, or "modelled_latency" without costs.
    """
    if x not in COSTS or y not in QUALITIES:
        raise RequestError(f"The axes are one of {', '.join(COSTS)}, and one of {', '.join(QUALITIES)}.")
    if x == MODELLED and costs is None:
        raise RequestError(f"{MODELLED} needs the costs to compute it with.")
    marks = [
        _Mark(index, point, across, point.figures[y])
        for index, point in enumerate(results.points)
        if point.setting.temperature == temperature
        and (across := cost(point, x, costs))
        and y in point.figures
    ]
    plot = go.Figure()
    _front(plot, marks, FIGURES[y].higher_is_better)
    if x == MODELLED:
        _measured(plot, marks)
    marks.sort(key=lambda mark: mark.point.setting.lenience)
    curves = {
        name: own
        for name in METHODS
        if name not in _ALONE and (own := [mark for mark in marks if mark.point.setting.method == name])
    }
    found = claim(results, temperature)
    matter = [name for name in found.curves if name in curves]
    for name, own in curves.items():
        _curve(plot, own, (x, y), is_faint=name not in matter)
    _alone(plot, marks, (x, y))
    _claimed(plot, [mark for mark in marks if mark.point in found.saving[:1]])
    labels: list[dict[str, Any]] = []
    for name in (*matter, *(name for name in curves if name not in matter)):
        labels.append(_label(name, curves, matter, marks, labels))
    # At once: plotly makes all there are anew for each that is added.
    plot.update_layout(annotations=[*plot.layout.annotations, *labels])
    for beats, (symbol, words) in _STARS.items():
        if any(mark.point.beats_both == beats for mark in marks):
            marker = {"symbol": symbol, "size": 12, "color": _INK}
            key = {"name": words, "meta": "key", "hoverinfo": "skip"}
            plot.add_scatter(x=[None], y=[None], mode="markers", marker=marker, **key)
    _dress(plot, (x, y), results, temperature, empty=not marks)
    return plot


def cost(point: Point, x: str, costs: CostModel | None = None) -> Estimate | None:
    """A point's cost by the name it has in `COSTS`; None where there is no such number."""
    if x != MODELLED:
        return point.figures.get(x)
    rejected = point.figures.get("rejection_rate")
    if rejected is None or costs is None:
        return None
    value, one, other = (
        costs.relative_latency(point.setting.method, min(max(1 - rate, 0.0), 1.0))
        for rate in (rejected.value, rejected.low, rejected.high)
    )
    return Estimate(value, min(one, other), max(one, other))


def _front(plot: go.Figure, marks: list[_Mark], higher: bool) -> None:
    """The Pareto front: the points that no other point beats in cost and quality."""
    sign = -1 if higher else 1
    front: list[tuple[float, float]] = []
    for x, y in sorted((mark.x.value, sign * mark.y.value) for mark in marks):
        if not front or y < sign * front[-1][1]:
            front.append((x, sign * y))
    if len(front) > 1:
        plot.add_scatter(
            x=[x for x, _ in front],
            y=[y for _, y in front],
            mode="lines",
            line={"color": _FRONT, "width": 6, "shape": "hv"},
            name="best at its cost",
            hoverinfo="skip",
        )


def _measured(plot: go.Figure, marks: list[_Mark]) -> None:
    """A line from each modelled point to where its measured latency is."""
    across: list[float | None] = []
    up: list[float | None] = []
    for mark in marks:
        if found := mark.point.figures.get("relative_latency"):
            across += [mark.x.value, found.value, None]
            up += [mark.y.value, mark.y.value, None]
    if across:
        plot.add_scatter(
            x=across,
            y=up,
            mode="lines+markers",
            line={"color": _MUTED, "width": 1, "dash": "dot"},
            marker={"color": _MUTED, "symbol": "line-ns-open", "size": [0, 8, 0] * (len(across) // 3)},
            opacity=0.7,
            name="as measured here",
            hoverinfo="skip",
        )


def _curve(plot: go.Figure, marks: list[_Mark], axes: tuple[str, str], *, is_faint: bool) -> None:
    method = METHODS[marks[0].point.setting.method]
    colour, symbol = method_colour(method.name), method_symbol(method.name)[0]
    stars = [_STARS.get(mark.point.beats_both) for mark in marks]
    look: dict[str, Any] = {
        "mode": "lines+markers",
        "name": method.title,
        "legendgroup": method.name,
        "line": {"color": colour, "width": 1.6 if is_faint else 2.6},
        "opacity": _FAINT if is_faint else 1,
        "meta": "faint" if is_faint else "",
    }
    # The legend would show the first point's symbol, which may be a star.
    plot.add_scatter(x=[None], y=[None], marker={"color": colour, "symbol": symbol, "size": 9}, **look)
    points = _points(marks, axes, colour)
    for bars, are_seen in ((points["error_x"], False), (points["error_y"], not is_faint)):
        if bars:
            bars["visible"] = are_seen
    plot.add_scatter(
        **points,
        **look,
        showlegend=False,
        marker={
            "color": colour,
            "symbol": [star[0] if star else symbol for star in stars],
            "size": [16 if star else 9 for star in stars],
            "opacity": 1,
            "line": {"width": 0},
        },
    )


def _label(
    name: str,
    curves: dict[str, list[_Mark]],
    matter: list[str],
    marks: list[_Mark],
    labels: list[dict[str, Any]],
) -> dict[str, Any]:
    """A curve's name beside it as an annotation, over none of the `labels` before it, where it is farthest from the curves that matter
    and from those labels.

    On the side with more room, and not at an end: all curves end in the same two models, where names would lie over each other.
    """
    every = [mark for own in curves.values() for mark in own]
    width, height = _span(every)
    others = [mark for other in matter if other != name for mark in curves[other]]
    before = [each for each in labels if each["visible"]]
    taken = [(mark.x.value, mark.y.value) for mark in others] + [(each["x"], each["y"]) for each in before]
    cheap, dear = (end(every, key=lambda mark: mark.x.value) for end in (min, max))
    rises, whole = cheap.y.value <= dear.y.value, _span(marks)

    def label(mark: _Mark) -> dict[str, Any]:
        gaps = [_height(curves[other], mark.x.value) - mark.y.value for other in matter if other != name]
        is_above = min((gap for gap in gaps if gap > 0), default=math.inf) >= min(
            (-gap for gap in gaps if gap <= 0), default=math.inf
        )
        return {
            "name": name,
            "x": mark.x.value,
            "y": mark.y.value,
            "text": f"<b>{html.escape(METHODS[name].title)}</b>",
            "font": {"color": method_colour(name), "size": 13},
            "bgcolor": _PAPER,
            "borderpad": 1,
            "opacity": 0.92,
            "showarrow": False,
            "visible": name in matter,
            "xanchor": "right" if is_above == rises else "left",
            "yanchor": "bottom" if is_above else "top",
            "xshift": -8 if is_above == rises else 8,
            "yshift": 6 if is_above else -6,
        }

    def room(own: dict[str, Any]) -> tuple[bool, float]:
        is_free = not any(_overlap(own, each, whole) for each in before)
        return is_free, min(
            (math.hypot((own["x"] - x) / width, (own["y"] - y) / height) for x, y in taken), default=1.0
        )

    return max(map(label, curves[name]), key=room)


def _span(marks: list[_Mark]) -> tuple[float, float]:
    """How far points lie apart in cost and in quality; 1 where they do not."""
    across, up = [mark.x.value for mark in marks], [mark.y.value for mark in marks]
    return max(across) - min(across) or 1.0, max(up) - min(up) or 1.0


def _overlap(one: dict[str, Any], other: dict[str, Any], span: tuple[float, float]) -> bool:
    """Whether two labels lie over each other in a figure of `span`."""
    apart = []
    for label in (one, other):
        wide, high = _LETTER * len(METHODS[label["name"]].title) * span[0], _LINE * span[1]
        left = label["x"] - wide if label["xanchor"] == "right" else label["x"]
        low = label["y"] if label["yanchor"] == "bottom" else label["y"] - high
        apart.append((left, left + wide, low, low + high))
    (left, right, low, high), (left2, right2, low2, high2) = apart
    return left < right2 and left2 < right and low < high2 and low2 < high


def _height(curve: list[_Mark], x: float) -> float:
    """How high a curve runs there; beyond an end, the end."""
    corners = sorted((mark.x.value, mark.y.value) for mark in curve)
    return float(np.interp(x, [across for across, _ in corners], [up for _, up in corners]))


def _alone(plot: go.Figure, marks: list[_Mark], axes: tuple[str, str]) -> None:
    """Both models alone, and how good each is all the way across."""
    for name in _ALONE:
        colour, symbol = method_colour(name), method_symbol(name)[0]
        own = [mark for mark in marks if mark.point.setting.method == name]
        for mark in own:
            line = {"color": colour, "width": 1, "dash": "dash"}
            plot.add_shape(
                type="line", xref="paper", x0=0, x1=1, y0=mark.y.value, y1=mark.y.value,
                line=line, opacity=0.6, layer="below",
            )  # fmt: skip
        if own:
            plot.add_annotation(
                xref="paper", x=1 if name == "drafter_only" else 0, y=own[0].y.value, text=METHODS[name].title, name=name,
                xanchor="right" if name == "drafter_only" else "left", yanchor="bottom", showarrow=False,
                font={"color": _MUTED, "size": 12},
            )  # fmt: skip
            plot.add_scatter(
                **_points(own, axes, colour),
                mode="markers",
                name=METHODS[name].title,
                legendgroup=name,
                marker={"color": colour, "symbol": symbol, "size": 13, "line": {"width": 3}},
            )


def _claimed(plot: go.Figure, marks: list[_Mark]) -> None:
    """A ring around the setting that the sweep's headline names."""
    for mark in marks:
        ring = {"symbol": "circle-open", "size": 22, "color": _INK, "line": {"width": 1.5}}
        key = {"name": "what the headline says", "meta": "key", "hoverinfo": "skip"}
        plot.add_scatter(x=[mark.x.value], y=[mark.y.value], mode="markers", marker=ring, **key)


def _points(marks: list[_Mark], axes: tuple[str, str], colour: str) -> dict[str, Any]:
    return {
        "x": [mark.x.value for mark in marks],
        "y": [mark.y.value for mark in marks],
        "customdata": [mark.index for mark in marks],
        "text": [mark.point.setting.title for mark in marks],
        "hovertext": [_hover(mark, axes) for mark in marks],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "error_x": _bars([mark.x for mark in marks], _faint(colour)),
        "error_y": _bars([mark.y for mark in marks], _faint(colour)),
    }


def _hover(mark: _Mark, axes: tuple[str, str]) -> str:
    x, y = axes
    point = mark.point
    lines = [
        f"<b>{point.setting.title}</b>",
        f"{QUALITIES[y]} {estimate(y, mark.y)}",
        f"{COSTS[x]} {estimate(x, mark.x)}",
        f"{point.samples:,} texts, {point.tokens:,} tokens",
    ]
    compared = y if y in COMPARED else COMPARED[0]
    if found := differences(point, compared):
        lines += [f"{FIGURES[compared].title}:", *found]
    return "<br>".join(lines)


def _bars(found: list[Estimate], colour: str) -> dict[str, Any] | None:
    if all(one.low == one.high for one in found):
        return None
    return {
        "type": "data",
        "symmetric": False,
        "array": [max(one.high - one.value, 0) for one in found],
        "arrayminus": [max(one.value - one.low, 0) for one in found],
        "color": colour,
        "thickness": 1,
        "width": 0,
    }


def _dress(
    plot: go.Figure, axes: tuple[str, str], results: Results, temperature: float, *, empty: bool
) -> None:
    x, y = axes
    axis = {
        "gridcolor": _GRID,
        "linecolor": _GRID,
        "zeroline": False,
        "fixedrange": True,
        "automargin": True,
        "visible": not empty,
    }
    better = "higher" if FIGURES[y].higher_is_better else "lower"
    plot.update_layout(
        template="none",
        height=560,
        margin={"l": 56, "r": 16, "t": 56, "b": 48},
        paper_bgcolor=_PAPER,
        plot_bgcolor=_PAPER,
        font={"color": _INK, "size": 12},
        title={
            "text": f"{html.escape(f'{results.drafter} → {results.verifier}')}<br>temperature {temperature:g}",
            "font": {"size": 13},
            "x": 0.015,
            "xanchor": "left",
        },
        xaxis=axis | _axis(x, f"{COSTS[x]} (lower is cheaper)"),
        yaxis=axis | _axis(y, f"{QUALITIES[y]} ({better} is better)"),
        legend={"orientation": "h", "x": 0, "y": -0.16, "yanchor": "top", "font": {"size": 12}},
        hovermode="closest",
        hoverlabel={"bgcolor": _PAPER, "bordercolor": _MUTED, "font": {"color": _INK}, "align": "left"},
        dragmode=False,
    )
    if empty:
        words = "No point has both of these figures."
        plot.add_annotation(text=words, showarrow=False, xref="paper", yref="paper", x=0.5, y=0.5)


def _axis(name: str, title: str) -> dict[str, Any]:
    share = name in FIGURES and FIGURES[name].is_share
    return {"tickformat": ".0%" if share else ".3~g", "title": {"text": title, "font": {"size": 12}}}


# ---- in words


def number(name: str, value: float, difference: bool = False) -> str:
    """A figure's value: shares in percent, their differences in points, others with two decimals."""
    if name in FIGURES and FIGURES[name].is_share:
        text = f"{abs(100 * value):.1f}" + ("" if difference else "%")
    else:
        text = f"{abs(value):.2f}"
    sign = "" if float(text.rstrip("%")) == 0 else "−" if value < 0 else "+" if difference else ""
    return sign + text


def estimate(name: str, found: Estimate, difference: bool = False) -> str:
    """A figure's value and its 95 % interval, where that has any width."""
    value = number(name, found.value, difference)
    if difference and FIGURES[name].is_share:
        value += " points"
    if found.low == found.high:
        return value
    return f"{value} ({number(name, found.low, difference)} to {number(name, found.high, difference)})"


def differences(point: Point, name: str) -> list[str]:
    """One of `COMPARED`: its differences from the verifier alone, and from `speed` at equal rejection rate."""
    against = (
        (point.against_verifier, METHODS["verifier_only"].title),
        (point.against_speed, f"{METHODS['speed'].title} at this rejection rate"),
    )
    return [
        f"{estimate(name, side[name], difference=True)} against {title}"
        for side, title in against
        if name in side
    ]
