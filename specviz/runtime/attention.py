"""Attention for a few queries over a KV cache: torch's fused kernel, called in batch-invariant shapes.

Query heads that share a key-value head become rows of one product, so keys and values are never repeated. On the CPU, with
four rows or more and a number of keys that is a multiple of 64, the bits of a query's output do not depend on the other
queries, the rest of the batch, or masked keys.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel

from specviz.compat.transformers import attention_of
from specviz.compat.transformers_attention import sdpa_attention_forward, sdpa_mask

GROUPED_ATTENTION = "specviz_grouped"
"""The name under which transformers knows `grouped_attention`."""
_LEAST = 4
"""Fewest query rows of a call: with fewer, the CPU kernel sums in another order."""
_WITHOUT_CUDNN = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""All backends except cuDNN, which plans for tens of milliseconds at each new number of rows or keys. Both numbers change often."""


def group(model: PreTrainedModel) -> None:
    """Switch a model from transformers' SDPA attention to `grouped_attention`.

    Unchanged: models on several devices, with another attention, or with softcapped scores (Gemma 2), which torch's kernel lacks.
    """
    on_one_device = len({parameter.device for parameter in model.parameters()}) == 1
    softcapped = getattr(model.config.get_text_config(), "attn_logit_softcapping", None)
    if on_one_device and not softcapped and attention_of(model) == "sdpa":
        model.set_attn_implementation(GROUPED_ATTENTION)


def grouped_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """transformers' attention interface: query [B, H, n, D], key and value [B, G, T, D] -> [B, n, H, D].

    A mask from `grouped_mask` is added to the scores. With any other mask, or None, transformers' SDPA function is called instead.
    """
    with sdpa_kernel(_WITHOUT_CUDNN) if query.is_cuda else nullcontext():
        if attention_mask is None or not attention_mask.is_floating_point():
            return sdpa_attention_forward(
                module, query, key, value, attention_mask, scaling=scaling, **options
            )
        batch, heads, tokens, size = query.shape
        rows = heads // key.shape[1] * tokens
        query = query.reshape(batch, key.shape[1], rows, size)
        if rows < _LEAST:
            query = functional.pad(query, (0, 0, 0, _LEAST - rows))
        mixed = functional.scaled_dot_product_attention(query, key, value, attention_mask, scale=scaling)
        return mixed[:, :, :rows].reshape(batch, heads, tokens, -1).transpose(1, 2).contiguous(), None


def mask_band(length: int, window: int | None, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The values [2 · length] that a causal mask adds to a query's scores: first for the keys length - 1, …, 0 positions before the
    query, then for the keys after it. Visible keys (within the `window`, unless it is None) get 0, the others −inf.
    """
    bias = torch.full((2 * length,), -torch.inf, dtype=dtype, device=device)
    bias[max(0, length - (window or length)) : length] = 0.0
    return bias


def layer_configs(config: Any) -> list[Any]:
    """The config of each layer: the same object for all layers, unless layers differ (the heads of Gemma 4)."""
    if getattr(config, "is_heterogeneous", False):
        return list(config.per_layer_config)
    return [config] * config.num_hidden_layers


def key_heads(config: Any) -> int:
    """Number of key-value heads of a layer; the number of query heads if the config gives none."""
    return int(getattr(config, "num_key_value_heads", None) or config.num_attention_heads)


def sharing(config: Any) -> int:
    """Number of query heads that share a key-value head in a layer."""
    return int(config.num_attention_heads) // key_heads(config)


def grouped_mask(band: Tensor, positions: Tensor, visible: int, config: Any) -> Tensor:
    """The mask [B, 1, rows, visible] of `grouped_attention` for queries at `positions` [B, n]. Each row is a slice of a `mask_band`."""
    rows = positions.repeat(1, sharing(config))
    rows = functional.pad(rows, (0, max(0, _LEAST - rows.shape[1])))
    return band.unfold(0, visible, 1)[len(band) // 2 - 1 - rows][:, None]


AttentionInterface.register(GROUPED_ATTENTION, grouped_attention)
AttentionMaskInterface.register(GROUPED_ATTENTION, sdpa_mask)
