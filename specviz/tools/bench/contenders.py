"""Who takes part in a benchmark: this project's methods, transformers' `generate` in its variants, flashspec, llama.cpp.

Knows how each is called, by which key it is asked for, and its name in tables. flashspec and llama-cpp-python are optional and
imported by their own contenders only.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, cast

import torch

from specviz.core.methods import METHODS
from specviz.models import smollm2
from specviz.schema.settings import AUTO, Request
from specviz.tools.bench.contender import Bed, Contender, Ours, timed
from specviz.tools.bench.measurements import Measured

KEYS = (
    *("verifier_only", "speed", "speed-fixed", "cascade_tokenV3"),
    *("generate", "generate-compiled", "assisted-constant", "assisted-heuristic", "flashspec", "llama.cpp"),
)
"""The keys that `contenders` knows, in the order of tables."""

LENIENCE = METHODS["cascade_tokenV3"].default_lenience
"""Of Token V3 in a benchmark."""
VERIFIER_ONLY, SPEED = "verifier_only", "speed, auto"
CASCADE = f"cascade_tokenV3 α = {LENIENCE:g}, auto"
GENERATE, COMPILED = "transformers generate", "transformers generate, compiled"
CONSTANT, HEURISTIC = "transformers assisted, constant", "transformers assisted, heuristic"
FLASHSPEC = "flashspec"
LLAMA_CPP = "llama.cpp"


def speed_at(draft_length: int) -> str:
    """The name of lossless speculative decoding at a fixed draft length."""
    return f"speed, K = {draft_length}"


def contenders(bed: Bed, keys: Sequence[str], draft_lengths: Sequence[int]) -> list[Contender]:
    """The contenders of these keys, in the order of `KEYS`, whether they are available or not."""
    size = bed.draft_length

    def ours(name: str, about: str, method: str, draft_length: Any, lenience: float = 0.0) -> Ours:
        options = {"method": method, "lenience": lenience, "draft_length": draft_length}
        return Ours(bed, name, f"this project, {about}", **options)

    every: dict[str, Sequence[Contender]] = {
        "verifier_only": [ours(VERIFIER_ONLY, "the verifier alone", "verifier_only", 1)],
        "speed": [ours(SPEED, "lossless, K automatic", "speed", AUTO)],
        "speed-fixed": [
            ours(speed_at(k), f"lossless, K = {k} in every round", "speed", k) for k in draft_lengths
        ],
        "cascade_tokenV3": [
            ours(
                CASCADE,
                f"the cascade Token V3 at lenience {LENIENCE:g}: not lossless",
                "cascade_tokenV3",
                AUTO,
                LENIENCE,
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
                num_assistant_tokens_schedule="constant",
                assistant_confidence_threshold=0.0,
            )
        ],
        "assisted-heuristic": [
            Assisted(
                bed,
                HEURISTIC,
                f"`assistant_model`, schedule heuristic from {size} on, confidence threshold 0.4 (transformers’ own)",
                num_assistant_tokens_schedule="heuristic",
                assistant_confidence_threshold=0.4,
            )
        ],
        "flashspec": [
            Flashspec(
                bed,
                FLASHSPEC,
                f'γ = {size}, `drafter_strategy="bandit"` with one arm, compiled where it can be',
            )
        ],
        "llama.cpp": [
            LlamaCpp(bed, LLAMA_CPP, "the verifier alone, from the same GGUF file, by llama-cpp-python")
        ],
    }
    return [contender for key in KEYS if key in keys for contender in every[key]]


class _Arrivals:
    """A streamer of transformers: when ids come, and how many at a time; the prompt comes first."""

    def __init__(self) -> None:
        self.begin, self.times, self.sizes = time.perf_counter(), [], []  # type: ignore[var-annotated]

    def put(self, value: torch.Tensor) -> None:
        self.times.append(time.perf_counter() - self.begin)
        self.sizes.append(value.numel())

    def end(self) -> None:
        """Nothing is buffered."""


class Generate(Contender):
    """transformers' `generate`; its options are further settings of its generation config."""

    def run(self, request: Request) -> Measured:
        """As `Contender.run`."""
        return self._generate(request, **self.options)[0]

    def _generate(
        self, request: Request, assistant_model: Any = None, **options: Any
    ) -> tuple[Measured, list[int]]:
        """One call; also returns how many ids came at a time."""
        from transformers import GenerationConfig

        if request.temperature > 0:
            options |= {"temperature": request.temperature, "top_k": 0, "top_p": 1.0}
        config = GenerationConfig(
            max_new_tokens=request.max_new_tokens,
            do_sample=request.temperature > 0,
            pad_token_id=0,
            repetition_penalty=1.0,  # not the verifier's own: nobody else here has one
            **options,
        )
        ids = torch.tensor([request.token_ids], device=self.bed.device)
        model: Any = self.bed.plain.verifier

        def generate() -> tuple[torch.Tensor, _Arrivals]:
            mask, arrivals = torch.ones_like(ids), _Arrivals()
            more = {"assistant_model": assistant_model} if assistant_model else {}
            return model.generate(
                ids, attention_mask=mask, generation_config=config, streamer=arrivals, **more
            ), arrivals

        torch.manual_seed(request.seed)
        (written, arrivals), seconds = timed(self.bed.device, generate)
        sizes = arrivals.sizes[1:]
        return Measured(written[0, ids.shape[1] :].tolist(), seconds, arrivals.times[1], len(sizes)), sizes


class Compiled(Generate):
    """`generate` with a static cache, whose forward pass transformers compiles."""

    def unavailable(self) -> str:
        """transformers compiles on accelerators only."""
        return "" if self.bed.device.type == "cuda" else "transformers compiles `generate` on a GPU only."


class Assisted(Generate):
    """`generate` with an assistant model, which is the pair's drafter; its options are settings of the draft."""

    def unavailable(self) -> str:
        """Assisted generation subtracts one model's probabilities from the other's, id by id."""
        if self.bed.one_vocabulary:
            return ""
        return "transformers takes an assistant of another vocabulary size for one of another tokenizer."

    def run(self, request: Request) -> Measured:
        """As `Contender.run`. transformers reads the draft's settings from the assistant's own config only."""
        drafter, size = self.bed.plain.drafter, self.bed.draft_length
        for name, value in {"num_assistant_tokens": size, **self.options}.items():
            setattr(drafter.generation_config, name, value)
        measured, sizes = self._generate(request, assistant_model=drafter)
        if self.options["num_assistant_tokens_schedule"] != "constant":
            return measured
        # The ids that came at a time are the accepted ones and one more; the last round drafts fewer and is not counted.
        full = sizes[:-1]
        return replace(
            measured,
            examined=sum(min(came, size) for came in full) or None,
            accepted=sum(came - 1 for came in full) if full else None,
        )


class Flashspec(Contender):
    """The package flashspec with one arm, the pair's drafter at a fixed draft length."""

    _models: tuple[Any, Any] | None = None

    def unavailable(self) -> str:
        """It must be installed, know the dtype, and subtract probabilities id by id."""
        if find_spec("flashspec") is None:
            return "The package flashspec is not installed: pip install flashspec."
        if self.bed.dtype not in ("float32", "bfloat16", "float16"):
            return f"flashspec knows no {self.bed.dtype}."
        return "" if self.bed.one_vocabulary else "flashspec needs two models of one vocabulary size."

    def run(self, request: Request) -> Measured:
        """As `Contender.run`; its set-up is not timed, and it does not stream."""
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
        drafter.set_temperature(request.temperature)
        size, heat, dtype = self.bed.draft_length, request.temperature, cast("Any", self.bed.dtype)
        config = FlashSpecConfig(
            drafter_name=plain.drafter_name,
            target_name=plain.verifier_name,
            device=str(device),
            dtype=dtype,
            drafter_strategy="bandit",
            bandit=BanditConfig(n_arms=1),
            sampling=SamplingConfig(gamma=size, temperature=heat, seed=request.seed),
        )
        engine = SpeculativeEngine(config, [drafter], target)
        ids = torch.tensor([request.token_ids], device=device)
        result, seconds = timed(device, lambda: engine.generate(ids, max_new_tokens=request.max_new_tokens))
        steps = result.arm_steps
        # Its own acceptance rate is over all draft tokens; here as everywhere it is over the examined ones.
        examined = sum(min(step.accepted + 1, step.proposed) for step in steps)
        accepted = sum(step.accepted for step in steps)
        return Measured(result.output_ids[0].tolist(), seconds, None, len(steps), examined, accepted)


class LlamaCpp(Contender):
    """The embedded verifier's GGUF file, run by llama.cpp."""

    _model: Any = None

    def unavailable(self) -> str:
        """It must be installed, and the pair be one whose verifier is published as a GGUF file."""
        if find_spec("llama_cpp") is None:
            return "llama.cpp is not installed: pip install llama-cpp-python."
        if self.bed.device.type != "cpu":
            return "llama.cpp is measured on a CPU only."
        embedded = self.bed.plain.verifier_name == smollm2.MODEL_NAME
        return "" if embedded else f"{self.bed.plain.verifier_name} is not published as a GGUF file here."

    def run(self, request: Request) -> Measured:
        """As `Contender.run`; its set-up is not timed."""
        import llama_cpp

        if self._model is None:
            path = smollm2.gguf_file()
            self._model = llama_cpp.Llama(str(path), n_ctx=_LLAMA_CPP_POSITIONS, verbose=False)
        model = self._model
        llama_cpp.llama_set_n_threads(model.ctx, self.threads, self.threads)
        model.set_seed(request.seed)
        model.reset()
        written: list[int] = []
        begin, first = time.perf_counter(), None
        options = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "repeat_penalty": 1.0}
        for token in model.generate(request.token_ids, temp=request.temperature, reset=True, **options):
            first = first or time.perf_counter() - begin
            written.append(int(token))
            if len(written) == request.max_new_tokens:
                break
        return Measured(written, time.perf_counter() - begin, first, len(written))


_LLAMA_CPP_POSITIONS = 2048
