"""The number of threads of a pass: measured, remembered, and never left behind."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from specviz.runtime.cpu import threads
from specviz.runtime.cpu.packing import PackedLinear, pack
from specviz.runtime.cpu.threads import limited_to
from specviz.runtime.model_runner import ModelRunner
from tests.support.tiny import tiny_model


def test_a_pass_takes_the_threads_chosen_and_restores_the_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, seen = tiny_model("llama", 60, 0, tmp_path), list[int]()
    before = torch.get_num_threads()
    threads.choose(model)
    assert 1 <= threads.chosen(model, 8) <= threads.chosen(model, 9) == threads.budget()
    monkeypatch.setattr(threads, "_budget", 3)
    threads._chosen[model] = 1
    model.register_forward_hook(lambda *_: seen.append(torch.get_num_threads()))
    runner = ModelRunner(model, 60)
    runner.admit([0], 128)
    for count in (1, 8, 9, 65):
        runner.forward(torch.zeros(1, count, dtype=torch.long), torch.arange(count)[None], visible=count)
    assert seen == [1, 1, 3, 3]
    assert torch.get_num_threads() == before


# ---- prepacked weights: the same products, and less memory than twice ------------------------------------


def model(dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(600, 700), nn.Tanh(), nn.Sequential(nn.Linear(700, 600, bias=False), nn.Linear(600, 3))
    ).to(dtype)


@pytest.mark.parametrize("rows", [1, 8, 200])
def test_products_are_the_same_to_float32_rounding(rows: int) -> None:
    packed = model()
    pack(packed)
    x = torch.randn(2, rows, 600)
    exact = model().double()(x.double())
    assert (packed(x).double() - exact).abs().max() < 2e-6
    assert packed(x).shape == (2, rows, 3)


@pytest.mark.parametrize(("threads", "most"), [(1, 96), (2, 16), (4, 16)])
def test_a_row_has_the_same_bits_however_many_are_multiplied_with_it(threads: int, most: int) -> None:
    """Laws 2 and 3: any number of them on one thread; on more threads as many as a request may have in a round."""
    with limited_to(threads):
        for size in (64, 576, 1536, 2049):
            torch.manual_seed(size)
            packed, x = PackedLinear(nn.Linear(size, 300)), torch.randn(most, size)
            alone = torch.cat([packed(row[None]) for row in x])
            for rows in (2, 3, 8, 13, 16, 33, 96):
                assert torch.equal(packed(x[:rows]), alone[:rows]), (size, rows)


def test_no_weight_is_kept_twice() -> None:
    packed = model()
    pack(packed)
    assert not any(isinstance(m, nn.Linear) for m in packed.modules())
    assert sum(p.numel() for p in packed.parameters()) == 703


def test_other_precisions_and_a_switch_leave_the_model_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for dtype, switch in ((torch.float64, "1"), (torch.float32, "0")):
        monkeypatch.setenv("SPECVIZ_PREPACK", switch)
        plain = model(dtype)
        pack(plain)
        assert not any(isinstance(m, PackedLinear) for m in plain.modules())
