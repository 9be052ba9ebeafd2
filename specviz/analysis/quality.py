"""How likely the verifier finds a text: its log-probability, token by token, at temperature 1.

One teacher-forced reading of a finished text, whoever wrote it; `read_logits` is that reading, by either model. Knows
a pair's models; knows no method and no run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from specviz.runtime.model_runner import SlotModel

if TYPE_CHECKING:
    from specviz.models.pairs import ModelPair

_CHUNK = 128
"""Tokens scored in one forward pass: bounds the memory that logits take."""


@torch.inference_mode()
def read_logits(
    pair: ModelPair,
    model: Literal["drafter", "verifier"],
    prompt_ids: Sequence[int],
    token_ids: Sequence[int],
) -> Iterator[Tensor]:
    """Let one of a pair's models read a text; yields its logits [n, V] at the places that predict `token_ids`.

    Chunk by chunk, in order, on the model's device; the rows of all chunks are as many as `token_ids`. Nothing is
    yielded for an empty text.

    Args:
        pair: whose models.
        model: which of them reads.
        prompt_ids: at least one.
        token_ids: what follows the prompt; all but the last are read too.
    """
    if not token_ids:
        return
    reader = SlotModel(getattr(pair, model), pair.vocabulary_size)
    ids = torch.tensor([[*prompt_ids, *token_ids[:-1]]], device=reader.device)
    places = torch.arange(ids.shape[1], device=reader.device)[None]
    start, end = len(prompt_ids) - 1, ids.shape[1]
    reader.admit([ids], end)
    for first in range(0, start, _CHUNK):
        last = min(first + _CHUNK, start)
        reader.read(ids[:, first:last], places[:, first:last], visible=last)
    for first in range(start, end, _CHUNK):
        last = min(first + _CHUNK, end)
        logits = reader.forward(ids[:, first:last], places[:, first:last], visible=last)[0]
        # At least float32: a half has three places, too few for a mean of small differences.
        yield logits.to(torch.promote_types(logits.dtype, torch.float32))


def log_probabilities(pair: ModelPair, prompt_ids: Sequence[int], token_ids: Sequence[int]) -> list[float]:
    """Log-probability (natural) of each of `token_ids` after the prompt and those before it; padding ids have none."""
    scores: list[float] = []
    for logits in read_logits(pair, "verifier", prompt_ids, token_ids):
        wanted = torch.tensor(token_ids[len(scores) : len(scores) + len(logits)], device=logits.device)
        scores += logits.log_softmax(-1).gather(-1, wanted[:, None])[:, 0].tolist()
    return scores


def mean_log_probability(
    pair: ModelPair, prompt_ids: Sequence[int], token_ids: Sequence[int]
) -> float | None:
    """Mean log-probability per token; None for an empty text."""
    scores = log_probabilities(pair, prompt_ids, token_ids)
    return sum(scores) / len(scores) if scores else None
