"""Attention for a handful of queries over a slot cache: torch's fused kernel, asked in fixed shapes.

Query heads that share a key-value head become rows of one product, so keys and values are never repeated. On the CPU,
with four rows or more, and a number of keys that is a multiple of 64, the kernel gives a query the same bits whatever else is
computed with it: other queries, other rows of the batch, keys that the mask hides. Knows no cache and no request.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "specviz_grouped"
_LEAST = 4
"""With fewer rows the CPU's kernel multiplies in another order."""


def group(model: PreTrainedModel) -> None:
    """Let a model on one device whose attention is torch's own use `grouped_attention`; leave any other as it is.

    So too where scores are softcapped (Gemma 2), of which torch's kernel knows nothing.
    """
    in_one_place = len({parameter.device for parameter in model.parameters()}) == 1
    softcapped = getattr(model.config.get_text_config(), "attn_logit_softcapping", None)
    if in_one_place and not softcapped and model.config._attn_implementation == "sdpa":
        # cuDNN's kernel plans anew for every number of rows and keys, which are ever others here: tens of milliseconds.
        torch.backends.cuda.enable_cudnn_sdp(False)
        model.set_attn_implementation(NAME)


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

    A mask of `grouped_mask` is added to the scores; with any other, or none, this is transformers' own function.
    """
    if attention_mask is None or not attention_mask.is_floating_point():
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **options)
    batch, heads, tokens, size = query.shape
    rows = heads // key.shape[1] * tokens
    query = query.reshape(batch, key.shape[1], rows, size)
    if rows < _LEAST:
        query = functional.pad(query, (0, 0, 0, _LEAST - rows))
    mixed = functional.scaled_dot_product_attention(query, key, value, attention_mask, scale=scaling)
    return mixed[:, :, :rows].reshape(batch, heads, tokens, -1).transpose(1, 2).contiguous(), None


def staircase(length: int, window: int | None, dtype: torch.dtype, device: torch.device) -> Tensor:
    """What is added to scores of keys at distances length - 1, …, 0, then of keys further on: [2 · length].

    0 for a key that is seen, which lies at or before its query and, where there is a `window`, within that.
    """
    bias = torch.full((2 * length,), -torch.inf, dtype=dtype, device=device)
    bias[max(0, length - (window or length)) : length] = 0.0
    return bias


def key_heads(config: Any) -> int:
    """Key-value heads of a layer: as many as query heads where a config names none."""
    return int(getattr(config, "num_key_value_heads", None) or config.num_attention_heads)


def grouped_mask(stairs: Tensor, positions: Tensor, visible: int, config: Any) -> Tensor:
    """The mask [B, 1, rows, visible] that `grouped_attention` takes, for queries at `positions` [B, n]."""
    rows = positions.repeat(1, config.num_attention_heads // key_heads(config))
    rows = functional.pad(rows, (0, max(0, _LEAST - rows.shape[1])))
    return stairs.unfold(0, visible, 1)[len(stairs) // 2 - 1 - rows][:, None]


AttentionInterface.register(NAME, grouped_attention)
AttentionMaskInterface.register(NAME, sdpa_mask)
