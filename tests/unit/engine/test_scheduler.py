"""Laws of the scheduler: order, fairness, positions, deadlines, aborts and refusals, without a thread or a model."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specviz.engine.scheduler import Scheduler, SequenceGroup
from specviz.errors import BusyError


def group(name: str, count: int = 1, visitor: str | None = None, **more: object) -> SequenceGroup[str]:
    """Sequences name0, name1, …; by default every group is a visitor's own."""
    sequences = [f"{name}{index}" for index in range(count)]
    return SequenceGroup(sequences, name if visitor is None else visitor, **more)  # type: ignore[arg-type]


def everything(sequences: list[str]) -> int:
    """Memory has room for all."""
    return len(sequences)


def scheduler(*groups: SequenceGroup[str], slots: int = 4, queue: float = math.inf) -> Scheduler[str]:
    made: Scheduler[str] = Scheduler(slots, queue)
    for each in groups:
        made.submit(each)
    return made


def admit(made: Scheduler[str], room: Callable[[list[str]], int] = everything) -> list[str]:
    """Admit once, and prefill at once."""
    admitted = made.admit(room)
    if admitted:
        made.prefilled(admitted)
    return admitted


def admit_all(made: Scheduler[str]) -> list[str]:
    """Admit for as long as somebody is."""
    found: list[str] = []
    while admitted := admit(made):
        found += admitted
    return found


def test_memory_bounds_how_many_join() -> None:
    """`room_for` is asked about the first ones in order; where it has room for none, they stay in the queue."""
    asked: list[list[str]] = []

    def room(sequences: list[str]) -> int:
        asked.append(sequences)
        return 2 if len(asked) == 1 else 0

    made = scheduler(group("a", 3))
    assert admit(made, room) == ["a0", "a1"]
    assert admit(made, room) == []
    assert asked == [["a0", "a1", "a2"], ["a2"]]
    assert made.waiting == 1


# ---- the queue -----------------------------------------------------------------------------------------------


def test_each_group_hears_its_position_once_and_again_when_it_falls() -> None:
    first, second, third = group("a", 2), group("b"), group("c")
    made = scheduler(first, second, third, slots=1)
    admit(made)
    assert made.queue_positions() == [(second, 1), (third, 2)]
    assert made.queue_positions() == []
    made.finish("b0")
    assert made.queue_positions() == [(third, 1)]


def test_a_full_queue_refuses_and_keeps_nothing() -> None:
    """Beyond what free slots take, `queue` sequences may wait; with an empty queue a group of any size may come."""
    made = scheduler(group("a", 9), slots=2, queue=3)
    admit(made)
    with pytest.raises(BusyError, match="queue is full"):
        made.submit(group("b"))
    assert [each.visitor for each in made.groups] == ["a"]
    for index in range(2, 7):
        made.finish(f"a{index}")
    assert made.waiting == 2
    made.submit(group("c"))
    with pytest.raises(BusyError):
        made.submit(group("d"))


# ---- leaving -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["waiting", "prefilling", "decoding"])
def test_an_aborted_group_leaves_whatever_it_is_doing(state: str) -> None:
    """Its slots are free for the next one at once."""
    aborted, other = group("a", 2), group("b", 2)
    made = scheduler(aborted, other, slots=2)
    if state == "prefilling":
        made.admit(everything)
    elif state == "decoding":
        admit_all(made)
    assert made.leaving(0) == []
    aborted.abort()
    assert made.leaving(0) == [("a0", "cancelled"), ("a1", "cancelled")]
    for sequence, _ in made.leaving(0):
        assert made.finish(sequence) is aborted
    assert made.groups == [other]
    assert aborted.unfinished == made.prefilling == []
    admit_all(made)
    assert made.decoding == ["b0", "b1"]


def test_a_single_abort_waits_for_the_prompts_that_are_read_with_it() -> None:
    """Prompts of a group are read in one batch, which is not torn apart; unless none of it goes on."""
    aborted = group("a", 2)
    made = scheduler(aborted)
    made.admit(everything)
    aborted.abort(0)
    assert made.leaving(0) == []
    aborted.abort(1)
    assert made.leaving(0) == [("a0", "cancelled"), ("a1", "cancelled")]
    made.prefilled(["a0", "a1"])
    assert [sequence for sequence, _ in made.leaving(0)] == ["a0", "a1"]


def test_past_its_deadline_a_group_ends_with_time_what_waits_of_it_too() -> None:
    """Counted from submission; at the deadline itself it may go on."""
    made = scheduler(slots=1)
    made.submit(group("a", 2), now=100.0, seconds=30.0)
    admit(made)
    assert made.leaving(130.0) == []
    assert made.leaving(130.5) == [("a0", "time"), ("a1", "time")]
    assert made.unserved(130.5) == []


def test_a_group_that_was_never_admitted_is_busy_at_its_deadline() -> None:
    """Nothing was written: that is an error, not an end."""
    made = scheduler(group("a"), slots=1)
    admit(made)
    late = group("b", 2)
    made.submit(late, now=5.0, seconds=0.25)
    assert made.unserved(5.25) == []
    [(found, error)] = made.unserved(5.5)
    assert found is late
    assert "nothing was free for 0.25 seconds" in str(error)
    assert made.leaving(5.5) == []


# ---- whatever happens ----------------------------------------------------------------------------------------

ACTIONS = st.one_of(
    st.tuples(st.just("submit"), st.integers(0, 3), st.integers(0, 5)),
    st.tuples(st.just("admit"), st.integers(0, 6), st.just(0)),
    st.tuples(st.just("prefilled"), st.just(0), st.just(0)),
    st.tuples(st.just("finish"), st.integers(0, 99), st.just(0)),
    st.tuples(st.just("abort"), st.integers(0, 99), st.integers(-1, 4)),
    st.tuples(st.just("leave"), st.integers(0, 40), st.just(0)),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(ACTIONS, max_size=60), st.integers(1, 5), st.integers(0, 6))
def test_whatever_happens_the_books_agree(
    actions: list[tuple[str, int, int]], slots: int, queue: int
) -> None:
    """Every sequence is in exactly one state, no slot is given twice, and everyone is served or ended at last."""
    made: Scheduler[str] = Scheduler(slots, queue)
    submitted: list[SequenceGroup[str]] = []
    over: list[str] = []
    for clock, (action, number, more) in enumerate(actions):
        alive = [sequence for each in made.groups for sequence in each.unfinished]
        if action == "submit":
            new = group(f"{clock}.", more, str(number))
            try:
                made.submit(new, now=clock, seconds=30)
            except BusyError:
                continue
            submitted.append(new)
        elif action == "admit":
            admitted = made.admit(lambda sequences, most=number: min(most, len(sequences)))
            assert len({made.group_of(sequence) for sequence in admitted}) <= 1
        elif action == "prefilled" and made.prefilling:
            made.prefilled(made.prefilling[number % len(made.prefilling)])
        elif action == "finish" and alive:
            sequence = alive[number % len(alive)]
            if not any(sequence in together for together in made.prefilling):
                made.finish(sequence)
                over.append(sequence)
        elif action == "abort" and submitted:
            chosen = submitted[number % len(submitted)]
            if more < len(chosen.sequences):
                chosen.abort(None if more < 0 else more)
        elif action == "leave":
            for sequence, reason in made.leaving(clock + number):
                assert reason in ("cancelled", "time")
                made.finish(sequence)
                over.append(sequence)
            for expired, _ in made.unserved(clock + number):
                for sequence in list(expired.unfinished):
                    made.finish(sequence)
                    over.append(sequence)
        waiting = [sequence for each in made.groups for sequence in each.waiting]
        assert made.running <= slots
        everyone = [*waiting, *chain.from_iterable(made.prefilling), *made.decoding, *over]
        assert Counter(everyone) == Counter(sequence for each in submitted for sequence in each.sequences)
        positions = {position for _, position in made.queue_positions()}
        assert positions <= set(range(1, len(waiting) + 1))
    for _ in range(1000):
        made.admit(everything)
        for each in list(made.prefilling):
            made.prefilled(each)
        if not made.decoding:
            break
        made.finish(made.decoding[0])
    assert made.groups == []
    assert made._group_of == {}


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 6)), min_size=1, max_size=8), st.integers(1, 8))
def test_no_visitor_has_more_than_a_share_and_none_idles(wanted: list[tuple[int, int]], slots: int) -> None:
    """After all who may be are admitted: each visitor has at most an equal share, and who has less has nothing waiting."""
    made = scheduler(*[group(f"{n}.", count, str(who)) for n, (who, count) in enumerate(wanted)], slots=slots)
    admit_all(made)
    visitors = {str(who) for who, _ in wanted}
    share = max(1, slots // len(visitors))
    has = Counter(made._group_of[sequence].visitor for sequence in made.decoding)
    assert all(count <= share for count in has.values())
    for each in made.groups:
        if each.waiting and has[each.visitor] < share:
            assert len(made.decoding) == slots


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), min_size=1, max_size=6))
def test_with_one_slot_the_queue_is_served_as_positions_said(wanted: list[tuple[int, int]]) -> None:
    """Nobody comes or goes: the group at position 1 is the one that is admitted from next."""
    made = scheduler(*[group(f"{n}.", count, str(n)) for n, (_, count) in enumerate(wanted)], slots=1)
    while made.groups:
        first = made._order()[0][0]
        made.queue_positions()
        assert first.queue_position == 1
        [admitted] = admit(made)
        assert made.group_of(admitted) is first
        made.finish(admitted)
