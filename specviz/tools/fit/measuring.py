"""Measures one pair: both models read the verifier's texts, then lossless decoding and the verifier alone are timed in turn.

Times are those of decoding, from event to event. Prefill is left out, since its share depends on the texts' length. The repetition
penalty is off.
"""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from specviz.analysis.fit import COSTED, LONGEST, Agreement, Blocks, Costs
from specviz.analysis.quality import read_logits
from specviz.analysis.sweep.items import Item, load_items
from specviz.core.distributions import Distributions
from specviz.core.sampling import SamplingParameters, at
from specviz.engine.engine import Engine
from specviz.engine.events import Decided, Started
from specviz.errors import RequestError, StoppedError, quoted
from specviz.models.pair import ModelPair
from specviz.progress import Progress
from specviz.schema.settings import SETTINGS, Request
from specviz.schema.trace import Run
from specviz.tools.distill.prompts import held_out_by_kind

ALONE = 0
"""The draft length that stands for the verifier alone."""
_COST_PROMPTS, _FIRST_ROUNDS = 7, 2
"""Number of prompts for timing rounds, one of each built-in kind; number of a run's first rounds that are ignored (cold caches)."""
_BEST = 3
"""Number of draft lengths whose speed-up is measured, unless the options name draft lengths."""


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
        if not self.temperatures:
            raise RequestError("--temperatures must be at least one number.")
        for each in self.temperatures:
            SETTINGS["temperature"].check(each)
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


Times = dict[int, dict[str, float]]
"""Results of `_time` for one prompt, by draft length; `ALONE` is always a key."""


class Fit:
    """One pair's measurement.

    Attributes:
        texts: by temperature, the models' agreement along the text of each prompt.
        rounds: by temperature, the timed rounds of each of the first `_COST_PROMPTS` prompts.
        runs: by temperature, the timed runs of each prompt.
    """

    def __init__(
        self,
        pair: ModelPair,
        options: FitOptions,
        items: Sequence[Item],
        progress: Progress,
        stop: threading.Event,
    ) -> None:
        self.pair, self.options, self.items = pair, options, items
        self._progress, self._stop = progress, stop
        self.texts: dict[float, list[Agreement]] = {}
        self.rounds: dict[float, list[Times]] = {}
        self.runs: dict[float, list[Times]] = {}

    def measure(self) -> None:
        """Measure everything.

        Raises:
            StoppedError: `stop` was set.
            RequestError, EngineError: from the engine.
        """
        engine, indices = Engine(self.pair), range(len(self.items))
        endless = Engine(replace(self.pair, eos_token_ids=frozenset()))  # no timed round is a text's last
        for temperature in self.options.temperatures:
            self._progress(0.0, f"Writing texts: T = {temperature:g}")
            asked = [self._request(index, temperature, method="verifier_only") for index in indices]
            self.texts[temperature] = [
                self._agreement(run) for run in engine.generate(asked, stop=self._stop)
            ]
        few = indices[:_COST_PROMPTS]
        for number, temperature in enumerate(self.options.temperatures):
            self._progress(0.1 + 0.2 * number / len(self.texts), f"Timing rounds: T = {temperature:g}")
            self.rounds[temperature] = [self._turn(endless, index, temperature, COSTED) for index in few]
        for number, temperature in enumerate(self.options.temperatures):
            self._progress(0.3 + 0.7 * number / len(self.texts), f"Measuring the best: T = {temperature:g}")
            lengths = self.measured(temperature)
            self.runs[temperature] = [self._turn(engine, index, temperature, lengths) for index in indices]

    def costs(self, temperature: float) -> Costs:
        """Costs at a temperature: medians over prompts of seconds divided by the seconds of a round of the verifier alone."""

        def ratio(draft_length: int, name: str) -> float:
            turns = self.rounds[temperature]
            return statistics.median(turn[draft_length][name] / turn[ALONE]["round"] for turn in turns)

        return Costs({k: ratio(k, "round") for k in COSTED}, ratio(COSTED[-2], "draft"))

    def milliseconds(self) -> dict[str, float]:
        """Medians over all temperatures: verifier passes of 1, 2, 4 and 8 tokens, a draft token, a round of the verifier alone."""

        def middle(draft_length: int, name: str) -> float:
            turns = itertools.chain.from_iterable(self.rounds.values())
            return 1000 * statistics.median(turn[draft_length][name] for turn in turns)

        passes = {f"verifier pass of {k} token{'s' * (k > 1)}": middle(k, "verify") for k in COSTED}
        own = {"draft token": middle(COSTED[-2], "draft"), "verifier alone, a token": middle(ALONE, "round")}
        return passes | own

    def measured(self, temperature: float) -> tuple[int, ...]:
        """Draft lengths whose speed-up is measured, ascending: those in the options, or the `_BEST` lengths that are predicted fastest."""
        if self.options.draft_lengths:
            return tuple(sorted(set(self.options.draft_lengths)))
        texts, costs = self.texts[temperature], self.costs(temperature)
        speeds = {k: Blocks.of(texts, k).tokens_per_call[0] / costs.of(k) for k in range(1, LONGEST + 1)}
        return tuple(sorted(sorted(speeds, key=speeds.__getitem__)[-_BEST:]))

    def _request(self, index: int, temperature: float, **more: Any) -> Request:
        item = self.items[index]
        settings: dict[str, Any] = {"max_new_tokens": self.options.tokens, "repetition_penalty": 1.0}
        settings |= {"temperature": temperature, "seed": index, "lenience": 0.0}
        return Request(item.prompt, raw=item.raw, **settings | more)

    @torch.inference_mode()
    def _agreement(self, run: Run) -> Agreement:
        """The agreement along a run's text, which both models read."""
        self._raise_if_stopped()
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
        return Agreement(**found)

    def _turn(self, engine: Engine, index: int, temperature: float, lengths: Sequence[int]) -> Times:
        """Time one prompt with each draft length and with the verifier alone, in an order that rotates with the prompts."""
        present = [ALONE, *lengths]
        first = index % len(present)
        return {
            each: self._time(engine, index, temperature, each)
            for each in [*present[first:], *present[:first]]
        }

    def _time(self, engine: Engine, index: int, temperature: float, draft_length: int) -> dict[str, float]:
        """Time one run: tokens, verifier calls, seconds of decoding, and median seconds of a round, a verifier pass and a draft token."""
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
            raise StoppedError("Stopped; nothing was written.")
