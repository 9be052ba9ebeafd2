"""Prefill: one model reads the prompts of sequences, except for each one's last token, one chunk per pass.

Chunks end at multiples of the runner's `chunk`, whatever else is in the batch (law 3). Knows one model's runner and prefix cache; knows no method.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import torch

from specviz.engine.sequence import Sequence
from specviz.runtime.prefix_cache import LONGEST, SHORTEST, PrefixCache, common_length
from specviz.runtime.runner import Runner


def prefill(
    model: Runner, sequences: list[Sequence], length: int, prefixes: PrefixCache | None
) -> Iterator[bool]:
    """Admit sequences and read their prompts. Their common prefix is read only once, or restored from the prefix cache. Yields True after each pass.

    Args:
        length: most positions that a slot may need.
        prefixes: the prefix cache, which is read and updated; None to use none.
    """
    if not sequences:
        return
    slots = model.admit(list(sequences), length)
    counts = [sequence.prompt_length - 1 for sequence in sequences]
    prompts = [sequence.ids[:count] for sequence, count in zip(sequences, counts, strict=True)]
    shared = common_length(min(prompts), max(prompts))
    first, beginning = slots.start, prompts[0][:shared]
    saved, start = prefixes.find(beginning) if prefixes else (None, 0)
    if start:
        model.restore(first, saved, start)
    if len(sequences) > 1 and shared >= SHORTEST:
        yield from _read(model, prompts[:1], slice(first, first + 1), start, [shared])
        start = shared
    if len(sequences) > 1 and start:
        model.broadcast(slots, start)
    yield from _read(model, prompts, slots, start, counts)
    if prefixes and prefixes.wants(beginning):
        cached = beginning[:LONGEST]
        prefixes.keep(cached, model.save(first, len(cached)))


def _read(
    model: Runner, prompts: list[list[int]], slots: slice, start: int, counts: list[int]
) -> Iterator[bool]:
    """Read each prompt from position `start` to its count in `counts`, one chunk per pass; yields True after each pass."""
    end = max(counts)
    edges = [start, *range(start - start % model.chunk + model.chunk, end, model.chunk), end]
    for first, last in pairwise(edges if start < end else ()):
        rows = [ids[first : min(last, count)] for ids, count in zip(prompts, counts, strict=True)]
        tokens = torch.tensor([ids + [0] * (last - first - len(ids)) for ids in rows], device=model.device)
        positions = torch.arange(first, last, device=model.device).expand(len(prompts), -1)
        valid = None
        if min(counts) < last:
            valid = positions < torch.tensor(counts, device=model.device)[:, None]
        model.read(tokens, positions, visible=last, valid=valid, slots=slots)
        yield True
