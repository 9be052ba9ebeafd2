"""Contenders of a benchmark: this project's methods, transformers' `generate`, flashspec and llama.cpp.

A contender continues token ids by a given number of new ids. No contender stops at the end-of-text token, so all write
equally many tokens. flashspec and llama-cpp-python are optional; only their own contenders import them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import islice
from types import SimpleNamespace
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
from specviz.schema.trace import Run

VERIFIER_ALONE, GENERATE = "verifier alone", "transformers generate"
"""Titles of the two contenders with which all others are compared."""
_LENIENCE = METHODS["cascade_tokenV3"].default_lenience


def _timed(device: torch.device, call: Callable[[], Any]) -> tuple[Any, float]:
    """The result of a call, and its seconds. The device is idle at the start and at the end."""
    synchronize(device)
    begin = time.perf_counter()
    found = call()
    synchronize(device)
    return found, time.perf_counter() - begin


@dataclass(frozen=True)
class Measured:
    """What a contender did for one request.

    Attributes:
        tokens: number of new tokens of all sequences together.
        seconds: duration of the call, including prefill.
        token_ids: the new ids of the request's own sequence; None if they do not form a text.
        first_token_seconds: None if the contender does not stream.
        examined, accepted: numbers of draft tokens; 0 if a contender has none or does not report them.
    """

    tokens: int
    seconds: float
    token_ids: list[int] | None
    first_token_seconds: float | None = None
    examined: int = 0
    accepted: int = 0

    @property
    def speed(self) -> float:
        """Tokens per second, prefill included."""
        return self.tokens / self.seconds


@dataclass
class Contender:
    """A way to generate, with its names on the command line (`key`) and in tables (`title`).

    Attributes:
        write: runs a request; raises ImportError or SpecvizError if the contender cannot run here.
        ours: whether the contender is this project's.
        threads: number of threads on a CPU; None for `Bed.threads`.
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
        threads: maximum number of threads of a contender.
        draft_length: K of all contenders that draft a fixed number of tokens.
        others: token ids of further prompts, for contenders that write several sequences in one batch.
    """

    ours: ModelPair
    plain: ModelPair
    threads: int
    draft_length: int
    others: list[list[int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        from transformers import GenerationConfig  # slow to import

        self.ours = replace(self.ours, eos_token_ids=frozenset())
        self.engine = Engine(self.ours)
        for model in (self.plain.drafter, self.plain.verifier):
            model.generation_config = GenerationConfig()  # the checkpoint's own may have a repetition penalty
        self.device = self.plain.device

    @cached_property
    def llama(self) -> Any:
        """llama.cpp's model, loaded from the embedded verifier's GGUF file."""
        import llama_cpp

        return llama_cpp.Llama(str(smollm2.gguf_file()), n_ctx=2048, verbose=False)


def contenders(bed: Bed) -> list[Contender]:
    """All contenders, in the order of tables."""
    k, count = bed.draft_length, len(bed.others) + 1

    def ours(key: str, title: str, method: str, **options: Any) -> Contender:
        settings = {"method": method, "draft_length": AUTO, "lenience": 0.0} | options
        others = bed.others if key.endswith("-batch") else []
        return Contender(key, title, partial(_ours, bed, others, settings), ours=True)

    def theirs(key: str, title: str, write: Callable[..., Measured]) -> Contender:
        return Contender(key, title, partial(write, bed))

    return [
        ours("verifier_only", VERIFIER_ALONE, "verifier_only"),
        ours("speed", "lossless", "speed"),
        ours("speed-fixed", f"lossless, K = {k}", "speed", draft_length=k),
        ours("cascade_tokenV3", f"Token V3, α = {_LENIENCE:g}", "cascade_tokenV3", lenience=_LENIENCE),
        ours("verifier_only-batch", f"{VERIFIER_ALONE}, {count} sequences", "verifier_only"),
        ours("speed-batch", f"lossless, {count} sequences", "speed"),
        theirs("generate", GENERATE, _generate),
        theirs("generate-compiled", f"{GENERATE}, compiled", _compiled),
        theirs("assisted", f"transformers assisted, K = {k}", _assisted),
        theirs("flashspec", f"flashspec, K = {k}", _flashspec),
        theirs("llama.cpp", "llama.cpp, generate", _llama_cpp),
        theirs("llama.cpp-eval", "llama.cpp, evaluation alone", _llama_cpp_evaluation),
    ]


def _ours(bed: Bed, others: list[list[int]], options: dict[str, Any], request: Request) -> Measured:
    """Run one batch of the engine: the request, and a copy of it for each of the prompts `others`."""
    own = replace(request, **options)
    arrivals, runs = list[float](), dict[int, Run]()

    def write() -> None:
        for event in bed.engine.stream([own, *(replace(own, token_ids=ids) for ids in others)]):
            runs[event.index] = event.run
            if isinstance(event, Decided):
                arrivals.append(time.perf_counter())

    begin = time.perf_counter()
    _, seconds = _timed(bed.device, write)
    rounds = [each for run in runs.values() for each in run.rounds]
    return Measured(
        sum(len(run.token_ids) for run in runs.values()),
        seconds,
        runs[0].token_ids,
        arrivals[0] - begin,
        examined=sum(each.examined for each in rounds),
        accepted=sum(each.accepted for each in rounds),
    )


def _generate(bed: Bed, request: Request, assistant: Any = None, cache: str | None = None) -> Measured:
    """transformers' `generate`, optionally with an assistant model or another kind of cache."""
    from transformers import GenerationConfig

    options: dict[str, Any] = {"max_new_tokens": request.max_new_tokens, "pad_token_id": 0}
    if request.temperature > 0:
        options |= {"do_sample": True, "temperature": request.temperature, "top_k": 0, "top_p": 1.0}
    config = GenerationConfig(repetition_penalty=1.0, cache_implementation=cache, **options)
    ids = torch.tensor([request.token_ids], device=bed.device)
    inputs = {"inputs": ids, "attention_mask": torch.ones_like(ids), "assistant_model": assistant}
    model: Any = bed.plain.verifier
    torch.manual_seed(request.seed)
    times, begin = list[float](), time.perf_counter()
    arrivals = SimpleNamespace(put=lambda _: times.append(time.perf_counter()), end=lambda: None)
    call = partial(model.generate, **inputs, generation_config=config, streamer=arrivals)
    written, seconds = _timed(bed.device, call)
    new = written[0, ids.shape[1] :].tolist()
    return Measured(len(new), seconds, new, times[1] - begin)  # times[0] is that of the prompt


def _compiled(bed: Bed, request: Request) -> Measured:
    """`generate` with a static cache, whose forward passes transformers compiles."""
    if bed.device.type != "cuda":
        raise SpecvizError("transformers compiles generate on a GPU only.")
    return _generate(bed, request, cache="static")


def _assisted(bed: Bed, request: Request) -> Measured:
    """`generate` with the drafter as assistant model, K tokens a round."""
    drafter = bed.plain.drafter
    config: Any = drafter.generation_config  # the assistant's config has the drafting settings
    config.num_assistant_tokens = bed.draft_length
    config.num_assistant_tokens_schedule = "constant"
    config.assistant_confidence_threshold = 0.0
    return _generate(bed, request, assistant=drafter)


def _flashspec(bed: Bed, request: Request) -> Measured:
    """flashspec with the drafter as its only arm. Its set-up is not timed."""
    from flashspec import BanditConfig, FlashSpecConfig, SamplingConfig, SpeculativeEngine
    from flashspec.engine.hf_drafter import HuggingFaceDrafter
    from flashspec.engine.verifier import TargetModel

    logging.getLogger("flashspec").setLevel(logging.ERROR)
    plain, device = bed.plain, bed.device
    drafter = HuggingFaceDrafter(plain.drafter_name, device, plain.dtype, model=plain.drafter)
    drafter.set_temperature(request.temperature)
    target = TargetModel(plain.verifier_name, device, plain.dtype, model=plain.verifier)
    config = FlashSpecConfig(
        drafter_name=plain.drafter_name,
        target_name=plain.verifier_name,
        device=str(device),
        dtype=cast("Any", str(plain.dtype).removeprefix("torch.")),
        drafter_strategy="bandit",
        bandit=BanditConfig(n_arms=1),
        sampling=SamplingConfig(gamma=bed.draft_length, temperature=request.temperature, seed=request.seed),
    )
    engine = SpeculativeEngine(config, [drafter], target)
    ids = torch.tensor([request.token_ids], device=device)
    result, seconds = _timed(device, lambda: engine.generate(ids, max_new_tokens=request.max_new_tokens))
    new = result.output_ids[0].tolist()
    return Measured(len(new), seconds, new)


def _llama_cpp(bed: Bed, request: Request) -> Measured:
    """The verifier alone, with `Llama.generate`, the loop that llama-cpp-python's chat uses."""
    model, times = _ready_llama(bed), [time.perf_counter()]
    model.set_seed(request.seed)
    options = {"temp": request.temperature, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repeat_penalty": 1.0}
    written = []
    for token in islice(model.generate(request.token_ids, **options), request.max_new_tokens):
        written.append(int(token))
        times.append(time.perf_counter())
    return Measured(len(written), times[-1] - times[0], written, times[1] - times[0])


def _llama_cpp_evaluation(bed: Bed, request: Request) -> Measured:
    """Forward passes of the verifier alone, with `Llama.eval`: the prompt, then one token at a time, without sampling."""
    model, prompt, times = _ready_llama(bed), list(request.token_ids or ()), [time.perf_counter()]
    for ids in [prompt] + [prompt[-1:]] * (request.max_new_tokens - 1):
        model.eval(ids)
        times.append(time.perf_counter())
    return Measured(request.max_new_tokens, times[-1] - times[0], None, times[1] - times[0])


def _ready_llama(bed: Bed) -> Any:
    """llama.cpp's model with an empty cache and torch's current number of threads."""
    import llama_cpp

    if bed.device.type != "cpu" or bed.plain.verifier_name != smollm2.MODEL_NAME:
        raise SpecvizError("llama.cpp is measured with the embedded pair's verifier, on a CPU.")
    model, threads = bed.llama, torch.get_num_threads()
    llama_cpp.llama_set_n_threads(model.ctx, threads, threads)
    model.reset()
    return model
