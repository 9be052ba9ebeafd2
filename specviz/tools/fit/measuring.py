"""Measures one pair: both models read the verifier's texts, rounds are timed in turn, and so are lossless decoding and the verifier alone.

Every text and every timed run is a unit. A log stores the units, so that an interrupted measurement can be resumed. Times are of decoding,
measured from event to event. Prefill is left out, since its share depends on the texts' length. The repetition penalty is off.
"""

from __future__ import annotations

import itertools
import json
import statistics
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from specviz.analysis.fit import COSTED, LONGEST, Agreement, Blocks, Costs
from specviz.analysis.quality import read_logits
from specviz.analysis.sweep.items import Item, load_items
from specviz.core.distributions import Distributions
from specviz.core.sampling import SamplingParameters, at
from specviz.engine.engine import Engine
from specviz.engine.events import Decided, Started
from specviz.errors import RequestError, SpecvizError, StoppedError, quoted
from specviz.files import append_json_line, json_lines
from specviz.models.pair import ModelPair
from specviz.progress import Progress
from specviz.schema.settings import Request
from specviz.schema.trace import Run
from specviz.tools.distill.prompts import held_out_by_kind

ALONE = 0
"""The draft length that stands for the verifier alone."""
_COST_PROMPTS, _FIRST_ROUNDS = 7, 2
"""Number of prompts for timing rounds, one of each built-in kind; number of a run's first rounds that do not count, since caches are cold."""
_BEST = 3
"""Number of draft lengths whose speed-up is measured, unless the options name some."""
_UNITS = {
    "round": ("_endless", "Timing rounds", 0.1, 0.3),
    "run": ("_engine", "Measuring the best draft lengths", 0.3, 1.0),
}
"""Timed units: the engine, the stage, and where it begins and ends in the progress."""


@dataclass(frozen=True)
class FitOptions:
    """What to measure; `specviz fit --help` describes each option.

    Raises:
        RequestError: a value is out of range.
    """

    prompts: str = ""
    kind: str = ""
    limit: int = 4
    tokens: int = 48
    temperatures: tuple[float, ...] = (0.0, 0.7, 1.0)
    draft_lengths: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.limit < 1 or not 8 <= self.tokens <= 4096:
            raise RequestError("--limit must be at least 1, and --tokens from 8 to 4096.")
        if not self.temperatures or min(self.temperatures) < 0:
            raise RequestError("--temperatures must be at least one number, none below 0.")
        if not all(1 <= each <= LONGEST for each in self.draft_lengths):
            raise RequestError(f"--draft-lengths must be from 1 to {LONGEST}.")

    def items(self) -> list[Item]:
        """The prompts, up to `limit` of each kind.

        Raises:
            RequestError: the file cannot be read or is empty, or there is no such kind.
        """
        if self.prompts:
            asked = list(load_items(self.prompts).items)
        else:
            asked = [Item("", kind, text) for kind, texts in held_out_by_kind().items() for text in texts]
        kinds = {item.kind: [each for each in asked if each.kind == item.kind] for item in asked}
        if self.kind and self.kind not in kinds:
            raise RequestError(
                f"There are no prompts of the kind {quoted(self.kind)}: known are {', '.join(kinds)}."
            )
        chosen = [each[: self.limit] for kind, each in kinds.items() if self.kind in ("", kind)]
        return [item for turn in itertools.zip_longest(*chosen) for item in turn if item]


class Log:
    """The finished units, by key; also stored in a file, if there is one."""

    def __init__(self, path: Path | None, header: dict[str, Any]) -> None:
        """Resume the measurement in the file, or begin one.

        Raises:
            RequestError: the file is of another measurement.
        """
        lines = list(json_lines(path)) if path else []
        if lines and lines[0] != json.loads(json.dumps(header)):
            raise RequestError(
                "That folder holds another measurement (models, options, prompts or machine differ): name another."
            )
        self._path = path
        self._units = {self._key(key): value for key, value in lines[1:]}
        if not lines:
            self._write(header)

    def get(self, *key: Any) -> Any:
        """The unit of that key; None if it is not finished."""
        return self._units.get(self._key(key))

    def add(self, key: tuple[Any, ...], value: Any) -> None:
        """Store a unit."""
        self._write([key, value])
        self._units[self._key(key)] = value

    def _write(self, line: Any) -> None:
        try:
            if self._path:
                append_json_line(self._path, line)
        except OSError as error:
            raise SpecvizError(f"The measurement cannot be written: {error.strerror or error}.") from error

    @staticmethod
    def _key(key: Sequence[Any]) -> str:
        return json.dumps(key)


class Fit:
    """One pair's measurement. Units' keys begin with the pair's key."""

    def __init__(
        self,
        pair: ModelPair,
        options: FitOptions,
        items: Sequence[Item],
        log: Log,
        progress: Progress,
        stop: threading.Event,
    ) -> None:
        self.pair, self.options, self.items = pair, options, items
        self._log, self._progress, self._stop = log, progress, stop
        self._few = range(min(_COST_PROMPTS, len(self.items)))
        self._engine = Engine(pair)
        self._endless = Engine(replace(pair, eos_token_ids=frozenset()))  # no timed run ends early

    def measure(self) -> None:
        """Measure the missing units.

        Raises:
            StoppedError: stopped; finished units are stored.
            RequestError, EngineError: from the engine.
        """
        for temperature in self.options.temperatures:
            self._write_texts(temperature)
        self._take_turns("round", self._few, dict.fromkeys(self.options.temperatures, COSTED))
        self._take_turns(
            "run", range(len(self.items)), {t: self.measured(t) for t in self.options.temperatures}
        )

    # ---- what was measured ---------------------------------------------------------------------------------

    def texts(self, temperature: float, kind: str = "") -> list[Agreement]:
        """Agreement along the texts of a temperature, of all kinds or of one."""
        found = [self._log.get(self.pair.key, "text", temperature, index) for index in self._of(kind)]
        return [Agreement(**each) for each in found]

    def costs(self, temperature: float) -> Costs:
        """Costs at a temperature: medians over prompts of the ratios to the verifier alone, timed in the same turn."""
        turns = self._rounds(temperature)

        def ratio(draft_length: int, name: str) -> float:
            return statistics.median(turn[draft_length][name] / turn[ALONE]["round"] for turn in turns)

        return Costs({k: ratio(k, "round") for k in COSTED}, ratio(COSTED[-2], "draft"))

    @cached_property
    def milliseconds(self) -> dict[str, float]:
        """Medians over all temperatures: verifier passes of 1, 2, 4 and 8 tokens, a draft token, a round of the verifier alone."""
        turns = [turn for temperature in self.options.temperatures for turn in self._rounds(temperature)]

        def middle(draft_length: int, name: str) -> float:
            return 1000 * statistics.median(turn[draft_length][name] for turn in turns)

        passes = {f"verifier pass of {k} token{'s' * (k > 1)}": middle(k, "verify") for k in COSTED}
        own = {"draft token": middle(COSTED[-2], "draft"), "verifier alone, a token": middle(ALONE, "round")}
        return passes | own

    def _rounds(self, temperature: float) -> list[dict[int, dict[str, float]]]:
        """The timed rounds of each turn at a temperature, by draft length."""
        keys = [(self.pair.key, "round", temperature, index) for index in self._few]
        return [{k: self._log.get(*key, k) for k in (ALONE, *COSTED)} for key in keys]

    def measured(self, temperature: float) -> tuple[int, ...]:
        """Draft lengths whose speed-up is measured, ascending: those of the options, or those with the best prediction."""
        if self.options.draft_lengths:
            return tuple(sorted(set(self.options.draft_lengths)))
        texts, costs = self.texts(temperature), self.costs(temperature)
        speeds = {k: Blocks.of(texts, k).tokens_per_call[0] / costs.of(k) for k in range(1, LONGEST + 1)}
        return tuple(sorted(sorted(speeds, key=speeds.__getitem__)[-_BEST:]))

    def runs(self, temperature: float, draft_length: int, kind: str = "") -> list[dict[str, float]]:
        """The timed runs of a draft length, or of the verifier alone."""
        return [self._log.get(self.pair.key, "run", temperature, i, draft_length) for i in self._of(kind)]

    def _of(self, kind: str) -> list[int]:
        return [index for index, item in enumerate(self.items) if kind in ("", item.kind)]

    # ---- measuring -----------------------------------------------------------------------------------------

    def _request(self, index: int, temperature: float, **more: Any) -> Request:
        item = self.items[index]
        settings: dict[str, Any] = {
            "max_new_tokens": self.options.tokens,
            "repetition_penalty": 1.0,
            "lenience": 0.0,
        }
        return Request(item.prompt, raw=item.raw, temperature=temperature, seed=index, **settings | more)

    def _write_texts(self, temperature: float) -> None:
        """Let the verifier write the missing texts as one batch, and both models read each."""
        key = self.pair.key, "text", temperature
        missing = [index for index in range(len(self.items)) if self._log.get(*key, index) is None]
        self._progress(0.0, f"Writing texts: T = {temperature:g}")
        asked = [self._request(index, temperature, method="verifier_only") for index in missing]
        runs = self._engine.generate(asked, stop=self._stop) if asked else []
        for done, (index, run) in enumerate(zip(missing, runs, strict=True)):
            self._progress(0.1 * done / len(missing), f"Reading texts: T = {temperature:g}")
            self._raise_if_stopped()
            self._log.add((*key, index), self._agreement(run))

    @torch.inference_mode()
    def _agreement(self, run: Run) -> dict[str, list[float]]:
        """The fields of the text's `Agreement`."""
        found: dict[str, list[float]] = {"kept": [], "overlap": []}
        read = (
            read_logits(self.pair, name, run.prompt_ids, run.token_ids) for name in ("drafter", "verifier")
        )
        sampling, backend = SamplingParameters(run.temperature).computable(), self.pair.backend
        for q_logits, p_logits in zip(*read, strict=True):
            for logits in (q_logits, p_logits):
                logits[:, list(self.pair.suppressed_ids)] = -torch.inf
            both = Distributions(q_logits.to(p_logits.device), p_logits, *sampling, backend=backend)
            first = len(found["kept"])
            tokens = torch.tensor(run.token_ids[first : first + len(p_logits)], device=p_logits.device)
            q, p = at(both.q, tokens).double(), at(both.p, tokens).double()
            # p can be 0 where this pass rounds differently from the one that wrote the text.
            kept = (q / p.clamp_min(torch.finfo(torch.float32).tiny)).clamp_max(1)
            found["kept"] += [round(each, 6) for each in kept.tolist()]
            found["overlap"] += [round(1 - each, 6) for each in both.quantity("TV").flatten().tolist()]
        return found

    def _take_turns(self, unit: str, prompts: range, lengths: Mapping[float, Sequence[int]]) -> None:
        """Time draft lengths and the verifier alone in turn, in rotating order. An interrupted turn is repeated from its start."""
        engine, what, start, end = _UNITS[unit]
        turns = list(itertools.product(lengths, prompts))
        for done, (temperature, index) in enumerate(turns):
            key, present = (self.pair.key, unit, temperature, index), [ALONE, *lengths[temperature]]
            if all(self._log.get(*key, each) for each in present):
                continue
            self._progress(start + (end - start) * done / len(turns), f"{what}: {done + 1} of {len(turns)}")
            first = done % len(present)
            order = [*present[first:], *present[:first]]
            timed = [self._time(getattr(self, engine), index, temperature, each) for each in order]
            for each, value in zip(order, timed, strict=True):
                self._log.add((*key, each), value)

    def _time(self, engine: Engine, index: int, temperature: float, draft_length: int) -> dict[str, float]:
        """One run alone: its tokens, verifier calls and seconds of decoding, and medians of a round, a verifier's pass and a draft token."""
        self._raise_if_stopped()
        options: dict[str, Any] = {"method": "speed", "draft_length": draft_length or 1}
        if draft_length == ALONE:
            options["method"] = "verifier_only"
        stamps = list[float]()
        for event in engine.stream(self._request(index, temperature, **options)):
            if isinstance(event, Started | Decided):
                stamps.append(time.perf_counter())
            run = event.run
        spans = [after - before for before, after in itertools.pairwise(stamps)]
        whole = [each for each in zip(run.rounds, spans, strict=True) if each[0].draft_length == draft_length]
        timed, own_spans = zip(*(whole[_FIRST_ROUNDS:] or whole), strict=True) if whole else ((), (0.0,))
        return {
            "tokens": len(run.token_ids),
            "calls": run.verifier_calls,
            "seconds": stamps[-1] - stamps[0],
            "round": statistics.median(own_spans),
            "verify": statistics.median([each.verifier_seconds for each in timed] or [0.0]),
            "draft": statistics.median([each.drafter_seconds for each in timed] or [0.0])
            / max(1, draft_length),
        }

    def _raise_if_stopped(self) -> None:
        if self._stop.is_set():
            raise StoppedError("Stopped; the same command resumes it where it has a folder (--out).")
