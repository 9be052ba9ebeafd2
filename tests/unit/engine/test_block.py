"""What a round says of block verification, against a plain recomputation of its block."""

from __future__ import annotations

import pytest
import torch

from specviz.core import block
from specviz.core.reference import inverse_cdf
from specviz.core.sampling import ACCEPT, DRAFT, distribution, uniforms
from specviz.engine.engine import Engine
from specviz.models.pair import ModelPair
from specviz.schema.settings import Request
from tests.support.tiny import Pairs


@torch.inference_mode()
def kept(pair: ModelPair, ids: list[int], length: int, coins: torch.Tensor, temperature: float) -> int:
    """Draft tokens of the round after `ids` that block verification keeps."""
    text, found = list(ids), []
    for _ in range(length):
        given = torch.tensor([text])
        logits = (
            model(input_ids=given).logits[0, -1, : pair.vocabulary_size]
            for model in (pair.drafter, pair.verifier)
        )
        q, p = (distribution(each, temperature) for each in logits)
        found.append((q, p))
        text.append(inverse_cdf(q, coins[len(text), DRAFT].item()))
    q, p = (torch.stack(each) for each in zip(*found, strict=True))
    own = coins[len(ids) : len(text), ACCEPT]
    return int(block.kept(q, p, torch.tensor(text[len(ids) :]), own))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_an_inspected_lossless_round_tells_what_block_verification_would_have_kept(
    pairs: Pairs, temperature: float
) -> None:
    """Whatever shares its batch: other lengths, leniences and rules."""
    pair = pairs("llama")
    common = {"prompt": "The quick brown fox", "temperature": temperature, "max_new_tokens": 24, "inspect": 2}
    asked = [
        Request(method="speed", lenience=0.0, draft_length=4, **common),
        Request(method="speed", lenience=0.5, draft_length=2, **common),
        Request(method="cascade_tokenV3", **common),
        Request(method="speed", lenience=0.0, **common | {"inspect": 0}),
    ]
    lossless, *others = Engine(pair).generate(asked)
    assert all(round_.kept_by_block is None for run in others for round_ in run.rounds)
    ids, differ = list(lossless.prompt_ids), 0
    coins = uniforms(lossless.seed, 0, len(ids) + 24)
    for round_ in lossless.rounds:
        assert round_.kept_by_block == kept(pair, ids, round_.draft_length, coins, temperature)
        differ += round_.kept_by_block != round_.accepted
        ids += [token.id for token in round_.tokens]
    assert (differ > 0) == (temperature > 0)
