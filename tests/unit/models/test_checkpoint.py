"""Checkpoints: published bytes in and out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from specviz.models.checkpoint import QUANTISED, Checkpoint, from_gguf, is_quantised
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


def write_gguf(path: Path, checkpoint: Checkpoint) -> None:
    """A GGUF file as llama.cpp's converter makes one: rotary pairs side by side."""
    config: Any = checkpoint.config
    names = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "o_proj": "attn_output"}
    names |= {f"{it}_proj": f"attn_{it}" for it in "qkv"} | {
        f"{it}_proj": f"ffn_{it}" for it in ("gate", "up", "down")
    }
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_array("words", ["a", "", "naïve", "日本"])
    writer.add_array("numbers", [1, 2, 3])
    for name, tensor in checkpoint.tensors.items():
        parts = name.split(".")
        if parts[1] == "layers":
            given = f"blk.{parts[2]}.{names[parts[-2]]}.weight"
        else:
            given = {"embed_tokens": "token_embd.weight", "norm": "output_norm.weight"}[parts[1]]
        data = tensor.numpy()
        for projection, heads in (
            ("q_proj", config.num_attention_heads),
            ("k_proj", config.num_key_value_heads),
        ):
            if projection in name:
                data = np.ascontiguousarray(
                    data.reshape(heads, 2, -1, data.shape[-1]).swapaxes(1, 2).reshape(data.shape)
                )
        quantised = checkpoint.formats.get(name)
        writer.add_tensor(given, data, raw_dtype=gguf.GGMLQuantizationType[quantised] if quantised else None)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("kind", ["Q8_0", "F32"])
def test_a_gguf_file_holds_the_same_model(kind: str, tmp_path: Path) -> None:
    wanted = published("llama", kind)
    write_gguf(tmp_path / "model.gguf", wanted)
    found = from_gguf(tmp_path / "model.gguf", wanted.config)
    assert found.formats == wanted.formats
    assert set(found.tensors) == set(wanted.tensors)
    assert all(torch.equal(found.tensors[name], it) for name, it in wanted.tensors.items())
