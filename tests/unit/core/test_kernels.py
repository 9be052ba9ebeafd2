"""The compiled loops against the definitions in torch that they stand for."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from specviz.core import kernels
from specviz.core.counterfactual import Counterfactual, alternative_targets, counterfactuals
from specviz.core.distributions import Distributions, places, total_variation
from specviz.core.examined import Examined, leading_of_three
from specviz.core.methods import METHODS, PAPER
from specviz.core.sampling import distribution, draw, leading
from specviz.core.target import Target, Verdict, decide_as_examined, examine
from specviz.engine.engine import Engine
from specviz.schema.settings import Request
from tests.support.tiny import tiny_pair

BOTH = [name for name, method in METHODS.items() if method.drafts and method.verifies]
VOCABULARIES = (7, 512, 1300, 49152)
"""Less than a block, a whole one, several and a rest, and a real one."""

pytestmark = pytest.mark.skipif(kernels.loops() is None, reason="needs numba")


@pytest.fixture
def in_torch(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], Any]:
    """Calls a function while nothing compiled is used."""

    def call(function: Callable[[], Any]) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(kernels, "loops", lambda: None)
            return function()

    return call


def sides(vocabulary: int, rows: int = 3, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Logits [rows, V] of two models that agree in part; the drafter lacks a tenth of the vocabulary."""
    generator = torch.Generator().manual_seed(seed)
    drafter = 3 * torch.randn(rows, vocabulary, generator=generator)
    verifier = 0.8 * drafter + torch.randn(rows, vocabulary, generator=generator)
    drafter[:, 3::10] = -torch.inf
    return drafter, verifier


def near(found: Tensor, expected: Tensor, tolerance: float = 2e-6) -> bool:
    return torch.allclose(found, expected, rtol=10 * tolerance, atol=tolerance)


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize("temperature", [0.0, 0.3, 1.0, 2.0])
def test_distributions_are_those_of_torch(vocabulary: int, temperature: float, in_torch) -> None:
    logits, _ = sides(vocabulary)
    found = distribution(logits, temperature)
    assert near(found, in_torch(lambda: distribution(logits, temperature)))
    assert not found[:, 3::10].any()
    heats = torch.tensor([temperature, 0.0, 0.7], dtype=torch.float64)
    together = distribution(logits, heats)
    for row, heat in enumerate(heats.tolist()):
        assert torch.equal(together[row], distribution(logits[row], heat))


def test_what_is_not_finite_shows() -> None:
    """It is reported after the round, so it must not be lost on the way."""
    logits, _ = sides(1300)
    logits[0, 700], logits[1, 5], logits[2] = torch.nan, torch.inf, -torch.inf
    assert distribution(logits).isnan().all()
    assert draw(distribution(logits), torch.full((3,), 0.5, dtype=torch.float64)).tolist() == [1299] * 3


def test_the_first_of_equals_is_the_greedy_one() -> None:
    """Law 5: greedy is greedy."""
    logits = torch.zeros(1, 1300)
    logits[0, [600, 601, 1200]] = 4
    assert distribution(logits, 0).argmax() == 600


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_draws_are_those_of_torch(vocabulary: int, in_torch) -> None:
    weights = 0.3 * distribution(sides(vocabulary, rows=1)[0]).expand(400, -1)
    ends = torch.tensor([0.0, 1 - 2**-53], dtype=torch.float64)
    coins = torch.cat((ends, torch.rand(398, dtype=torch.float64)))
    found = draw(weights, coins)
    assert torch.equal(found, in_torch(lambda: draw(weights, coins)))
    assert (weights.gather(1, found[:, None]) > 0).all()


def sample(logits: Tensor, known: Tensor, size: int, heat: float, coin: float) -> tuple[Tensor, int, float]:
    """Distribution, token and confidence of a row of logits, of the `known` tokens, or of all where there are none."""
    out = torch.full((size,), torch.nan)
    addresses = logits.data_ptr(), known.data_ptr(), len(known), out.data_ptr()
    return out, *kernels.loops().sample(*addresses, size, heat, coin, True)


@pytest.mark.parametrize("heat", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_a_sample_is_a_draw_from_the_distribution(vocabulary: int, heat: float) -> None:
    """Bit for bit. How sure the drafter is of it is q, at temperature 0 q1."""
    logits, nothing = sides(vocabulary, rows=1)[0], torch.empty(0, dtype=torch.long)
    coin = torch.rand(1, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    q, token, confidence = sample(logits, nothing, vocabulary, heat, coin.item())
    expected = distribution(logits, heat)
    assert torch.equal(q, expected[0])
    assert token == draw(expected, coin).item()
    if heat:
        assert confidence == q[token]
    else:
        assert near(torch.tensor(confidence), distribution(logits)[0, token])


@pytest.mark.parametrize("heat", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_tokens_that_a_model_does_not_know_change_no_bit_of_a_sample(vocabulary: int, heat: float) -> None:
    known, nothing = torch.arange(0, vocabulary, 3), torch.empty(0, dtype=torch.long)
    logits = 3 * torch.randn(2, len(known) + 5)
    whole = kernels.spread(logits, known, vocabulary)
    assert torch.equal(whole[:, known], logits[:, : len(known)])
    assert whole.isfinite().sum() == 2 * len(known)
    for own, every in zip(logits, whole, strict=True):
        found, expected = (
            sample(row, tokens, vocabulary, heat, 0.4) for row, tokens in ((own, known), (every, nothing))
        )
        assert torch.equal(found[0], expected[0])
        assert found[1:] == expected[1:]


def test_rows_may_lie_anywhere() -> None:
    """A slice of steps, a choice of rows and one row for all give what their copies give."""
    logits = torch.randn(4, 3, 1300)
    for view in (logits[:, 1:], logits[::2, :2], logits[1:2, :1].expand(4, 3, -1), logits[0, 0]):
        assert torch.equal(distribution(view), distribution(view.clone()))
    q, p = distribution(logits[:, :2]), distribution(torch.randn(4, 3, 1300))[:, 1:]
    assert torch.equal(total_variation(q, p), total_variation(q, p.clone()))


def test_what_is_examined_ends_with_a_rejection_or_a_draft() -> None:
    acceptance = torch.tensor([[0.9, 0.2, 0.9], [0.9, 0.9, 0.9], [0.9, 0.9, torch.nan], [0.1, 0.9, 0.9]])
    coins, counts = torch.full((4, 5), 0.5, dtype=torch.float64), torch.tensor([3, 2, 3, 1])
    accepted, last = examine(acceptance, coins, counts)
    assert accepted.tolist() == [1, 2, 2, 0]
    assert last.tolist() == [1, 1, 2, 0]


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize("name", BOTH)
def test_verdicts_are_those_of_torch(name: str, vocabulary: int, in_torch) -> None:
    """What is accepted, what replaces it, and the probabilities of both, of sequences with different numbers of draft tokens."""
    drafter, verifier = (side.view(4, 3, -1) for side in sides(vocabulary, rows=12, seed=2))
    generator = torch.Generator().manual_seed(3)
    accept_coins, resample_coins = torch.rand(2, 4, 5, dtype=torch.float64, generator=generator)
    tokens, counts = draw(distribution(drafter), accept_coins[:, 2:]), torch.tensor([3, 2, 1, 3])
    leniences = torch.linspace(0, 0.4, 4, dtype=torch.float64)[:, None]

    def decided(records: bool) -> Verdict:
        target = Target.of(METHODS[name], Distributions(drafter, verifier), leniences)
        return target.decide(tokens, counts, accept_coins, resample_coins, records)

    compiled = as_tensors(decided(True))
    expected = as_tensors(in_torch(lambda: decided(True)))
    examined = torch.arange(3) <= expected["last"][:, None]
    rejected = expected["accepted"] < counts
    assert torch.equal(compiled["accepted"], expected["accepted"])
    assert torch.equal(compiled["last"], expected["last"])
    assert torch.equal(compiled["resampled"][rejected], expected["resampled"][rejected])
    assert near(compiled["acceptance"][examined], expected["acceptance"][examined], 2e-5)
    last = expected["last"][rejected]
    for part in "q", "p", "pi":
        found, own = compiled[part], expected[part]
        assert near(found[..., 0][examined], own[..., 0][examined], 2e-5)
        assert near(found[rejected, last, 1], own[rejected, last, 1], 2e-5)
    assert near(compiled["q"][..., 0], expected["q"][..., 0])
    for part in {"score", "threshold"} & expected.keys():
        assert near(compiled[part][examined], expected[part][examined], 2e-5)
    unrecorded = as_tensors(decided(False))
    assert torch.equal(unrecorded["accepted"], compiled["accepted"])
    assert torch.equal(unrecorded["resampled"][rejected], compiled["resampled"][rejected])


def as_tensors(verdict: Verdict) -> dict[str, Tensor]:
    """What a verdict says, by name."""
    found = {name: getattr(verdict, name) for name in ("acceptance", "accepted", "last", "resampled")}
    found |= zip(("q", "p", "pi"), verdict.probabilities or (), strict=False)
    found |= zip(("score", "threshold"), verdict.test or (), strict=False)
    return {name: torch.as_tensor(values) for name, values in found.items()}


@pytest.mark.parametrize("heat", [1.0, 0.6, 0.0])
@pytest.mark.parametrize("name", [name for name in PAPER if METHODS[name].drafts and METHODS[name].verifies])
def test_what_is_found_as_examined_is_what_is_found_at_once(name: str, heat: float) -> None:
    """Law 3: to the bit, whether p, p1 and the test are found for all positions, or where draft tokens are examined, kept or not."""
    method, vocabulary = METHODS[name], 1300
    drafter, verifier = (side.view(4, 3, -1) for side in sides(vocabulary, rows=12, seed=4))
    generator = torch.Generator().manual_seed(5)
    coins = torch.rand(2, 4, 5, dtype=torch.float64, generator=generator)
    q, p = distribution(drafter, heat), distribution(verifier, heat)
    tokens, counts = draw(q, coins[0, :, 2:]), torch.tensor([3, 2, 1, 3])
    low, high = method.offered_range
    leniences = torch.linspace(low, high, 4, dtype=torch.float64)[:, None]
    some = tokens, counts, *coins
    at_once = Target.of(method, Distributions(drafter, verifier, heat), leniences)
    expected = as_tensors(at_once.decide(*some, records=True))
    examined = torch.arange(3) <= expected["last"][:, None]
    rejected, last = expected["accepted"] < counts, expected["last"]

    for kept in (True, False):
        pending = kernels.Pending(verifier, heat, finds_p1=heat != 1 and "p1" in method.reads)
        known = {"q": q}
        if kept:
            known["p"] = torch.full_like(p, torch.nan)
            if pending.finds_p1 or heat == 1:
                known["p1"] = torch.full_like(p, torch.nan) if pending.finds_p1 else known["p"]
        both = Distributions(drafter, verifier, heat, **known)
        verdict, target = decide_as_examined(method, leniences, both, pending, *some, records=True, kept=kept)
        found = as_tensors(verdict)
        assert found.keys() == expected.keys()
        for own in ("accepted", "last"):
            assert torch.equal(found[own], expected[own])
        assert torch.equal(found["resampled"][rejected], expected["resampled"][rejected])
        for own in found.keys() - {"accepted", "last", "resampled", "q", "p", "pi"}:
            assert torch.equal(found[own][examined], expected[own][examined]), own
        for own in ("q", "p", "pi"):
            assert torch.equal(found[own][..., 0][examined], expected[own][..., 0][examined]), own
            replaced = found[own][rejected, last[rejected], 1]
            assert torch.equal(replaced, expected[own][rejected, last[rejected], 1]), own
        assert (target is not None) == kept
        if target is not None:
            assert torch.equal(target.pi()[examined], at_once.pi()[examined])
            assert torch.equal(both.p[examined], p[examined])


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize("name", BOTH)
def test_rules_are_those_of_torch(name: str, vocabulary: int, in_torch) -> None:
    """Acceptance, pi, the residual's draw, and what other methods and leniences would have done."""
    drafter, verifier = (side.view(1, 3, -1) for side in sides(vocabulary, seed=1))
    tokens = distribution(drafter).argmax(-1)
    coins = torch.rand(1, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    last = torch.tensor([1])

    def numbers() -> dict[str, Tensor]:
        target = Target.of(METHODS[name], Distributions(drafter, verifier), METHODS[name].default_lenience)
        q, p, pi = target.probabilities(torch.stack((tokens, tokens + 1), -1))
        others = Counterfactual(alternative_targets(target), tokens, coins)
        return {
            "q": q,
            "p": p,
            "pi at": pi,
            "pi": target.pi(),
            "acceptance": target.acceptance(tokens),
            "others": others.acceptances(),
            "flips": others.flips().nan_to_num(posinf=9.0),
            "replacement": target.draw_replacement(last, coins, tokens),
            "distance": total_variation(target.distributions.q, target.distributions.p),
        }

    compiled = numbers()
    for key, expected in in_torch(numbers).items():
        assert near(compiled[key].double(), expected.double(), 2e-5), key


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize("warp", [(1.0,), (0.6,), (0.0,), (1.0, 0, 0.9)])
def test_what_the_nine_would_have_done_is_that_of_torch(
    warp: tuple[float, ...], vocabulary: int, in_torch
) -> None:
    """Of draft tokens that any method decided, at any lenience, where the models agree and where they do not; and what q, p and pi hold most of."""
    drafter, verifier = sides(vocabulary, rows=5, seed=4)
    verifier[4] = drafter[4]
    coins = torch.rand(5, dtype=torch.float64, generator=torch.Generator().manual_seed(5))

    def found() -> list[Tensor]:
        each = []
        for index, name in enumerate(BOTH):
            some = Distributions(drafter[None], verifier[None], *warp)
            where = places(torch.tensor([0, 2, 3, 4] if index % 2 else [1, 2, 3, 4]))
            target = Target.of(METHODS[name], some, METHODS[name].default_lenience if index % 3 else 0.25)
            each.append(Examined(target, some.q.argmax(-1), coins[None], where))
        both = zip(leading_of_three(each, 5), counterfactuals(each), strict=True)
        found = [torch.as_tensor(values) for leading, others in both for values in (leading[0], *others)]
        assert len(found) == 3 * len(BOTH)
        return found

    for compiled, expected in zip(found(), in_torch(found), strict=True):
        assert near(compiled.double().nan_to_num(posinf=9.0), expected.double().nan_to_num(posinf=9.0), 2e-5)


@pytest.mark.parametrize("method", [name for name in BOTH if METHODS[name].weigh])
@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_pi_of_a_position_does_not_depend_on_others(method: str, vocabulary: int) -> None:
    """Law 3: to the bit, as it was recorded, of the positions that were examined and of any of them."""
    distributions = Distributions(*(each[None] for each in sides(vocabulary)), 0.7)
    target = Target.of(METHODS[method], distributions, 0.4)
    tokens = torch.tensor([[1, 2, 4]])
    some = torch.tensor([3]), *torch.tensor([[[0, 0, 0.9]], [[0.3] * 3]]).double()
    verdict = target.decide(tokens, *some, records=True)
    count, whole = int(verdict.last) + 1, target.pi()[0]
    assert torch.equal(verdict.examined.pi(), whole[:count])
    assert torch.equal(verdict.probabilities[2][0, :count, 0], whole[range(count), tokens[0, :count]])
    for row in range(3):
        assert torch.equal(target.select(torch.tensor([row])).pi()[0], whole[row])


@pytest.mark.parametrize("count", [1, 2, 700])
def test_residuals_of_many_shares_are_summed_as_by_torch(count: int, in_torch) -> None:
    """Where one token or very many are proposed, each with a share of its own or with the same."""
    generator = torch.Generator().manual_seed(7)
    q, p = torch.zeros(2, 1300), torch.rand(2, 1300, generator=generator)
    q[:, 1 : count + 1] = torch.rand(2, count, generator=generator)
    p[:, ::3] = 0
    q, p = (each / each.sum(-1, keepdim=True).clamp_min(1e-30) for each in (q, p))
    for lenience in (0.0, 0.02, 0.5):
        some = Distributions(None, None, q=q, p=p, q1=q, p1=p)
        found = Target.of(METHODS["cactus"], some, lenience).pi()
        expected = in_torch(lambda: Target.of(METHODS["cactus"], some, lenience).pi())  # noqa: B023
        assert near(found, expected, 2e-6)


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_untempered_distributions_of_some_positions_are_those_of_all(vocabulary: int) -> None:
    for temperature in (0.0, 0.7):
        found = [Distributions(*(each[None] for each in sides(vocabulary)), temperature) for _ in range(2)]
        some = torch.tensor([0, 2])
        assert torch.equal(found[0].select(some).q1, found[1].q1[0, some])
        assert torch.equal(found[0].select(slice(1, 3)).p1, found[1].p1[0, 1:])


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_the_most_probable_are_those_of_torch(vocabulary: int, in_torch) -> None:
    values = distribution(sides(vocabulary)[0])
    found, expected = leading(values, 5), in_torch(lambda: leading(values, 5))
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1], expected[1])
    values[0, ::3] = values[0].max()
    assert leading(values[:1], 2)[1].tolist() == [[0, 3]]
    assert leading(torch.zeros(1, vocabulary), 2)[0].tolist() == [[0, 0]]


@pytest.mark.parametrize("method", ["speed", "cascade_tokenV3", "cascade_opt", "verifier_only"])
def test_texts_are_the_same_with_and_without(method: str, tmp_path: Path, in_torch) -> None:
    engine = Engine(tiny_pair("llama", tmp_path, dtype=torch.float32))
    requests = [
        Request(prompt="The quick", method=method, temperature=heat, seed=seed, inspect=3, max_new_tokens=24)
        for seed, heat in enumerate((0.0, 0.7, 1.0))
    ]
    compiled, plain = engine.generate(requests), in_torch(lambda: engine.generate(requests))
    for one, other in zip(compiled, plain, strict=True):
        assert one.token_ids == other.token_ids
        assert one.accepted == other.accepted


def test_without_numba_torch_serves_and_a_sentence_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.setattr(kernels, "loops", kernels.loops.__wrapped__)
    with caplog.at_level(logging.WARNING):
        assert not kernels.serve(torch.zeros(3))
    assert "numba cannot be used" in caplog.text


@pytest.mark.parametrize("values", [torch.zeros(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float16)])
def test_other_precisions_are_left_to_torch(values: Tensor) -> None:
    assert not kernels.serve(values)
