"""Fewer kernels a pass on a GPU: the same numbers but for rounding, and the same text."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch.nn import functional

from specviz.core.methods import METHODS
from specviz.engine.engine import Engine
from specviz.runtime.cuda.fusing import fuse
from specviz.schema.settings import Request
from tests.support.pretend_gpu import PretendGpu, elsewhere, on_gpu
from tests.support.tiny import Pairs


def products(model: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[int, torch.Tensor]:
    """How many products a pass over three tokens takes, and its logits."""
    calls: list[int] = []
    linear = functional.linear

    def count(*given: Any) -> torch.Tensor:
        calls.append(1)
        return linear(*given)

    with monkeypatch.context() as patch:
        patch.setattr(functional, "linear", count)
        with torch.inference_mode():
            logits = model(torch.tensor([[1, 2, 3]])).logits
    return len(calls), logits


@pytest.mark.parametrize(("family", "dtype"), [("llama", torch.float32), ("qwen2", torch.bfloat16)])
def test_a_fused_pass_is_the_same_but_for_rounding(
    pairs: Pairs, family: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = copy.deepcopy(pairs(family).verifier).to(dtype)
    before, expected = products(model, monkeypatch)
    layers = model.config.num_hidden_layers
    with torch.no_grad():
        fuse(model)
    after, found = products(model, monkeypatch)
    assert before - after == 3 * layers  # k and v with q, up with gate
    scale = expected.std()
    torch.testing.assert_close(
        found / scale, expected / scale, rtol=0, atol=1e-5 if dtype == torch.float32 else 0.1
    )
    assert "_normalize" in str(model.model.norm.forward)
    other = copy.deepcopy(model)
    for weight in other.parameters():
        weight.data = weight.data * 1.5  # lies elsewhere now
    assert products(other, monkeypatch)[0] == before
    _, again = products(model, monkeypatch)
    assert torch.equal(again, found)


def test_what_is_not_understood_stays(pairs: Pairs) -> None:
    """Gemma's norms add one to their weights; GPT-2 has neither such norms nor such names."""
    for family in ("gemma2", "gpt2"):
        model = copy.deepcopy(pairs(family).verifier)
        with torch.inference_mode():
            expected = model(torch.tensor([[1, 2, 3]])).logits
            fuse(model)
            torch.testing.assert_close(model(torch.tensor([[1, 2, 3]])).logits, expected)


def test_fused_passes_write_the_text_of_the_cpu(gpu: PretendGpu, pairs: Pairs) -> None:
    requests = [
        Request(token_ids=[5, 6, 7 + seed], method=method, seed=seed, max_new_tokens=16, draft_length=3)
        for seed, method in enumerate(METHODS)
    ]
    with elsewhere():
        expected = [run.token_ids for run in Engine(pairs("qwen2")).generate(requests)]
    there = on_gpu(pairs("qwen2"))
    for model in (there.drafter, there.verifier):
        fuse(model)
    for _ in range(2):
        assert [run.token_ids for run in Engine(there).generate(requests)] == expected
    assert gpu.replays > 0
