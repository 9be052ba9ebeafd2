"""What SpecViz takes from torch beyond its documentation is still there and still does what it did.

Each test fails with a sentence that says what has changed and what SpecViz loses by it.
"""

from __future__ import annotations

import torch

from specviz.compat.torch import (
    attention_and_log_sum,
    end_failed_capture,
    has_packed_products,
    pack_weight,
    packed_product,
)

HERE = f"torch {torch.__version__}"


def test_packed_products_are_those_of_a_linear_layer() -> None:
    if not torch.backends.mkldnn.is_available():
        assert not has_packed_products()
        return
    assert has_packed_products(), f"{HERE} has lost its packed products: passes on a CPU take twice as long"
    layer = torch.nn.Linear(24, 40)
    for rows in (1, 2, 5):
        x = torch.rand(rows, 24)
        found = packed_product(x, pack_weight(layer.weight.detach(), 8), layer.bias.detach())
        assert torch.allclose(found, layer(x), atol=1e-5), f"{HERE} computes packed products differently"


def test_attention_tells_the_sum_of_its_exponentials() -> None:
    torch.manual_seed(0)
    query, key, value = torch.rand(2, 3, 4, 16), torch.rand(2, 3, 64, 16), torch.rand(2, 3, 64, 16)
    mask = torch.rand(2, 3, 4, 64)
    mixed, log_sum = attention_and_log_sum(query, key, value, mask, 0.25)
    scores = query @ key.transpose(2, 3) * 0.25 + mask
    words = f"{HERE} computes fused attention differently: long contexts cannot be attended to in parts"
    assert torch.allclose(log_sum, scores.logsumexp(-1), atol=1e-4), words
    assert torch.allclose(mixed, scores.softmax(-1) @ value, atol=1e-5), words
    assert hasattr(torch.ops.aten, "_scaled_dot_product_efficient_attention"), words


def test_a_failed_capture_can_be_ended() -> None:
    assert hasattr(torch._C, "_cuda_endAllocateToPool") or not torch.backends.cuda.is_built(), (
        f"{HERE} has lost _cuda_endAllocateToPool: after a failed capture the allocator may stay in capture mode"
    )
    assert callable(end_failed_capture)
