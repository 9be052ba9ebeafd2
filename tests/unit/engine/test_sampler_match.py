"""Sampler match: the verifier's own draw decides, so the text is the one that it writes alone."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from specviz.engine.engine import Engine
from specviz.models.pair import ModelPair
from specviz.schema.settings import Request
from specviz.schema.trace import Run
from tests.support.tiny import tiny_pair
from tests.unit.engine.test_engine import check_against_reference, reference

PROMPTS = ("The quick brown fox", "A lighthouse keeper", "One two three four")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> ModelPair:
    return tiny_pair("llama", tmp_path_factory.mktemp("pair"))


@pytest.fixture(scope="module")
def engine(pair: ModelPair) -> Engine:
    return Engine(dataclasses.replace(pair, eos_token_ids=frozenset()))


def write(engine: Engine, **settings) -> list[Run]:
    asked = {"method": "sampler_match", "max_new_tokens": 30} | settings
    return engine.generate(
        [Request(prompt=prompt, seed=seed, **asked) for seed, prompt in enumerate(PROMPTS)]
    )


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0, 1.6])
def test_the_text_is_the_verifiers_own_whatever_the_draft_length(engine: Engine, temperature: float) -> None:
    alone = [run.token_ids for run in write(engine, method="verifier_only", temperature=temperature)]
    for length in (1, 2, 3, 5, 8):
        runs = write(engine, temperature=temperature, draft_length=length)
        assert [run.token_ids for run in runs] == alone, length
    assert any(token.accepted for run in runs for token in run.tokens)


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_it_decides_as_the_reference_and_the_shown_coin_agrees(
    pair: ModelPair, engine: Engine, temperature: float
) -> None:
    for run in write(engine, temperature=temperature, draft_length=4, inspect=3):
        ended = dataclasses.replace(pair, eos_token_ids=frozenset())
        check_against_reference(ended, run, reference(ended, run, len(run.tokens)))
        assert run.alternatives == []
        for token in run.tokens:
            assert token.coin is not None
            assert token.acceptance is not None
            assert token.accepted == (token.coin < token.acceptance)
            draft = token.draft or token
            assert token.acceptance == pytest.approx(draft.p)


def test_it_keeps_the_tokens_that_both_models_draw(engine: Engine, tmp_path: Path) -> None:
    """With the verifier as its own drafter p is q, but the two draws have uniforms of their own: Σ p² is kept, not all."""
    [run] = engine.generate(
        [Request(PROMPTS[0], method="sampler_match", draft_length=1, max_new_tokens=200, temperature=0.5)]
    )
    expected = sum((token.draft or token).p or 0.0 for token in run.tokens)
    kept = sum(token.accepted for token in run.tokens)
    assert abs(kept - expected) < 4 * len(run.tokens) ** 0.5 / 2
