"""Reads the page's colours from `static/shared/shared.css`."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_SHEET = Path(__file__).parent / "static/shared/shared.css"
_BLOCKS = {"light": r"\.specviz \{", "dark": r'\.specviz\[data-theme="dark"\] \{'}


@cache
def colours(theme: str) -> dict[str, str]:
    """The colours of a theme, "light" or "dark", by the names of their variables without `--sv-`."""
    block = re.search(
        rf"^{_BLOCKS[theme]}(.*?)^\}}", _SHEET.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    assert block
    return dict(re.findall(r"--sv-([\w-]+): (#[0-9a-fA-F]{6});", block[1]))
