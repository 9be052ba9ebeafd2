"""The base of the page's own components: a `gr.HTML` whose markup, style and ES module are files in `static/`.

`static/<component>/` has the files of one component, `static/shared/` files that several share. The module owns the component's DOM.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import gradio as gr
from jinja2 import Environment, FileSystemLoader

from specviz.app.marks import method_symbol, method_token
from specviz.compat.gradio import UNPADDED, own_events, served_address
from specviz.core.method import Method
from specviz.core.methods import METHODS, OWN_RULE

STATIC = Path(__file__).parents[1] / "static"
TEMPLATES = Environment(loader=FileSystemLoader(STATIC), autoescape=True)
"""Templates of whole pages and of the page's head. Gradio renders the templates of components itself."""


def style(*names: str) -> str:
    """The style sheets `static/<name>.css`, joined in the order of `names`."""
    return "\n".join((STATIC / f"{name}.css").read_text(encoding="utf-8") for name in names)


def module_address(name: str) -> str:
    """The address of the ES module `static/<name>.js`, relative to the page."""
    return f"{static_address()}/{name}.js"


@cache
def static_address() -> str:
    """The address of the folder `static/`, relative to the page."""
    return served_address(STATIC)


def rule_words(method: Method) -> dict[str, Any]:
    """A method's rule: text, formula, labels, and the expression trees as JSON, which the page's scripts evaluate."""
    words = ("expression", "formula", "score_label", "threshold_label")
    return {name: getattr(method, name) for name in words} | {
        "tree": {name: tree.as_json() for name, tree in method.trees.items()}
    }


def method_words() -> dict[str, dict[str, Any]]:
    """What the browser needs of each method, by the method's name: words, rule, symbol, colour, lenience range, words for its ends."""
    words = ["title", "label", "group", "sentence", "source", "default_lenience"]
    words += ["matches", "shares_noise", "is_compared"]
    return {
        name: {word: getattr(method, word) for word in words}
        | rule_words(method)
        | {"range": list(method.offered_range), "ends": [method.strict_end, method.drafter_end]}
        | {"none": "" if method.has_lenience else f"{method.title}: no lenience to choose."}
        | {"symbol": method_symbol(name)[1], "colour": method_token(name), "takes_rule": name == OWN_RULE}
        for name, method in METHODS.items()
    }


# Adds the style once: gradio 6.31 would rewrite a `css_template` at each new value, and the browser would restyle the whole page.
# `#style` only gives the selector the specificity of an id, as gradio's own selector has.
_MOUNT = """
const name = (window.specvizStyles = (window.specvizStyles ?? 0) + 1);
element.dataset.style = name;
const style = element.parentElement.appendChild(document.createElement("style"));
style.textContent = `:is(#style, [data-style="${name}"]) { ${props.style} }`;
import(new URL(props.module, document.baseURI)).then(({ mount }) => mount(element, { props, trigger, watch }));
"""


class ScriptedHTML(gr.HTML):
    """Base class. A subclass names its ES module. Markup and style are beside the module, unless `STYLES` names other style sheets.

    The module exports `mount(element, { props, trigger, watch })`, which gradio calls once. `props` has the component's properties
    and its value, `trigger` fires an event, and `watch("value", …)` reports new values. The value is a string for the module, never
    markup; None and "" stand for the empty component.
    """

    MODULE: ClassVar[str]
    """Path of the module in `static/`, without the extension."""
    STYLES: ClassVar[tuple[str, ...] | None] = None
    """Paths of the style sheets in `static/` that follow `shared/shared`, in order. None: only the style sheet beside the module."""
    TEMPLATE: ClassVar[str]
    CSS: ClassVar[str]
    OWN_EVENTS: ClassVar[tuple[str, ...]] = ()
    """Names of events in addition to those of `gr.HTML`."""

    def __init_subclass__(cls) -> None:
        """Read the subclass's markup and style."""
        cls.TEMPLATE = (STATIC / f"{cls.MODULE}.html").read_text(encoding="utf-8")
        cls.CSS = style("shared/shared", *((cls.MODULE,) if cls.STYLES is None else cls.STYLES))

    def __init__(self, value: str = "", **kwargs: Any) -> None:
        """Make a component; `kwargs` are further arguments of `gr.HTML`, and the module's props."""
        super().__init__(
            value,
            html_template=self.TEMPLATE,
            style=self.CSS,
            js_on_load=UNPADDED + _MOUNT + own_events(self.OWN_EVENTS),
            apply_default_css=False,
            module=module_address(self.MODULE),
            **kwargs,
        )

    def preprocess(self, payload: str | None) -> str:
        """Return the value that the browser sent; "" for None."""
        return payload or ""

    def postprocess(self, value: str | None) -> str:
        """Return the value to send to the browser; "" for None."""
        return value or ""  # without gr.HTML's warning of script tags: here the value is never markup
