"""`specviz.core.reference` on a pair's models."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from specviz.core import reference as plain
from specviz.core.reference import Decision
from specviz.models.pair import ModelPair


@torch.inference_mode()
def reference(
    pair: ModelPair,
    ids: list[int],
    method: str,
    lenience: float,
    temperature: float,
    seed: int,
    count: int,
    repetition_penalty: float = 1.0,
) -> list[Decision]:
    """Up to `count` positions after `ids`, ending after an end-of-sequence token."""

    def next_logits(model: torch.nn.Module) -> plain.NextLogits:
        def run(ids: Sequence[int]) -> torch.Tensor:
            return model(input_ids=torch.tensor([list(ids)])).logits[0, -1, : pair.vocabulary_size]

        return run

    return list(
        plain.generate(
            next_logits(pair.drafter),
            next_logits(pair.verifier),
            ids,
            method=method,
            lenience=lenience,
            temperature=temperature,
            seed=seed,
            max_new_tokens=count,
            eos_token_ids=pair.eos_token_ids,
            repetition_penalty=repetition_penalty,
        )
    )
