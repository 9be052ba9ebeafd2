"""Chooses how many threads a forward pass takes on the CPU.

Waking a thread takes longer than a small product. So passes of few tokens use the fastest number of threads, measured when a pair is
loaded. Larger passes use all threads.
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
"""Maximum number of tokens of a pass that uses the measured number of threads, and number of tokens of the timed passes."""
_REPETITIONS = 2
_WORTHWHILE = 0.9
"""More threads are used only if they save a tenth of the time: other programs may need the cores."""


_budget = torch.get_num_threads()


def budget() -> int:
    """The most threads that a pass may take: torch's own choice, or what `set_budget` set.

    Read from torch at import, not now: a thread that starts during another thread's `limited_to` inherits that limit.
    """
    return _budget


def worth_trying(most: int) -> list[int]:
    """Numbers of threads up to `most`, ascending: the powers of two, and `most`."""
    return [1 << power for power in range(most.bit_length()) if 1 << power < most] + [most]


def set_budget(count: int) -> None:
    """Let torch in this thread, and models loaded from now on, use at most `count` threads."""
    global _budget
    _budget = count
    torch.set_num_threads(count)


_chosen: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()


def choose(model: nn.Module) -> None:
    """Measure with how many threads a language model's small passes are fastest on the CPU; does nothing on other devices."""
    if {parameter.device.type for parameter in model.parameters()} != {"cpu"}:
        return

    @torch.inference_mode()
    def run(count: int) -> None:
        with limited_to(count):
            model(torch.zeros(1, _TIMED, dtype=torch.long), use_cache=False)

    _chosen[model] = quickest(run, worth_trying(_budget))


def chosen(model: nn.Module, tokens: int) -> int:
    """Threads for a forward pass over `tokens` tokens in all sequences; torch's current number if `choose` has not measured the model."""
    if model not in _chosen:
        return torch.get_num_threads()
    return _chosen[model] if tokens <= _FEW else _budget


def fastest(run: Callable[[], object], repetitions: int) -> float:
    """Seconds of the fastest repetition; the others were slowed by other work."""
    taken = []
    for _ in range(repetitions):
        begin = time.perf_counter()
        run()
        taken.append(time.perf_counter() - begin)
    return min(taken)


def quickest(run: Callable[[int], object], counts: list[int]) -> int:
    """The number of threads with which `run` takes the least time; a larger number is returned only if it saves a tenth."""
    best = counts[0]
    taken = {count: fastest(partial(run, count), _REPETITIONS) for count in counts}
    for count in counts[1:]:
        if taken[count] < _WORTHWHILE * taken[best]:
            best = count
    return best


@contextmanager
def limited_to(count: int) -> Iterator[None]:
    """Let torch use `count` threads in this thread until the context ends."""
    before = torch.get_num_threads()
    if count != before:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if count != before:
            torch.set_num_threads(before)
