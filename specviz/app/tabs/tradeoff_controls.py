"""The controls of a live sweep, and its limits."""

from __future__ import annotations

import gradio as gr
from gradio.components import Component

from specviz.analysis.sweep.grid import SweepGrid
from specviz.app.controls import pair_dropdown, run_buttons
from specviz.app.settings import CONTROLS
from specviz.core.methods import METHODS
from specviz.errors import RequestError
from specviz.serving.offer import offered_pairs

MAX_METHODS, POINTS, ITEMS, TOKENS = 4, (2, 5), (8, 32), 24
"""Most methods; range of leniences per method; range of questions; most tokens of a text. The largest sweep takes minutes on two cores."""


def sweep_controls(prefix: str) -> tuple[tuple[gr.Button, gr.Button], dict[str, Component]]:
    """Run and Stop; and the pair and the arguments of `plan_of`, by name."""
    offered = [(method.title, name) for name, method in METHODS.items() if method.has_lenience]
    heat = CONTROLS["temperature"]
    with gr.Row():
        with gr.Column(min_width=280):
            pair = pair_dropdown(prefix)
            methods = gr.CheckboxGroup(
                offered,
                value=["speed", "cascade_tokenV3"],
                label="Methods",
                info=f"At most {MAX_METHODS}; both models alone are always swept too.",
                elem_id="tradeoff-methods",
            )
        with gr.Column(min_width=280):
            points = gr.Slider(*POINTS, 3, step=1, label="Leniences per method", elem_id="tradeoff-points")
            low, high = heat.offered
            temperature = gr.Slider(
                low, high, 0.5, step=heat.step, label="Temperature", elem_id="tradeoff-heat"
            )
            limit = gr.Slider(*ITEMS, ITEMS[0], step=4, label="Questions", elem_id="tradeoff-limit")
    controls: dict[str, Component] = {
        "pair": pair,
        "methods": methods,
        "points": points,
        "temperature": temperature,
        "limit": limit,
    }
    return run_buttons(prefix), controls


def plan_of(key: str, methods: list[str], points: float, temperature: float, limit: float) -> SweepGrid:
    """The plan of a live sweep. Gradio holds the numbers to their sliders' ranges.

    Raises:
        RequestError: there is no such pair, or no method or too many are chosen.
    """
    if key not in offered_pairs() or not 1 <= len(methods) <= MAX_METHODS:
        raise RequestError(f"Choose one to {MAX_METHODS} methods.")
    return SweepGrid(
        pair=key,
        methods=tuple(methods),
        points=int(points),
        temperatures=(float(temperature),),
        limit=int(limit),
        max_new_tokens=TOKENS,
        timed=0,
    )
