"""The repetition penalty against transformers' own processor and the laws; test_engine.py has laws 2 and 7 with it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from transformers import RepetitionPenaltyLogitsProcessor

from specviz.core.sampling import Penalty, penalise
from specviz.engine.engine import Engine
from specviz.errors import RequestError
from specviz.models.pair import ModelPair
from specviz.schema.settings import Request
from specviz.schema.trace import Run
from tests.support.tiny import FAMILIES, tiny_pair

PROMPT = "The quick brown fox jumps over the lazy dog"


def decided(run: Run) -> tuple[list[int], list[bool]]:
    """Token ids and verdicts."""
    return run.token_ids, run.accepted


def own_default(pair: ModelPair, penalty: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the verifier's generation config ask for a penalty."""
    monkeypatch.setattr(pair.verifier_model.generation_config, "repetition_penalty", penalty)


# ---- logits ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("strength", [0.01, 0.8, 1.05, 1.3, 100.0])
def test_logits_are_those_of_transformers_to_the_bit(strength: float, dtype: torch.dtype) -> None:
    """Half precision is penalised in float32, of which transformers makes logits before it processes them."""
    generator = torch.Generator().manual_seed(0)
    logits = 5 * torch.randn(2, 4, 50, generator=generator, dtype=torch.float64).to(dtype)
    logits[0, :, 7] = -torch.inf
    seen = torch.randint(50, (2, 6), generator=generator)
    drafts = torch.randint(50, (2, 3), generator=generator)
    penalty = Penalty(torch.full((2, 1), strength, dtype=torch.float64), seen)
    exact = logits.float() if dtype is torch.bfloat16 else logits
    theirs = [
        RepetitionPenaltyLogitsProcessor(strength)(torch.cat([seen, drafts[:, :step]], 1), exact[:, step])
        for step in range(4)
    ]
    at_once = penalise(logits.clone(), penalty, drafts, torch.arange(4)[None])
    assert torch.equal(at_once, torch.stack(theirs, 1))
    for step in range(4):
        one = penalise(logits[:, step : step + 1].clone(), penalty, drafts, step)
        assert torch.equal(one[:, 0], theirs[step])


def test_each_row_has_its_own_penalty_and_one_leaves_the_bits() -> None:
    """Law 3: a row whose penalty is 1 keeps its bits, whatever its neighbours ask for."""
    logits = torch.tensor([[[1.5, -2.0, 0.0, torch.inf, -torch.inf, 3.0]]]).repeat(3, 1, 1)
    seen = torch.tensor([[0, 1, 1], [0, 1, 2], [3, 4, 4]])
    strength = torch.tensor([[2.0], [1.0], [4.0]], dtype=torch.float64)
    nothing = torch.zeros(3, 0, dtype=torch.long)
    first, second, third = penalise(logits.clone(), Penalty(strength, seen), nothing, 0)[:, 0]
    assert first.tolist() == [0.75, -4.0, 0.0, torch.inf, -torch.inf, 3.0]
    assert torch.equal(second, logits[1, 0])
    assert torch.equal(third, logits[2, 0])
    assert penalise(logits, None, nothing, 0) is logits


# ---- the laws --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_is_greedy(family: str, tmp_path: Path) -> None:
    """Law 5: at temperature 0 a lossless method writes what transformers' `generate` writes with the same penalty, also with none."""
    pair = tiny_pair(family, tmp_path)
    texts = set()
    for penalty in (1.0, 0.7):
        asked = Request(
            prompt=PROMPT, raw=True, lenience=0, temperature=0, repetition_penalty=penalty, max_new_tokens=20
        )
        runs = Engine(pair).generate(
            [dataclasses.replace(asked, method=method) for method in ("speed", "verifier_only")]
        )
        ids = torch.tensor([runs[0].prompt_ids])
        theirs = pair.verifier.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            repetition_penalty=penalty,
            max_new_tokens=20,
            suppress_tokens=list(range(pair.vocabulary_size, pair.verifier.config.vocab_size)),
            pad_token_id=0,
        )[0, ids.shape[1] :].tolist()
        assert [run.token_ids for run in runs] == [theirs, theirs]
        texts.add(tuple(theirs))
    assert len(texts) > 1, "the penalties tried make no difference to this pair"


# ---- whose number it is ------------------------------------------------------------------------------------


def test_the_verifier_s_generation_config_has_the_default(
    pair: ModelPair, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The drafter's does not count; a value that is none is refused in a sentence."""
    asked = Request(prompt=PROMPT, method="speed", seed=1, max_new_tokens=16)
    monkeypatch.setattr(pair.drafter_model.generation_config, "repetition_penalty", 1.4)
    [off] = engine.generate(asked)
    assert off.repetition_penalty == 1
    own_default(pair, 1.7, monkeypatch)
    [own] = engine.generate(asked)
    [named, switched_off] = engine.generate(
        [dataclasses.replace(asked, repetition_penalty=strength) for strength in (1.7, 1.0)]
    )
    assert own.repetition_penalty == 1.7
    assert decided(named) == decided(own)
    assert decided(switched_off) == decided(off)
    assert own.token_ids != off.token_ids
    own_default(pair, -2.0, monkeypatch)
    with pytest.raises(RequestError, match=r"Repetition penalty is -2\.0; it must be a number from 0\.01"):
        engine.generate(Request(prompt=PROMPT))
    monkeypatch.setattr(pair.verifier_model, "generation_config", None)
    assert pair.repetition_penalty == 1
