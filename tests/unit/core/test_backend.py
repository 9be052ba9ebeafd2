"""The compiled backend against the definition in torch, verb by verb, at random and at adversarial rows."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from specviz.core import loops
from specviz.core.backend import TORCH, Backend, backend_for, compiled_backend

VOCABULARIES = (7, 512, 1300)
"""Less than a block, a whole one, several and a rest."""
COMPILED = compiled_backend() or TORCH

pytestmark = pytest.mark.skipif(compiled_backend() is None, reason="needs numba")
each_vocabulary = pytest.mark.parametrize("vocabulary", VOCABULARIES)


def logits(vocabulary: int, *lead: int, seed: int = 0) -> Tensor:
    """Random logits [*lead, V], a tenth of them of tokens that the model lacks."""
    values = 3 * torch.randn(*lead, vocabulary, generator=torch.Generator().manual_seed(seed))
    values[..., 3::10] = -torch.inf
    return values


def rows(vocabulary: int, *lead: int, seed: int = 0) -> Tensor:
    """Distributions [*lead, V]: the first one-hot, the second flat with ties, others random, with zeros."""
    values = logits(vocabulary, *lead, seed=seed).softmax(-1)
    flat = values.view(-1, vocabulary)
    flat[0], flat[0, vocabulary // 2] = 0, 1
    flat[1] = 1 / vocabulary
    return values


def coins(*shape: int, seed: int = 0) -> Tensor:
    """Uniforms, both ends among them."""
    values = torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    values.view(-1)[0], values.view(-1)[-1] = 0.0, 1 - 2**-53
    return values


def near(found: Tensor, expected: Tensor) -> bool:
    return torch.allclose(found, expected, rtol=2e-5, atol=2e-6)


@each_vocabulary
@pytest.mark.parametrize("temperature", [0.0, 0.3])
def test_softmax(vocabulary: int, temperature: float) -> None:
    values = logits(vocabulary, 3)
    found = COMPILED.softmax(values, temperature)
    assert near(found, TORCH.softmax(values, temperature))
    assert not found[:, 3::10].any()
    together = COMPILED.softmax(values, torch.tensor([temperature, 0.0, 0.7], dtype=torch.float64))
    for row, heat in enumerate((temperature, 0.0, 0.7)):
        assert torch.equal(together[row], COMPILED.softmax(values[row], heat))
    out = torch.empty_like(values)
    assert COMPILED.softmax(values, temperature, out) is out
    assert torch.equal(out, found)


def test_softmax_is_one_hot_at_the_first_of_equals() -> None:
    """Law 5: greedy is greedy."""
    values = torch.zeros(1, 1300)
    values[0, [600, 601, 1200]] = 4
    assert COMPILED.softmax(values, 0.0).argmax() == TORCH.softmax(values, 0.0).argmax() == 600


def test_what_is_not_finite_shows() -> None:
    """It is reported after the round, so it must not be lost on the way."""
    values = logits(1300, 3)
    values[0, 700], values[1, 5], values[2] = torch.nan, torch.inf, -torch.inf
    found = COMPILED.softmax(values, 1.0)
    assert found.isnan().all()
    assert COMPILED.draw(found, coins(3)).tolist() == TORCH.draw(found, coins(3)).tolist() == [1299] * 3


@each_vocabulary
def test_draw(vocabulary: int) -> None:
    weights = 0.3 * rows(vocabulary, 400)
    found = COMPILED.draw(weights, coins(400))
    assert torch.equal(found, TORCH.draw(weights, coins(400)))
    assert (weights.gather(1, found[:, None]) > 0).all()
    mixture = rows(vocabulary, 400, seed=1)
    mixture[:9] = weights[:9] / 2  # no residual is left
    found = COMPILED.draw_residual(mixture, weights, coins(400))
    assert torch.equal(found, TORCH.draw_residual(mixture, weights, coins(400)))


@each_vocabulary
def test_leading(vocabulary: int) -> None:
    values = rows(vocabulary, 2, 3)
    found, expected = COMPILED.leading(values, 5), TORCH.leading(values, 5)
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1].view(6, 5)[2:], expected[1].view(6, 5)[2:])  # where nothing ties
    assert found[1][0, 1].tolist() == [0, 1, 2, 3, 4]
    assert COMPILED.leading(torch.zeros(1, vocabulary), 2)[0].tolist() == [[0, 0]]


@each_vocabulary
def test_excess(vocabulary: int) -> None:
    values = rows(vocabulary, 4, 2)
    assert near(COMPILED.excess(values, 0.5 * values), TORCH.excess(values, 0.5 * values))
    assert not COMPILED.mass_below(values, torch.zeros(4, 2, 1), values).any()


VERBS: dict[str, Callable[[Backend, Tensor], Tensor]] = {
    "softmax": lambda backend, q: backend.softmax(q, 0.7),
    "draw": lambda backend, q: backend.draw(q, torch.tensor(0.4).double()),
    "draw_residual": lambda backend, q: backend.draw_residual(q, q.flip(-1), torch.tensor(0.4).double()),
    "leading": lambda backend, q: backend.leading(q, 3)[1],
    "excess": lambda backend, q: backend.excess(q, 0.5 * q),
}


@pytest.mark.parametrize("verb", VERBS)
def test_rows_may_lie_anywhere_and_have_the_same_bits_beside_others(verb: str) -> None:
    """Law 3: steps of a block, some sequences and one row for all give what their copies, and rows alone, give."""
    q, run = rows(1300, 4, 3), VERBS[verb]
    for view in (q[:, 1:], q[::2, :2], q[1:2, :1].expand(4, 3, -1), q[0, 2]):
        found = run(COMPILED, view)
        assert torch.equal(found, run(COMPILED, view.clone()))
        row = run(COMPILED, view.reshape(-1, 1300)[-1:])
        assert torch.equal(found.reshape(-1, *row.shape[1:])[-1:], row)


@pytest.mark.parametrize("verb", VERBS)
def test_other_precisions_are_refused(verb: str) -> None:
    for kind in (torch.float64, torch.float16):
        with pytest.raises(TypeError):
            VERBS[verb](COMPILED, rows(1300, 2).to(kind))


def address(values: Tensor | np.ndarray) -> int:
    return values.data_ptr() if isinstance(values, Tensor) else values.ctypes.data


@pytest.mark.parametrize("heat", [0.0, 0.7, 1.0])
@each_vocabulary
def test_what_fused_drafting_samples_is_a_draw_from_the_distribution(vocabulary: int, heat: float) -> None:
    """Bit for bit, whether the drafter scores all tokens or some. The confidence is q(v), at temperature 0 q1(v)."""
    known = torch.arange(0, vocabulary, 3)
    some, whole = torch.randn(len(known) + 5), torch.full((1, vocabulary), torch.nan)
    loops.spread(address(some), address(known), len(known), address(whole), vocabulary)
    assert torch.equal(whole[0, known], some[: len(known)])
    q, coin = COMPILED.softmax(whole, heat), torch.tensor([0.4]).double()
    token = COMPILED.draw(q, coin).item()
    confidence = (q if heat else COMPILED.softmax(whole, 1.0))[0, token].item()
    for values, count in ((some, len(known)), (whole, 0)):
        out = torch.full((vocabulary,), torch.nan)
        found = loops.sample(
            address(values), address(known), count, address(out), vocabulary, heat, 0.4, True
        )
        assert torch.equal(out, q[0])
        assert found[0] == token
        assert found[1] == pytest.approx(confidence, rel=1e-6)


def test_a_pairs_backend_follows_device_and_precision() -> None:
    cpu, half = torch.device("cpu"), torch.bfloat16
    assert backend_for(cpu, torch.float32, half) is COMPILED
    assert backend_for(cpu, torch.float32, torch.float64) is TORCH
    assert backend_for(torch.device("cuda"), torch.float32) is TORCH


def test_without_numba_torch_serves_and_a_sentence_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delattr("specviz.core.loops")
    monkeypatch.setitem(sys.modules, "specviz.core.loops", None)
    monkeypatch.setattr("specviz.core.backend.compiled_backend", compiled_backend.__wrapped__)
    with caplog.at_level(logging.WARNING):
        assert backend_for(torch.device("cpu"), torch.float32) is TORCH
    assert "numba cannot be used" in caplog.text
