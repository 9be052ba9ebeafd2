"""Templates of reports: nothing undefined passes, and what is put into a table stays in its cell."""

from __future__ import annotations

from pathlib import Path

import pytest
from jinja2 import UndefinedError

from specviz.tools.templates import Templates


@pytest.fixture
def templates(tmp_path: Path) -> Templates:
    (tmp_path / "table.j2").write_text(
        "# {{ head }}\n\n\n\n{% for one in rows %}\n{{ one | row }}\n{% endfor %}\n"
    )
    return Templates(tmp_path, {})


def test_a_cell_holds_whatever_text_it_is_given(templates: Templates) -> None:
    """Bars and line breaks are escaped, braces are no template, and Markdown is not HTML."""
    text = templates.render("table.j2", head="a & b", rows=[["x | y", "{{ head }}\n| <b>"]])
    assert text == "# a & b\n\n| x \\| y | {{ head }} \\| <b> |\n"


def test_what_a_template_misses_is_an_error(templates: Templates) -> None:
    with pytest.raises(UndefinedError, match="head"):
        templates.render("table.j2", rows=[])
