"""Chooses how many threads a forward pass takes on the CPU: the fastest number, measured when a pair is loaded.

Waking a thread takes longer than a small product. Large passes take all threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from weakref import WeakKeyDictionary

import torch
from torch import nn

_SMALL, _LARGE = 2, 32
"""Tokens of the two passes that are timed; a pass counts as small up to the geometric mean of the two."""
_REPETITIONS = 2
_WORTHWHILE = 0.9
"""More threads are taken only where they save a tenth of the time: others may want them."""


@dataclass(frozen=True)
class Threads:
    """Threads for a pass of few tokens, of more, and of very many."""

    few: int
    more: int
    all: int

    def of(self, tokens: int) -> int:
        """Threads for a forward pass of so many tokens, all rows together."""
        if tokens <= (_SMALL * _LARGE) ** 0.5:
            return self.few
        return self.more if tokens <= 2 * _LARGE else self.all


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


_chosen: WeakKeyDictionary[nn.Module, Threads] = WeakKeyDictionary()


def choose(model: nn.Module) -> None:
    """Measure the best `Threads` for a language model on the CPU, and remember them; does nothing on other devices."""
    if {parameter.device.type for parameter in model.parameters()} != {"cpu"}:
        return

    @torch.inference_mode()
    def run(tokens: int, count: int) -> None:
        with limited_to(count):
            model(torch.zeros(1, tokens, dtype=torch.long), use_cache=False)

    few, more = (quickest(partial(run, tokens), worth_trying(_budget)) for tokens in (_SMALL, _LARGE))
    _chosen[model] = Threads(few, more, _budget)


def chosen(model: nn.Module) -> Threads | None:
    """The `Threads` chosen for a model; None if none were."""
    return _chosen.get(model)


def fastest(run: Callable[[], object], repetitions: int) -> float:
    """Seconds that the fastest of some repetitions takes: others were held up."""
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
