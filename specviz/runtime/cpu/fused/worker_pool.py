"""The worker pool: the threads of this process that run passes together."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable
from functools import cache, cached_property

import numpy as np

from specviz.runtime.cpu.fused import functions
from specviz.runtime.cpu.fused.layout import aligned
from specviz.runtime.cpu.fused.workers import MOST_THREADS, POOL, SEMAPHORE, WAITED, WORKER_BYTES
from specviz.runtime.cpu.threads import budget

_WAITS = 2
"""If this many passes in a row return `WAITED`, another process probably uses a core."""
_PAUSE = 0.25
"""Seconds for which passes then run on one thread."""


class WorkerPool:
    """The workers of this process. They start with the first pass that uses them."""

    def __init__(self) -> None:
        self._lead = _function(functions.lead(), 3)
        self._lock = threading.Lock()
        table = aligned(POOL.itemsize + MOST_THREADS * WORKER_BYTES)
        self._pool, self._alone = table[: POOL.itemsize].view(POOL), np.zeros(1, POOL)
        self._address, self._running = int(table.ctypes.data), 1
        self._waits, self._alone_until = 0, 0.0
        self._pool["run"] = self._alone["run"] = functions.run()

    @cached_property
    def _draft(self) -> Callable[..., int]:
        return _function(functions.draft(), 3)

    def run(self, table: int, threads: int, *, drafts: bool = False) -> None:
        """Run a pass on `threads` threads. `table` is the address of a `PASS`, or of a `DRAFTING` if `drafts`.

        The pass runs on one thread while another caller uses the pool, or while another process seems to use a core.
        """
        function = self._draft if drafts else self._lead
        together = threads > 1 and time.monotonic() >= self._alone_until
        if not (together and self._lock.acquire(blocking=False)):
            function(int(self._alone.ctypes.data), table, 1)
            return
        try:
            while self._running < threads:
                self._start_worker()
            self._waits = self._waits + 1 if function(self._address, table, threads) == WAITED else 0
            if self._waits == _WAITS:
                self._waits, self._alone_until = 0, time.monotonic() + _PAUSE
        finally:
            self._lock.release()

    def _start_worker(self) -> None:
        library, number = ctypes.CDLL(None), self._running
        semaphore = self._address + POOL.itemsize + number * WORKER_BYTES + SEMAPHORE
        library.sem_init(ctypes.c_void_p(semaphore), 0, 0)
        for field, name in (("give_way", "sched_yield"), ("post", "sem_post"), ("wait", "sem_wait")):
            self._pool[field] = ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
        life, name = _function(functions.work(), 2), f"fused pass {number}"
        threading.Thread(target=life, args=(self._address, number), name=name, daemon=True).start()
        self._running += 1


def _function(address: int, arguments: int) -> Callable[..., int]:
    """A compiled function as a Python function; calls release the global interpreter lock."""
    return ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * arguments)(address)


@cache
def worker_pool() -> WorkerPool:
    """This process's pool; its workers live as long as the process."""
    return WorkerPool()


def most_threads() -> int:
    """Maximum number of threads of a pass. It is 1 on systems other than Linux: the workers need Linux's semaphores."""
    if sys.platform != "linux":
        return 1
    return min(MOST_THREADS, len(os.sched_getaffinity(0)), budget())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=worker_pool.cache_clear)  # workers do not live on in a forked process
