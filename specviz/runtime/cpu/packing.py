"""Packed linear layers for the CPU: the same products, several times faster for a few tokens.

For the few rows of a draft or a verification, torch's product with a plain weight is slow. oneDNN's own layout, written once
when the model is loaded, is two to four times as fast for 2 to 500 rows, exact to float32 rounding, and batch-invariant: a row's
bits do not depend on the other rows (on several threads, up to 16). Whether it pays is measured on this machine.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from itertools import chain

import torch
from torch import Tensor, nn

from specviz import environment
from specviz.compat.torch import has_packed_products, pack_weight, packed_product
from specviz.runtime.cpu.threads import fastest

_ROWS = 8
"""Number of rows that the layout is chosen for; by measurement, best for 1 to 432 rows."""
_TRIED = (1, 4)
"""Numbers of rows at which plain and packed products are timed: a draft's and a verification's."""
_REPETITIONS = 3


class PackedLinear(nn.Module):
    """Takes the place of an `nn.Linear` for inference; holds its weight in oneDNN's layout only."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.bias = linear.bias
        self._packed = pack_weight(linear.weight.detach(), _ROWS)
        x = _numbers(2, self.in_features)
        # With one row, oneDNN may sum in another order: such a layer gets two.
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
    """Replace the linear layers of a float32 model on the CPU if that is faster, freeing their plain weights.

    All of them or none, so that all give the same bits for any number of rows. A weight that is also an embedding
    keeps its plain copy for that. Does nothing on other devices and dtypes, where torch lacks oneDNN, and where
    SPECVIZ_PREPACK is "0".
    """
    if not environment.PREPACK.value() or not has_packed_products():
        return
    found: dict[torch.Size, list[tuple[nn.Module, str]]] = defaultdict(list)
    for parent in model.modules():
        for name, child in parent.named_children():
            if isinstance(child, nn.Linear) and _fits(child):
                found[child.weight.shape].append((parent, name))
    with torch.inference_mode(False), torch.no_grad():
        gain = sum(len(places) * _gain(getattr(*places[0])) for places in found.values())
        for parent, name in chain(*found.values()) if gain > 0 else ():
            setattr(parent, name, PackedLinear(getattr(parent, name)))


def _numbers(*shape: int) -> Tensor:
    """Uniform numbers to try products on, without torch's global generator."""
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0))


def _fits(layer: nn.Linear) -> bool:
    return (
        type(layer) is nn.Linear and layer.weight.device.type == "cpu" and layer.weight.dtype == torch.float32
    )


def _gain(linear: nn.Linear) -> float:
    """Seconds that packing saves a layer, in one product of each of the sizes tried."""
    packed, gain = PackedLinear(linear), 0.0
    for rows in _TRIED:
        x = _numbers(1, rows, linear.in_features)
        gain += fastest(partial(linear, x), _REPETITIONS) - fastest(partial(packed, x), _REPETITIONS)
    return gain
