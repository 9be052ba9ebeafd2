"""Generates the texts of a sweep's units, and times some of them alone.

A unit is one item at all settings of one temperature, served as one batch. Its prompt is prefilled once, and wherever a
sweep is interrupted, all settings have answered the same items. The texts of a unit do not depend on other units.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from specviz.analysis.quality import fidelity
from specviz.analysis.sweep.grid import Setting, SweepGrid, Unit
from specviz.analysis.sweep.items import Items
from specviz.analysis.sweep.results import Header, Sample, Timing
from specviz.engine.engine import BaseEngine
from specviz.engine.events import Event, Finished, Waiting
from specviz.schema.settings import Request
from specviz.schema.trace import Run


class Sweep:
    """A grid, its items, and the engine that answers them."""

    def __init__(self, grid: SweepGrid, items: Items, engine: BaseEngine[Event | Waiting]) -> None:
        self.grid, self.items, self.engine = grid, items, engine
        self.settings: list[Setting] = grid.settings
        count = len(items.items)
        self.units = grid.units(count)
        timed = min(grid.timed, count)
        self._timed = [number * count // timed for number in range(timed)]

    @property
    def header(self) -> Header:
        """The header that identifies this sweep."""
        pair = self.engine.pair
        return Header(self.grid, pair.drafter_name, pair.verifier_name, pair.precision, self.items.items)

    def samples(self, unit: Unit, stop: threading.Event) -> list[Sample] | None:
        """Generate the texts of a unit. Returns a sample for each setting of its temperature, in order; None if stopped.

        Raises:
            RequestError, EngineError: as the engine does.
        """
        chosen = [n for n, setting in enumerate(self.settings) if setting.temperature == unit.temperature]
        requests = [
            self._request(self.settings[setting], unit.item, unit.trial, return_logits=True)
            for setting in chosen
        ]
        found: dict[int, Sample] = {}
        for event in self.engine.stream(requests, stop=stop):
            if isinstance(event, Finished):
                if event.run.stop_reason == "cancelled":
                    return None
                found[event.index] = self._sample(chosen[event.index], unit, event.run)
                event.run.drafter_logits = event.run.verifier_logits = None  # megabytes
        return [found[index] for index in range(len(chosen))]

    def timed(self) -> list[tuple[int, int]]:
        """The texts to be timed, as (index of the timed item, index of the setting): each item's settings in a random order."""
        asked = []
        for item in range(len(self._timed)):
            settings = list(range(len(self.settings)))
            random.Random(item).shuffle(settings)
            asked += [(item, setting) for setting in settings]
        return asked

    def timings(self, asked: Sequence[tuple[int, int]], stop: threading.Event) -> Iterator[Timing]:
        """Serve texts one at a time, until stopped. `asked` has some of the pairs of `timed`.

        Raises:
            RequestError, EngineError: as the engine does.
        """
        if asked:  # warm up, since the first run is slow
            self.engine.generate(self._request(Setting(1.0, "speed", 0.0), 0, 0), stop=stop)
        for timed, setting in asked:
            request = self._request(self.settings[setting], self._timed[timed], 0)
            (run,) = self.engine.generate(request, stop=stop)
            if run.stop_reason == "cancelled":
                return
            yield Timing(
                setting=setting,
                item=self._timed[timed],
                timed=timed,
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
            draft_length=self.grid.draft_length,
            max_new_tokens=self.grid.max_new_tokens,
            seed=self.grid.seed_of(item, trial),
            repetition_penalty=1.0,  # methods are compared on the models' own distributions
            **more,
        )

    def _sample(self, setting: int, unit: Unit, run: Run) -> Sample:
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
            stop_reason=run.stop_reason,
            **fidelity(run, self.engine.pair),
        )
