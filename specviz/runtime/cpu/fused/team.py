"""The threads of this process that run passes together.

No thread spins while another process wants its core: if passes had to wait long for one again and again, they are run alone for a while. Knows
passes by address; knows no model.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable
from functools import cache

import numpy as np

from specviz.runtime.cpu.fused import functions
from specviz.runtime.cpu.fused.decoder_pass import FLAG_BYTES, Barrier
from specviz.runtime.cpu.fused.teamwork import (
    LINE,
    LOOK_OUT,
    LOOK_OUT_IN_COMPANY,
    MOST,
    PATIENCE,
    WAITED,
    Board,
    Own,
)
from specviz.runtime.cpu.threads import budget


class Team:
    """The helpers of this process. They exist from the first pass that wants them."""

    def __init__(self) -> None:
        self._lead = _function(functions.lead(), 3)
        self._draft: Callable[..., int] | None = None
        self._lock = threading.Lock()
        self._board = np.zeros(Board.OWN + MOST * LINE, np.int64)
        self._flags = np.zeros(MOST * FLAG_BYTES // 8, np.int64)
        self._semaphores = np.zeros((MOST, 8), np.int64)
        self._helpers = 0
        self._alone_until, self._pause, self._strikes = 0.0, _SHORTEST_PAUSE, 0
        board, self._address = self._board, int(self._board.ctypes.data)
        board[Barrier.FLAGS], board[Barrier.PATIENCE] = self._flags.ctypes.data, PATIENCE
        board[Board.LOOK_OUT], board[Board.RUN_STAGE] = LOOK_OUT, functions.stage()

    def run(self, pass_: int, threads: int) -> bool:
        """Run a pass, given by its table's address, on up to so many threads; alone where others use the team.

        Returns True if it ran on all of them and was the faster for it.
        """
        return self._run(self._lead, pass_, threads)

    def draft(self, drafting: int, threads: int) -> None:
        """Run the passes of a `Drafting`, given by its address, as `run` does."""
        if self._draft is None:
            self._draft = _function(functions.draft(), 3)
        self._run(self._draft, drafting, threads)

    def _run(self, function: Callable[..., int], table: int, threads: int) -> bool:
        if threads > 1 and time.monotonic() >= self._alone_until and self._lock.acquire(blocking=False):
            try:
                return self._run_together(function, table, threads)
            finally:
                self._lock.release()
        function(self._address, table, 1)
        return threads == 1

    def _run_together(self, function: Callable[..., int], table: int, threads: int) -> bool:
        while self._helpers < threads - 1:
            self._start_helper()
        result = function(self._address, table, threads)
        self._strikes = max(0, self._strikes + (2 if result == WAITED else -1))
        self._board[Board.LOOK_OUT] = LOOK_OUT_IN_COMPANY if self._strikes else LOOK_OUT
        if self._strikes >= _STRIKES:
            self._alone_until, self._strikes = time.monotonic() + self._pause, 0
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        elif not self._strikes:
            self._pause = _SHORTEST_PAUSE
        return result == 0

    def _start_helper(self) -> None:
        library, number = ctypes.CDLL(None), self._helpers + 1
        semaphore = self._semaphores[number].ctypes.data
        library.sem_init(ctypes.c_void_p(semaphore), 0, 0)
        for word_, name in (
            (Barrier.YIELD, "sched_yield"),
            (Board.POST, "sem_post"),
            (Board.WAIT, "sem_wait"),
        ):
            self._board[word_] = ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
        self._board[Board.OWN + number * LINE + Own.SEMAPHORE] = semaphore
        _read_for_ever.append((self._board, self._semaphores, self._flags))
        life = _function(functions.follow(), 2)
        arguments = (self._board.ctypes.data, number)
        threading.Thread(target=life, args=arguments, name=f"fused pass {number}", daemon=True).start()
        self._helpers = number


_read_for_ever: list[tuple[np.ndarray, ...]] = []
"""What helpers read, by address: a helper lives as long as its process, whatever becomes of its team."""
_STRIKES = 5
"""A pass that had to wait long counts 2, any other takes 1 away. Waiting once costs less than a few passes alone."""
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
"""Seconds for which passes are run alone then: longer, where that is not enough."""


def _function(address: int, arguments: int) -> Callable[..., int]:
    """A compiled function, to be called without Python's lock."""
    return ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * arguments)(address)


@cache
def team() -> Team:
    """This process's team."""
    return Team()


def most_threads() -> int:
    """Threads a pass may take here, at most as many as torch may. Helpers sleep on POSIX semaphores, as Linux has them."""
    if sys.platform != "linux":
        return 1
    return min(MOST, len(os.sched_getaffinity(0)), budget())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=team.cache_clear)  # helpers do not live on in a forked process
