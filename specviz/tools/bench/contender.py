"""A contender of a benchmark, what all of them run on, and this project's own methods as contenders.

A contender turns prompt ids into as many new ones as asked for, and measures the time. None stops at the end-of-text
token, so all write equally many, and none pays for suppressing it. Knows the engine; knows no other package, no
prompt, no repetition and no report.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from specviz.engine.engine import Engine
from specviz.engine.events import Decided
from specviz.runtime.memory import synchronize
from specviz.schema.settings import Request
from specviz.tools.bench.measurements import Measured

if TYPE_CHECKING:
    from specviz.models.pair import ModelPair

T = TypeVar("T")


def timed(device: torch.device, call: Callable[[], T]) -> tuple[T, float]:
    """What a call returns, and its seconds from one idle moment of the device to the next."""
    synchronize(device)
    begin = time.perf_counter()
    found = call()
    synchronize(device)
    return found, time.perf_counter() - begin


@dataclass
class Bed:
    """What all contenders run on: the same weights, in this project's form and as transformers loads them.

    `threads` is the budget of each contender; `draft_length` the K of all who draft a fixed number.
    """

    ours: ModelPair
    plain: ModelPair
    threads: int
    draft_length: int

    def __post_init__(self) -> None:
        from transformers import GenerationConfig

        self.ours = replace(self.ours, eos_token_ids=frozenset())
        self.engine = Engine(self.ours)
        for model in (self.plain.drafter, self.plain.verifier):
            model.generation_config = GenerationConfig()  # not the checkpoint's own: see `Generate`
        weight: Any = self.plain.verifier.get_input_embeddings().weight
        self.device: torch.device = weight.device
        self.dtype = str(self.plain.dtype).removeprefix("torch.")

    @property
    def one_vocabulary(self) -> bool:
        """Whether both models have logits for equally many ids, as transformers' and flashspec's verification needs."""
        models = (self.plain.drafter, self.plain.verifier)
        return len({model.config.get_text_config().vocab_size for model in models}) == 1


class Contender(ABC):
    """One way to generate: its name in tables, what it is, and settings of its own.

    `threads` may be set to fewer than the budget, if that is faster.
    """

    lossless = True
    """Whether its text has the verifier's distribution."""

    def __init__(self, bed: Bed, name: str, about: str, **options: Any) -> None:
        self.bed, self.name, self.about, self.options = bed, name, about, options
        self.threads = bed.threads

    def unavailable(self) -> str:
        """Why it cannot take part here, as a sentence; empty if it can."""
        return ""

    @abstractmethod
    def run(self, request: Request) -> Measured:
        """Write `max_new_tokens` ids after `token_ids`, at the request's seed and temperature."""


class Ours(Contender):
    """One of this project's methods; its options are the request's method, lenience and draft length."""

    def __init__(self, bed: Bed, name: str, about: str, **options: Any) -> None:
        super().__init__(bed, name, about, **options)
        self.lossless = options["method"] != "cascade_tokenV3"

    def run(self, request: Request) -> Measured:
        """As `Contender.run`, through the engine's stream of events."""
        request = replace(request, **self.options)
        synchronize(self.bed.device)
        begin, first = time.perf_counter(), None
        for event in self.bed.engine.stream(request):
            if first is None and isinstance(event, Decided):
                first = time.perf_counter() - begin
        synchronize(self.bed.device)
        seconds, run = time.perf_counter() - begin, event.run
        examined = sum(round_.examined for round_ in run.rounds) or None
        accepted = sum(round_.accepted for round_ in run.rounds) if examined else None
        return Measured(run.token_ids, seconds, first, run.verifier_calls, examined, accepted)
