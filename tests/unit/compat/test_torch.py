"""What SpecViz takes from torch beyond its documentation still does what it did."""

from __future__ import annotations

import pytest
import torch

from specviz.compat.torch import has_packed_products, pack_weight, packed_product


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")
def test_packed_products_are_those_of_a_linear_layer() -> None:
    assert has_packed_products(), "passes on a CPU take twice as long"
    layer = torch.nn.Linear(24, 40)
    for rows in (1, 2, 5):
        x = torch.rand(rows, 24)
        found = packed_product(x, pack_weight(layer.weight.detach(), 8), layer.bias.detach())
        assert torch.allclose(found, layer(x), atol=1e-5)
