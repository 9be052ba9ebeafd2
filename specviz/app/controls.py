"""The controls that several tabs have: their labels, ranges and hints.

Everything about methods and pairs is read from their registries. Knows no run and no view. `prefix` keeps the ids of
one tab's controls apart from another's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import gradio as gr
from gradio.components import Component

from specviz.app.link import DRAFT_LENGTHS, NAMES, ranged
from specviz.app.running import QUIET, page_script
from specviz.core.methods import METHODS, get_method
from specviz.schema.settings import MAX_SEED, SETTINGS, Setting
from specviz.serving.limits import Limits
from specviz.serving.offer import default_pair, offered_pairs

EXAMPLES = {
    "A story": "Write a short story about a lighthouse keeper who finds a message in a bottle.",
    "A fact": "Why is the sky blue? Explain it to a curious child.",
    "Code": "Write a Python function that checks whether a word is a palindrome.",
    "Arithmetic": "A train travels 60 miles in 1.5 hours. What is its average speed? Show your steps.",
}
"""Prompts to begin with, by the names on their buttons; the first one is filled in."""


def prompt_box(prefix: str = "") -> gr.Textbox:
    """The prompt, and examples that fill it."""
    prompt = gr.Textbox(
        next(iter(EXAMPLES.values())),
        label="Prompt",
        lines=3,
        max_lines=10,
        elem_id=f"{prefix}prompt",
        placeholder="What should the models answer?",
    )
    gr.Examples(
        [[text] for text in EXAMPLES.values()],
        [prompt],
        label="Or take one of these",
        example_labels=list(EXAMPLES),
        api_visibility="private",
    )
    return prompt


def run_buttons(prefix: str = "") -> tuple[gr.Button, gr.Button]:
    """Run and Stop, side by side."""
    with gr.Row():
        return (
            gr.Button("Run", variant="primary", elem_id=f"{prefix}run"),
            gr.Button("Stop", variant="stop", interactive=False, elem_id=f"{prefix}stop"),
        )


def method_dropdown(name: str, elem_id: str, **more: Any) -> gr.Dropdown:
    """All methods by their titles; `name` is chosen."""
    titles = [(method.title, key) for key, method in METHODS.items()]
    return gr.Dropdown(titles, value=name, elem_id=elem_id, **{"label": SETTINGS["method"].title} | more)


def describe_method(name: str) -> str:
    """A method in Markdown: its sentence and its formula, from the registry."""
    method = get_method(name)
    return f"{method.sentence}\n\n`{method.formula}`"


def lenience_slider(name: str, value: float | None = None, **more: Any) -> gr.Slider:
    """The lenience slider for a method: range, default and the names of its ends from the registry."""
    method = get_method(name)
    low, high = method.offered_range if method.has_lenience else (0.0, 1.0)
    ends = (
        f"{method.strict_end}  ⟷  {method.drafter_end}"
        if method.has_lenience
        else "This method has no lenience."
    )
    value = method.default_lenience if value is None else value
    step = (high - low) / 100
    if round(value / step, 6) % 1:
        step /= 100  # a slider moves a value that lies between its steps
    return gr.Slider(
        low,
        high,
        value=value,
        step=step,
        label=SETTINGS["lenience"].title,
        info=ends,
        interactive=method.has_lenience,
        **more,
    )


def draft_length_dropdown(elem_id: str, info: str | None = None) -> gr.Dropdown:
    """Proposals in a round: chosen for each, or one number for all."""
    automatic, *numbers = DRAFT_LENGTHS
    choices: list[Any] = [("automatic", automatic), *((str(number), number) for number in numbers)]
    return gr.Dropdown(
        choices,
        value=automatic,
        label=SETTINGS["draft_length"].title,
        info=info,
        filterable=False,
        elem_id=elem_id,
    )


def pair_dropdown(prefix: str = "") -> gr.Dropdown:
    """The model pairs that this server offers; each with where its weights come from."""
    offered, chosen = offered_pairs(), default_pair()
    pair = gr.Dropdown(
        [(spec.title, key) for key, spec in offered.items()],
        value=chosen,
        label="Model pair",
        info=offered[chosen].about,
        elem_id=f"{prefix}pair",
    )
    pair.change(lambda key: gr.Dropdown(info=offered[key].about), pair, pair, **QUIET)
    return pair


def sampling_controls(limits: Limits, prefix: str = "", tokens: int | None = None) -> dict[str, Component]:
    """How tokens are drawn, how many at most, and with which coins; by the names of a `Request`.

    No text longer than `limits` can be chosen; `tokens` are chosen to begin with.
    """
    offered = ranged(limits.max_new_tokens)
    if tokens is not None:
        most = offered["max_new_tokens"]
        offered["max_new_tokens"] = replace(most, default=min(tokens, limits.max_new_tokens))
    seed = offered.pop("seed")
    controls = {name: _number_control(each, prefix) for name, each in offered.items()}
    with gr.Row(equal_height=True):
        controls["seed"] = _number_control(seed, prefix)
        new_seed = gr.Button("New seed", elem_id=f"{prefix}new-seed")
    js = f"() => Math.floor(Math.random() * {MAX_SEED})"
    new_seed.click(None, None, controls["seed"], js=js, **QUIET)
    return controls


def _number_control(setting: Setting, prefix: str) -> Component:
    """A slider where the setting has a step, else a box for a whole number."""
    shown: dict[str, Any] = {
        "value": setting.default,
        "label": setting.title,
        "info": f"{setting.hint[0].upper()}{setting.hint[1:]}." if setting.hint else None,
        "elem_id": f"{prefix}{setting.name.replace('_', '-')}",
    }
    if setting.step is None:
        return gr.Number(precision=0, **shown)
    return gr.Slider(*setting.offered, step=setting.step, **shown)


def link_button(
    tab: str, settings: dict[str, Component], panes: Sequence[Component] = (), prefix: str = ""
) -> None:
    """A button that copies a link to these settings (by the names of a `Request`, and "pair"), and shows it.

    `panes` is the number of panes, then method, lenience and draft length of each.
    """
    short = {setting: name for name, setting in NAMES.items()}
    button = gr.Button("Copy link", size="sm", elem_id=f"{prefix}copy-link")
    shown = gr.Textbox(visible=False, interactive=False, lines=1, max_lines=3, elem_id=f"{prefix}link")
    js = page_script("copy_link", TAB=tab, NAMES=[short[name] for name in settings])
    button.click(None, [*settings.values(), *panes], shown, js=js, **QUIET)
