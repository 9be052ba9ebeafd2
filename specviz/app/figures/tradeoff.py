"""Quality against cost as a figure: one curve per method over its leniences, both models alone, the Pareto front.

Curves that matter for the sweep's claim stand out and carry their names; the others are faint. Drawn on white;
`DARK` maps its colours to those of a dark page.
"""

from __future__ import annotations

import html
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import plotly.graph_objects as go

from specviz.analysis.sweep.claim import claim
from specviz.analysis.sweep.results import COMPARED, FIGURES, Estimate, Point, Results
from specviz.app.marks import method_colour, method_symbol, method_token
from specviz.app.tokens import colours
from specviz.core.methods import METHODS
from specviz.errors import RequestError

COSTS: dict[str, str] = {
    name: FIGURES[name].title for name in ("rejection_rate", "relative_latency", "verifier_calls")
}
"""Figures for the x axis, by name; less is better."""
QUALITIES: dict[str, str] = {name: figure.title for name, figure in FIGURES.items() if figure.is_quality}
"""Figures for the y axis, by name."""

_INK, _MUTED, _FRONT, _GRID, _PAPER = (
    colours("light")[name] for name in ("text", "muted", "line", "sunken", "panel")
)
_FAINT = 0.22
"""Opacity of a curve that does not stand out; `figure_view.js` has the same."""
_ALONE = {"drafter_only": ("right", 1), "verifier_only": ("left", 0)}
"""The models alone, and where their names stand: anchor and x."""
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
"""Colours of the figure, and those that replace them on a dark page."""


_LETTER, _LINE, _GAP = 0.009, 0.07, 0.012
"""Width of a letter, height of a line and distance of a label from its point, as shares of the figure."""


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
) -> go.Figure:
    """Draw the points of a temperature that have both figures.

    Args:
        results: of a sweep.
        temperature: one of `results.temperatures`.
        x: one of `COSTS`.
        y: one of `QUALITIES`.

    Raises:
        RequestError: there is no such axis.
    """
    if x not in COSTS or y not in QUALITIES:
        raise RequestError(f"The axes are one of {', '.join(COSTS)}, and one of {', '.join(QUALITIES)}.")
    marks = [
        _Mark(index, point, point.figures[x], point.figures[y])
        for index, point in enumerate(results.points)
        if point.setting.temperature == temperature and {x, y} <= point.figures.keys()
    ]
    plot = go.Figure()
    _front(plot, marks, FIGURES[y].higher_is_better)
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
    for mark in marks:
        if mark.point == found.best:
            _key(plot, mark, "what the headline says", symbol="circle-open", size=22, line={"width": 1.5})
    # At once: plotly validates all annotations anew for each that is added.
    plot.update_layout(annotations=[*plot.layout.annotations, *_labels(curves, matter, marks)])
    for beats, (symbol, words) in _STARS.items():
        if any(mark.point.beats_both == beats for mark in marks):
            _key(plot, None, words, symbol=symbol, size=12)
    _dress(plot, (x, y), results, temperature, marks)
    return plot


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


def _labels(curves: dict[str, list[_Mark]], matter: list[str], marks: list[_Mark]) -> list[dict[str, Any]]:
    """Each curve's name as an annotation, beside the point and on the side where it has most room.

    Room is the distance from the curves that stand out and from their labels, in sizes of the label. The ends do not
    count: there all curves meet.
    """
    extent = np.ptp([(mark.x.value, mark.y.value) for mark in marks], axis=0) if marks else np.ones(2)
    extent[extent == 0] = 1
    lines = {name: _line(own) / extent for name, own in curves.items()}
    taken = np.concatenate([np.empty((0, 2)), *(lines[name] for name in matter)])
    labels = []
    for name in (*matter, *(name for name in curves if name not in matter)):
        size = np.array([_LETTER * len(METHODS[name].title), _LINE])
        places = list(product(curves[name][1:-1] or curves[name], (-1, 1), (-1, 1)))
        centres = [
            (mark.x.value, mark.y.value) / extent + np.array(sides) * (size / 2 + _GAP)
            for mark, *sides in places
        ]
        around = np.concatenate([taken, lines[name]])
        room = [np.abs((around - centre) / size).max(axis=1).min() for centre in centres]
        best = int(np.argmax(room))
        labels.append(_label(name, *places[best], is_visible=name in matter))
        if name in matter:
            edges = np.array(list(product(np.linspace(-0.5, 0.5, 5), (-0.5, 0.5))))
            taken = np.concatenate([taken, centres[best] + edges * size])
    return labels


def _line(marks: list[_Mark]) -> Any:
    """Points [n, 2] along a curve."""
    steps, fine = range(len(marks)), np.linspace(0, len(marks) - 1, 8 * len(marks))
    x, y = [mark.x.value for mark in marks], [mark.y.value for mark in marks]
    return np.column_stack([np.interp(fine, steps, x), np.interp(fine, steps, y)])


def _label(name: str, mark: _Mark, right: int, above: int, *, is_visible: bool) -> dict[str, Any]:
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
        "visible": is_visible,
        "xanchor": "left" if right > 0 else "right",
        "yanchor": "bottom" if above > 0 else "top",
        "xshift": 8 * right,
        "yshift": 6 * above,
    }


def _alone(plot: go.Figure, marks: list[_Mark], axes: tuple[str, str]) -> None:
    """Both models alone, and a line across at the quality of each."""
    for name, (side, x) in _ALONE.items():
        own = [mark for mark in marks if mark.point.setting.method == name]
        if not own:
            continue
        colour, y = method_colour(name), own[0].y.value
        dashed = {"color": colour, "width": 1, "dash": "dash"}
        plot.add_shape(
            type="line", xref="paper", x0=0, x1=1, y0=y, y1=y, line=dashed, opacity=0.6, layer="below"
        )
        plot.add_annotation(
            **{"xref": "paper", "x": x, "y": y, "xanchor": side, "yanchor": "bottom", "showarrow": False},
            text=METHODS[name].title,
            name=name,
            font={"color": _MUTED, "size": 12},
        )
        marker = {"color": colour, "symbol": method_symbol(name)[0], "size": 13, "line": {"width": 3}}
        plot.add_scatter(
            **_points(own, axes, colour),
            mode="markers",
            name=METHODS[name].title,
            legendgroup=name,
            marker=marker,
        )


def _key(plot: go.Figure, mark: _Mark | None, words: str, **marker: Any) -> None:
    """A symbol with its meaning in the legend, drawn at a mark or only there."""
    place = {"x": [mark.x.value], "y": [mark.y.value]} if mark else {"x": [None], "y": [None]}
    marker["color"] = _INK
    plot.add_scatter(**place, mode="markers", marker=marker, name=words, meta="key", hoverinfo="skip")


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
    plot: go.Figure, axes: tuple[str, str], results: Results, temperature: float, marks: list[_Mark]
) -> None:
    x, y = axes
    lowest, highest = min((m.x.low for m in marks), default=0), max((m.x.high for m in marks), default=1)
    margin = 0.06 * (highest - lowest or 1)
    axis = {
        "gridcolor": _GRID,
        "linecolor": _GRID,
        "zeroline": False,
        "fixedrange": True,
        "automargin": True,
        "visible": bool(marks),
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
        # Set, since plotly would make room for labels.
        xaxis=axis
        | _axis(x, f"{COSTS[x]} (lower is cheaper)")
        | {"range": [lowest - margin, highest + margin]},
        yaxis=axis | _axis(y, f"{QUALITIES[y]} ({better} is better)"),
        legend={"orientation": "h", "x": 0, "y": -0.16, "yanchor": "top", "font": {"size": 12}},
        hovermode="closest",
        hoverlabel={"bgcolor": _PAPER, "bordercolor": _MUTED, "font": {"color": _INK}, "align": "left"},
        dragmode=False,
    )
    if not marks:
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
