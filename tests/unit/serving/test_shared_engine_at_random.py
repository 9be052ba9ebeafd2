"""The shared engine under thousands of random operations by many threads, on a batch that fails at random: every caller gets an end."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest

from specviz.engine.events import Finished, Started
from specviz.engine.record import Outcome
from specviz.engine.sequence import Sequence
from specviz.errors import BusyError, EngineError
from specviz.schema.settings import Request
from specviz.serving import engine_loop, policy
from specviz.serving.shared_engine import SharedEngine
from tests.support.tiny import Pairs

SLOTS, THREADS, OPERATIONS = 4, 8, 80


class FakeBatch:
    """As `specviz.engine.batch.Batch`, without models: emits token 7, and fails now and then in every way that a batch can."""

    random = random.Random(0)
    failure_rate = 0.03
    is_invariant = True
    made: ClassVar[list[FakeBatch]] = []

    def __init__(self, *_: Any, **__: Any) -> None:
        self.sequences: list[Sequence] = []
        self.made.append(self)

    @property
    def longest(self) -> int:
        return max((each.length_limit for each in self.sequences), default=0)

    def room_for(self, sequences: list[Sequence], reading: list[Sequence]) -> int:
        return self.random.randint(1, len(sequences)) if self.sequences else len(sequences)

    def free_memory(self) -> bool:
        return self.random.random() < 0.5

    def _may_fail(self) -> None:
        if self.random.random() < self.failure_rate:
            raise self.random.choice((MemoryError("none left"), RuntimeError("kernel fault")))

    def passes(self, sequences: list[Sequence]) -> int:
        return self.random.randint(0, 2)

    def read(self, sequences: list[Sequence]) -> Iterator[None]:
        self.sequences += sequences
        for _ in range(self.random.randint(0, 2)):
            self._may_fail()
            yield

    def take(self, other: FakeBatch) -> None:
        self.sequences += other.sequences
        other.sequences = []

    def split(self) -> list[FakeBatch]:
        alone = []
        for sequence in self.sequences:
            alone.append(FakeBatch())
            alone[-1].sequences = [sequence]
        self.sequences = []
        return alone

    def remove(self, sequence: Sequence) -> None:
        self.sequences.remove(sequence)

    def clear(self) -> None:
        self.sequences = []

    def step(self, *, short: bool = False) -> list[Outcome]:
        self._may_fail()
        outcomes = []
        for sequence in list(self.sequences):
            if self.random.random() < self.failure_rate / 3:
                self.remove(sequence)
                outcomes.append(Outcome(sequence, [], error=EngineError("not finite")))
                continue
            if sequence.append([7]):
                self.remove(sequence)
            outcomes.append(Outcome(sequence, [7]))
        return outcomes


class Caller:
    """One thread that opens, reads, aborts, closes and drops streams at random; notes how each ended."""

    def __init__(self, engine: SharedEngine, seed: int) -> None:
        self.engine, self.random, self.ends = engine, random.Random(seed), Counter[str]()

    def run(self) -> None:
        for _ in range(OPERATIONS):
            try:
                self._operate()
            except BusyError:
                self.ends["busy"] += 1
            except EngineError:
                self.ends["error"] += 1

    def _operate(self) -> None:
        if self.random.random() < 0.05:
            assert self.engine.call(lambda: 5) == 5
        requests = [
            Request(token_ids=[5, 6], method="speed", max_new_tokens=self.random.randint(1, 30))
            for _ in range(self.random.randint(1, 3))
        ]
        stop, chance = threading.Event(), self.random.choice((0.0, 0.05, 0.3))
        stream = self.engine.stream(requests, stop=stop, visitor=str(self.random.randint(0, 5)))
        begun: Counter[int] = Counter()
        ended: Counter[int] = Counter()
        closed = False
        for event in stream:
            assert not closed
            begun[event.index] += isinstance(event, Started)
            ended[event.index] += isinstance(event, Finished)
            assert max(begun.values()) <= 1
            assert max(ended.values()) <= 1
            if self.random.random() >= chance:
                continue
            match self.random.randint(0, 4):
                case 0:
                    stream.close()
                    closed = True
                case 1:
                    threading.Thread(target=stream.abort).start()
                case 2:
                    stream.abort(self.random.randrange(len(requests)))
                case 3:
                    stop.set()
                case 4:
                    del stream  # the loop still refers to it
                    self.ends["dropped"] += 1
                    return
        self.ends["closed" if closed else "finished"] += 1
        assert closed or ended.total() == len(requests)


@pytest.fixture(params=[0, 1])
def seed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Shared engines have fake batches of this seed."""
    monkeypatch.setattr(engine_loop, "Batch", FakeBatch)
    monkeypatch.setattr(FakeBatch, "made", [])
    monkeypatch.setattr(FakeBatch, "random", random.Random(request.param))
    return int(request.param)


def start(engine: SharedEngine, seed: int) -> tuple[list[Caller], Callable[[], None]]:
    """Callers at work, and a function that waits until all have ended."""
    callers = [Caller(engine, 100 * seed + number) for number in range(THREADS)]
    threads = [threading.Thread(target=caller.run) for caller in callers]

    def join() -> None:
        for thread in threads:
            thread.join(300)
        assert not any(thread.is_alive() for thread in threads)
        assert all(caller.ends.total() == OPERATIONS for caller in callers), "a caller's thread has died"

    for thread in threads:
        thread.start()
    return callers, join


def test_at_random_every_caller_gets_one_end_and_nothing_is_left(
    pairs: Pairs, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Afterwards all slots are free and no batch holds a sequence; the engine then serves on, and ends when it is closed."""
    monkeypatch.setattr(policy, "LONG_STEP", -1.0 if seed else policy.LONG_STEP)
    engine = SharedEngine(pairs("llama"), max_sequences=SLOTS, queue=6)
    before = threading.active_count()
    callers, join = start(engine, seed)
    join()
    ends = sum((caller.ends for caller in callers), Counter[str]())
    assert min(ends[each] for each in ("finished", "closed", "dropped", "error", "busy")) > 0
    for _ in range(1000):
        engine.call(lambda: None)
        if not (engine.statistics.running or engine.statistics.waiting):
            break
        time.sleep(0.01)
    assert (engine.statistics.running, engine.statistics.waiting) == (0, 0)
    assert all(not batch.sequences for batch in FakeBatch.made[:1])
    assert threading.active_count() == before
    monkeypatch.setattr(FakeBatch, "failure_rate", 0.0)
    [run] = engine.generate(Request(token_ids=[5, 6], method="speed", max_new_tokens=1))
    assert run.stop_reason
    engine.close()
    assert threading.active_count() == before - 1


def test_closing_at_any_moment_leaves_nobody_waiting(pairs: Pairs, seed: int) -> None:
    """Each call and each stream that is under way, or comes too late, gets an answer."""
    engine = SharedEngine(pairs("llama"), max_sequences=SLOTS, queue=1000)
    _, join = start(engine, seed)
    time.sleep(0.1 * seed)
    engine.close()
    join()
