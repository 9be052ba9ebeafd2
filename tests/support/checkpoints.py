"""Tiny checkpoints of the shapes that fused passes read: as published, float or quantised."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from specviz.models.checkpoint import QUANTISED, Checkpoint
from specviz.models.fused import fused_model


def _shape(kind: str, heads: int, groups: int, head_dim: int, **more: Any) -> dict[str, Any]:
    sizes = {"num_attention_heads": heads, "num_key_value_heads": groups, "head_dim": head_dim}
    return {"model_type": kind} | sizes | more


_SCALING = {
    "rope_type": "llama3",
    "rope_theta": 5e5,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}
SHAPES = {
    "llama": _shape("llama", 6, 2, 64),
    "untied": _shape("llama", 4, 4, 16),
    "llama3": _shape("llama", 4, 1, 32, rope_parameters=_SCALING | {"original_max_position_embeddings": 64}),
    "qwen2": _shape("qwen2", 14, 2, 32, hidden_size=448),
    "qwen3": _shape("qwen3", 10, 2, 32, hidden_size=320),
}
"""Sharing of keys by 3, 1, 4, 7 and 5 query heads; biases; norms of queries and keys; rotary scaling; both kinds of head."""


def published(shape: str, kind: str, *, seed: int = 0, vocabulary: int = 203, layers: int = 2) -> Checkpoint:
    """A random checkpoint of one of `SHAPES` in a format: Q4_1, Q8_0, BF16, F16 or F32."""
    config = AutoConfig.for_model(
        **{"hidden_size": 192} | SHAPES[shape],
        vocab_size=vocabulary,
        intermediate_size=192,
        num_hidden_layers=layers,
        max_position_embeddings=512,
        tie_word_embeddings=shape != "untied",
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config)
    for parameter in model.parameters():
        parameter.data.normal_(0.0 if parameter.dim() == 2 else 1.0, 0.08)
    if kind in QUANTISED:
        return Checkpoint.of(model, kind)
    dtype = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}[kind]
    state = {name: tensor.to(dtype) for name, tensor in model.state_dict().items()}
    if config.tie_word_embeddings:
        del state["lm_head.weight"]
    return Checkpoint(config, state, {})


def fused(checkpoint: Checkpoint, *, fast: bool = False) -> Any:
    """The checkpoint as a fused model."""
    return fused_model(checkpoint, lambda: checkpoint.module(torch.float32).eval(), fast=fast)


def write(checkpoint: Checkpoint, folder: Path) -> Path:
    """The checkpoint as a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint.save(folder)
    return folder
