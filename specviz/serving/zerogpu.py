"""ZeroGPU, where a Space gets a GPU for the time of one call: what runs there, for how long, and how it fails.

There a decorated generator runs in a forked process that alone has the GPU. Its arguments and items are pickled; models are
those loaded before the page was launched, by the very thread that imported `spaces`. Elsewhere all of this does nothing and
imports nothing. Knows requests and sizes; knows neither engine nor page.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import wraps
from importlib.util import find_spec
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from specviz.errors import BusyError, EngineError, SpecvizError

if TYPE_CHECKING:  # so that `start` comes before torch
    from specviz.models.pair import ModelPair
    from specviz.schema.settings import Request

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

LEAST, MOST = 15, 80
"""Seconds that are ever asked for. On today's GPUs the `spaces` package asks for half as much again: 120 for 80, which
was last documented as the daily quota of a visitor without an account."""

# Not measured on ZeroGPU: meant to be too long rather than too short. Too long costs priority in the queue, and is not
# charged; too short ends the run.
_START = 8.0  # a new worker: forking, CUDA, the first kernels
_MOVED = 2e9  # bytes of weights a second, from disk to the GPU
_READ = 5e11  # bytes of weights a second, in a pass
_ROUND = 0.05  # of a token, whatever the models: a draft, a verification, the decision
_MORE = 0.01  # of a token, for each further text of the batch
_CHARACTER = 0.0005  # reading a prompt


def active() -> bool:
    """Whether this process runs on ZeroGPU. Cheap: nothing is imported."""
    named = os.environ.get("SPACES_ZERO_GPU", "").lower() in ("1", "t", "true")
    return named and find_spec("spaces") is not None


def start() -> None:
    """Prepare for ZeroGPU, where it is active; to be called first, in the main thread, before torch is imported."""
    if active():
        # Only the thread that imports `spaces` is shown a GPU before there is one; transformers loads in several.
        os.environ["HF_DEACTIVATE_ASYNC_LOAD"] = "1"
        # A worker lives for one call: captures and kernels would cost more of the visitor's time than they save.
        os.environ["SPECVIZ_GRAPHS"] = "0"
        os.environ["SPECVIZ_GPU_RUNNER"] = "torch"
        import spaces  # noqa: F401  # an optional package


def load(keys: Iterable[str], loader: Callable[[str], ModelPair]) -> dict[str, ModelPair]:
    """Load all pairs for later workers; to be called by the thread of `start`, before the page is launched.

    A pair that cannot be loaded is left out, and logged.
    """
    pairs = {}
    for key in keys:
        try:
            pairs[key] = loader(key)
        except SpecvizError as error:
            log.warning("pair not loaded", extra={"fields": {"pair": key, "error": type(error).__name__}})
    return pairs


def seconds(requests: Sequence[Request], parameters: int) -> int:
    """How long a GPU is asked for: from `LEAST` to `MOST` whole seconds, enough to write all of the texts as one batch.

    Grows with the longest text asked for, with the prompts, with the number of texts, and with `parameters`, those of
    both models together. A run should end itself a little earlier than this, since then its text is kept.
    """
    weights = parameters * 2  # bytes, in bfloat16
    token = _ROUND + _MORE * len(requests) + weights / _READ
    tokens = max((request.max_new_tokens for request in requests), default=0)
    prompts = sum(map(_characters, requests))
    estimate = _START + weights / _MOVED + _CHARACTER * prompts + token * tokens
    return math.ceil(min(max(estimate, LEAST), MOST))


def _characters(request: Request) -> int:
    """Of a prompt, in whatever form it came."""
    spoken = sum(len(message["content"]) for message in request.messages or ())
    return len(request.prompt or "") + spoken + 4 * len(request.token_ids or ())


@dataclass(frozen=True)
class _Failure:
    """One of our own errors on its way out of a worker, which passes on only the types of exceptions."""

    error: SpecvizError


def on_gpu(function: Callable[P, Iterator[T]], duration: Callable[P, int]) -> Callable[P, Iterator[T]]:
    """A generator function that runs with a GPU where ZeroGPU is active, and `function` itself elsewhere.

    To be made at import time, before the page is launched, of a function of a module: arguments and items are pickled.
    `duration` is called with the same arguments and says for how many seconds. The caller has to be in the context
    of the visitor's event, whose quota it is. Closing the iterator ends the run after its next item.

    Raises, when iterated:
        BusyError: no GPU is free, or the visitor's quota is used up.
        EngineError: the worker was ended, as when its time was over, or failed.
        SpecvizError: whatever `function` raised of our own.
    """
    if not active():
        return function
    import spaces  # an optional package

    @wraps(function)
    def work(*args: P.args, **kwargs: P.kwargs) -> Iterator[T | _Failure]:
        try:
            yield from function(*args, **kwargs)
        except SpecvizError as error:
            yield _Failure(error)

    stream = spaces.GPU(work, duration=duration)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        failure = None
        items = stream(*args, **kwargs)
        try:
            for item in items:
                if isinstance(item, _Failure):
                    failure = item.error  # raised once the worker has ended by itself and can be used again
                else:
                    yield item
        except Exception as error:
            failure = _explained(error)
        finally:
            items.close()
        if failure:
            raise failure

    return call


def _explained(error: Exception) -> SpecvizError:
    """The sentence for a failure of ZeroGPU. Its own words about queues and quotas are fit to be shown."""
    title = str(getattr(error, "title", ""))
    log.warning("no result from ZeroGPU", extra={"fields": {"error": type(error).__name__, "title": title}})
    if title == "ZeroGPU worker error":
        return EngineError(
            "The run on the GPU broke off, or took longer than the time it had: ask for fewer tokens, or try again."
        )
    if title.startswith("ZeroGPU"):
        return BusyError(str(getattr(error, "message", error)))
    return EngineError("No GPU could be had just now: try again later.")
