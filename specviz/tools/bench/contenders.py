"""Contenders of a benchmark: this project's methods, transformers' `generate`, flashspec and llama.cpp.

A contender continues token ids by a given number of new ids. No contender stops at the end-of-text token, so all write
equally many. flashspec and llama-cpp-python are optional; only their own contenders import them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, cast

import torch

from specviz.core.methods import METHODS
from specviz.engine.engine import Engine
from specviz.engine.events import Decided
from specviz.errors import SpecvizError
from specviz.models import smollm2
from specviz.models.pair import ModelPair
from specviz.runtime.memory import synchronize
from specviz.schema.settings import AUTO, Request

VERIFIER_ALONE, GENERATE = "verifier alone", "transformers generate"
"""Titles of the contenders to which all others are compared."""
LENIENCE = METHODS["cascade_tokenV3"].default_lenience
"""Lenience of Token V3 in a benchmark."""
_LLAMA_CPP_POSITIONS = 2048


def timed(device: torch.device, call: Callable[[], Any]) -> tuple[Any, float]:
    """The result of a call, and its seconds. The device is idle at the start and at the end of the measurement."""
    synchronize(device)
    begin = time.perf_counter()
    found = call()
    synchronize(device)
    return found, time.perf_counter() - begin


@dataclass(frozen=True)
class Measured:
    """One run of a contender.

    Attributes:
        tokens: number of new tokens of all sequences together.
        seconds: seconds of the call, including prefill.
        token_ids: the new ids of the request's own sequence; None if they are not a text.
        first_token_seconds: seconds from the call to the first new id; None if the contender does not stream.
        examined, accepted: numbers of draft tokens; 0 if a contender has none or does not report them.
    """

    tokens: int
    seconds: float
    token_ids: list[int] | None
    first_token_seconds: float | None = None
    examined: int = 0
    accepted: int = 0


@dataclass
class Contender:
    """A way to generate.

    Attributes:
        key: its name on the command line.
        title: its name in tables.
        write: runs a request; raises ImportError or SpecvizError if the contender cannot run here.
        ours: whether the contender is this project's.
        threads: number of threads on a CPU; None for all that are allowed.
    """

    key: str
    title: str
    write: Callable[[Request], Measured]
    ours: bool = False
    threads: int | None = None


@dataclass
class Bed:
    """The pair that all contenders run on: `ours` as this project loads it, `plain` as transformers does.

    Attributes:
        threads: most threads that a contender may use.
        draft_length: K of all contenders that draft a fixed number of tokens.
        others: prompts of the further sequences that are written concurrently, each a list of token ids.
    """

    ours: ModelPair
    plain: ModelPair
    threads: int
    draft_length: int
    others: list[list[int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        from transformers import GenerationConfig

        self.ours = replace(self.ours, eos_token_ids=frozenset())
        self.engine = Engine(self.ours)
        for model in (self.plain.drafter, self.plain.verifier):
            model.generation_config = GenerationConfig()  # the checkpoint's own may have a repetition penalty
        weight: Any = self.plain.verifier.get_input_embeddings().weight
        self.device: torch.device = weight.device
        self.dtype = str(self.plain.dtype).removeprefix("torch.")

    @cached_property
    def flashspec_models(self) -> tuple[Any, Any]:
        """flashspec's wrappers of drafter and verifier."""
        from flashspec.engine.hf_drafter import HuggingFaceDrafter
        from flashspec.engine.verifier import TargetModel

        logging.getLogger("flashspec").setLevel(logging.ERROR)
        plain, device = self.plain, self.device
        return (
            HuggingFaceDrafter(plain.drafter_name, device, plain.dtype, model=plain.drafter),
            TargetModel(plain.verifier_name, device, plain.dtype, model=plain.verifier),
        )

    @cached_property
    def llama(self) -> Any:
        """llama.cpp's model, loaded from the embedded verifier's GGUF file."""
        import llama_cpp

        return llama_cpp.Llama(str(smollm2.gguf_file()), n_ctx=_LLAMA_CPP_POSITIONS, verbose=False)


def contenders(bed: Bed) -> list[Contender]:
    """All contenders, in the order of tables."""
    k, count = bed.draft_length, len(bed.others) + 1

    def ours(key: str, title: str, method: str, **options: Any) -> Contender:
        request = {"method": method, "draft_length": AUTO, "lenience": 0.0} | options
        write = _batch if key.endswith("-batch") else _single
        return Contender(key, title, partial(write, bed, request), ours=True)

    def theirs(key: str, title: str, write: Callable[..., Measured]) -> Contender:
        return Contender(key, title, partial(write, bed))

    return [
        ours("verifier_only", VERIFIER_ALONE, "verifier_only"),
        ours("speed", "lossless", "speed"),
        ours("speed-fixed", f"lossless, K = {k}", "speed", draft_length=k),
        ours("cascade_tokenV3", f"Token V3, α = {LENIENCE:g}", "cascade_tokenV3", lenience=LENIENCE),
        ours("verifier_only-batch", f"{VERIFIER_ALONE}, {count} sequences", "verifier_only"),
        ours("speed-batch", f"lossless, {count} sequences", "speed"),
        theirs("generate", GENERATE, _generate),
        theirs("generate-compiled", f"{GENERATE}, compiled", _compiled),
        theirs("assisted", f"transformers assisted, K = {k}", _assisted),
        theirs("flashspec", f"flashspec, K = {k}", _flashspec),
        theirs("llama.cpp", "llama.cpp, generate", _llama_cpp),
        theirs("llama.cpp-eval", "llama.cpp, evaluation alone", _llama_cpp_evaluation),
    ]


# --- this project


def _single(bed: Bed, options: dict[str, Any], request: Request) -> Measured:
    """One sequence, by the engine's stream of events."""
    synchronize(bed.device)
    begin, first = time.perf_counter(), None
    for event in bed.engine.stream(replace(request, **options)):
        if first is None and isinstance(event, Decided):
            first = time.perf_counter() - begin
    synchronize(bed.device)
    seconds, run = time.perf_counter() - begin, event.run
    examined, accepted = (
        sum(getattr(each, name) for each in run.rounds) for name in ("examined", "accepted")
    )
    return Measured(len(run.token_ids), seconds, run.token_ids, first, examined, accepted)


def _batch(bed: Bed, options: dict[str, Any], request: Request) -> Measured:
    """The request's sequence and the bed's other sequences in one batch."""
    first = replace(request, **options)
    requests = [first, *(replace(first, token_ids=ids) for ids in bed.others)]
    runs, seconds = timed(bed.device, lambda: bed.engine.generate(requests))
    return Measured(sum(len(run.token_ids) for run in runs), seconds, runs[0].token_ids)


# --- transformers


class _Arrivals:
    """A streamer for transformers that records when ids arrive. The prompt arrives first."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def put(self, _ids: torch.Tensor) -> None:
        self.times.append(time.perf_counter())

    def end(self) -> None:
        """Nothing is buffered."""


def _generate(bed: Bed, request: Request, assistant: Any = None, cache: str | None = None) -> Measured:
    """`generate`, optionally with an assistant model or another kind of cache."""
    from transformers import GenerationConfig

    sampled = request.temperature > 0
    options = {"temperature": request.temperature, "top_k": 0, "top_p": 1.0} if sampled else {}
    config = GenerationConfig(
        max_new_tokens=request.max_new_tokens,
        do_sample=sampled,
        pad_token_id=0,
        repetition_penalty=1.0,
        cache_implementation=cache,
        **options,
    )
    ids = torch.tensor([request.token_ids], device=bed.device)
    inputs = {"inputs": ids, "attention_mask": torch.ones_like(ids)}
    if assistant is not None:
        inputs["assistant_model"] = assistant
    model: Any = bed.plain.verifier
    torch.manual_seed(request.seed)
    arrivals, begin = _Arrivals(), time.perf_counter()
    call = partial(model.generate, **inputs, generation_config=config, streamer=arrivals)
    written, seconds = timed(bed.device, call)
    new = written[0, ids.shape[1] :].tolist()
    return Measured(len(new), seconds, new, arrivals.times[1] - begin)


def _compiled(bed: Bed, request: Request) -> Measured:
    """`generate` with a static cache, whose forward passes transformers compiles."""
    if bed.device.type != "cuda":
        raise SpecvizError("transformers compiles generate on a GPU only.")
    return _generate(bed, request, cache="static")


def _assisted(bed: Bed, request: Request) -> Measured:
    """`generate` with the drafter as assistant model, K tokens a round."""
    drafter = bed.plain.drafter
    config: Any = drafter.generation_config  # the assistant's: it has the drafting settings
    config.num_assistant_tokens = bed.draft_length
    config.num_assistant_tokens_schedule = "constant"
    config.assistant_confidence_threshold = 0.0
    return _generate(bed, request, assistant=drafter)


# --- flashspec


def _flashspec(bed: Bed, request: Request) -> Measured:
    """flashspec with the drafter as its only arm. Its set-up is not timed."""
    from flashspec import BanditConfig, FlashSpecConfig, SamplingConfig, SpeculativeEngine

    drafter, target = bed.flashspec_models
    drafter.set_temperature(request.temperature)
    config = FlashSpecConfig(
        drafter_name=bed.plain.drafter_name,
        target_name=bed.plain.verifier_name,
        device=str(bed.device),
        dtype=cast("Any", bed.dtype),
        drafter_strategy="bandit",
        bandit=BanditConfig(n_arms=1),
        sampling=SamplingConfig(gamma=bed.draft_length, temperature=request.temperature, seed=request.seed),
    )
    engine = SpeculativeEngine(config, [drafter], target)
    ids = torch.tensor([request.token_ids], device=bed.device)
    result, seconds = timed(bed.device, lambda: engine.generate(ids, max_new_tokens=request.max_new_tokens))
    new = result.output_ids[0].tolist()
    return Measured(len(new), seconds, new)


# --- llama.cpp


def _llama_cpp(bed: Bed, request: Request) -> Measured:
    """The verifier alone, with `Llama.generate`, the loop that llama-cpp-python's chat uses."""
    model, begin = _ready_llama(bed), time.perf_counter()
    model.set_seed(request.seed)
    written: list[int] = []
    first = None
    options = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "repeat_penalty": 1.0}
    for token in model.generate(request.token_ids, temp=request.temperature, reset=True, **options):
        first = first or time.perf_counter() - begin
        written.append(int(token))
        if len(written) == request.max_new_tokens:
            break
    return Measured(len(written), time.perf_counter() - begin, written, first)


def _llama_cpp_evaluation(bed: Bed, request: Request) -> Measured:
    """Forward passes of the verifier alone, with `Llama.eval`: the prompt, then one token at a time, without sampling."""
    model, prompt, count = _ready_llama(bed), list(request.token_ids or ()), request.max_new_tokens
    begin = time.perf_counter()
    model.eval(prompt)
    first = time.perf_counter() - begin
    for _ in range(count - 1):
        model.eval(prompt[-1:])
    return Measured(count, time.perf_counter() - begin, None, first)


def _ready_llama(bed: Bed) -> Any:
    """llama.cpp's model with an empty cache and torch's current number of threads."""
    import llama_cpp

    if bed.device.type != "cpu" or bed.plain.verifier_name != smollm2.MODEL_NAME:
        raise SpecvizError("llama.cpp is measured with the embedded pair's verifier, on a CPU.")
    model, threads = bed.llama, torch.get_num_threads()
    llama_cpp.llama_set_n_threads(model.ctx, threads, threads)
    model.reset()
    return model
