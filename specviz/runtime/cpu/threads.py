"""Chooses how many threads a forward pass takes on the CPU.

Waking a thread takes longer than a small product: passes of few tokens take the fastest number, measured when a pair is loaded. Larger
ones take all threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from weakref import WeakKeyDictionary

import torch
from torch import nn

_FEW, _TIMED = 8, 2
"""Most tokens of a pass for which a number of threads is chosen, and tokens of the passes that are timed for it."""
_REPETITIONS = 2
_WORTHWHILE = 0.9
"""More threads are taken only where they save a tenth of the time: others may want them."""


_budget = torch.get_num_threads()


def budget() -> int:
    """The most threads that a pass may take: torch's own choice, or what `set_budget` set.

    torch is not asked now: a thread that starts while another is limited inherits that limit.
    """
    return _budget


def worth_trying(most: int) -> list[int]:
    """Numbers of threads up to `most`, ascending: the powers of two, and `most`."""
    return [1 << power for power in range(most.bit_length()) if 1 << power < most] + [most]


def set_budget(count: int) -> None:
    """Let models loaded from now on, and whatever runs in this thread, take at most so many threads."""
    global _budget
    _budget = count
    torch.set_num_threads(count)


_chosen: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()


def choose(model: nn.Module) -> None:
    """Measure how many threads a language model's small passes take on the CPU; does nothing on other devices."""
    if {parameter.device.type for parameter in model.parameters()} != {"cpu"}:
        return

    @torch.inference_mode()
    def run(count: int) -> None:
        with limited_to(count):
            model(torch.zeros(1, _TIMED, dtype=torch.long), use_cache=False)

    _chosen[model] = quickest(run, worth_trying(_budget))


def chosen(model: nn.Module, tokens: int) -> int:
    """Threads for a model's forward pass over so many tokens, all rows together: torch's number unless `choose` has measured."""
    if model not in _chosen:
        return torch.get_num_threads()
    return _chosen[model] if tokens <= _FEW else _budget


def fastest(run: Callable[[], object], repetitions: int) -> float:
    """Seconds of the fastest repetition; others were held up by other work."""
    taken = []
    for _ in range(repetitions):
        begin = time.perf_counter()
        run()
        taken.append(time.perf_counter() - begin)
    return min(taken)


def quickest(run: Callable[[int], object], counts: list[int]) -> int:
    """The number of threads with which `run` takes the least time; a larger one only if it saves a tenth."""
    best = counts[0]
    taken = {count: fastest(partial(run, count), _REPETITIONS) for count in counts}
    for count in counts[1:]:
        if taken[count] < _WORTHWHILE * taken[best]:
            best = count
    return best


@contextmanager
def limited_to(count: int) -> Iterator[None]:
    """Let torch use so many threads in here."""
    before = torch.get_num_threads()
    if count != before:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if count != before:
            torch.set_num_threads(before)
