"""The controls of the tab Speed or quality: of a modelled cost, and of a sweep asked for on the page, with its limits.

Knows costs, settings and ranges; computes no cost, and knows no service.
"""

from __future__ import annotations

import gradio as gr
from gradio.components import Component

from specviz.analysis.sweep.cost_model import CostModel
from specviz.analysis.sweep.grid import SweepGrid
from specviz.analysis.sweep.results import Results
from specviz.app.controls import pair_dropdown, run_buttons
from specviz.app.settings import CONTROLS
from specviz.core.methods import METHODS
from specviz.errors import RequestError
from specviz.schema.settings import MAX_DRAFT_LENGTH
from specviz.serving.offer import offered_pairs

OWN = "Your own"

_PRESETS = {
    "70B verifier, 1B drafter, GPU": CostModel(0.02, 0.005, 5),
    "7B verifier, 0.5B drafter, GPU": CostModel(0.1, 0.005, 5),
    "7B again, many requests at once": CostModel(0.1, 0.3, 3),
    "A drafter that costs nothing": CostModel(0.001, 0.005, 8),
}
"""Costs of forward passes elsewhere, roughly; by the words they are offered under."""


def cost_presets(measured: CostModel | None) -> dict[str, CostModel]:
    """The presets, first the measured one, if any, rounded to the steps of the sliders."""
    if measured is None:
        return _PRESETS
    rounded = CostModel(round(measured.drafter, 3), round(measured.per_token, 3), measured.draft_length)
    return {"As measured here": rounded} | _PRESETS


def cost_controls(presets: dict[str, CostModel]) -> tuple[gr.Row, gr.Dropdown, list[gr.Slider]]:
    """A preset, and a slider for each number of a `CostModel`, at the first preset; in a row, hidden."""
    first = next(iter(presets))
    with gr.Row(visible=False, elem_id="tradeoff-costs") as row:
        preset = gr.Dropdown(
            [*presets, OWN],
            value=first,
            label="What if …",
            info="What the passes of other models cost elsewhere.",
            filterable=False,
            elem_id="tradeoff-preset",
            min_width=300,
        )
        sliders = [
            gr.Slider(
                *bounds,
                label=label,
                info=info,
                elem_id=f"tradeoff-{name}",
                step=step,
                value=value,
                min_width=200,
            )
            for name, label, info, bounds, step, value in _numbers(presets[first])
        ]
    return row, preset, sliders


def _numbers(costs: CostModel) -> list[tuple[str, str, str, tuple[float, float], float, float]]:
    """Of each number of a cost model: id, label, hint, range, step, value."""
    more, adds = "Each more token verified s", "adds this much to a verifier pass"
    return [
        ("c", "Drafter pass c", "÷ a verifier pass over one token", (0.001, 1), 0.001, costs.drafter),
        ("s", more, adds, (0, 1), 0.001, costs.per_token),
        ("k", "Draft length K", "proposals in a round", (1, MAX_DRAFT_LENGTH), 1, costs.draft_length),
    ]


MAX_METHODS, POINTS, ITEMS, TOKENS = 4, (2, 5), (8, 32), 24
"""Methods at most, leniences of each, items, and tokens of a text. The largest sweep takes some minutes on two cores,
and others wait."""


def sweep_controls(prefix: str) -> tuple[tuple[gr.Button, gr.Button], list[Component]]:
    """Run and Stop; and the pair, then the arguments of `plan_of`."""
    offered = [(method.title, name) for name, method in METHODS.items() if method.has_lenience]
    heat = CONTROLS["temperature"]
    low, high = heat.offered
    with gr.Row():
        with gr.Column(min_width=280):
            pair = pair_dropdown(prefix)
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
                low, high, 0.5, step=heat.step, label="Temperature", elem_id="tradeoff-heat"
            )
            limit = gr.Slider(*ITEMS, ITEMS[0], step=4, label="Questions", elem_id="tradeoff-limit")
    buttons = run_buttons(prefix)
    return buttons, [pair, methods, points, temperature, limit]


def plan_of(key: str, methods: list[str], points: float, temperature: float, limit: float) -> SweepGrid:
    """The sweep of a pair that was asked for on the page.

    Raises:
        RequestError: it is more than one visitor may have, or no method is chosen.
    """
    if key not in offered_pairs() or not 1 <= len(methods) <= MAX_METHODS:
        raise RequestError(f"Choose one to {MAX_METHODS} methods.")
    for name, value, (low, high) in (("Points of a curve", points, POINTS), ("Items", limit, ITEMS)):
        if not low <= value <= high:
            raise RequestError(f"{name}: a number from {low} to {high} can be asked for.")
    return SweepGrid(
        pair=key,
        methods=tuple(methods),
        points=int(points),
        temperatures=(float(temperature),),
        limit=int(limit),
        max_new_tokens=TOKENS,
        timed=0,
    )


def progress_words(results: Results, plan: SweepGrid, ended: bool) -> str:
    """How far a sweep is, as a sentence."""
    done = sum(point.samples for point in results.points)
    planned = sum(results.items * plan.trials_at(setting.temperature) for setting in plan.settings)
    how = "Done" if done >= planned else "Stopped" if ended else "Sweeping"
    return f"{how}: {done} of {planned} texts."
