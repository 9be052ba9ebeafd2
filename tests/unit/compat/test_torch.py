"""What SpecViz takes from torch beyond its documentation is still there and still does what it did.

Each test fails with a sentence that says what has changed and what SpecViz loses by it.
"""

from __future__ import annotations

import torch

from specviz.compat.torch import (
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


def test_a_failed_capture_can_be_ended() -> None:
    assert hasattr(torch._C, "_cuda_endAllocateToPool") or not torch.backends.cuda.is_built(), (
        f"{HERE} has lost _cuda_endAllocateToPool: after a failed capture the allocator may stay in capture mode"
    )
    assert callable(end_failed_capture)
