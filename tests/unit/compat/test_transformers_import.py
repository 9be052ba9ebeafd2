"""The list of transformers' models is read where it was kept; each test says in a sentence what has changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import transformers
from transformers.utils import import_utils

from specviz.compat.transformers_import import FUNCTION, PREFIX, _list

FOUND = {frozenset(): {"models.one": {"One", "Other"}}, frozenset({"torch"}): {"models.two": {"Two"}}}


def test_transformers_still_looks_for_its_models_as_it_is_imported() -> None:
    assert hasattr(import_utils, FUNCTION), f"transformers has no {FUNCTION} any more"
    text = Path(str(transformers.__spec__.origin)).read_text(encoding="utf-8")
    assert f'{FUNCTION}(Path(__file__).parent / "{PREFIX}", prefix="{PREFIX}")' in text, (
        "transformers finds its models in another way: compat/transformers_import.py keeps nothing any more"
    )


def test_what_was_found_is_kept_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path))
    looked = []

    def look(path: Any, prefix: str | None) -> Any:
        looked.append(path)
        return {needs: dict(modules) for needs, modules in FOUND.items()}

    for _ in range(2):
        assert _list(look, Path("there"), PREFIX) == FOUND
    assert looked == [Path("there")]
    assert _list(look, Path("elsewhere"), PREFIX) == FOUND  # another installation
    assert _list(look, Path("elsewhere"), None) == FOUND  # of one model
    assert len(looked) == 3


def test_where_nothing_can_be_written_it_looks_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path / "file"))
    assert _list(lambda *_: FOUND, Path("there"), PREFIX) == FOUND
