"""The tab Trade-off: quality against cost for a pair, point by point down to the texts, recorded or swept live.

Turns what people set into a figure, a table or a plan; hands a text on to Compare. Knows the service and what a sweep
found; knows no torch and draws nothing itself. The texts are a model's: they are shown as text only.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import gradio as gr
from gradio.components import Component

from specviz.analysis.sweep.cost_model import CostModel
from specviz.analysis.sweep.items import Item
from specviz.analysis.sweep.plan import Plan
from specviz.analysis.sweep.results import Point, Results
from specviz.analysis.sweep.sample import Sample
from specviz.app.components.figure_view import FigureView, figure_value
from specviz.app.controls import pair_dropdown, run_buttons
from specviz.app.figures.tradeoff import COSTS, DARK, MODELLED, QUALITIES, figure
from specviz.app.figures.tradeoff_words import sentence
from specviz.app.link import Pane
from specviz.app.offered import RANGES
from specviz.app.running import QUIET, in_a_sentence, wire_updates
from specviz.app.tabs.compare import Compare, set_panes
from specviz.core.methods import METHODS
from specviz.errors import RequestError, StoppedError
from specviz.progress import Progress
from specviz.schema.settings import MAX_DRAFT_LENGTH
from specviz.serving.offer import offered_pairs
from specviz.serving.service import Service

PREFIX = "tradeoff-"
UPDATE_SECONDS = 1.0
"""Least time between two drawings of a sweep that runs."""
MAX_METHODS, POINTS, ITEMS, TOKENS = 4, (2, 5), (8, 32), 24
"""What a sweep on the page may have: methods at most, leniences of each, items, and tokens of a text. The whole of it
takes some minutes on two cores, and others wait."""
MAX_TEXTS = 50
"""Texts of a point that are listed."""
MAX_CELL = 400
"""Characters of a text in the list."""

INTRODUCTION = """Each point is a method at one lenience: how good its texts are, and what they cost. Up is better, left \
is cheaper; bars are 95% intervals; a star beats both models alone. Choose a point to read its texts."""
NOTHING_RECORDED = "There is no recorded sweep in this copy of SpecViz; below you can make one yourself."
OWN = "Your own"


class Sweep(Protocol):
    """What a sweep found, with the texts themselves."""

    @property
    def results(self) -> Results:
        """The figures."""

    @property
    def items(self) -> tuple[Item, ...]:
        """What was asked."""

    @property
    def costs(self) -> CostModel | None:
        """Of the pair where it was measured, if it was."""

    def samples(self, setting: int) -> list[Sample]:
        """The texts of one of the plan's settings, by its place there; the first trials first."""


@dataclass(frozen=True)
class Text:
    """A text of the chosen point, as it is asked for again and as it is listed."""

    pane: Pane
    item: Item
    seed: int
    cells: tuple[str, ...]


@dataclass
class Showing:
    """What one browser session looks at. Its events share it: while a sweep runs, the axes may be moved."""

    temperature: float
    costs: CostModel
    x: str = "rejection_rate"
    y: str = "accuracy"
    is_live: bool = False
    live: Sweep | None = None
    number: int = 0
    said: str = ""
    failure: str = ""
    texts: list[Text] = field(default_factory=list)
    chosen: Text | None = None


def tradeoff_tab(
    page: gr.Blocks, service: Service, compare: Compare, tabs: gr.Tabs, recorded: Sweep | None
) -> None:
    """Build the tab's content: `recorded` is shown at once; a chosen text is opened in `compare`, one of the `tabs`."""
    temperatures = recorded.results.temperatures if recorded else []
    presets = _presets(recorded.costs if recorded else None)
    first = next(iter(presets))
    start = Showing(_middle(temperatures), presets[first])
    if not recorded:
        start.failure = NOTHING_RECORDED

    def drawn(showing: Showing) -> str:
        sweep = showing.live if showing.is_live else recorded
        if sweep is None:
            return figure_value(said=showing.said, failure=showing.failure)
        plot = figure(
            sweep.results, temperature=showing.temperature, x=showing.x, y=showing.y, costs=showing.costs
        )
        return figure_value(
            plot,
            csv=sweep.results.to_csv(),
            name="specviz-sweep",
            key=f"{showing.number if showing.is_live else 'recorded'} {showing.temperature:g}",
            said=showing.said,
            failure=showing.failure,
        )

    gr.Markdown(INTRODUCTION, elem_id="tradeoff-about")
    showing = gr.State(start)
    with gr.Row():
        x = _axis("Cost (x)", COSTS, start.x, "tradeoff-x")
        y = _axis("Quality (y)", QUALITIES, start.y, "tradeoff-y")
        temperature = gr.Radio(
            [(f"{each:g}", each) for each in temperatures],
            value=start.temperature if temperatures else None,
            label="Temperature",
            elem_id="tradeoff-temperature",
            visible=bool(temperatures),
        )
    with gr.Row(visible=False, elem_id="tradeoff-costs") as cost_row:
        preset = gr.Dropdown(
            [*presets, OWN],
            value=first,
            label="What if …",
            info="What the passes of other models cost elsewhere.",
            filterable=False,
            elem_id="tradeoff-preset",
            min_width=300,
        )
        sliders = _cost_sliders(presets[first])
    view = FigureView(drawn(start), dark=DARK, elem_id="tradeoff-figure")
    back = gr.Button("Show the recorded sweep", size="sm", visible=False, elem_id="tradeoff-recorded")
    numbers = gr.Markdown(visible=False, elem_id="tradeoff-numbers")
    table = gr.Dataframe(
        headers=["#", "Prompt", "This point", "Verifier only", "Drafter only"],
        datatype="str",
        type="array",
        interactive=False,
        wrap=True,
        max_height=420,
        column_widths=["48px", "280px", "290px", "290px", "290px"],
        visible=False,
        label="Texts of this point: ✓ right, ✗ wrong. Choose one to see how it came about.",
        elem_id="tradeoff-texts",
    )
    into_compare = gr.Button("Open in Compare", visible=False, interactive=False, elem_id="tradeoff-open")
    details: list[Any] = [numbers, table, into_compare]
    with gr.Accordion("Sweep it yourself", open=False):
        buttons, inputs = _sweep_controls()

    def hide(now: Showing) -> list[Any]:
        now.texts, now.chosen = [], None
        return [
            gr.Markdown(visible=False),
            gr.Dataframe(visible=False),
            gr.Button("Open in Compare", visible=False, interactive=False),
        ]

    def redraw(now: Showing, *settings: Any) -> list[Any]:
        now.x, now.y, c, s, k = settings
        now.costs = CostModel(c, s, int(k))
        return [drawn(now), gr.Row(visible=now.x == MODELLED)]

    def redraw_own(now: Showing, *settings: Any) -> list[Any]:
        return [*redraw(now, *settings), OWN]

    def heat(now: Showing, chosen: float) -> list[Any]:
        now.temperature = chosen
        return [drawn(now), *hide(now)]

    def take_preset(now: Showing, name: str) -> list[Any]:
        now.costs = presets.get(name, now.costs)
        return [now.costs.drafter, now.costs.per_token, now.costs.draft_length, drawn(now)]

    def choose(now: Showing, event: gr.SelectData) -> list[Any]:
        sweep = now.live if now.is_live else recorded
        points = sweep.results.points if sweep else ()
        index = event.index
        if not sweep or not isinstance(index, int) or not 0 <= index < len(points):
            return [gr.skip()] * len(details)
        point = points[index]
        now.texts, now.chosen = texts_of(sweep, point), None
        return [
            gr.Markdown(sentence(point), visible=True),
            gr.Dataframe([list(text.cells) for text in now.texts], visible=True),
            gr.Button("Open in Compare", visible=True, interactive=False),
        ]

    def choose_text(now: Showing, event: gr.SelectData) -> Any:
        row = event.row_value[0] if isinstance(event.row_value, list) and event.row_value else ""
        now.chosen = next((text for text in now.texts if text.cells[0] == str(row)), None)
        if now.chosen is None:
            return gr.skip()
        if now.chosen.item.raw:
            return gr.Button("Open in Compare (not for prompts without a chat template)", interactive=False)
        return gr.Button(f"Open text {row} in Compare", interactive=True)

    def opened(now: Showing, starts: int) -> list[Any]:
        outputs = len(compare.settings) + len(compare.pane_outputs)
        sweep = now.live if now.is_live else recorded
        if now.chosen is None or sweep is None:
            return [gr.skip()] * (outputs + 2)
        return [
            *in_compare(now.chosen, sweep.results, now.temperature),
            gr.Tabs(selected="compare"),
            starts + 1,
        ]

    def show_recorded(now: Showing) -> list[Any]:
        assert recorded is not None  # the button is not there otherwise
        now.is_live, now.said, now.failure, now.temperature = False, "", "", _middle(temperatures)
        return [
            drawn(now),
            _temperatures(temperatures, now.temperature),
            gr.Button(visible=False),
            *hide(now),
        ]

    def updates(
        stop: threading.Event, progress: Progress, visitor: str, now: Showing, key: str, *settings: Any
    ) -> Iterator[list[Any]]:
        now.is_live, now.live, now.said, now.failure = True, None, "", ""
        now.number += 1
        now.temperature = float(settings[2])
        yield [
            drawn(now),
            _temperatures([now.temperature], now.temperature),
            gr.Button(visible=recorded is not None),
            *hide(now),
        ]
        rest = [gr.skip()] * (2 + len(details))
        try:
            plan = plan_of(key, *settings)
            shown_at = time.monotonic()
            for sweep in service.sweep(key, plan, stop, progress, visitor=visitor):
                now.live, now.said = sweep, _told(sweep.results, plan, False)
                if time.monotonic() - shown_at >= UPDATE_SECONDS:
                    yield [drawn(now), *rest]
                    shown_at = time.monotonic()
        except StoppedError:
            pass
        except Exception as error:
            now.failure = in_a_sentence(error)
        if now.live is not None:
            now.said = _told(now.live.results, plan, True)
        elif not now.failure:
            now.failure = "Stopped before the first point was done."
        yield [drawn(now), *rest]

    redraws = [showing, x, y, *sliders]
    for each in (x, y):
        each.input(redraw, redraws, [view, cost_row], **QUIET)
    for slider in sliders:
        slider.input(redraw_own, redraws, [view, cost_row, preset], trigger_mode="always_last", **QUIET)
    temperature.input(heat, [showing, temperature], [view, *details], **QUIET)
    preset.input(take_preset, [showing, preset], [*sliders, view], **QUIET)
    view.select(choose, showing, details, **QUIET)
    table.select(choose_text, showing, into_compare, **QUIET)
    filled: list[Any] = [*compare.settings.values(), *compare.pane_outputs, tabs, compare.go]
    into_compare.click(opened, [showing, compare.go], filled, **QUIET)
    back.click(show_recorded, showing, [view, temperature, back, *details], **QUIET)
    wire_updates(
        page,
        updates,
        triggers=[buttons[0].click],
        buttons=buttons,
        inputs=[showing, *inputs],
        outputs=[view, temperature, back, *details],
        view=view,
    )


PRESETS = {
    "70B verifier, 1B drafter, GPU": CostModel(0.02, 0.005, 5),
    "7B verifier, 0.5B drafter, GPU": CostModel(0.1, 0.005, 5),
    "7B again, many requests at once": CostModel(0.1, 0.3, 3),
    "A drafter that costs nothing": CostModel(0.001, 0.005, 8),
}
"""What passes cost elsewhere, roughly; by the words it is offered under."""


def plan_of(key: str, methods: list[str], points: float, temperature: float, limit: float) -> Plan:
    """The sweep of a pair that was asked for on the page.

    Raises:
        RequestError: it is more than one visitor may have, or no method is chosen.
    """
    if key not in offered_pairs() or not 1 <= len(methods) <= MAX_METHODS:
        raise RequestError(f"Choose one to {MAX_METHODS} methods.")
    for name, value, (low, high) in (("Points of a curve", points, POINTS), ("Items", limit, ITEMS)):
        if not low <= value <= high:
            raise RequestError(f"{name}: a number from {low} to {high} can be asked for.")
    return Plan(
        pair=key,
        methods=tuple(methods),
        points=int(points),
        temperatures=(float(temperature),),
        limit=int(limit),
        max_new_tokens=TOKENS,
        timed=0,
    )


def texts_of(sweep: Sweep, point: Point) -> list[Text]:
    """The texts of a point, `MAX_TEXTS` at most, each beside what both models alone wrote to the same."""
    settings = Plan.from_record(sweep.results.plan).settings
    found = {}
    for name in ("verifier_only", "drafter_only"):
        alone = sweep.results.point(point.setting.temperature, name)
        samples = sweep.samples(settings.index(alone.setting)) if alone else []
        found[name] = {(sample.item, sample.trial): sample for sample in samples}
    own = sweep.samples(settings.index(point.setting))[:MAX_TEXTS]
    draft_length = sweep.results.plan["draft_length"]
    pane = Pane(point.setting.method, point.setting.lenience, draft_length)
    texts = []
    for number, sample in enumerate(own, 1):
        item = sweep.items[sample.item]
        others = (found[name].get((sample.item, sample.trial)) for name in found)
        cells = (str(number), item.prompt[:MAX_CELL], _cell(sample), *map(_cell, others))
        texts.append(Text(pane, item, sample.seed, cells))
    return texts


def in_compare(text: Text, results: Results, temperature: float) -> list[Any]:
    """Updates for the settings of Compare and its panes: this text again, beside both models and the lossless way."""
    plan = results.plan
    asked = {
        "pair": plan["pair"],
        "prompt": text.item.prompt,
        "temperature": temperature,
        "top_k": RANGES["top_k"].start,
        "top_p": RANGES["top_p"].start,
        "max_new_tokens": plan["max_new_tokens"],
        "seed": text.seed,
    }
    others = (Pane(name, 0.0, text.pane.draft_length) for name in ("verifier_only", "drafter_only", "speed"))
    panes = tuple(dict.fromkeys((text.pane, *others)))
    return [*asked.values(), *set_panes(panes)]


def _cell(sample: Sample | None) -> str:
    if sample is None:
        return ""
    mark = "" if sample.score is None else "✓ " if sample.score >= 1 else "✗ "
    return mark + sample.text[:MAX_CELL]


def _told(results: Results, plan: Plan, ended: bool) -> str:
    """How far a sweep is."""
    done = sum(point.samples for point in results.points)
    planned = sum(results.items * plan.trials_at(setting.temperature) for setting in plan.settings)
    how = "Done" if done >= planned else "Stopped" if ended else "Sweeping"
    return f"{how}: {done} of {planned} texts."


def _presets(measured: CostModel | None) -> dict[str, CostModel]:
    """What can be chosen, the measured first, rounded to the steps of the sliders."""
    if measured is None:
        return PRESETS
    rounded = CostModel(round(measured.drafter, 3), round(measured.per_token, 3), measured.draft_length)
    return {"As measured here": rounded} | PRESETS


def _middle(temperatures: list[float]) -> float:
    return temperatures[len(temperatures) // 2] if temperatures else 0.0


def _temperatures(offered: list[float], chosen: float) -> gr.Radio:
    return gr.Radio([(f"{each:g}", each) for each in offered], value=chosen, visible=True)


def _axis(label: str, offered: dict[str, str], chosen: str, elem_id: str) -> gr.Dropdown:
    choices = [(title, name) for name, title in offered.items()]
    return gr.Dropdown(choices, value=chosen, label=label, filterable=False, elem_id=elem_id, min_width=240)


def _cost_sliders(costs: CostModel) -> list[gr.Slider]:
    return [
        gr.Slider(
            0.001, 1, costs.drafter, step=0.001, label="Drafter pass c",
            min_width=200,
            info="÷ a verifier pass over one token", elem_id="tradeoff-c",
        ),
        gr.Slider(
            0, 1, costs.per_token, step=0.001, label="Each more token verified s",
            min_width=200,
            info="adds this much to a verifier pass", elem_id="tradeoff-s",
        ),
        gr.Slider(
            1, MAX_DRAFT_LENGTH, costs.draft_length, step=1, label="Draft length K",
            min_width=200,
            info="proposals in a round", elem_id="tradeoff-k",
        ),
    ]  # fmt: skip


def _sweep_controls() -> tuple[tuple[gr.Button, gr.Button], list[Component]]:
    """Run and Stop; and the pair, then what `plan_of` takes."""
    offered = [(method.title, name) for name, method in METHODS.items() if method.has_lenience]
    heat = RANGES["temperature"]
    with gr.Row():
        with gr.Column(min_width=280):
            pair = pair_dropdown(PREFIX)
            methods = gr.CheckboxGroup(
                offered,
                value=["speed", "cascade_tokenV3"],
                label="Methods",
                info=f"At most {MAX_METHODS}; both models alone come along.",
                elem_id="tradeoff-methods",
            )
        with gr.Column(min_width=280):
            points = gr.Slider(
                *POINTS, 3, step=1, label="Leniences of each method", elem_id="tradeoff-points"
            )
            temperature = gr.Slider(
                heat.low, heat.high, 0.5, step=heat.step, label="Temperature", elem_id="tradeoff-heat"
            )
            limit = gr.Slider(*ITEMS, ITEMS[0], step=4, label="Questions", elem_id="tradeoff-limit")
    buttons = run_buttons(PREFIX)
    return buttons, [pair, methods, points, temperature, limit]
