"""How likely the verifier finds a text: its log-probability, token by token, at temperature 1.

One teacher-forced reading of a finished text, whoever wrote it. Knows a pair's verifier; knows no method and no run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from specviz.cache import SlotModel

if TYPE_CHECKING:
    from specviz.pairs import ModelPair

_CHUNK = 128
"""Tokens scored in one forward pass: bounds the memory that logits take."""


@torch.inference_mode()
def log_probabilities(pair: ModelPair, prompt_ids: Sequence[int], token_ids: Sequence[int]) -> list[float]:
    """Log-probability (natural) of each of `token_ids` after the prompt and those before it; padding ids have none."""
    if not token_ids:
        return []
    model = SlotModel(pair.verifier, pair.vocabulary_size)
    ids = torch.tensor([[*prompt_ids, *token_ids]], device=model.device)
    places = torch.arange(ids.shape[1], device=model.device)[None]
    start, end = len(prompt_ids) - 1, ids.shape[1] - 1
    model.admit([ids], end)
    for first in range(0, start, _CHUNK):
        last = min(first + _CHUNK, start)
        model.read(ids[:, first:last], places[:, first:last], visible=last)
    scores = []
    for first in range(start, end, _CHUNK):
        last = min(first + _CHUNK, end)
        logits = model.forward(ids[:, first:last], places[:, first:last], visible=last)
        # At least float32: a half has three places, too few for a mean of small differences.
        wide = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
        wanted = ids[:, first + 1 : last + 1, None].to(wide.device)
        scores.append(wide.gather(-1, wanted)[0, :, 0])
    return torch.cat(scores).tolist()


def mean_log_probability(
    pair: ModelPair, prompt_ids: Sequence[int], token_ids: Sequence[int]
) -> float | None:
    """Mean log-probability per token; None for an empty text."""
    scores = log_probabilities(pair, prompt_ids, token_ids)
    return sum(scores) / len(scores) if scores else None
