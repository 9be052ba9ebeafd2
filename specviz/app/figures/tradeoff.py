"""Quality against cost as a figure: one curve a method over its leniences, both models alone, the Pareto front.

Light on white, as documents want it; `DARK` says which colour takes the place of which on a dark page. Knows results
and plotly; knows neither how anything was measured nor the page.
"""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from specviz.analysis.sweep.cost_model import CostModel
from specviz.analysis.sweep.results import FIGURES, Estimate, Point, Results
from specviz.app.figures.tradeoff_words import COMPARED, differences, estimate
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

_INK, _MUTED, _GRID, _PAPER = "#1f2937", "#5b6472", "#e2e5ea", "#ffffff"
# Okabe and Ito's colours, which the colour-blind tell apart; what is drawn in grey are the two models alone.
_LOOKS = {
    "speed": ("#000000", "circle"),
    "cascade_chow": ("#e69f00", "square"),
    "cascade_diff": ("#56b4e9", "diamond"),
    "cascade_opt": ("#009e73", "triangle-up"),
    "cascade_tokenV1": ("#cc79a7", "triangle-down"),
    "cascade_tokenV2": ("#0072b2", "pentagon"),
    "cascade_tokenV3": ("#d55e00", "hexagon"),
}
_ALONE = {"drafter_only": "square-x", "verifier_only": "diamond-x"}
_STARS = {
    "surely": ("star", "above both models"),
    "yes": ("star-open", "above both, perhaps by chance"),
}


def _faint(colour: str) -> str:
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, 0.45)"


_SWAPS = {
    _INK: "#f1f3f5",
    _MUTED: "#aab2bf",
    _GRID: "#3a3f47",
    _PAPER: "#1c1f24",
    "#000000": "#fffffe",
    "#0072b2": "#3d9be0",
    "#d55e00": "#ff8a3d",
}
DARK: dict[str, str] = _SWAPS | {_faint(light): _faint(dark) for light, dark in _SWAPS.items()}
"""Colours of the figure that a dark page cannot show, and what it shows instead."""


@dataclass(frozen=True)
class _Place:
    """A point in the plane; `index` is its place in the results."""

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

    Each trace of points has their places in `results.points` as `customdata` and their titles as `text`. A point that
    lacks either figure is left out; where none is left, the figure says so.

    Args:
        results: of a sweep, whole or so far.
        temperature: one of `results.temperatures`.
        x: one of `COSTS`.
        y: one of `QUALITIES`.
        costs: what "modelled_latency" is computed with.

    Raises:
        RequestError: an axis there is not, or "modelled_latency" without costs.
    """
    if x not in COSTS or y not in QUALITIES:
        raise RequestError(f"The axes are one of {', '.join(COSTS)}, and one of {', '.join(QUALITIES)}.")
    if x == MODELLED and costs is None:
        raise RequestError(f"{MODELLED} needs the costs to compute it with.")
    places = [
        _Place(index, point, across, point.figures[y])
        for index, point in enumerate(results.points)
        if point.setting.temperature == temperature
        and (across := cost(point, x, costs))
        and y in point.figures
    ]
    plot = go.Figure()
    _front(plot, places, FIGURES[y].higher_is_better)
    if x == MODELLED:
        _measured(plot, places)
    for name, (colour, symbol) in _LOOKS.items():
        own = sorted(
            (place for place in places if place.point.setting.method == name),
            key=lambda place: place.point.setting.lenience,
        )
        if own:
            _curve(plot, own, colour, symbol, (x, y))
    _alone(plot, places, (x, y))
    for beats, (symbol, words) in _STARS.items():
        if any(place.point.beats_both == beats for place in places):
            marker = {"symbol": symbol, "size": 12, "color": _INK}
            plot.add_scatter(x=[None], y=[None], mode="markers", marker=marker, name=words, hoverinfo="skip")
    _dress(plot, (x, y), results, temperature, empty=not places)
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


def _front(plot: go.Figure, places: list[_Place], higher: bool) -> None:
    """The points that no other point outdoes: at most their cost and at least their quality."""
    front: list[_Place] = []
    sign = -1 if higher else 1
    for place in sorted(places, key=lambda place: (place.x.value, sign * place.y.value)):
        if not front or sign * place.y.value < sign * front[-1].y.value:
            front.append(place)
    if len(front) > 1:
        plot.add_scatter(
            x=[place.x.value for place in front],
            y=[place.y.value for place in front],
            mode="lines",
            line={"color": _GRID, "width": 9, "shape": "hv"},
            name="best at its cost",
            hoverinfo="skip",
        )


def _measured(plot: go.Figure, places: list[_Place]) -> None:
    """Where the points lie by what was measured, beside where the arithmetic puts them: a line from one to the other."""
    across: list[float | None] = []
    up: list[float | None] = []
    for place in places:
        if found := place.point.figures.get("relative_latency"):
            across += [place.x.value, found.value, None]
            up += [place.y.value, place.y.value, None]
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


def _curve(plot: go.Figure, places: list[_Place], colour: str, symbol: str, axes: tuple[str, str]) -> None:
    method = METHODS[places[0].point.setting.method]
    stars = [_STARS.get(place.point.beats_both) for place in places]
    look: dict[str, Any] = {
        "mode": "lines+markers",
        "name": method.title,
        "legendgroup": method.name,
        "line": {"color": colour, "width": 1.6},
    }
    # The legend would show the first point's symbol, which may be a star.
    plot.add_scatter(x=[None], y=[None], marker={"color": colour, "symbol": symbol, "size": 8}, **look)
    plot.add_scatter(
        **_points(places, axes),
        **look,
        showlegend=False,
        marker={
            "color": colour,
            "symbol": [star[0] if star else symbol for star in stars],
            "size": [15 if star else 8 for star in stars],
            "opacity": 1,
            "line": {"width": 0},
        },
        error_x=_bars([place.x for place in places], _faint(colour)),
        error_y=_bars([place.y for place in places], _faint(colour)),
    )


def _alone(plot: go.Figure, places: list[_Place], axes: tuple[str, str]) -> None:
    """Both models alone, and how good each is all the way across."""
    for name, symbol in _ALONE.items():
        own = [place for place in places if place.point.setting.method == name]
        for place in own:
            line = {"color": _MUTED, "width": 1, "dash": "dash"}
            plot.add_shape(
                type="line", xref="paper", x0=0, x1=1, y0=place.y.value, y1=place.y.value,
                line=line, opacity=0.6, layer="below",
            )  # fmt: skip
        if own:
            plot.add_scatter(
                **_points(own, axes),
                mode="markers",
                name=METHODS[name].title,
                marker={"color": _MUTED, "symbol": symbol, "size": 15, "line": {"color": _PAPER, "width": 1}},
                error_x=_bars([place.x for place in own], _faint(_MUTED)),
                error_y=_bars([place.y for place in own], _faint(_MUTED)),
            )


def _points(places: list[_Place], axes: tuple[str, str]) -> dict[str, Any]:
    return {
        "x": [place.x.value for place in places],
        "y": [place.y.value for place in places],
        "customdata": [place.index for place in places],
        "text": [place.point.setting.title for place in places],
        "hovertext": [_hover(place, axes) for place in places],
        "hovertemplate": "%{hovertext}<extra></extra>",
    }


def _hover(place: _Place, axes: tuple[str, str]) -> str:
    x, y = axes
    point = place.point
    lines = [
        f"<b>{point.setting.title}</b>",
        f"{QUALITIES[y]} {estimate(y, place.y)}",
        f"{COSTS[x]} {estimate(x, place.x)}",
        f"{point.samples:,} texts, {point.tokens:,} tokens",
    ]
    compared = y if y in COMPARED else COMPARED[0]
    if told := differences(point, compared):
        lines += [f"{FIGURES[compared].title}:", *told]
    return "<br>".join(lines)


def _bars(found: list[Estimate], colour: str) -> dict[str, Any] | None:
    """The intervals, where any has a width."""
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
        xaxis=axis | _scale(x) | {"title": {"text": f"{COSTS[x]} (lower is cheaper)", "font": {"size": 12}}},
        yaxis=axis
        | _scale(y)
        | {"title": {"text": f"{QUALITIES[y]} ({better} is better)", "font": {"size": 12}}},
        legend={"orientation": "h", "x": 0, "y": -0.16, "yanchor": "top", "font": {"size": 12}},
        hovermode="closest",
        hoverlabel={"bgcolor": _PAPER, "bordercolor": _MUTED, "font": {"color": _INK}, "align": "left"},
        dragmode=False,
    )
    if empty:
        words = "No point has both of these figures."
        plot.add_annotation(text=words, showarrow=False, xref="paper", yref="paper", x=0.5, y=0.5)


def _scale(name: str) -> dict[str, Any]:
    return {"tickformat": ".0%"} if name in FIGURES and FIGURES[name].is_share else {"tickformat": ".3~g"}
