"""Prefill: one model reads the prompts of sequences but their last tokens, a chunk a pass.

Knows one model's runner and prefix cache; knows no method.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from specviz.engine.sequence import Sequence
from specviz.runtime.prefix_cache import LONGEST, SHORTEST, PrefixCache, common_length
from specviz.runtime.runner import Runner

PREFILL_CHUNK = 512
"""Prompt tokens read in one forward pass: bounds memory, and the time until an abort is noticed."""


def prefill(
    model: Runner, sequences: list[Sequence], length: int, chunk: int, prefixes: PrefixCache | None
) -> Iterator[bool]:
    """Admit sequences and read their prompts; what all prompts begin with once, or from the prefix cache. Yields True after each pass.

    Args:
        length: positions that a slot may come to need.
        chunk: tokens of each prompt that a pass reads.
        prefixes: read and updated; None for none.
    """
    if not sequences:
        return
    slots = model.admit(list(sequences), length)
    counts = [sequence.prompt_length - 1 for sequence in sequences]
    prompts = [sequence.ids[:count] for sequence, count in zip(sequences, counts, strict=True)]
    shared = common_length(min(prompts), max(prompts))
    first, beginning = slots.start, prompts[0][:shared]
    prefix, start = prefixes.find(beginning) if prefixes else (None, 0)
    if prefix:
        model.restore(first, prefix.saved, start)
    if len(sequences) > 1 and shared >= SHORTEST:
        yield from _read(model, prompts[:1], slice(first, first + 1), start, [shared], chunk)
        start = shared
    if len(sequences) > 1 and start:
        model.broadcast(slots, start)
    yield from _read(model, prompts, slots, start, counts, chunk)
    if prefixes and prefixes.wants(beginning):
        cached = beginning[:LONGEST]
        prefixes.keep(cached, model.save(first, len(cached)))


def _read(
    model: Runner, prompts: list[list[int]], slots: slice, start: int, counts: list[int], chunk: int
) -> Iterator[bool]:
    """Read prompts from `start` on, up to `counts` tokens of each, `chunk` a pass; yields True after each pass."""
    for first in range(start, max(counts), chunk):
        last = min(first + chunk, max(counts))
        rows = [ids[first : min(last, count)] for ids, count in zip(prompts, counts, strict=True)]
        tokens = torch.tensor([ids + [0] * (last - first - len(ids)) for ids in rows], device=model.device)
        positions = torch.arange(first, last, device=model.device).expand(len(prompts), -1)
        valid = None
        if min(counts) < last:
            valid = positions < torch.tensor(counts, device=model.device)[:, None]
        model.read(tokens, positions, visible=last, valid=valid, slots=slots)
        yield True
