"""The controls that several tabs have: what they are called, what they range over, what they say.

Everything about methods and pairs is read from their registries. Knows no run and no view. `prefix` keeps the ids of
one tab's controls apart from another's.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import gradio as gr
from gradio.components import Component

from specviz.app.link import NAMES
from specviz.app.offered import DRAFT_LENGTHS, MAX_SEED, RANGES, Range, ranges
from specviz.app.running import QUIET
from specviz.core.methods import METHODS, get_method
from specviz.schema.settings import Request
from specviz.serving.limits import Limits
from specviz.serving.offer import default_pair, offered_pairs

DEFAULT_METHOD = Request(prompt="-").method

EXAMPLES = {
    "A story": "Write a short story about a lighthouse keeper who finds a message in a bottle.",
    "A fact": "Why is the sky blue? Explain it to a curious child.",
    "Code": "Write a Python function that checks whether a word is a palindrome.",
    "Arithmetic": "A train travels 60 miles in 1.5 hours. What is its average speed? Show your steps.",
}
"""Prompts to begin with, by the names on their buttons; the first one is filled in."""


# Made in the browser, of what the controls show. After the settings may come the number of panes, and three values
# for each of them.
_COPY_LINK = """async (...values) => {
  const address = new URL(location.pathname, location.origin);
  const add = (name, value) => value !== null && value !== "" && address.searchParams.append(name, String(value));
  add("tab", TAB);
  const names = NAMES;
  names.forEach((name, at) => add(name, values[at]));
  const [count, ...panes] = values.slice(names.length);
  for (let at = 0; at < count; at += 1) add("pane", panes.slice(3 * at, 3 * at + 3).join(":"));
  let label = "Link, copied";
  try {
    await navigator.clipboard.writeText(address.href);
  } catch {
    label = "Link: copy it from here, the browser does not let this page do it";
  }
  return { __type__: "update", value: address.href, label, visible: true };
}"""


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
    return gr.Dropdown(titles, value=name, elem_id=elem_id, **{"label": "Method"} | more)


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
        label="Lenience α",
        info=ends,
        interactive=method.has_lenience,
        **more,
    )


def draft_length_dropdown(elem_id: str, info: str | None = None) -> gr.Dropdown:
    """Proposals in a round: chosen for each, or one number for all."""
    automatic, *numbers = DRAFT_LENGTHS
    choices: list[Any] = [("automatic", automatic), *((str(number), number) for number in numbers)]
    return gr.Dropdown(
        choices, value=automatic, label="Draft length K", info=info, filterable=False, elem_id=elem_id
    )


def pair_dropdown(prefix: str = "") -> gr.Dropdown:
    """The model pairs that this server offers; says of each where its weights come from."""
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


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn, how many at most, and with which coins."""

    temperature: gr.Slider
    top_k: gr.Number
    top_p: gr.Slider
    max_new_tokens: gr.Slider
    seed: gr.Number

    @property
    def settings(self) -> dict[str, Component]:
        """All of them by the names of a `Request`."""
        return {part.name: getattr(self, part.name) for part in fields(self)}


def sampling_controls(limits: Limits, prefix: str = "", tokens: int | None = None) -> Sampling:
    """The controls of `Sampling`, the button for a new seed among them; no text longer than `limits` can be chosen."""
    offered = ranges(limits.max_new_tokens)
    temperature = _slider(offered["temperature"], "Temperature", "0 is greedy.", f"{prefix}temperature")
    top_k = _whole("top_k", "top-k", "0 keeps all tokens.", f"{prefix}top-k")
    top_p = _slider(offered["top_p"], "top-p", "1 keeps all tokens.", f"{prefix}top-p")
    wanted = offered["max_new_tokens"]
    most = _slider(wanted, "Most tokens to write", None, f"{prefix}max-new-tokens", tokens)
    with gr.Row(equal_height=True):
        seed = _whole("seed", "Seed", "Same seed, same text.", f"{prefix}seed")
        new_seed = gr.Button("New seed", elem_id=f"{prefix}new-seed")
    new_seed.click(None, None, seed, js=f"() => Math.floor(Math.random() * {MAX_SEED})", **QUIET)
    return Sampling(temperature, top_k, top_p, most, seed)


def _slider(offered: Range, label: str, info: str | None, name: str, value: float | None = None) -> gr.Slider:
    return gr.Slider(
        offered.low,
        offered.high,
        value=offered.start if value is None else min(value, offered.high),
        step=offered.step,
        label=label,
        info=info,
        elem_id=name,
    )


def _whole(setting: str, label: str, info: str, name: str) -> gr.Number:
    return gr.Number(RANGES[setting].start, label=label, info=info, precision=0, elem_id=name)


def link_button(
    tab: str, settings: dict[str, Component], panes: Sequence[Component] = (), prefix: str = ""
) -> None:
    """A button that copies a link to these settings (by the names of a `Request`, and "pair"), and shows it.

    `panes` is the number of panes, then method, lenience and draft length of each.
    """
    short = {setting: name for name, setting in NAMES.items()}
    button = gr.Button("Copy link", size="sm", elem_id=f"{prefix}copy-link")
    shown = gr.Textbox(visible=False, interactive=False, lines=1, max_lines=3, elem_id=f"{prefix}link")
    names = json.dumps([short[name] for name in settings])
    script = _COPY_LINK.replace("TAB", json.dumps(tab)).replace("NAMES", names)
    button.click(None, [*settings.values(), *panes], shown, js=script, **QUIET)
