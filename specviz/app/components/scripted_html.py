"""What the page's own components have in common: a `gr.HTML` whose DOM its script owns, made of files in `static/`.

`static/<component>/` has the files of one component, `static/shared/` those of several; scripts are ES modules, served as
they are. Knows where the files are, how gradio mounts them, and the methods' words and trees; does not know what a value means nor
what a module draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import gradio as gr
import plotly

from specviz.app.marks import method_symbol, method_token
from specviz.app.rules import rule_words
from specviz.compat.gradio import UNPADDED, own_events, served_address
from specviz.core.methods import METHODS, OWN_RULE

STATIC = Path(__file__).parents[1] / "static"
PLOTLY_JS = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
"""The project's one plotly.js: that of the installed plotly package."""


def template(name: str) -> str:
    """The markup in `static/<name>.html`."""
    return _read(f"{name}.html")


def style(names: Sequence[str]) -> str:
    """The style sheets `static/<name>.css` joined in this order; to be nested under a selector (`#page { … }`)."""
    return "\n".join(_read(f"{name}.css") for name in names)


def module_address(name: str) -> str:
    """The address of the ES module `static/<name>.js`, relative to the page's own; what it imports lies beside it."""
    return f"{static_address()}/{name}.js"


@cache
def static_address() -> str:
    """The address of the folder `static/`, relative to the page's own."""
    return served_address(STATIC)


def _read(name: str) -> str:
    return (STATIC / name).read_text(encoding="utf-8")


@cache
def plotly_address() -> str:
    """The address of plotly.js, relative to the page's own."""
    return served_address(PLOTLY_JS)


def method_words() -> dict[str, dict[str, Any]]:
    """What the browser shows of each method, by its name: its words, its rule, its symbol, the range of its lenience, the names of its two ends."""
    words = (
        "title",
        "group",
        "sentence",
        "source",
        "default_lenience",
    )
    return {
        name: {word: getattr(method, word) for word in words}
        | rule_words(method)
        | {"range": list(method.offered_range), "ends": [method.strict_end, method.drafter_end]}
        | {"symbol": method_symbol(name)[1], "colour": method_token(name), "takes_rule": name == OWN_RULE}
        for name, method in METHODS.items()
    }


_MOUNT = """
import(new URL(props.module, document.baseURI)).then(({ mount }) => mount(element, { props, trigger, watch }));
"""


class ScriptedHTML(gr.HTML):
    """One component. A subclass names its markup, its style and the module that draws it.

    The module exports `mount(element, { props, trigger, watch })`, which is called once: `props` are those of the
    component, its value among them; `trigger` fires an event of gradio's; `watch("value", …)` tells of new values. The
    value is a string for the module, never markup; None and "" are the empty component.
    """

    TEMPLATE: ClassVar[str]
    CSS: ClassVar[str]
    MODULE: ClassVar[str]
    """Its path in `static/`, without the ending."""
    OWN_EVENTS: ClassVar[tuple[str, ...]] = ()
    """Events that it fires beside gradio's own."""

    def __init__(self, value: str = "", **kwargs: Any) -> None:
        """Make a component; `kwargs` are what `gr.HTML` takes beside template, style and script, and the module's props."""
        super().__init__(
            value,
            html_template=self.TEMPLATE,
            css_template=self.CSS,
            js_on_load=UNPADDED + _MOUNT + own_events(self.OWN_EVENTS),
            apply_default_css=False,
            module=module_address(self.MODULE),
            **kwargs,
        )

    def preprocess(self, payload: str | None) -> str:
        """The value as the browser has it."""
        return payload or ""

    def postprocess(self, value: str | None) -> str:
        """The value for the browser."""
        return value or ""  # gr.HTML's warns of script tags: here the value is never read as markup
