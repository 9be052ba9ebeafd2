"""Tiny checkpoints of the shapes that fused passes read: as published, float or quantised."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from specviz.models.checkpoint import QUANTISED, Checkpoint
from specviz.models.fused import fused_model

SHAPES: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 64},
    "untied": {"model_type": "llama", "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 16},
    "llama3": {
        "model_type": "llama",
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 5e5,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    },
    "qwen2": {
        "model_type": "qwen2",
        "hidden_size": 448,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "head_dim": 32,
    },
    "qwen3": {
        "model_type": "qwen3",
        "hidden_size": 320,
        "num_attention_heads": 10,
        "num_key_value_heads": 2,
        "head_dim": 32,
    },
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
