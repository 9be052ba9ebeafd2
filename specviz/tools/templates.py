"""Markdown from Jinja templates: one environment, and the filters that every report needs. Knows no report."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from specviz.wording import joined

NONE = "–"
"""What stands for a number that is not known."""


Rows = list[tuple[str, ...]]
"""Of a table; the first names the columns."""


def cell(text: str) -> str:
    """Text as one cell of a table, whatever is in it."""
    return text.replace("|", "\\|").replace("\n", " ")


def row(cells: Sequence[str]) -> str:
    """One row of a table."""
    return f"| {' | '.join(map(cell, cells))} |"


def table(rows: Rows) -> str:
    """Rows as a table."""
    return "\n".join(map(row, [rows[0], ("---",) * len(rows[0]), *rows[1:]]))


@dataclass(frozen=True)
class Table:
    """Rows with a heading, for the terminal and for Markdown; `key` is what a template knows them by."""

    title: str
    rows: Rows
    key: str = ""


_FILTERS: dict[str, Callable[..., str]] = {
    "cell": cell,
    "row": row,
    "table": table,
    "joined": joined,
    "bullets": lambda lines: "\n".join(f"- {line}" for line in lines),
    "plural": lambda things, noun: f"{len(things)} {noun}{'' if len(things) == 1 else 's'}",
    "percent": lambda share: f"{share * 100:.0f} %",
    "g": lambda number: f"{number:g}",
    # What follows an element of a loop that enumerates.
    "separator": lambda loop: "" if loop.last else " and " if loop.revindex == 2 else ", ",
}


class Templates:
    """The templates of one folder, with filters of their own beside those of all reports."""

    def __init__(
        self, folder: Path, filters: Mapping[str, Callable[..., Any]] = MappingProxyType({})
    ) -> None:
        # No autoescaping: what comes out is Markdown. Cells of tables are escaped by `cell`.
        self._environment = Environment(
            loader=FileSystemLoader(folder), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
        )
        self._environment.filters |= {**_FILTERS, **filters}

    def render(self, name: str, **values: Any) -> str:
        """Render a template; several blank lines become one, so that blocks may stand apart in it."""
        text = self._environment.get_template(name).render(NONE=NONE, **values)
        return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"
