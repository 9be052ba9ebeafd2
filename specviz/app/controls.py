"""Controls that several tabs share. Labels, ranges and hints come from the registries of methods and pairs.

The ids of a tab's controls begin with `prefix`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import gradio as gr
from gradio.components import Component

from specviz.app.components.scripted_html import module_address
from specviz.app.link import DRAFT_LENGTHS, NAMES, ranged
from specviz.app.marks import method_menu
from specviz.app.running import QUIET, page_script
from specviz.app.settings import CONTROLS, MAX_SEED, Control
from specviz.core.methods import METHODS, OWN_RULE, get_method
from specviz.errors import SpecvizError
from specviz.models.registry import PAIRS
from specviz.schema.settings import AUTO
from specviz.serving.limits import Limits
from specviz.serving.offer import default_pair, missing_pairs, offered_pairs
from specviz.serving.service import Service

EXAMPLES = {
    "A story": "Write a short story about a lighthouse keeper who finds a message in a bottle.",
    "A fact": "Why is the sky blue? Explain it to a curious child.",
    "Code": "Write a Python function that checks whether a word is a palindrome.",
    "Arithmetic": "A train travels 60 miles in 1.5 hours. What is its average speed? Show your steps.",
}
"""Example prompts by the labels of their buttons. The prompt box starts with the first."""
NOT_NOW = " · not available here: "
"""Text between the title of an unavailable pair and the reason. `static/page/page.css` contains the same text."""
_ASK_SECONDS = 30.0
"""Seconds after which an open page requests the available pairs again."""


def prompt_box(prefix: str = "") -> gr.Textbox:
    """The prompt box, which starts with the first example."""
    size: dict[str, Any] = {"lines": 1, "max_lines": 3, "scale": 5, "min_width": 240}
    words: dict[str, Any] = {"label": "Prompt", "placeholder": "What should the models answer?"}
    first = next(iter(EXAMPLES.values()))
    return gr.Textbox(first, show_label=False, elem_id=f"{prefix}prompt", **words, **size)


@contextmanager
def drawer(elem_id: str, button: gr.Button) -> Iterator[None]:
    """Make a panel over the page, which `button` opens and closes. Components that are made in the context are the panel's content."""
    with gr.Column(elem_id=elem_id, elem_classes="specviz-drawer"):
        yield
    js = page_script("toggle_drawer", BUTTON=button.elem_id, DRAWER=elem_id)
    button.click(None, None, None, js=js, **QUIET)


def run_buttons(prefix: str = "") -> tuple[gr.Button, gr.Button]:
    """The buttons Run and Stop; Stop replaces Run while a run is in progress."""
    with gr.Row(elem_classes="specviz-run"):
        return (
            gr.Button("Run", variant="primary", min_width=70, elem_id=f"{prefix}run"),
            gr.Button("Stop", variant="stop", min_width=70, interactive=False, elem_id=f"{prefix}stop"),
        )


def method_dropdown(name: str) -> gr.Dropdown:
    """A dropdown of all methods by their labels, in the order of the menu. `name` is selected."""
    labels = [(METHODS[key].label, key) for keys in method_menu().values() for key in keys]
    title = CONTROLS["method"].title
    return gr.Dropdown(labels, value=name, elem_id="method", label=title, show_label=False)


def describe_method(name: str) -> str:
    """A method's sentence and formula in Markdown."""
    method = get_method(name)
    return f"{method.sentence}\n\n`{method.formula}`"


def request_settings(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Turn the values of controls into the settings of a request. The rule is dropped unless the method is `OWN_RULE`."""
    rule = asked.get("rule", "") if asked["method"] == OWN_RULE else ""
    penalty: Any = (asked.get("repetition_penalty") or "").strip() or None
    with suppress(TypeError, ValueError):  # the request refuses any other text
        penalty = float(penalty)
    return {**asked, "rule": rule, "repetition_penalty": penalty}


def draft_length_dropdown(elem_id: str, info: str) -> gr.Dropdown:
    """A dropdown of draft lengths: automatic, or a number."""
    choices: list[Any] = [("automatic" if each == AUTO else str(each), each) for each in DRAFT_LENGTHS]
    title = CONTROLS["draft_length"].title
    return gr.Dropdown(choices, value=AUTO, label=title, info=info, filterable=False, elem_id=elem_id)


def pair_dropdown(prefix: str = "", **more: Any) -> gr.Dropdown:
    """A dropdown of the model pairs, with a sentence about the chosen pair; see `wire_pairs`."""
    chosen = default_pair()
    return gr.Dropdown(
        _pair_choices(missing_pairs()),
        value=chosen,
        label="Model pair",
        info=offered_pairs()[chosen].about,
        elem_id=f"{prefix}pair",
        elem_classes="specviz-pair",
        **more,
    )


def wire_pairs(page: gr.Blocks, service: Service, pairs: Sequence[Any]) -> None:
    """Mark unavailable pairs in the dropdowns `pairs` when the page opens, and then every `_ASK_SECONDS`.

    Gradio cannot disable an option. Instead the pair's label turns grey, the label and a sentence below the dropdown give the reason, and
    the pair cannot be run.
    """
    told = gr.State(missing_pairs())

    def tell(before: dict[str, str]) -> list[Any]:
        found = service.obstacles()
        if found == before:  # an update would close an open list
            return [gr.skip()] * (1 + len(pairs))
        return [found, *[gr.Dropdown(choices=_pair_choices(found))] * len(pairs)]

    def describe(key: str) -> Any:
        try:
            service.check_pair(key)
        except SpecvizError as error:
            return gr.Dropdown(info=str(error))
        return gr.Dropdown(info=(PAIRS | offered_pairs())[key].about)

    for event in (page.load, gr.Timer(_ASK_SECONDS).tick):
        event(tell, told, [told, *pairs], **QUIET)
    for pair in pairs:
        pair.change(describe, pair, pair, **QUIET)


def _pair_choices(obstacles: Mapping[str, str]) -> list[tuple[str, str]]:
    """Labels and keys of all pairs. Unavailable pairs come last, and their labels contain the reason."""
    pairs = offered_pairs() | {key: PAIRS[key] for key in missing_pairs()}
    reasons = {key: f"{NOT_NOW}{obstacles[key]}" if key in obstacles else "" for key in pairs}
    return [(pairs[key].title + reasons[key], key) for key in sorted(pairs, key=obstacles.__contains__)]


def sampling_controls(limits: Limits, prefix: str = "") -> dict[str, Component]:
    """The controls of sampling parameters, token limit and seed, by field of `Request`. `limits` bounds the token limit."""
    offered = ranged(limits.max_new_tokens)
    seed = offered.pop("seed")
    controls = {name: _number_control(each, prefix) for name, each in offered.items()}
    with gr.Row(equal_height=True):
        controls["seed"] = _number_control(seed, prefix)
        new_seed = gr.Button("New seed", elem_id=f"{prefix}new-seed")
    js = f"() => Math.floor(Math.random() * {MAX_SEED})"
    new_seed.click(None, None, controls["seed"], js=js, **QUIET)
    return controls


def _number_control(control: Control, prefix: str) -> Component:
    """Make the component of a setting: a slider if it has a step, a text box if it may be empty, otherwise a box for a whole number."""
    shown: dict[str, Any] = {
        "value": control.default,
        "label": control.title,
        "info": control.hint or None,
        "elem_id": f"{prefix}{control.name.replace('_', '-')}",
    }
    if control.step:
        return gr.Slider(*control.offered, step=control.step, **shown)
    if control.default is None:
        return gr.Textbox(**shown | _of_pair(default_pair()))  # gradio shows 0 in an empty number box
    return gr.Number(precision=0, **shown)


def _of_pair(key: str) -> dict[str, Any]:
    """Hint and placeholder of the repetition penalty's text box for a pair."""
    own = (PAIRS | offered_pairs())[key].repetition_penalty  # a pair that is greyed out can be chosen
    number = "" if own is None else f"{own:g}"
    info = f"1 is off. Leave empty for this pair’s own{number and ', '}{number}."
    return {"info": info, "placeholder": number}


def wire_settings(
    tab: str, settings: Mapping[str, Component], triggers: Sequence[Any], prefix: str = ""
) -> None:
    """Send a tab's settings to the page's scripts whenever they change, and write them into the page's address when a trigger fires.

    For the keys of `settings` see `link_button`; for how scripts get the settings see `static/page/tell_form.js`. The hint of the
    repetition penalty follows the pair.
    """
    components: list[Any] = list(settings.values())
    js = page_script("tell_form", GROUP=prefix, NAMES=list(settings))
    gr.on([each.change for each in components], None, components, None, js=js, **QUIET)
    pair: Any = settings["pair"]
    pair.change(lambda key: gr.Textbox(**_of_pair(key)), pair, settings["repetition_penalty"], **QUIET)
    js = address_script("keepAddress", tab, settings)
    gr.on(triggers, None, components, None, js=js, **QUIET)


def link_button(tab: str, settings: Mapping[str, Component], prefix: str = "") -> None:
    """Make a button that copies a link to these settings. Keys of `settings` are fields of `Request`, "pair", "run" and "panes"."""
    button = gr.Button("Copy link", size="sm", min_width=90, elem_id=f"{prefix}copy-link")
    js = address_script("copyLink", tab, settings)
    button.click(None, list(settings.values()), None, js=js, **QUIET)


def address_script(function: str, tab: str, settings: Mapping[str, Component]) -> str:
    """JavaScript that calls a function of `static/page/address.js` with `tab` and the event's inputs by their names in a link."""
    short = {setting: name for name, setting in NAMES.items()}
    names = json.dumps([short.get(name, name) for name in settings])
    asked = f"Object.fromEntries({names}.map((name, at) => [name, values[at]]))"
    return f"async (...values) => {address_module()}.{function}({json.dumps(tab)}, {asked})"


def address_module() -> str:
    """A JavaScript expression for the module `static/page/address.js`. It needs an async function, since it awaits the import."""
    return f"(await import(new URL({json.dumps(module_address('page/address'))}, document.baseURI)))"
