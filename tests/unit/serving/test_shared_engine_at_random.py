"""The shared engine under hundreds of random operations by many threads, on models that fail at random: every caller gets an end."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch

from specviz.engine.batch import Batch
from specviz.engine.events import Finished, Started
from specviz.errors import BusyError, EngineError
from specviz.models.pair import ModelPair
from specviz.schema.settings import Request
from specviz.serving import engine_loop
from specviz.serving.shared_engine import SharedEngine
from tests.support.tiny import Pairs
from tests.support.waiting import wait_until

THREADS, OPERATIONS = 8, 25
FAULTS = (torch.OutOfMemoryError("none left"), RuntimeError("kernel fault"))


@pytest.fixture(params=[0, 1])
def faulty(pairs: Pairs, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModelPair:
    """A pair whose verifier fails now and then."""
    pair, chance = replace(pairs("llama"), eos_token_ids=frozenset()), random.Random(request.param)
    forward = pair.verifier.forward

    def maybe(*args: Any, **more: Any) -> Any:
        if chance.random() < 0.03:
            fault = chance.choice(FAULTS)
            raise type(fault)(*fault.args)
        return forward(*args, **more)

    monkeypatch.setattr(pair.verifier, "forward", maybe)
    if request.param:  # joining sequences have a first step of their own
        monkeypatch.setattr(Batch, "is_invariant", True)
        monkeypatch.setattr(engine_loop, "LONG_STEP", -1.0)
    return pair


class Caller:
    """One thread that opens, reads, aborts, closes and drops streams at random; notes how each ended."""

    def __init__(self, engine: SharedEngine, seed: int) -> None:
        self.engine, self.random, self.ends = engine, random.Random(seed), Counter[str]()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

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


def ends(callers: list[Caller]) -> Counter[str]:
    """How the streams of all callers ended."""
    for caller in callers:
        caller.thread.join(300)
        assert caller.ends.total() == OPERATIONS, "a caller's thread has died"
    return sum((caller.ends for caller in callers), Counter[str]())


def test_at_random_every_caller_gets_one_end_and_nothing_is_left(faulty: ModelPair) -> None:
    """Afterwards all slots are free and the batch holds no sequence; the engine serves on, and ends when it is closed."""
    engine = SharedEngine(faulty, max_sequences=4, queue=6)
    found = ends([Caller(engine, number) for number in range(THREADS)])
    assert min(found[each] for each in ("finished", "closed", "dropped", "error", "busy")) > 0
    wait_until(lambda: engine.call(lambda: not (engine.statistics.running or engine.statistics.waiting)))
    assert not engine._loop._batch.sequences
    assert engine.call(lambda: 5) == 5
    engine.close()
    assert not engine.is_alive


def test_closing_at_any_moment_leaves_nobody_waiting(faulty: ModelPair) -> None:
    """Each call and each stream that is under way, or comes too late, gets an answer."""
    engine = SharedEngine(faulty, max_sequences=4, queue=1000)
    callers = [Caller(engine, number) for number in range(THREADS)]
    time.sleep(0.1)
    engine.close()
    ends(callers)
