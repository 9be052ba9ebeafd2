"""Checkpoints: published bytes in and out."""

from __future__ import annotations

from pathlib import Path

import gguf
import pytest
import torch

from specviz.models.checkpoint import QUANTISED, Checkpoint, from_gguf, is_quantised
from specviz.tools.audit.llama_cpp import write_gguf
from tests.support.checkpoints import published


@pytest.mark.parametrize("kind", ["Q4_1", "BF16"])
def test_what_is_written_is_read_byte_for_byte(kind: str, tmp_path: Path) -> None:
    wanted = published("llama", kind)
    wanted.save(tmp_path, 30_000)
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    found = Checkpoint.read(tmp_path)
    assert found.formats == wanted.formats
    assert is_quantised(tmp_path) == (kind in QUANTISED)
    assert {name: it.dtype for name, it in found.tensors.items()} == {
        name: it.dtype for name, it in wanted.tensors.items()
    }
    assert all(torch.equal(found.tensors[name], it) for name, it in wanted.tensors.items())


@pytest.mark.parametrize("kind", ["Q8_0", "F32"])
def test_a_gguf_file_holds_the_same_model(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows are ordered as llama.cpp rotates them; arrays are skipped."""

    def add_arrays(writer: gguf.GGUFWriter, _: str) -> None:
        writer.add_array("words", ["a", "", "naïve", "日本"])
        writer.add_array("numbers", [1, 2, 3])

    monkeypatch.setattr(gguf.GGUFWriter, "add_tokenizer_model", add_arrays)
    wanted = published("llama", kind)
    write_gguf(tmp_path / "model.gguf", wanted)
    found = from_gguf(tmp_path / "model.gguf", wanted.config)
    assert found.formats == wanted.formats
    assert set(found.tensors) == set(wanted.tensors)
    assert all(torch.equal(found.tensors[name], it) for name, it in wanted.tensors.items())
