"""The compiled side of the worker pool: how its threads begin a pass together and wait for each other in it.

The caller of a pass is thread 0; workers are 1, 2, … Between passes a worker spins for as long as a round takes and then sleeps on a
semaphore.
"""

from __future__ import annotations

import numpy as np

from specviz.runtime.cpu.fused.memory import (
    CACHE_LINE,
    add_shared,
    caller,
    cycles,
    jitable,
    pause,
    read_shared,
    record_at,
    write_shared,
)

MOST_THREADS = 8
"""Maximum number of threads of a pass. With more, passes of a few rows lose more time to waiting than they save."""
WAITED = 1
"""What `lead` returns if waiting took more than `_MOST_WAITED` percent of a pass: two threads that wait half of it are as slow as one."""
_MOST_WAITED = 40
_MICROSECOND = 2500
"""Cycles in a microsecond, approximately."""
_SPIN, _SPIN_ALONE, _PATIENCE = 2000 * _MICROSECOND, 50 * _MICROSECOND, 1000 * _MICROSECOND
"""Cycles. A worker spins for `_SPIN` before it sleeps: up to 2 ms lie between two passes, and waking takes 100 µs. After `_SPIN_ALONE`, it
yields its core in each iteration. A thread that waits at a barrier yields after `_PATIENCE`.
"""
_APART = 2 * CACHE_LINE
"""Bytes between words that different threads write: processors fetch cache lines in pairs."""
_NAMES = ("pass_", "threads", "begun", "waited", "job", "run", "post", "wait", "give_way")
POOL = np.dtype([("arrived", "i8", _APART // 8), *((name, "i8") for name in _NAMES), ("", "i8", 7)])
"""The pool. `arrived`: number of arrivals at barriers. `pass_`: the current pass's `PASS`. `begun`: arrivals before this pass. `waited`:
cycles for which thread 0 has waited at this pass's barriers. `job`: number of passes so far. From `run` on, fields are functions.
"""
WORKER_BYTES = _APART
"""Bytes of a thread's record. The records follow the pool, from thread 0 on."""
_JOB, _SLEEPS, SEMAPHORE = 0, 8, 16
"""Offsets in a worker's record: number of the latest pass that it takes part in, whether it sleeps (0 or 1), and semaphore (a `sem_t`)."""
_FIRST_WORKER = POOL.itemsize

_pool_at = record_at(POOL)
_run, _semaphore, _give_way = caller(5), caller(1), caller(0)


@jitable
def wait_for_all(pool, thread, threads, target):  # type: ignore[no-untyped-def]
    """Wait until all threads of a pass have arrived here. `target`: arrivals up to the previous barrier; returns the next `target`."""
    if threads == 1:
        return target
    target += threads
    add_shared(pool, 1)
    begun = cycles()
    while read_shared(pool) < target:
        pause()
        if cycles() - begun > _PATIENCE:
            _give_way(_pool_at(pool).give_way)
    if thread == 0:
        _pool_at(pool).waited += cycles() - begun
    return target


@jitable
def _worker(pool, thread):  # type: ignore[no-untyped-def]
    return pool + _FIRST_WORKER + thread * WORKER_BYTES


def lead(address, pass_, threads):  # type: ignore[no-untyped-def]
    """Run a pass as thread 0 of `threads` threads. Returns `WAITED` or 0."""
    pool, started = _pool_at(address), cycles()
    pool.pass_, pool.threads, pool.begun, pool.waited = pass_, threads, read_shared(address), 0
    pool.job += 1
    for thread in range(1, threads):
        worker = _worker(address, thread)
        write_shared(worker + _JOB, pool.job)
        if read_shared(worker + _SLEEPS) == 1:
            _semaphore(pool.post, worker + SEMAPHORE)
    _run(pool.run, pass_, address, 0, threads, pool.begun)
    return WAITED if pool.waited * 100 > _MOST_WAITED * (cycles() - started) else 0


def work(address, thread):  # type: ignore[no-untyped-def]
    """A worker's loop, which never ends."""
    pool, own, done = _pool_at(address), _worker(address, thread), 0
    while True:
        begun = cycles()
        while read_shared(own + _JOB) == done and cycles() - begun < _SPIN:
            pause()
            if cycles() - begun > _SPIN_ALONE:
                _give_way(pool.give_way)
        if read_shared(own + _JOB) == done:
            write_shared(own + _SLEEPS, 1)
            # A caller that begins a pass from here on sees that this thread sleeps.
            if read_shared(own + _JOB) == done:
                _semaphore(pool.wait, own + SEMAPHORE)
            write_shared(own + _SLEEPS, 0)
            continue
        done = read_shared(own + _JOB)
        _run(pool.run, pool.pass_, address, thread, pool.threads, pool.begun)
