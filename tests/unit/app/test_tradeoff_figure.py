"""The figure of a sweep: every point is where its numbers say, and says them."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations
from typing import Any

import plotly.graph_objects as go
import pytest

from specviz.analysis.sweep.claim import claim
from specviz.analysis.sweep.folder import open_recorded
from specviz.analysis.sweep.grid import Setting, SweepGrid
from specviz.analysis.sweep.results import Estimate, Point, Results
from specviz.app.figures.tradeoff import COSTS, DARK, QUALITIES, figure, number
from specviz.core.methods import METHODS, PAPER
from specviz.errors import RequestError


def interval(value: float, by: float = 0.03) -> Estimate:
    return Estimate(round(value, 4), round(value - by, 4), round(value + by, 4))


def made_point(setting: Setting) -> Point:
    """A plausible point: from verifier_only's numbers to drafter_only's as the lenience grows, some of them better."""
    index = list(METHODS).index(setting.method)
    if setting.method in ("drafter_only", "verifier_only"):
        trust = float(setting.method == "drafter_only")
        rejected = Estimate(1 - trust, 1 - trust, 1 - trust)
    else:
        low, high = METHODS[setting.method].offered_range
        trust = (setting.lenience - low) / (high - low)
        rejected = interval(0.62 * (1 - trust) ** (0.5 + index / 6))
    accuracy = 0.44 - 0.22 * trust ** (1 + index / 4) + 0.05 * math.sin(math.pi * trust) * (index - 3) / 4
    figures = {
        "accuracy": interval(accuracy, 0.05),
        "log_probability": interval(-0.9 - 1.5 * trust),
        "distance": interval(0.4 * trust, 0.01),
        "rejection_rate": rejected,
        "relative_latency": interval(0.2 + rejected.value),
    }
    if setting.method != "drafter_only":
        figures["verifier_calls"] = interval(0.5 + 0.5 * rejected.value)
    own: dict[str, Any] = {}
    if METHODS[setting.method].has_lenience:
        own = {"against_verifier": {"accuracy": Estimate(accuracy - 0.44, accuracy - 0.5, accuracy - 0.4)}}
        if setting.method != "speed":
            own["against_speed"] = {"accuracy": Estimate(0.02, -0.01, 0.05)}
        own["beats_both"] = "surely" if accuracy > 0.46 else "yes" if accuracy > 0.44 else "no"
    return Point(setting, samples=96, tokens=2304, figures=figures, **own)


def made_results(methods: tuple[str, ...] = PAPER, temperatures: tuple[float, ...] = (0.0, 0.5)) -> Results:
    plan = SweepGrid(methods=methods, temperatures=temperatures)
    points = tuple(made_point(setting) for setting in plan.settings)
    return Results(plan, "SmolLM2 drafter 18M", "SmolLM2-135M-Instruct", "float32", 96, points)


def of_points(plot: go.Figure) -> list[Any]:
    return [trace for trace in plot.data if trace.customdata is not None]


@pytest.mark.parametrize("x", COSTS)
@pytest.mark.parametrize("y", QUALITIES)
def test_every_point_with_both_figures_is_drawn_where_they_say_with_its_intervals(x: str, y: str) -> None:
    """customdata leads back to the point; its position and error bars are its estimates; what lacks one is left out."""
    results, drawn = made_results(), []
    for trace in of_points(figure(results, temperature=0.5, x=x, y=y)):
        for at, index in enumerate(trace.customdata):
            drawn.append(index)
            point = results.points[index]
            across, up = point.figures[x], point.figures[y]
            assert (trace.x[at], trace.y[at], trace.text[at]) == (across.value, up.value, point.setting.title)
            for bars, found in ((trace.error_x, across), (trace.error_y, up)):
                if bars.array is None:
                    assert found.low == found.high
                else:
                    ends = (found.value - bars.arrayminus[at], found.value + bars.array[at])
                    assert ends == pytest.approx((found.low, found.high))
    wanted = [point for point in results.at(0.5) if {x, y} <= point.figures.keys()]
    assert sorted(drawn) == sorted(results.points.index(point) for point in wanted)
    assert bool(wanted) == (y != "greedy_agreement")


def test_a_curve_runs_by_lenience_and_methods_look_different() -> None:
    """However the points are ordered; no two methods share a colour or a symbol."""
    results = made_results(temperatures=(0.5,))
    shuffled = replace(results, points=results.points[::-1])
    traces = of_points(figure(shuffled, temperature=0.5))
    curves = [trace for trace in traces if trace.mode == "lines+markers"]
    for trace in curves:
        leniences = [shuffled.points[index].setting.lenience for index in trace.customdata]
        assert leniences == sorted(leniences)
    plain = [{s for s in trace.marker.symbol if "star" not in s} for trace in curves]
    assert len(curves) == len({trace.line.color for trace in curves}) == len(set.union(*plain)) == 7


def test_stars_mark_what_beats_both_and_the_legend_says_what_they_mean() -> None:
    """Filled where it is sure, open where it may be chance; no star and no legend of stars where nothing beats both."""
    results = made_results(temperatures=(0.5,))
    plot = figure(results, temperature=0.5)
    seen = set()
    for trace in of_points(plot):
        for at, index in enumerate(trace.customdata):
            beats = results.points[index].beats_both
            symbol = trace.marker.symbol if isinstance(trace.marker.symbol, str) else trace.marker.symbol[at]
            assert ("star" in symbol) == (beats != "no")
            assert (symbol == "star") == (beats == "surely")
            seen.add(beats)
    assert seen == {"no", "yes", "surely"}
    plain = replace(results, points=tuple(replace(point, beats_both="no") for point in results.points))
    with_stars, without = (
        {trace.name for trace in figure(each, temperature=0.5).data} for each in (results, plain)
    )
    assert len(with_stars - without) == 2


@pytest.mark.parametrize(("y", "sign"), [("accuracy", 1), ("distance", -1)])
def test_nothing_outdoes_the_front_and_the_front_outdoes_all_else(y: str, sign: int) -> None:
    """Also where less is better."""
    plot = figure(made_results(), temperature=0.5, y=y)
    front = next(trace for trace in plot.data if trace.mode == "lines")
    chosen = list(zip(front.x, front.y, strict=True))
    everything = [pair for trace in of_points(plot) for pair in zip(trace.x, trace.y, strict=True)]
    for x, value in everything:
        assert any(a <= x and sign * b >= sign * value for a, b in chosen)
    for one in chosen:
        assert one in everything
        assert not any(
            other != one and other[0] <= one[0] and sign * other[1] >= sign * one[1] for other in chosen
        )


def test_another_axis_is_refused() -> None:
    with pytest.raises(RequestError, match="axes"):
        figure(made_results(), temperature=0.5, x="seed")


def test_hovering_tells_the_numbers_and_their_intervals() -> None:
    results = made_results()
    point = results.point(0.5, "cascade_tokenV3", 0.3)
    assert point is not None
    index = results.points.index(point)
    (found,) = [
        trace.hovertext[list(trace.customdata).index(index)]
        for trace in of_points(figure(results, temperature=0.5))
        if index in trace.customdata
    ]
    accuracy = point.figures["accuracy"]
    for words in (
        point.setting.title,
        f"{100 * accuracy.value:.1f}% ({100 * accuracy.low:.1f}% to {100 * accuracy.high:.1f}%)",
        "96 texts, 2,304 tokens",
        "+2.0 points (−1.0 to +5.0) against Speculative decoding at this rejection rate",
        "against Verifier only",
    ):
        assert words in found


def test_names_from_a_file_are_text_and_an_empty_figure_says_so() -> None:
    """Plotly reads markup in a title: what a file calls its models is escaped."""
    results = replace(made_results(), drafter="<a href='https://example.org'>x</a>", points=())
    plot = figure(results, temperature=0.5)
    assert "<a" not in plot.layout.title.text
    assert "No point" in plot.layout.annotations[0].text


def test_no_colour_of_the_figure_is_too_dark_for_a_dark_page() -> None:
    """After the swap, every colour stands out from the dark panel by 3 to 1 at least, but for the grid."""

    def light(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    panel = light(DARK["#ffffff"])
    colours = {trace.line.color for trace in of_points(figure(made_results(), temperature=0.5))} - {None}
    for colour in [*colours, "#14161b", "#565b66"]:
        assert (light(DARK.get(colour, colour)) + 0.05) / (panel + 0.05) > 3, colour


def test_the_curves_that_matter_stand_out_and_have_their_names_beside_them() -> None:
    """However many there are: the claim's curves in full, with intervals and labels apart; all others faint, without either."""
    methods = tuple(name for name, method in METHODS.items() if method.has_lenience)
    assert len(methods) > 10
    results = made_results(methods=methods, temperatures=(0.5,))
    plot = figure(results, temperature=0.5)
    matter = claim(results, 0.5).curves
    labels = {each.name: each for each in plot.layout.annotations if each.name in methods}
    assert set(labels) == set(methods)
    assert {name for name, each in labels.items() if each.visible} == set(matter)
    for trace in of_points(plot):
        name = trace.legendgroup
        if name in methods:
            assert (trace.meta != "faint") == (name in matter) == (trace.opacity == 1)
            assert trace.error_y.visible == (name in matter)
    shown = [labels[name] for name in matter]
    assert len({(each.x, each.y) for each in shown}) == len(shown), "two labels at one place"


@pytest.mark.parametrize("temperature", [0.0, 0.5, 1.0])
def test_no_name_lies_over_another(temperature: float) -> None:
    """In the recorded sweep: a letter takes 0.008 of the figure's width, a line 0.06 of its height."""
    recorded = open_recorded()
    assert recorded
    points = [point.figures for point in recorded.results.at(temperature)]
    across, up = (
        max(values) - min(values)
        for values in ([each[name].value for each in points] for name in ("rejection_rate", "accuracy"))
    )
    boxes = []
    for each in figure(recorded.results, temperature=temperature).layout.annotations:
        if each.visible and each.name in METHODS:
            wide, high = 0.008 * len(METHODS[each.name].title) * across, 0.06 * up
            left = each.x - wide * (each.xanchor == "right")
            low = each.y - high * (each.yanchor == "top")
            boxes.append((left, left + wide, low, low + high))
    for (left, right, low, high), (left2, right2, low2, high2) in combinations(boxes, 2):
        assert right <= left2 or right2 <= left or high <= low2 or high2 <= low


def test_the_ring_is_around_what_the_headline_names() -> None:
    """Where the claim names a setting, at its figures; else there is none."""
    results = made_results(temperatures=(0.5,))
    assert not any(trace.name == "what the headline says" for trace in figure(results, temperature=0.5).data)
    points = [
        replace(point, ratios={"accuracy": interval(0.98), "rejection_rate": interval(0.8)})
        if point.setting == Setting(0.5, "cascade_tokenV3", 0.3)
        else replace(point, against_verifier={"accuracy": Estimate(-0.2, -0.3, -0.1)})
        for point in results.points
    ]
    named = replace(results, points=tuple(points))
    [ring] = [
        trace for trace in figure(named, temperature=0.5).data if trace.name == "what the headline says"
    ]
    figures = results.point(0.5, "cascade_tokenV3", 0.3).figures
    assert (ring.x, ring.y) == ((figures["rejection_rate"].value,), (figures["accuracy"].value,))
    assert [number("accuracy", value, True) for value in (0.021, -0.021, 0.0)] == ["+2.1", "−2.1", "0.0"]
