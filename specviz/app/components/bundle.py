"""The files in `static/`, joined as a component needs them: one script, one style sheet.

Knows where the files lie; knows neither gradio nor what the files do.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

STATIC = Path(__file__).parents[1] / "static"


def template(name: str) -> str:
    """The markup in `<name>.html`."""
    return _read(f"{name}.html")


def style(names: Sequence[str]) -> str:
    """Style sheets joined in this order; nest the result under an ancestor of the markup (`#page { … }`)."""
    return "\n".join(_read(f"{name}.css") for name in names)


def script(names: Sequence[str], exports: Sequence[str]) -> str:
    """Scripts joined in this order; they share one scope and nothing outside it but `SpecViz.<export>`."""
    head, tail = 'const SpecViz = (() => {\n"use strict";', f"return {{ {', '.join(exports)} }};\n}})();\n"
    return "\n".join([head, *(_read(f"{name}.js") for name in names), tail])


def _read(name: str) -> str:
    return (STATIC / name).read_text(encoding="utf-8")
