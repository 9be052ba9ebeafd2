"""The panes of the tab Compare methods: one column of settings per pane, and presets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.components import Component

from specviz.app.components.lenience_track import lenience_value
from specviz.app.controls import EXAMPLES, draft_length_dropdown, lenience_track, method_dropdown
from specviz.app.link import PANES, Pane
from specviz.app.settings import CONTROLS


@dataclass(frozen=True)
class Preset:
    """A set of panes that shows one effect, with the other settings that the effect needs."""

    title: str
    panes: tuple[Pane, ...]
    temperature: float = CONTROLS["temperature"].default
    prompt: str | None = None


PRESETS = (
    Preset(
        "Lossless or not",
        # Every pane is compared with the first. `verifier_only` comes last, because it uses its uniforms differently.
        (Pane("speed", 0), Pane("speed", 0.5), Pane("cascade_tokenV3", 0), Pane("verifier_only", 0)),
    ),
    Preset(
        "The three token rules",
        (Pane("cascade_tokenV1", 0.3), Pane("cascade_tokenV2", 0.3), Pane("cascade_tokenV3", 0.3)),
    ),
    Preset(
        "Confident drafter",
        (Pane("cascade_chow", 0.5), Pane("cascade_diff", 0.1), Pane("cascade_opt", 0.3)),
        prompt=EXAMPLES["Arithmetic"],
    ),
    Preset(
        "Greedy check",
        (
            Pane("verifier_only", 0),
            Pane("speed", 0),
            Pane("cascade_chow", 0.5),
            Pane("cascade_tokenV3", 0.5),
        ),
        temperature=0,
    ),
    Preset("Cost of caution", tuple(Pane("cascade_tokenV3", lenience) for lenience in (0.1, 0.5, 0.9))),
)
"""The presets; the page opens with the first."""

PANE = ("method", "lenience", "draft_length")
"""The settings of a pane, in the order of its controls."""


def pane_controls(number: int, pane: Pane, prefix: str) -> tuple[gr.Column, list[Component]]:
    """The column and the controls of one pane, counted from 1. Their ids begin with `prefix`."""
    with gr.Column(min_width=260, elem_classes="specviz-pane") as column:
        name = f"{prefix}{number}-"
        with gr.Row(elem_classes="specviz-pair"):
            method = method_dropdown(pane.method, f"{name}method", label=f"Pane {number}: method")
            draft_length = draft_length_dropdown(f"{name}draft-length")
        lenience = lenience_track(method, f"{name}lenience", pane.lenience, prefix)
    return column, [method, lenience, draft_length]


def set_panes(panes: tuple[Pane, ...]) -> list[Any]:
    """Updates for the number of panes, their settings and their columns."""
    filled = [*panes, *(PRESETS[0].panes[len(panes) :])]
    settings: list[Any] = []
    for pane in filled:
        lenience = lenience_value(pane.method, pane.lenience)
        settings += [pane.method, lenience, pane.draft_length]
    return [len(panes), *settings, *show_columns(len(panes))]


def show_columns(count: int) -> list[gr.Column]:
    """Updates that show the first `count` columns."""
    return [gr.Column(visible=index < count) for index in range(PANES[-1])]
