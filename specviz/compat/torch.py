"""The private names of torch that SpecViz needs, as of 2.8 to 2.13."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def has_packed_products() -> bool:
    """Whether this build of torch can multiply by weights in oneDNN's layout. Public functions only say whether torch has oneDNN."""
    return torch.backends.mkldnn.is_available() and all(
        hasattr(torch.ops.mkldnn, name) for name in ("_reorder_linear_weight", "_linear_pointwise")
    )


def pack_weight(weight: Tensor, rows: int) -> Tensor:
    """A linear layer's weight [out, in] in oneDNN's layout for inputs of `rows` rows.

    `torch.compile` does this when it freezes linear layers on the CPU; no public function does.
    """
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, rows)
    return packed


def packed_product(x: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
    """x [..., in] times a weight from `pack_weight`, plus the bias: [..., out]."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
    return product


def end_failed_capture(device_index: int, pool: Any) -> None:
    """Take the CUDA allocator out of capture mode after a capture failed. Up to torch 2.12, `capture_end` leaves it there."""
    torch._C._cuda_endAllocateToPool(device_index, pool)
