"""Packed linear layers for the CPU: the same products, several times faster for a few tokens.

For the few rows of a draft or a verification, torch's product with a plain weight is slow. oneDNN's own layout, written once
when the model is loaded, is two to four times as fast for 2 to 500 rows, exact to float32 rounding, and batch-invariant: a row's
bits do not depend on the other rows (on several threads, up to 16).
"""

from __future__ import annotations

from typing import TypeGuard

import torch
from torch import Tensor, nn

from specviz import environment
from specviz.compat.torch import has_packed_products, pack_weight, packed_product

_ROWS = 8
"""Number of rows that the layout is chosen for; by measurement, best for 1 to 432 rows."""


class PackedLinear(nn.Module):
    """Takes the place of an `nn.Linear` for inference; holds its weight in oneDNN's layout only."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.bias = linear.bias
        self._packed = pack_weight(linear.weight.detach(), _ROWS)
        x = torch.rand(2, self.in_features, generator=torch.Generator().manual_seed(0))
        # With one row, oneDNN may sum in another order: such a layer is given two rows.
        self._pairs_up = not torch.equal(self._product(x[:1]), self._product(x)[:1])

    def _product(self, x: Tensor) -> Tensor:
        return packed_product(x, self._packed, self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """[..., in_features] -> [..., out_features]."""
        if self._pairs_up and x.numel() == self.in_features:
            row = x.reshape(1, -1)
            return self._product(torch.cat((row, row)))[0].view(*x.shape[:-1], -1)
        return self._product(x)


def pack(model: nn.Module) -> None:
    """Replace the linear layers of a float32 model on the CPU, freeing their plain weights.

    If a weight is also the embedding, the embedding keeps the plain weight. Does nothing for other devices or dtypes, if torch
    lacks oneDNN, or if SPECVIZ_PREPACK is off.
    """
    if not environment.PREPACK.value() or not has_packed_products():
        return
    with torch.inference_mode(False), torch.no_grad():
        for parent in list(model.modules()):
            for name, child in list(parent.named_children()):
                if _fits(child):
                    setattr(parent, name, PackedLinear(child))


def _fits(layer: nn.Module) -> TypeGuard[nn.Linear]:
    return (
        type(layer) is nn.Linear and layer.weight.device.type == "cpu" and layer.weight.dtype == torch.float32
    )
