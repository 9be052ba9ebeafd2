"""How threads of a team come together for a pass, and apart again: the compiled side of `team`.

The caller leads; helpers follow. It waits for none to begin: a helper whose core has other work may miss the pass. Between passes
helpers look out for the next one for as long as a round takes, giving way to whoever wants the core, and then sleep. Knows passes by
address; knows no model.
"""

from __future__ import annotations

from enum import auto

from numba.extending import register_jitable

from specviz.runtime.cpu.fused import memory
from specviz.runtime.cpu.fused.decoder_pass import STAGES, Barrier, Pass, Table, embed, give_way
from specviz.runtime.cpu.fused.memory import exchange, pause, read_shared, set_word, word, write_shared

LINE = 16
"""Words between two that different threads write."""
MOST = 8
"""Threads of a team at most: more wait longer for each other than they save in passes of a few rows."""
_CYCLES = 2500
"""Of a microsecond, about."""
LOOK_OUT, LOOK_OUT_IN_COMPANY, PATIENCE = 2000 * _CYCLES, 50 * _CYCLES, 1000 * _CYCLES
"""How long a helper looks out for the next pass, where its core is its own and where others want it; and how long is too long to
wait in one. What is done between two passes takes up to 2 ms, and waking a helper 100 µs."""


WAITED, ALONE = 1, 2
_MOST_WAITED = 40
"""Percent of a pass: two threads that spend half of it waiting are as slow as one."""


class Board(Table):
    """The team's table, behind `Barrier`; after it come for each thread a line of what it alone and the leader write."""

    RUN_STAGE = len(Barrier)
    POST = auto()
    WAIT = auto()
    PASS = auto()
    THREADS = auto()
    STEP = auto()
    FROM = auto()
    LOOK_OUT = auto()
    JOB = LINE
    GO = 2 * LINE
    OWN = 3 * LINE


class Own(Table):
    """A helper's line: whether it sleeps, whether it takes part (4 · pass: may join, + 1: has joined, + 2: too late), and its
    semaphore.
    """

    SLEEPS = auto()
    SEAT = auto()
    SEMAPHORE = auto()


_post_or_wait = memory.caller(1)
_run_stage = memory.caller(6)
"""Of `decoder_pass`: by its address, since it takes most of the time to compile."""


@register_jitable
def _own(team: int, helper: int) -> int:
    return team + (Board.OWN + helper * LINE) * 8


@register_jitable
def _call(team: int, pass_: int, threads: int) -> int:
    """Offer a pass to the helpers and wake those that sleep; returns its number."""
    job = read_shared(team + Board.JOB * 8) + 1
    set_word(team, Board.PASS, pass_)
    set_word(team, Board.THREADS, threads)
    set_word(team, Barrier.WAITED, 0)
    for helper in range(1, threads):
        write_shared(_own(team, helper) + Own.SEAT * 8, 4 * job)
    write_shared(team + Board.JOB * 8, job)
    for helper in range(1, threads):
        if read_shared(_own(team, helper) + Own.SLEEPS * 8) == 1:
            _post_or_wait(word(team, Board.POST), word(_own(team, helper), Own.SEMAPHORE))
    return job


@register_jitable
def _all_are_there(team: int, job: int, threads: int) -> bool:
    there = 1
    for helper in range(1, threads):
        there += read_shared(_own(team, helper) + Own.SEAT * 8) == 4 * job + 1
    return there == threads


def lead(team: int, pass_: int, threads: int) -> int:
    """Run a pass: alone until all helpers are there, and from the next stage on together.

    Returns `WAITED` if waiting for others took more of it than they save, `ALONE` if they never came, 0 otherwise.
    """
    started = memory.cycles()
    job = _call(team, pass_, threads) if threads > 1 else 0
    go, begun, now = team + Board.GO * 8, word(team, Board.STEP), 1
    stages, run_stage = word(pass_, Pass.LAYERS) * STAGES + 1, word(team, Board.RUN_STAGE)
    embed(pass_)
    for stage in range(stages):
        if now < threads and _all_are_there(team, job, threads):
            now = threads
            set_word(team, Board.FROM, stage)
            write_shared(go, job)
        _run_stage(run_stage, pass_, team, stage, 0, now, begun + stage + 1)
    if threads == 1:
        return 0
    set_word(team, Board.STEP, begun + stages)
    if now == 1:
        for helper in range(1, threads):
            exchange(_own(team, helper) + Own.SEAT * 8, 4 * job, 4 * job + 2)
        write_shared(go, -job)
        return ALONE
    waited = word(team, Barrier.WAITED) * 100 > _MOST_WAITED * (memory.cycles() - started)
    return WAITED if waited else 0


def follow(team: int, thread: int) -> None:
    """A helper's whole life."""
    own, jobs, go = _own(team, thread), team + Board.JOB * 8, team + Board.GO * 8
    sleeps, seat, last = own + Own.SLEEPS * 8, own + Own.SEAT * 8, 0
    while True:
        begun = memory.cycles()
        while read_shared(jobs) == last and memory.cycles() - begun < read_shared(team + Board.LOOK_OUT * 8):
            pause()
            if memory.cycles() - begun > LOOK_OUT_IN_COMPANY:
                give_way(word(team, Barrier.YIELD))
        if read_shared(jobs) == last:
            write_shared(sleeps, 1)
            if read_shared(jobs) == last:  # a pass that comes from here on finds that this thread sleeps
                _post_or_wait(word(team, Board.WAIT), word(own, Own.SEMAPHORE))
            write_shared(sleeps, 0)
            continue
        last = read_shared(jobs)
        if exchange(seat, 4 * last, 4 * last + 1) == 1:
            _take_part(team, thread, last, go)


@register_jitable
def _take_part(team: int, thread: int, job: int, go: int) -> None:
    """Run a pass from the stage on that the leader says; or learn that it is over."""
    begun, said = memory.cycles(), read_shared(go)
    while abs(said) < job:
        pause()
        if memory.cycles() - begun > PATIENCE:
            give_way(word(team, Barrier.YIELD))
        said = read_shared(go)
    if said != job:
        return
    pass_, threads, step = word(team, Board.PASS), word(team, Board.THREADS), word(team, Board.STEP)
    run_stage = word(team, Board.RUN_STAGE)
    for stage in range(word(team, Board.FROM), word(pass_, Pass.LAYERS) * STAGES + 1):
        _run_stage(run_stage, pass_, team, stage, thread, threads, step + stage + 1)
