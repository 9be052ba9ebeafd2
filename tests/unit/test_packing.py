"""Prepacked weights: the same products, and less memory than twice."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from specviz.packing import PackedLinear, pack


def model(dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(600, 700), nn.Tanh(), nn.Sequential(nn.Linear(700, 600, bias=False), nn.Linear(600, 3))
    ).to(dtype)


@pytest.mark.parametrize("rows", [1, 2, 5, 8, 33, 200])
def test_products_are_the_same_to_float32_rounding(rows: int) -> None:
    packed = model()
    pack(packed)
    x = torch.randn(2, rows, 600)
    exact = model().double()(x.double())
    assert (packed(x).double() - exact).abs().max() < 2e-6
    assert packed(x).shape == (2, rows, 3)


def test_only_large_weights_are_packed_and_none_is_kept_twice() -> None:
    packed = model()
    pack(packed)
    assert [type(m) for m in packed.modules() if isinstance(m, PackedLinear | nn.Linear)] == [
        PackedLinear,
        PackedLinear,
        nn.Linear,
    ]
    assert sum(p.numel() for p in packed.parameters()) == 700 + 600 * 3 + 3


def test_a_switch_and_other_precisions_leave_the_model_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    double = model(torch.float64)
    pack(double)
    assert not any(isinstance(m, PackedLinear) for m in double.modules())
    monkeypatch.setenv("SPECVIZ_PREPACK", "0")
    plain = model()
    pack(plain)
    assert not any(isinstance(m, PackedLinear) for m in plain.modules())
