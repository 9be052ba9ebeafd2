"""README says what the registries say, and its Python example runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from specviz.core.methods import METHODS
from specviz.models.pairs import PAIRS
from tests.support.tiny import tiny_pair

README = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")


def method_rows() -> list[str]:
    """The table of methods, from the registry."""
    rows = []
    for name, method in METHODS.items():
        low, high = (f"{end:g}".replace("-", "−") for end in method.offered_range)
        lenience = f"{low} → {high}" if method.has_lenience else "–"
        rows.append(f"| `{name}` | {method.formula} | {lenience} | {method.sentence} |")
    return rows


def pair_rows() -> list[str]:
    """The table of pairs, from the registry."""
    gated = {False: "model hub", True: "model hub, gated"}
    return [
        f"| `{key}` | {spec.drafter_name} → {spec.verifier_name} | "
        f"{'PyPI' if spec.origin == 'embedded' else gated[spec.gated]} |"
        for key, spec in PAIRS.items()
    ]


@pytest.mark.parametrize("rows", [method_rows(), pair_rows()], ids=["methods", "pairs"])
def test_tables_are_the_registries(rows: list[str]) -> None:
    assert "\n".join(rows) in README


def test_the_python_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    [example] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    pair = tiny_pair("llama", tmp_path)
    monkeypatch.setattr("specviz.models.pairs.load_pair", lambda *_: pair)
    monkeypatch.chdir(tmp_path)
    exec(example, {})
    assert (tmp_path / "run.jsonl").exists()
    assert capsys.readouterr().out.count("\n") >= 7
