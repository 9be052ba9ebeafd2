"""The sweep's work: which texts are to be written, in units that are done whole or not at all, and writing them.

A unit is one item at all settings of one temperature, served as one batch: its prompt is read once, and at any time all
settings have been asked the same. What a unit comes to does not depend on what else is done, by whom, or when. Knows
the engine and the plan; knows no file and no process but its own.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from specviz.analysis.sweep.fidelity import fidelity
from specviz.analysis.sweep.header import Header
from specviz.analysis.sweep.items import Asked
from specviz.analysis.sweep.plan import Plan
from specviz.analysis.sweep.sample import Sample, Timing
from specviz.analysis.sweep.setting import Setting
from specviz.analysis.sweep.unit import Unit, units
from specviz.engine.engine import Engine, Finished
from specviz.schema.settings import Request
from specviz.schema.trace import Run

if TYPE_CHECKING:
    from specviz.models.pairs import ModelPair
    from specviz.serving.shared_engine import SharedEngine

ROWS = 64
"""Texts served at once."""


class Job:
    """One plan on one pair."""

    def __init__(
        self,
        plan: Plan,
        pair: ModelPair,
        items: Asked,
        rows: int = ROWS,
        engine: SharedEngine | None = None,
    ) -> None:
        """Work with an engine of its own for `rows` texts at once, or with one that others use too."""
        self.plan, self.pair, self.items = plan, pair, items
        self.settings: list[Setting] = plan.settings
        self.units = units(plan, len(items.items))
        count = len(items.items)
        self._timed = [place * count // min(plan.timed, count) for place in range(min(plan.timed, count))]
        self._engine = engine or Engine(pair, max_rows=rows)

    @property
    def header(self) -> Header:
        """What this is about."""
        dtype = str(self.pair.dtype).removeprefix("torch.")
        names = self.pair.drafter_name, self.pair.verifier_name
        return Header(self.plan, *names, dtype, self.items.items)

    def samples(self, unit: Unit, stop: threading.Event) -> list[Sample] | None:
        """Do a unit: a sample for each setting of its temperature, in order; None where it was stopped.

        Raises:
            RequestError, EngineError: as the engine does.
        """
        places = [n for n, setting in enumerate(self.settings) if setting.temperature == unit.temperature]
        requests = [
            self._request(self.settings[place], unit.item, unit.trial, return_logits=True) for place in places
        ]
        found: dict[int, Sample] = {}
        for event in self._engine.stream(requests, stop=stop):
            if isinstance(event, Finished):
                if event.run.stop_reason == "cancelled":
                    return None
                found[event.index] = self._sample(places[event.index], unit, event.run)
                event.run.drafter_logits = event.run.verifier_logits = None  # megabytes
        return [found[index] for index in range(len(places))]

    def timed(self) -> list[tuple[int, int]]:
        """(place, setting) of the texts that are to be timed: some items spread over all, and for each all settings one
        after another, in an order of its own."""
        asked = []
        for place in range(len(self._timed)):
            settings = list(range(len(self.settings)))
            random.Random(place).shuffle(settings)
            asked += [(place, setting) for setting in settings]
        return asked

    def timings(self, asked: Sequence[tuple[int, int]], stop: threading.Event) -> Iterator[Timing]:
        """Serve these texts one at a time, until asked to stop.

        Raises:
            RequestError, EngineError: as the engine does.
        """
        if asked:  # the first run of all is slow
            self._engine.generate(self._request(Setting(1.0, "speed", 0.0), 0, 0), stop=stop)
        for place, setting in asked:
            request = self._request(self.settings[setting], self._timed[place], 0)
            (run,) = self._engine.generate(request, stop=stop)
            if run.stop_reason == "cancelled":
                return
            yield Timing(
                setting=setting,
                item=self._timed[place],
                place=place,
                tokens=len(run.tokens),
                seconds=sum(r.seconds for r in run.rounds),
                drafted=run.drafter_calls,
                drafter_seconds=sum(r.drafter_seconds for r in run.rounds),
                rounds=len(run.rounds),
            )

    def _request(self, setting: Setting, item: int, trial: int, **more: Any) -> Request:
        asked = self.items.items[item]
        return Request(
            prompt=asked.prompt,
            raw=asked.raw,
            method=setting.method,
            lenience=setting.lenience,
            temperature=setting.temperature,
            draft_length=self.plan.draft_length,
            max_new_tokens=self.plan.max_new_tokens,
            seed=self.plan.seed_of(item, trial),
            **more,
        )

    def _sample(self, setting: int, unit: Unit, run: Run) -> Sample:
        measured = fidelity(run, self.pair)
        return Sample(
            setting=setting,
            item=unit.item,
            trial=unit.trial,
            seed=run.seed,
            text=run.text,
            tokens=len(run.tokens),
            examined=sum(r.examined for r in run.rounds),
            accepted=sum(r.accepted for r in run.rounds),
            drafted=run.drafter_calls,
            verifier_calls=run.verifier_calls,
            score=self.items.score(unit.item, run.text),
            # The last places of a sum depend on the processor, not on the method.
            distance=round(measured.distance, 6),
            log_probability=round(measured.log_probability, 6),
            greedy=measured.greedy,
            stop_reason=run.stop_reason,
        )
