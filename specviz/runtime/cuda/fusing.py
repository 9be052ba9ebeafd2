"""Fewer kernels a pass: norms as one kernel each, and products of the same input joined (the trial "fused").

A pass over a few tokens on a GPU waits for its kernels' beginnings more than for its weights. Knows modules by the names that
transformers gives them; a model's own code stays. Knows no cache and no pair.
"""

from __future__ import annotations

import copy
import threading
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

_JOINED = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""Linear layers that read the same input, by their names in one module, in the order in which it calls them."""
_TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-6}
"""How far a norm in one kernel may lie from the module's own; half precisions: 0.02."""


def fuse(model: nn.Module) -> None:
    """Let a model's norms and joined products run as one kernel each; what is not understood stays as it is."""
    for module in list(model.modules()):
        if _is_root_mean_square(module):
            weight: Any = module.weight
            epsilon: Any = module.variance_epsilon
            module.forward = partial(_normalize, weight, epsilon)
        for names in _JOINED:
            linears = [getattr(module, name, None) for name in names]
            if all(type(each) is nn.Linear for each in linears):
                _Products(linears)  # type: ignore[arg-type]  # the layers hold it


def _normalize(weight: Tensor, epsilon: float, x: Tensor) -> Tensor:
    return functional.rms_norm(x, weight.shape, weight, epsilon)


@torch.no_grad()
def _is_root_mean_square(module: nn.Module) -> bool:
    """Whether a module is torch's root-mean-square norm but for rounding, by a trial: Gemma's adds one to its weights."""
    weight, epsilon = getattr(module, "weight", None), getattr(module, "variance_epsilon", None)
    if not isinstance(weight, Tensor) or weight.dim() != 1 or not isinstance(epsilon, float):
        return False
    x = torch.linspace(-3, 5, len(weight), dtype=weight.dtype, device=weight.device)[None, None]
    limit = _TOLERANCE.get(weight.dtype, 0.02)
    return torch.allclose(_normalize(weight, epsilon, x), module(x), rtol=limit, atol=limit)


class _Products:
    """Linear layers of one input as a single product: the first computes it, the others hand out their parts.

    Their weights become parts of one tensor. Where they have been moved since, each computes its own.
    """

    @torch.no_grad()
    def __init__(self, linears: list[nn.Linear]) -> None:
        self._linears, self._sizes = linears, [each.out_features for each in linears]
        self._weight = torch.cat([each.weight.data for each in linears])
        for each, part in zip(linears, self._weight.split(self._sizes), strict=True):
            each.weight.data = part
        biases = [each.bias.data for each in linears if each.bias is not None]
        self._bias = torch.cat(biases) if biases else None
        self._own = threading.local()
        if len(biases) in (0, len(linears)):
            for index, each in enumerate(linears):
                each.forward = partial(self._product, index)  # type: ignore[method-assign]

    def _product(self, index: int, x: Tensor) -> Tensor:
        first = self._linears[0].weight
        if first.data_ptr() != self._weight.data_ptr():
            each = self._linears[index]
            return functional.linear(x, each.weight, each.bias)
        known, parts = getattr(self._own, "last", (None, []))
        if known is not x:
            parts = list(functional.linear(x, self._weight, self._bias).split(self._sizes, -1))
        # Held only until the last layer has had its part.
        self._own.last = (x, parts) if index + 1 < len(parts) else (None, [])
        return parts[index]

    def __deepcopy__(self, memo: dict[int, Any]) -> _Products:
        copied: _Products = object.__new__(_Products)
        memo[id(self)] = copied  # the layers refer to it
        fields = {name: value for name, value in vars(self).items() if name != "_own"}
        vars(copied).update(copy.deepcopy(fields, memo), _own=threading.local())
        return copied
