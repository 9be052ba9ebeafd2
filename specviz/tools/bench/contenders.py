"""Who takes part in a benchmark: this project's methods, transformers' `generate` in its kinds, and flashspec.

Each turns exact prompt ids into as many new ones as asked for, and says how long it took. None of them obeys the
end-of-text token, so all write equally many, and none pays for suppressing it. Knows how each is called; knows no
prompt, no repetition and no report. Foreign packages are imported only by their own contender.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch

from specviz.engine.engine import Decided, Engine
from specviz.runtime.machine import synchronize
from specviz.schema.settings import AUTO, Request

if TYPE_CHECKING:
    from specviz.models.pairs import ModelPair
    from specviz.schema.trace import Run


@dataclass(frozen=True)
class Measured:
    """One run: what was written and what it took.

    Attributes:
        token_ids: the new ids.
        seconds: from the call to its end, reading the prompt included.
        first_token_seconds: from the call until the first new id could be seen; None where nothing streams.
        rounds: forward passes of the verifier that gave new ids.
        examined, accepted: proposals judged and kept; None where the contender does not tell.
    """

    token_ids: list[int]
    seconds: float
    first_token_seconds: float | None
    rounds: int
    examined: int | None = None
    accepted: int | None = None


@dataclass
class Bed:
    """What all contenders run on: the same weights, in this project's form and as transformers loads them.

    `threads` is the budget of everybody; `draft_length` the K that is the same for all who draft a fixed number.
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
            model.generation_config = GenerationConfig()  # no habits of the checkpoint: see `_Generate`
        weight: Any = self.plain.verifier.get_input_embeddings().weight
        self.device: torch.device = weight.device

    @property
    def one_vocabulary(self) -> bool:
        """Whether both models score equally many ids, as transformers' and flashspec's verification needs."""
        sizes = {
            model.config.get_text_config().vocab_size for model in (self.plain.drafter, self.plain.verifier)
        }
        return len(sizes) == 1


class Contender(ABC):
    """One way to write: its name in tables, what it is, and whether its text has the verifier's distribution.

    `threads` may be set to fewer than the budget, where that is faster.
    """

    def __init__(self, bed: Bed, name: str, about: str, lossless: bool = True) -> None:
        self.bed, self.name, self.about, self.lossless = bed, name, about, lossless
        self.threads = bed.threads

    def unavailable(self) -> str:
        """Why it cannot take part here, as a sentence; empty where it can."""
        return ""

    @abstractmethod
    def run(self, token_ids: Sequence[int], seed: int, temperature: float, max_new_tokens: int) -> Measured:
        """Write `max_new_tokens` ids after `token_ids`."""


class Ours(Contender):
    """One of this project's methods; draft length None is the method's baseline, which drafts nothing."""

    def __init__(
        self, bed: Bed, method: str, lenience: float, draft_length: Any, name: str, about: str
    ) -> None:
        super().__init__(bed, name, about, lossless=method != "cascade_tokenV3")
        self.options = {"method": method, "lenience": lenience, "draft_length": draft_length}

    def request(
        self, token_ids: Sequence[int], seed: int, temperature: float, max_new_tokens: int, inspect: int = 0
    ) -> Request:
        """What this contender asks the engine for."""
        return Request(
            token_ids=list(token_ids),
            seed=seed,
            temperature=temperature,
            max_new_tokens=max_new_tokens,
            inspect=inspect,
            **self.options,
        )

    def run(self, token_ids: Sequence[int], seed: int, temperature: float, max_new_tokens: int) -> Measured:
        """As `Contender.run`, through the engine's own stream of events."""
        request = self.request(token_ids, seed, temperature, max_new_tokens)
        synchronize(self.bed.device)
        begin, first, run = time.perf_counter(), None, None
        for event in self.bed.engine.stream(request):
            run = event.run
            if first is None and isinstance(event, Decided):
                first = time.perf_counter() - begin
        synchronize(self.bed.device)
        assert run is not None
        return _measured(run, time.perf_counter() - begin, first)


def _measured(run: Run, seconds: float, first: float | None) -> Measured:
    examined = sum(round_.examined for round_ in run.rounds)
    return Measured(
        token_ids=run.token_ids,
        seconds=seconds,
        first_token_seconds=first,
        rounds=run.verifier_calls,
        examined=examined or None,
        accepted=sum(round_.accepted for round_ in run.rounds) if examined else None,
    )


class _Ears:
    """A streamer: hears when ids come, and how many at a time; the prompt comes first."""

    def __init__(self) -> None:
        self.begin, self.times, self.sizes = time.perf_counter(), [], []  # type: ignore[var-annotated]

    def put(self, value: torch.Tensor) -> None:
        self.times.append(time.perf_counter() - self.begin)
        self.sizes.append(value.numel())

    def end(self) -> None:
        """Nothing is left to be done."""


class Generate(Contender):
    """transformers' `generate`; `options` are further settings of its generation config."""

    def __init__(self, bed: Bed, name: str, about: str, **options: Any) -> None:
        super().__init__(bed, name, about)
        self.options = options

    def run(self, token_ids: Sequence[int], seed: int, temperature: float, max_new_tokens: int) -> Measured:
        """As `Contender.run`."""
        return self._generate(token_ids, seed, temperature, max_new_tokens)[0]

    def _generate(
        self, token_ids: Sequence[int], seed: int, temperature: float, max_new_tokens: int, **options: Any
    ) -> tuple[Measured, list[int]]:
        """One call; also how many ids came at a time."""
        from transformers import GenerationConfig

        config = GenerationConfig(
            max_new_tokens=max_new_tokens,
            do_sample=temperature > 0,
            pad_token_id=0,
            **({"temperature": temperature, "top_k": 0, "top_p": 1.0} if temperature > 0 else {}),
            **self.options,
        )
        ids = torch.tensor([list(token_ids)], device=self.bed.device)
        torch.manual_seed(seed)
        synchronize(self.bed.device)
        ears = _Ears()
        model: Any = self.bed.plain.verifier
        written = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            generation_config=config,
            streamer=ears,
            **options,
        )
        synchronize(self.bed.device)
        seconds = time.perf_counter() - ears.begin
        new: list[int] = written[0, len(token_ids) :].tolist()
        sizes = ears.sizes[1:]
        return Measured(new, seconds, ears.times[1], len(sizes)), sizes


class Compiled(Generate):
    """`generate` with a static cache, whose forward pass transformers compiles."""

    def unavailable(self) -> str:
        """transformers compiles on accelerators only."""
        return "" if self.bed.device.type == "cuda" else "transformers compiles `generate` on a GPU only."


class Assisted(Generate):
    """`generate` with an assistant model, which is the pair's drafter."""

    def __init__(self, bed: Bed, name: str, about: str, schedule: str, threshold: float) -> None:
        super().__init__(bed, name, about)
        self._schedule, self._threshold = schedule, threshold

    def unavailable(self) -> str:
        """Assisted generation adds and subtracts both models' probabilities id by id."""
        if self.bed.one_vocabulary:
            return ""
        return "transformers takes an assistant of another vocabulary size for one of another tokenizer."

    def run(self, token_ids: Sequence[int], seed: int, temperature: float, max_new_tokens: int) -> Measured:
        """As `Contender.run`. transformers reads the draft's settings from the assistant's own config only."""
        drafter, size = self.bed.plain.drafter, self.bed.draft_length
        drafter.generation_config.num_assistant_tokens = size
        drafter.generation_config.num_assistant_tokens_schedule = self._schedule
        drafter.generation_config.assistant_confidence_threshold = self._threshold
        measured, sizes = self._generate(
            token_ids, seed, temperature, max_new_tokens, assistant_model=drafter
        )
        if self._schedule != "constant":
            return measured
        # What came at a time is what was accepted and one more; at the end less is drafted, so that round is not counted.
        whole = sizes[:-1]
        return replace(
            measured,
            examined=sum(min(came, size) for came in whole) or None,
            accepted=sum(came - 1 for came in whole) if whole else None,
        )


class Flashspec(Contender):
    """The package flashspec with one arm, the pair's drafter at a fixed draft length."""

    def __init__(self, bed: Bed, name: str, about: str) -> None:
        super().__init__(bed, name, about)
        self._models: tuple[Any, Any] | None = None

    def unavailable(self) -> str:
        """It must be installed, know the dtype, and subtract probabilities id by id."""
        if find_spec("flashspec") is None:
            return "The package flashspec is not installed: see tests/requirements.txt."
        if self._dtype not in ("float32", "bfloat16", "float16"):
            return f"flashspec knows no {self._dtype}."
        if not self.bed.one_vocabulary:
            return "flashspec needs two models of one vocabulary size."
        return ""

    @property
    def _dtype(self) -> str:
        return str(self.bed.plain.dtype).removeprefix("torch.")

    def run(self, token_ids: Sequence[int], seed: int, temperature: float, max_new_tokens: int) -> Measured:
        """As `Contender.run`; its set-up is not timed, and nothing is seen of its text before the end."""
        from flashspec import BanditConfig, FlashSpecConfig, SamplingConfig, SpeculativeEngine
        from flashspec.engine.hf_drafter import HuggingFaceDrafter
        from flashspec.engine.verifier import TargetModel

        logging.getLogger("flashspec").setLevel(logging.ERROR)
        device, plain = self.bed.device, self.bed.plain
        if self._models is None:
            self._models = (
                HuggingFaceDrafter(plain.drafter_name, device, plain.dtype, model=plain.drafter),
                TargetModel(plain.verifier_name, device, plain.dtype, model=plain.verifier),
            )
        drafter, target = self._models
        drafter.set_temperature(temperature)
        settings: dict[str, Any] = {
            "drafter_name": plain.drafter_name,
            "target_name": plain.verifier_name,
            "device": str(device),
            "dtype": self._dtype,
            "drafter_strategy": "bandit",
            "bandit": BanditConfig(n_arms=1),
            "sampling": SamplingConfig(gamma=self.bed.draft_length, temperature=temperature, seed=seed),
        }
        engine = SpeculativeEngine(FlashSpecConfig(**settings), [drafter], target)
        ids = torch.tensor([list(token_ids)], device=device)
        synchronize(device)
        begin = time.perf_counter()
        result = engine.generate(ids, max_new_tokens=max_new_tokens)
        synchronize(device)
        seconds = time.perf_counter() - begin
        steps = result.arm_steps
        return Measured(
            token_ids=result.output_ids[0].tolist(),
            seconds=seconds,
            first_token_seconds=None,
            rounds=len(steps),
            # Its own acceptance rate divides by all that was drafted; here as everywhere by what was examined.
            examined=sum(min(step.accepted + 1, step.proposed) for step in steps),
            accepted=sum(step.accepted for step in steps),
        )


KEYS = (
    *("verifier_only", "speed", "speed-fixed", "cascade_tokenV3"),
    *("generate", "generate-compiled", "assisted-constant", "assisted-heuristic", "flashspec"),
)
"""What `contenders` can be asked for."""

VERIFIER_ONLY, SPEED, CASCADE = "verifier_only", "speed, auto", "cascade_tokenV3 α = 0.5, auto"
GENERATE, COMPILED = "transformers generate", "transformers generate, compiled"
CONSTANT, HEURISTIC = "transformers assisted, constant", "transformers assisted, heuristic"
FLASHSPEC = "flashspec"


def speed_at(draft_length: int) -> str:
    """The name of lossless speculative decoding at a fixed draft length."""
    return f"speed, K = {draft_length}"


def contenders(bed: Bed, keys: Sequence[str], draft_lengths: Sequence[int]) -> list[Contender]:
    """The contenders of these keys, in the order of `KEYS`, whether they are available or not."""
    size = bed.draft_length
    every: dict[str, list[Contender]] = {
        "verifier_only": [
            Ours(bed, "verifier_only", 0.0, 1, VERIFIER_ONLY, "this project, the verifier alone")
        ],
        "speed": [
            Ours(bed, "speed", 0.0, AUTO, SPEED, "this project, lossless, K chosen round by round"),
        ],
        "speed-fixed": [
            Ours(bed, "speed", 0.0, k, speed_at(k), f"this project, lossless, K = {k} in every round")
            for k in draft_lengths
        ],
        "cascade_tokenV3": [
            Ours(
                bed,
                "cascade_tokenV3",
                0.5,
                AUTO,
                CASCADE,
                "this project, the cascade Token V3 at lenience 0.5: not lossless",
            )
        ],
        "generate": [Generate(bed, GENERATE, "`generate` with its dynamic cache")],
        "generate-compiled": [
            Compiled(
                bed,
                COMPILED,
                '`generate` with `cache_implementation="static"`, compiled by transformers',
                cache_implementation="static",
            )
        ],
        "assisted-constant": [
            Assisted(
                bed,
                CONSTANT,
                f"`assistant_model`, `num_assistant_tokens={size}`, schedule constant, no confidence threshold",
                "constant",
                0.0,
            )
        ],
        "assisted-heuristic": [
            Assisted(
                bed,
                HEURISTIC,
                f"`assistant_model`, schedule heuristic from {size} on, confidence threshold 0.4 (transformers’ own)",
                "heuristic",
                0.4,
            )
        ],
        "flashspec": [
            Flashspec(
                bed,
                FLASHSPEC,
                f'γ = {size}, `drafter_strategy="bandit"` with one arm, compiled where it can be',
            )
        ],
    }
    return [contender for key in KEYS if key in keys for contender in every[key]]
