"""Prepacked weights: the same products, less memory than twice, and a number of threads that is not left behind."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from specviz.runtime.cpu.packing import PackedLinear, pack
from specviz.runtime.cpu.threads import limited_to


def model(dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(600, 700), nn.Tanh(), nn.Sequential(nn.Linear(700, 600, bias=False), nn.Linear(600, 3))
    ).to(dtype)


def test_products_are_the_same_to_float32_rounding_and_no_weight_is_kept_twice() -> None:
    packed = model()
    pack(packed)
    for rows in (1, 200):
        x = torch.randn(2, rows, 600)
        exact = model().double()(x.double())
        assert (packed(x).double() - exact).abs().max() < 2e-6
    assert sum(p.numel() for p in packed.parameters()) == 703


@pytest.mark.parametrize(("threads", "most"), [(1, 96), (2, 16), (4, 16)])
def test_a_row_has_the_same_bits_however_many_are_multiplied_with_it(threads: int, most: int) -> None:
    """Laws 2 and 3: any number of them on one thread; on more threads as many as a request may have in a round."""
    before = torch.get_num_threads()
    with limited_to(threads):
        for size in (64, 576, 1536, 2049):
            torch.manual_seed(size)
            packed, x = PackedLinear(nn.Linear(size, 300)), torch.randn(most, size)
            alone = torch.cat([packed(row[None]) for row in x])
            for rows in (2, 3, 8, 13, 16, 33, 96):
                assert torch.equal(packed(x[:rows]), alone[:rows]), (size, rows)
    assert torch.get_num_threads() == before


def test_other_precisions_and_a_switch_leave_the_model_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for dtype, switch in ((torch.float64, "1"), (torch.float32, "0")):
        monkeypatch.setenv("SPECVIZ_PREPACK", switch)
        plain = model(dtype)
        pack(plain)
        assert not any(isinstance(m, PackedLinear) for m in plain.modules())
