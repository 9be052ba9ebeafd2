"""Renders Markdown from Jinja templates, and Markdown tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from specviz.wording import joined

NONE = "–"
"""Stands for an unknown number."""

Rows = list[tuple[str, ...]]
"""Rows of a table; the first has the names of the columns."""


def cell(text: str) -> str:
    """Escape a text for a table cell."""
    return text.replace("|", "\\|").replace("\n", " ")


def row(cells: Sequence[str]) -> str:
    """A row of a table."""
    return f"| {' | '.join(map(cell, cells))} |"


def table(rows: Rows) -> str:
    """Rows as a table."""
    return "\n".join(map(row, [rows[0], ("---",) * len(rows[0]), *rows[1:]]))


_FILTERS: dict[str, Callable[..., str]] = {
    "row": row,
    "joined": joined,
    "percent": lambda share: f"{share * 100:.0f} %",
    "g": lambda number: f"{number:g}",
}


def render(path: Path, filters: Mapping[str, Any], /, **values: Any) -> str:
    """Render a template with the filters that all reports share, and `filters`. Consecutive blank lines become one."""
    # No autoescaping: the output is Markdown. Cells of tables are escaped by `cell`.
    environment = Environment(
        loader=FileSystemLoader(path.parent), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {**_FILTERS, **filters}
    return re.sub(r"\n{3,}", "\n\n", environment.get_template(path.name).render(**values)).strip() + "\n"
