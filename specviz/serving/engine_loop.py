"""The thread of a shared engine, the only owner of its scheduler, batches and sequences.

It receives messages, admits and ends sequences as the scheduler decides, prefills, steps, and publishes events. The order of
this work changes no text (law 3).
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from specviz.engine.batch import Batch
from specviz.engine.events import Finished, Started, Waiting
from specviz.engine.record import Outcome
from specviz.engine.scheduler import Scheduler, SequenceGroup
from specviz.engine.sequence import Sequence
from specviz.errors import BROKEN, BusyError, EngineError, SpecvizError, is_out_of_memory
from specviz.models.pair import ModelPair
from specviz.runtime.memory import give_back_memory
from specviz.runtime.prefix_cache import PrefixCache
from specviz.serving.inbox import STOPPED, Inbox
from specviz.serving.recovery import engine_error, first_step, step_or_recover
from specviz.serving.statistics import EngineStatistics

log = logging.getLogger(__name__)

LONG_STEP = 0.25
"""If steps take longer than this many seconds, joining sequences get a short first step of their own, which delays others by 25 ms."""
READING_SHARE = 3.0
"""Prefill between two steps may take this many times the last step's time, so that sequences join early and share steps."""
MAX_READING_SECONDS = 1.0
"""Prefill between two steps may take at most this many seconds, or the last step's time if a step takes longer."""
OLDEST_SHARE = 4
"""One of this many prefill passes goes to the oldest prefill, so that no prefill starves; the others go to the shortest prefill."""
_IDLE = 2.0
"""Seconds without work after which free memory is returned to the system."""


class EngineLoop:
    """The thread's work. Other threads only send messages to the inbox."""

    def __init__(
        self, pair: ModelPair, inbox: Inbox, scheduler: Scheduler[Sequence], statistics: EngineStatistics
    ) -> None:
        self._pair, self._inbox, self._scheduler, self._statistics = pair, inbox, scheduler, statistics
        self._prefix_caches = (PrefixCache(), PrefixCache())
        self._batch = Batch(pair, self._prefix_caches, apart=False)
        self._prefills: list[_Prefill] = []  # in order of admission
        self._passes = 0  # so far, of all prefills
        self._step_seconds = 0.0
        self._first_rounds: dict[Sequence, float] = {}  # monotonic time at which each ended
        self._is_closing, self._has_worked = False, False

    # ---- the loop --------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Serve until closed. Every caller gets an answer, even if the loop fails."""
        try:
            while not self._is_closing:
                self._receive()
                if self._scheduler.groups and not self._is_closing:
                    self._turn()
        finally:
            try:
                self._fail_all(STOPPED)
            finally:
                self._inbox.close()

    def _receive(self) -> None:
        """Call the functions that other threads have sent. If there are no sequences, wait for messages and return free memory."""
        is_idle = not self._scheduler.groups
        messages = self._inbox.receive(timeout=(_IDLE if self._has_worked else None) if is_idle else 0)
        if is_idle and not messages:
            give_back_memory()
        self._has_worked = not is_idle or bool(messages)
        for function, _ in messages:
            function()
        self._count_load()

    def _turn(self) -> None:
        begin = time.monotonic()
        try:
            self._end_overdue()
            self._read_prompts()
            self._step()
        except Exception as error:
            log.error("the engine starts anew", exc_info=error)
            self._fail_all(BROKEN)
        self._statistics.busy_seconds += time.monotonic() - begin

    # ---- messages: sent by other threads, called by this one -------------------------------------------------

    def submit(self, group: SequenceGroup[Sequence], arrival: float, seconds: float) -> None:
        """Queue a group. `arrival` is on the monotonic clock; `seconds` later is the deadline."""
        try:
            self._scheduler.submit(group, arrival, seconds)
        except BusyError as error:
            self._statistics.refused += len(group.sequences)
            group.publish(error.with_traceback(None))

    def close(self) -> None:
        """End the loop."""
        self._is_closing = True

    # ---- prefill ---------------------------------------------------------------------------------------------

    def _read_prompts(self) -> None:
        """Admit sequences and prefill them, a chunk at a time, until the time for prefill is over."""
        step = self._step_seconds
        end = time.monotonic() + max(step, min(READING_SHARE * step, MAX_READING_SECONDS))
        self._admit()
        while self._prefills:
            left = [prefill.passes_left for prefill in self._prefills]
            self._advance_prefill(self._prefills[next_prefill(left, self._passes)])
            self._passes += 1
            if time.monotonic() >= end:
                return
            self._admit()

    def _admit(self) -> None:
        """Begin to prefill admitted sequences, and publish queue positions."""
        while admitted := self._scheduler.admit(self._room_for):
            arrival = self._scheduler.group_of(admitted[0]).arrival
            self._statistics.waited_seconds += len(admitted) * (time.monotonic() - arrival)
            self._prefills.append(self._begin_prefill(admitted))
        self._count_load()
        for group, position in self._scheduler.queue_positions():
            group.publish(Waiting(group.waiting[0].index, position))

    def _room_for(self, sequences: list[Sequence]) -> int:
        """As `Batch.room_for`, with the sequences in prefill counted."""
        reading = [sequence for prefill in self._prefills for sequence in prefill.sequences]
        return self._batch.room_for(sequences, reading)

    def _begin_prefill(self, sequences: list[Sequence], *, cached: bool = True) -> _Prefill:
        batch = Batch(self._pair, self._prefix_caches if cached else None, apart=True)
        return _Prefill(sequences, batch, batch.read(sequences), batch.passes(sequences))

    def _advance_prefill(self, prefill: _Prefill) -> None:
        """Prefill one chunk. After the last chunk, the sequences join the batch; if its steps are long, the sequences first step alone."""
        try:
            for _ in prefill.passes:
                prefill.passes_left -= 1
                return
            is_long = self._step_seconds > LONG_STEP
            steps_first = is_long and self._batch.is_invariant and bool(self._batch.sequences)  # law 3
            if not steps_first:
                self._batch.take(prefill.batch)
        except Exception as error:
            self._recover_prefill(prefill, error)
            return
        self._prefills.remove(prefill)
        self._scheduler.prefilled(prefill.sequences)
        for sequence in prefill.sequences:
            self._scheduler.group_of(sequence).publish(Started(sequence.index, sequence.run))
        if steps_first:
            self._join_after_step(prefill)

    def _join_after_step(self, prefill: _Prefill) -> None:
        outcomes = first_step(prefill.batch)
        try:
            self._batch.take(prefill.batch)
        except Exception as error:  # `take` has released all that it took
            self._fail_prefill(prefill, error, prefill.batch.longest)
            return
        self._publish_outcomes(outcomes)

    def _recover_prefill(self, prefill: _Prefill, error: Exception) -> None:
        """Repeat the prefill if memory could be freed; otherwise fail the group."""
        longest, index = prefill.batch.longest, self._prefills.index(prefill)
        prefill.batch.clear()
        if is_out_of_memory(error) and self._batch.free_memory():
            # Without prefix caches: the repetition would fill them again, the next failure would free them, and so on without end.
            self._prefills[index] = self._begin_prefill(prefill.sequences, cached=False)
        else:
            self._fail_prefill(prefill, error, longest)

    def _fail_prefill(self, prefill: _Prefill, error: Exception, longest: int) -> None:
        self._fail(
            self._scheduler.group_of(prefill.sequences[0]),
            engine_error(error, len(prefill.sequences), longest),
        )

    # ---- decode ----------------------------------------------------------------------------------------------

    def _step(self) -> None:
        begin = time.monotonic()
        if self._batch.sequences:
            self._publish_outcomes(step_or_recover(self._batch))
        self._step_seconds = time.monotonic() - begin

    def _publish_outcomes(self, outcomes: list[Outcome]) -> None:
        """Publish the decisions of a step, and finish the sequences that it ended."""
        self._statistics.rounds += bool(outcomes)
        groups = [self._scheduler.group_of(outcome.sequence) for outcome in outcomes]
        sizes = Counter(groups)
        for group, outcome in zip(groups, outcomes, strict=True):
            sequence, run = outcome.sequence, outcome.sequence.run
            if sequence not in group.unfinished:  # another sequence of its group has just failed
                continue
            if outcome.error is not None:
                self._fail(group, engine_error(outcome.error, 1, sequence.length_limit))
                continue
            run.neighbours = max(run.neighbours, len(outcomes) - sizes[group])
            event = outcome.decided
            self._statistics.count(event.round)
            if sequence not in self._first_rounds:
                self._first_rounds[sequence] = time.monotonic()
                self._statistics.time_to_first_token.add(time.monotonic() - group.arrival)
            group.publish(event)
            if run.stop_reason:
                self._finish(sequence)

    # ---- ends ------------------------------------------------------------------------------------------------

    def _end_overdue(self) -> None:
        """End sequences that were aborted or are past their deadline, and fail groups whose deadline passed in the queue."""
        now = time.monotonic()
        for sequence, reason in self._scheduler.leaving(now):
            sequence.cut(reason)
            self._finish(sequence)
        for group, error in self._scheduler.unserved(now):
            self._fail(group, error)

    def _finish(self, sequence: Sequence) -> None:
        """Remove a sequence that is over, and publish the end of its run."""
        self._remove(sequence).publish(Finished(sequence.index, sequence.run))

    def _fail(self, group: SequenceGroup[Sequence], error: SpecvizError) -> None:
        """End all sequences of a group with one error."""
        for sequence in list(group.unfinished):
            sequence.run.stop_reason = "failed"
            self._remove(sequence)
        group.publish(error)

    def _remove(self, sequence: Sequence) -> SequenceGroup[Sequence]:
        """Free the slot of a sequence that is over, and return its group. If the removal fails, the whole group fails."""
        failure = None
        try:
            if sequence in self._batch.sequences:
                self._batch.remove(sequence)
        except Exception as error:
            failure, sequence.run.stop_reason = engine_error(error, 1, sequence.length_limit), "failed"
        self._prefills = [each for each in self._prefills if sequence not in each.sequences]
        group = self._scheduler.finish(sequence)
        self._count_load()
        self._note_end(sequence, group)
        if failure:
            self._fail(group, failure)
        return group

    def _fail_all(self, sentence: str) -> None:
        """End all sequences with an error, then start with an empty batch."""
        groups = self._scheduler.groups
        self._scheduler = Scheduler(self._scheduler.slots, self._scheduler.queue)
        self._count_load()
        for group in groups:
            for sequence in group.unfinished:
                sequence.run.stop_reason = "failed"
                self._note_end(sequence, group)
            group.publish(EngineError(sentence))
        self._prefills = []
        self._batch.clear()

    def _note_end(self, sequence: Sequence, group: SequenceGroup[Sequence]) -> None:
        """Count and log a run that is over."""
        run = sequence.run
        self._statistics.count_end(run, time.monotonic() - self._first_rounds.pop(sequence, 0.0))
        logged = ("method", "lenience", "temperature", "stop_reason", "acceptance_rate", "neighbours")
        fields = {
            "pair": self._pair.key,
            "prompt_tokens": sequence.prompt_length,
            "tokens": len(sequence.ids) - sequence.prompt_length,
            "rounds": len(run.rounds),
            "seconds": round(time.monotonic() - group.arrival, 3),
        } | {name: getattr(run, name) for name in logged}
        log.info("text finished", extra={"fields": fields})

    def _count_load(self) -> None:
        scheduler, statistics = self._scheduler, self._statistics
        statistics.running, statistics.waiting = scheduler.running, scheduler.waiting


@dataclass(eq=False)
class _Prefill:
    """Sequences of one group in prefill. They have their own batch, so that a failure ends no other sequence."""

    sequences: list[Sequence]
    batch: Batch
    passes: Iterator[None]
    passes_left: int
    """An estimate (`Batch.passes`), less the passes so far."""


def next_prefill(passes_left: list[int], passes: int) -> int:
    """Index of the prefill that gets the next pass.

    Args:
        passes_left: number of passes left to each prefill, the oldest prefill first.
        passes: number of passes so far, of all prefills.
    """
    if passes % OLDEST_SHARE == 0:
        return 0
    return min(range(len(passes_left)), key=passes_left.__getitem__)
