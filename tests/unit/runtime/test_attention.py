"""Grouped attention: the same model, and the same bits for a token whatever is computed with it."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from specviz.runtime.attention import GROUPED_ATTENTION, group, grouped_attention, grouped_mask, mask_band
from specviz.runtime.cpu.threads import limited_to
from specviz.runtime.model_runner import ModelRunner
from tests.support.tiny import FAMILIES, tiny_model

HEADS, GROUPS, SIZE = 6, 2, 64


class Heads:
    num_attention_heads, num_key_value_heads = HEADS, GROUPS


@pytest.mark.parametrize("family", FAMILIES)
def test_a_grouped_model_is_the_same_model(family: str, tmp_path: Path) -> None:
    """Two rows at different positions, in blocks, against transformers' own pass over each whole text."""
    model = tiny_model(family, 60, 0, tmp_path)
    near = {"rtol": 0, "atol": 1e-5 if family == "gemma2" else 1e-12}  # gemma2's softmax is float32
    torch.manual_seed(0)
    tokens, lengths = torch.randint(60, (2, 24)), (20, 9)
    with torch.inference_mode():
        wanted = [model(tokens[row : row + 1, : lengths[row] + 4]).logits[0, -4:] for row in range(2)]
        group(model)
        assert (model.config._attn_implementation == GROUPED_ATTENTION) == (family != "gemma2")
        again = model(tokens[:1]).logits  # asked as transformers asks, without a mask of ours
        assert torch.allclose(again[0, 20:24], wanted[0], **near)
        slot = ModelRunner(model, 60)
        slot.admit([0, 1], 64)
        counts = torch.tensor(lengths)[:, None]
        positions = torch.arange(20).expand(2, -1)
        slot.read(tokens[:, :20], positions, visible=20, valid=positions < counts)
        at = counts + torch.arange(4)
        found = slot.forward(tokens.gather(1, at), at, visible=24)
    for row in range(2):
        assert torch.allclose(found[row], wanted[row], **near), row


def attend(query: Tensor, key: Tensor, value: Tensor, positions: Tensor, visible: int) -> Tensor:
    """Attention of queries [B, H, n, D] at `positions` [B, n] over the first `visible` keys."""
    mask = grouped_mask(mask_band(512, None, query.dtype, query.device), positions, visible, Heads)
    return grouped_attention(nn.Module(), query, key[:, :, :visible], value[:, :, :visible], mask)[0]


@pytest.mark.parametrize("threads", [1, 2])
def test_a_query_has_the_same_bits_whatever_is_computed_with_it(threads: int) -> None:
    """Laws 2 and 3."""
    torch.manual_seed(0)
    query = torch.randn(8, HEADS, 40, SIZE)
    key, value = torch.randn(2, 8, GROUPS, 512, SIZE)
    positions = torch.randint(5, 60, (8, 40))

    def part(rows: int, queries: slice, visible: int) -> Tensor:
        own = query[:rows, :, queries], key[:rows], value[:rows], positions[:rows, queries]
        return attend(*own, visible)

    with limited_to(threads):
        alone = torch.cat([part(1, slice(i, i + 1), 64) for i in range(40)], 1)
        for rows, count, visible in product((1, 8), (2, 3, 5, 16, 40), (64, 128, 512)):
            found = part(rows, slice(count), visible)
            assert torch.equal(found[:1], alone[:, :count]), (rows, count, visible)
