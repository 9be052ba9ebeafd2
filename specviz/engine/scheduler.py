"""Which requests are admitted, wait and leave: fairness, queue positions, deadlines, aborts and refusals.

Pure bookkeeping: no thread, no clock (times are passed in), no model. Sequences are opaque and hashable. The
scheduler asks the batch only how many sequences fit into memory. The engine carries out its decisions.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Generic, TypeVar

from specviz.errors import BusyError

S = TypeVar("S")


@dataclass(eq=False)
class SequenceGroup(Generic[S]):
    """The sequences that one visitor asked for in one call."""

    sequences: list[S]
    visitor: str = ""
    stopped: Callable[[], bool] = lambda: False  # asked before every step; True aborts the whole group
    publish: Callable[[Any], object] = lambda _: None  # where its events go
    arrival: float = 0.0  # seconds on the clock of the engine
    seconds: float = math.inf  # from arrival to the deadline
    admitted: bool = False  # whether any of its sequences was ever admitted
    queue_position: int = 0  # as last reported; 0 if no sequence waits
    waiting: list[S] = field(init=False)
    unfinished: list[S] = field(init=False)
    _aborted: set[S] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.waiting, self.unfinished = list(self.sequences), list(self.sequences)

    @property
    def deadline(self) -> float:
        """The time at which its sequences end, finished or not."""
        return self.arrival + self.seconds

    def abort(self, index: int | None = None) -> None:
        """Make one sequence, or all sequences, leave before the next step."""
        self._aborted.update(self.sequences if index is None else [self.sequences[index]])

    def reason_to_end(self, sequence: S, now: float) -> str:
        """The stop reason of a sequence that must leave now; "" if it may go on.

        Past the deadline it is "time" if any sequence of the group was admitted; otherwise `Scheduler.unserved` has the group.
        """
        if self.stopped() or sequence in self._aborted:
            return "cancelled"
        return "time" if self.admitted and now > self.deadline else ""


class Scheduler(Generic[S]):
    """Gives slots to sequences: first to the visitors with the fewest slots, then by arrival."""

    def __init__(self, slots: int, queue: float = math.inf) -> None:
        """`queue`: number of sequences that may wait, in addition to those for which a slot is free."""
        self.slots, self.queue = slots, queue
        self.groups: list[SequenceGroup[S]] = []  # with unfinished sequences, by arrival
        # Sequences whose prompts are being read: one list per admission, in order.
        self.prefilling: list[list[S]] = []
        self.decoding: list[S] = []
        self._group_of: dict[S, SequenceGroup[S]] = {}

    @property
    def running(self) -> int:
        """Number of taken slots."""
        return len(self._admitted())

    @property
    def waiting(self) -> int:
        """Number of sequences that have no slot yet."""
        return sum(len(group.waiting) for group in self.groups)

    def group_of(self, sequence: S) -> SequenceGroup[S]:
        """The group of an unfinished sequence."""
        return self._group_of[sequence]

    # ---- arriving --------------------------------------------------------------------------------------------

    def submit(self, group: SequenceGroup[S], now: float = 0.0, seconds: float = math.inf) -> None:
        """Queue a group, whose deadline is `seconds` after `now`. An empty group is ignored. If no sequence waits, any group is accepted.

        Raises:
            BusyError: the queue is full; nothing was queued.
        """
        waiting = self.waiting
        if waiting and waiting + len(group.sequences) > self.slots - self.running + self.queue:
            raise BusyError("SpecViz is busy and its queue is full: try again in a minute.")
        group.arrival, group.seconds = now, seconds
        if group.sequences:
            self.groups.append(group)
            self._group_of |= dict.fromkeys(group.sequences, group)

    # ---- leaving ---------------------------------------------------------------------------------------------

    def leaving(self, now: float) -> list[tuple[S, str]]:
        """Sequences that must be finished now, each with its stop reason.

        Sequences that were admitted together share a prefill: during the prefill, they leave only when all of them must.
        """
        found = [
            (sequence, reason)
            for group in self.groups
            for sequence in group.unfinished
            if (reason := group.reason_to_end(sequence, now))
        ]
        ended = {sequence for sequence, _ in found}
        stay = {each for together in self.prefilling if not ended.issuperset(together) for each in together}
        return [(sequence, reason) for sequence, reason in found if sequence not in stay]

    def unserved(self, now: float) -> list[tuple[SequenceGroup[S], BusyError]]:
        """Groups whose deadline passed before any of their sequences was admitted, with the error that ends them."""
        sentence = "SpecViz was too busy: nothing was free for {:g} seconds. Try again in a minute."
        late = [group for group in self.groups if now > group.deadline and not group.admitted]
        return [(group, BusyError(sentence.format(group.seconds))) for group in late]

    def finish(self, sequence: S) -> SequenceGroup[S]:
        """Free the slot of a sequence that is over. Returns its group."""
        group = self._group_of.pop(sequence)
        group.unfinished.remove(sequence)
        for each in (group.waiting, *self.prefilling, self.decoding):
            if sequence in each:
                each.remove(sequence)
        self.prefilling = [each for each in self.prefilling if each]
        if not group.unfinished:
            self.groups.remove(group)
        return group

    # ---- being served ----------------------------------------------------------------------------------------

    def admit(self, room_for: Callable[[list[S]], int]) -> list[S]:
        """Give slots to waiting sequences of one group, and return these sequences for prefill; [] if none can be admitted now.

        No visitor gets more than an equal share of all slots while other visitors are served or wait.

        Args:
            room_for: returns how many of a list of sequences, from the first, fit into memory.
        """
        free = self.slots - self.running
        if not self.waiting or free <= 0:
            return []
        taken = self._taken()
        share = max(1, self.slots // len({group.visitor for group in self.groups}))
        group = next((group for group, _ in self._order() if taken[group.visitor] < share), None)
        if group is None:
            return []
        first = group.waiting[: min(free, share - taken[group.visitor])]
        count = room_for(first)
        admitted, group.waiting = group.waiting[:count], group.waiting[count:]
        if admitted:
            self.prefilling.append(list(admitted))
            group.admitted = True
        return admitted

    def prefilled(self, sequences: list[S]) -> None:
        """The prefill of sequences that were admitted together is over: they decode from now on."""
        self.prefilling.remove(sequences)
        self.decoding += sequences

    def queue_positions(self) -> list[tuple[SequenceGroup[S], int]]:
        """Groups without admitted sequences whose queue position has changed since the last call, each with its new position.

        The position of a group is that of its first sequence. Position 1 is admitted next.
        """
        positions: dict[SequenceGroup[S], int] = {}
        for position, (group, _) in enumerate(self._order(), 1):
            positions.setdefault(group, position)
        changed = []
        for group in self.groups:
            position = positions.get(group, 0)
            if position not in (0, group.queue_position) and not group.admitted:
                changed.append((group, position))
            group.queue_position = position
        return changed

    def _admitted(self) -> list[S]:
        """Sequences that have slots."""
        return [*chain.from_iterable(self.prefilling), *self.decoding]

    def _taken(self) -> Counter[str]:
        """Number of taken slots by visitor."""
        return Counter(self._group_of[sequence].visitor for sequence in self._admitted())

    def _order(self) -> list[tuple[SequenceGroup[S], S]]:
        """The queue, sorted by the number of slots that a sequence's visitor will have before the sequence gets one, then by arrival."""
        taken = self._taken()
        ranked = []
        for arrival, group in enumerate(self.groups):
            for sequence in group.waiting:
                ranked.append((taken[group.visitor], arrival, group, sequence))
                taken[group.visitor] += 1
        ranked.sort(key=lambda each: each[:2])
        return [(group, sequence) for *_, group, sequence in ranked]
