"""The documents' tables are what the registries say."""

from __future__ import annotations

from pathlib import Path

import pytest

from specviz.core.methods import METHODS
from specviz.models.registry import PAIRS

DOCS = Path(__file__).parents[3] / "docs"


def method_rows() -> list[str]:
    """The table of methods, from the registry."""
    rows = []
    for name, method in METHODS.items():
        low, high = (f"{end:g}".replace("-", "−") for end in method.offered_range)
        lenience = f"{low} → {high}" if method.has_lenience else "–"
        rows.append(f"| `{name}` | {method.label} | {method.formula} | {lenience} | {method.sentence} |")
    return rows


def pair_rows() -> list[str]:
    """The table of pairs, from the registry."""
    gated = {False: "model hub", True: "model hub, gated"}
    return [
        f"| `{key}` | {spec.drafter_name} → {spec.verifier_name} | "
        f"{'PyPI' if spec.origin == 'embedded' else gated[spec.gated]} |"
        for key, spec in PAIRS.items()
    ]


@pytest.mark.parametrize(("document", "rows"), [("methods.md", method_rows()), ("pairs.md", pair_rows())])
def test_tables_are_the_registries(document: str, rows: list[str]) -> None:
    assert "\n".join(rows) in (DOCS / document).read_text(encoding="utf-8")
