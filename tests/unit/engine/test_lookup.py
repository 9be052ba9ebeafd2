"""Prompt lookup against the laws: its q is a function of the tokens before it, so nothing else may show in a text."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from specviz.analysis.quality import fidelity
from specviz.core import gumbel
from specviz.core.methods import METHODS, PAPER
from specviz.core.reference import inverse_cdf
from specviz.core.sampling import ACCEPT, RESAMPLE, SamplingParameters, distribution, uniforms
from specviz.core.target import target_under
from specviz.engine.engine import Engine
from specviz.errors import RequestError
from specviz.models.pair import ModelPair
from specviz.runtime.lookup import LookupModel, follower
from specviz.schema.settings import Request
from specviz.schema.trace import Run
from tests.support.tiny import Pairs

PROMPT = "def add(a, b):\n    return a + b\n\nprint(add(12, 345))\n\ndef add(a, b):"
LENGTHS: tuple[Any, ...] = (1, 3, "auto")
BOTH = [name for name, method in METHODS.items() if method.drafts and method.verifies]


@pytest.fixture(scope="module")
def pair(pairs: Pairs) -> ModelPair:
    whole = pairs("llama")
    return dataclasses.replace(whole, drafter_model=LookupModel(whole.verifier_model))


def one_hot(token: int, size: int) -> torch.Tensor:
    """Logits that leave only one token."""
    logits = torch.full((size,), -torch.inf, dtype=torch.float64)
    logits[token] = 0
    return logits


@torch.inference_mode()
def plainly(pair: ModelPair, run: Run, count: int) -> Iterator[tuple[int, bool, int | None, float | None]]:
    """What each position's rule and coins decide, one position after another: token, verdict, proposal and acceptance."""
    ids, banned, method = list(run.prompt_ids), run.forbidden_tokens, METHODS[run.method]
    sampling = method.sampling(SamplingParameters(run.temperature), run.lenience)
    coins = uniforms(run.seed, 0, len(ids) + count)
    for _ in range(count):
        logits = pair.verifier(input_ids=torch.tensor([ids])).logits[0, -1, : pair.vocabulary_size]
        logits[banned] = -torch.inf
        coin, proposal, acceptance, accepted = coins[len(ids)].tolist(), follower(ids), None, False
        left = distribution(logits, *sampling)
        own = inverse_cdf(left, coin[RESAMPLE])
        if method.shares_noise:
            noise = gumbel.noise(coins[len(ids), RESAMPLE].numpy(), len(left))
            own = int(gumbel.draw(left, torch.from_numpy(noise)))
        if proposal is None or proposal in banned:
            proposal = None
        else:
            both = one_hot(proposal, pair.vocabulary_size), logits
            target = target_under(method, *both, SamplingParameters(run.temperature), run.lenience)
            acceptance, left = (each(torch.tensor(proposal)) for each in (target.acceptance, target.residual))
            acceptance = acceptance.item()
            accepted = proposal == own if method.matches else coin[ACCEPT] < acceptance
            if not method.matches:
                own = proposal if accepted else inverse_cdf(left, coin[RESAMPLE])
        yield own, accepted, proposal, acceptance
        ids.append(own)
        if own in pair.eos_token_ids:
            return


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_neither_draft_length_nor_batch_shows_in_any_method(pair: ModelPair, temperature: float) -> None:
    """Laws 2, 3 and 7: every method and K in one batch, some inspected, some with forbidden tokens."""
    often = pair.tokenizer(PROMPT)["input_ids"][3]
    requests = [
        Request(
            prompt=PROMPT,
            method=method,
            seed=seed,
            temperature=temperature,
            draft_length=length,
            inspect=2 * (length == 3),
            forbidden_tokens=[often] if seed % 3 == 0 else [],
            max_new_tokens=16,
        )
        for seed, method in enumerate(BOTH)
        for length in LENGTHS
    ]
    silent, kept, found = 0, 0, {}
    for run in Engine(pair, max_sequences=64).generate(requests):
        found[run.method] = steps = found.get(run.method) or list(plainly(pair, run, 16))
        assert run.token_ids == [token for token, *_ in steps], run.method
        for token, (_, accepted, proposal, acceptance) in zip(run.tokens, steps, strict=True):
            assert token.accepted == accepted
            assert token.acceptance == pytest.approx(acceptance, abs=1e-9)
            examined = token if accepted else token.draft
            assert (examined.id if examined else None) == proposal
            silent, kept = silent + (proposal is None), kept + accepted
            assert proposal is not None or (token.pi == token.p and token.q is None)
    assert silent > 50
    assert kept > 50


def test_greedy_text_is_that_of_generate(pair: ModelPair) -> None:
    """Law 5; and the text repeats itself, so that drafts save calls."""
    [run] = Engine(pair).generate(
        Request(prompt=PROMPT, method="speed", lenience=0.0, temperature=0.0, max_new_tokens=60)
    )
    ids = torch.tensor([run.prompt_ids])
    suppressed = list(range(pair.vocabulary_size, pair.verifier.config.vocab_size))
    wanted = pair.verifier.generate(
        ids, max_new_tokens=60, do_sample=False, suppress_tokens=suppressed, pad_token_id=0
    )
    assert run.token_ids == wanted[0, ids.shape[1] :].tolist()
    assert run.verifier_calls < len(run.tokens)


def test_logits_have_a_row_for_every_token(pair: ModelPair) -> None:
    """Those of the drafter say what it proposed: 0 at one token, or nothing at all."""
    [run] = Engine(pair).generate(Request(prompt=PROMPT, max_new_tokens=24, return_logits=True))
    assert run.drafter_logits.shape == run.verifier_logits.shape == (len(run.tokens), pair.vocabulary_size)
    for token, row in zip(run.tokens, run.drafter_logits, strict=True):
        found = [] if token.acceptance is None else [(token.draft or token).id]
        assert (row == 0).nonzero()[:, 0].tolist() == found


@pytest.mark.parametrize("name", ["cascade_tokenV3", "lossless_min_p"])
def test_where_nothing_was_found_pi_is_p_as_far_as_the_method_leaves_it(pair: ModelPair, name: str) -> None:
    """The distance of a run from the verifier, position by position."""
    request = Request(prompt=PROMPT, method=name, max_new_tokens=24, temperature=0.7, return_logits=True)
    [run] = Engine(pair).generate(request)
    assert any(token.acceptance is None for token in run.tokens)
    method, asked, expected = METHODS[name], SamplingParameters(0.7), 0.0
    for token, q, p in zip(run.tokens, run.drafter_logits, run.verifier_logits, strict=True):
        pi = distribution(p, *method.sampling(asked, run.lenience))
        if token.acceptance is not None and not method.truncates:
            pi = target_under(method, q, p, asked, run.lenience).pi()
        expected += (pi - distribution(p, *asked)).clamp_min(0).sum().item()
    assert fidelity(run, pair)["distance"] == pytest.approx(expected, abs=1e-6)


def test_the_longest_match_counts_and_then_the_earliest() -> None:
    assert follower([1, 2, 3, 9, 2, 3, 8, 3, 7, 2, 3]) == 9
    assert follower([2, 3, 9, 1, 2, 3, 8, 1, 2, 3]) == 8
    assert follower([5, 5]) == 5
    assert follower([1, 2, 3]) is None
    assert follower([1]) is None


def test_a_lookup_cannot_write_alone(pair: ModelPair) -> None:
    """And what comes with the pair goes on as with any other: an engine's K, other methods' verdicts."""
    with pytest.raises(RequestError, match="cannot write alone"):
        Engine(pair).generate(Request(prompt=PROMPT, method="drafter_only"))
    assert pair.pass_times.draft(4) == 0
    [run] = Engine(pair).generate(Request(prompt=PROMPT, inspect=2, max_new_tokens=24))
    told = [token for token in run.tokens if token.what_if]
    assert {token.acceptance is not None for token in told} == {True}
    assert len(told[0].what_if.acceptance) == len(PAPER)  # type: ignore[union-attr]
