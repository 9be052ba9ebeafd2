"""The figure of a sweep: every point is where its numbers say, and says them."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations
from typing import Any

import plotly.graph_objects as go
import pytest

from specviz.analysis.sweep.claim import claim
from specviz.analysis.sweep.cost_model import CostModel
from specviz.analysis.sweep.folder import open_recorded
from specviz.analysis.sweep.grid import Setting, SweepGrid
from specviz.analysis.sweep.results import Estimate, Point, Results
from specviz.app.figures.tradeoff import COSTS, DARK, QUALITIES, cost, figure, number
from specviz.core.methods import METHODS, PAPER
from specviz.errors import RequestError

COST_MODEL = CostModel(drafter=0.1, per_token=0.05, draft_length=3)


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
    latency = COST_MODEL.relative_latency(setting.method, 1 - rejected.value)
    figures = {
        "accuracy": interval(accuracy, 0.05),
        "log_probability": interval(-0.9 - 1.5 * trust),
        "distance": interval(0.4 * trust, 0.01),
        "rejection_rate": rejected,
        "relative_latency": interval(1.05 * latency),
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


def made_results(
    methods: tuple[str, ...] = PAPER, temperatures: tuple[float, ...] = (0.0, 0.5), **more: Any
) -> Results:
    settings = SweepGrid(methods=tuple(methods), temperatures=tuple(temperatures)).settings
    names = {"drafter": "SmolLM2 drafter 18M", "verifier": "SmolLM2-135M-Instruct", "dtype": "float32"}
    plan = {"draft_length": 3, "max_new_tokens": 24, "seed": 0, "trials": 1, "pair": "embedded"} | more
    return Results(plan, **names, items=96, points=tuple(made_point(setting) for setting in settings))


def of_points(plot: go.Figure) -> list[Any]:
    return [trace for trace in plot.data if trace.customdata is not None]


@pytest.mark.parametrize("x", COSTS)
@pytest.mark.parametrize("y", QUALITIES)
def test_every_point_with_both_figures_is_drawn_where_they_say_with_its_intervals(x: str, y: str) -> None:
    """customdata leads back to the point; its position and error bars are its estimates; what lacks one is left out."""
    results = made_results()
    drawn = {}
    for trace in of_points(figure(results, temperature=0.5, x=x, y=y, costs=COST_MODEL)):
        for at, index in enumerate(trace.customdata):
            point = results.points[index]
            drawn[index] = point
            across, up = cost(point, x, COST_MODEL), point.figures[y]
            assert across is not None
            assert (trace.x[at], trace.y[at], trace.text[at]) == (across.value, up.value, point.setting.title)
            for bars, found in ((trace.error_x, across), (trace.error_y, up)):
                if bars.array is None:
                    assert found.low == found.high
                else:
                    ends = (found.value - bars.arrayminus[at], found.value + bars.array[at])
                    assert ends == pytest.approx((found.low, found.high))
    wanted = [p for p in results.at(0.5) if cost(p, x, COST_MODEL) and y in p.figures]
    assert sorted(drawn) == sorted(results.points.index(point) for point in wanted)
    assert bool(wanted) == (y != "greedy_agreement")


def test_a_curve_runs_by_lenience_and_methods_look_different() -> None:
    """However the points are ordered; no two methods share a colour or a symbol."""
    results = made_results(temperatures=(0.5,))
    shuffled = replace(results, points=results.points[::-1])
    traces = of_points(figure(shuffled, temperature=0.5))
    curves = [trace for trace in traces if trace.mode == "lines+markers"]
    assert len(curves) == 7
    for trace in curves:
        leniences = [shuffled.points[index].setting.lenience for index in trace.customdata]
        assert leniences == sorted(leniences)
    assert len({trace.line.color for trace in curves}) == 7
    plain = [{s for s in trace.marker.symbol if "star" not in s} for trace in curves]
    assert len(set.union(*plain)) == 7


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
    names = {trace.name for trace in plot.data} - {
        trace.name for trace in figure(plain, temperature=0.5).data
    }
    assert len(names) == 2


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


def test_both_models_alone_are_lines_across() -> None:
    """A dashed line at the quality of each."""
    results = made_results()
    lines = {shape.y0 for shape in figure(results, temperature=0.0).layout.shapes}
    alone = {
        point.figures["accuracy"].value for point in results.at(0.0) if point.setting.method.endswith("_only")
    }
    assert lines == alone


def test_modelled_latency_is_the_cost_models() -> None:
    """At the point's acceptance, its interval turned around where more rejections cost more."""
    point = made_results().point(0.5, "cascade_tokenV3", 0.3)
    assert point is not None
    found = cost(point, "modelled_latency", COST_MODEL)
    rejected = point.figures["rejection_rate"]
    assert found is not None
    assert found.value == COST_MODEL.relative_latency("cascade_tokenV3", 1 - rejected.value)
    assert found.low == COST_MODEL.relative_latency("cascade_tokenV3", 1 - rejected.low)
    assert found.low < found.value < found.high
    assert cost(point, "modelled_latency") is None
    with pytest.raises(RequestError, match="needs the costs"):
        figure(made_results(), temperature=0.5, x="modelled_latency")
    with pytest.raises(RequestError, match="axes"):
        figure(made_results(), temperature=0.5, x="seed")


def test_what_was_measured_stands_beside_what_is_modelled() -> None:
    """From every modelled point a line leads to its measured latency; without measurements, and elsewhere, there is none."""
    results = made_results()

    def line(shown: Results, x: str) -> Any:
        traces = figure(shown, temperature=0.5, x=x, costs=COST_MODEL).data
        return next((trace for trace in traces if trace.name == "as measured here"), None)

    drawn = line(results, "modelled_latency")
    found = {
        (drawn.x[at], drawn.y[at]): (drawn.x[at + 1], drawn.y[at + 1]) for at in range(0, len(drawn.x), 3)
    }
    for point in results.at(0.5):
        modelled, right = cost(point, "modelled_latency", COST_MODEL), point.figures["accuracy"].value
        assert found[modelled.value, right] == (point.figures["relative_latency"].value, right)
    assert line(results, "relative_latency") is None
    untimed = [
        replace(p, figures={n: one for n, one in p.figures.items() if n != "relative_latency"})
        for p in results.points
    ]
    assert line(replace(results, points=tuple(untimed)), "modelled_latency") is None


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
    """After the swap, every colour stands out from the dark panel by 3 to 1 at least, but for the all_settings."""

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
    """Of the shipped sweep's curves that matter: a letter takes 0.008 of the figure's width, a line 0.06 of its height."""
    recorded = open_recorded()
    assert recorded
    results = recorded.results
    plot = figure(results, temperature=temperature)
    points = [
        each.figures
        for each in results.points
        if each.setting.temperature == temperature and "rejection_rate" in each.figures
    ]
    across, up = (
        max(values) - min(values)
        for values in ([each[name].value for each in points] for name in ("rejection_rate", "accuracy"))
    )
    boxes = []
    for each in plot.layout.annotations:
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
