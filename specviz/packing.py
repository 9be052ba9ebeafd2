"""Linear layers prepacked for the CPU: the same products, several times faster for a handful of tokens.

torch multiplies by a plain weight with a kernel that is slow for the few rows of a draft or a verification. oneDNN's
own layout, written once when the model is loaded, is two to four times as fast for 2 to 500 rows, and exact to
float32 rounding. Knows linear layers; knows no pair and no engine.
"""

from __future__ import annotations

import os

import torch
from torch import Tensor, nn

_SMALLEST = 300_000
"""Weights with fewer numbers are left alone: the call costs more than the product."""
_ROWS = 8
"""Rows the layout is chosen for; measured best over 1 to 432 of them."""


class PackedLinear(nn.Module):
    """Takes the place of an `nn.Linear` for inference; holds its weight in oneDNN's layout only."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.bias = linear.bias
        self._packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), _ROWS)

    def forward(self, x: Tensor) -> Tensor:
        """[..., in_features] -> [..., out_features]."""
        return torch.ops.mkldnn._linear_pointwise(x, self._packed, self.bias, "none", [], "")


def pack(model: nn.Module) -> None:
    """Replace the large linear layers of a float32 model on the CPU, freeing their plain weights as it goes.

    A weight that is also an embedding keeps its plain copy for that. Does nothing on other devices and dtypes, where
    torch lacks oneDNN, and where SPECVIZ_PREPACK is "0".
    """
    if os.environ.get("SPECVIZ_PREPACK") == "0" or not torch.backends.mkldnn.is_available():
        return
    with torch.inference_mode(False), torch.no_grad():
        for parent in list(model.modules()):
            for name, child in list(parent.named_children()):
                if type(child) is nn.Linear and _gains(child.weight):
                    setattr(parent, name, PackedLinear(child))


def _gains(weight: Tensor) -> bool:
    return weight.device.type == "cpu" and weight.dtype == torch.float32 and weight.numel() >= _SMALLEST
