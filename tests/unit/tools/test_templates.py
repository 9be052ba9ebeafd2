"""Templates of reports: nothing undefined passes, and what is put into a table stays in its cell."""

from __future__ import annotations

from pathlib import Path

import pytest
from jinja2 import UndefinedError

from specviz.tools.templates import Templates


def test_a_cell_holds_whatever_text_it_is_given(tmp_path: Path) -> None:
    """Bars and line breaks are escaped, braces are no template, and Markdown is not HTML."""
    (tmp_path / "table.j2").write_text("# {{ head }}\n\n\n\n{{ cells | row }}\n")
    render, cells = Templates(tmp_path).render, ["x | y", "{{ head }}\n| <b>"]
    text = render("table.j2", head="a & b", cells=cells)
    assert text == "# a & b\n\n| x \\| y | {{ head }} \\| <b> |\n"
    with pytest.raises(UndefinedError, match="head"):
        render("table.j2", cells=cells)
