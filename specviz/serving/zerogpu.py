"""ZeroGPU, which lends a Space a GPU for the duration of one call. Elsewhere this module does nothing and imports nothing.

A decorated generator runs in a forked process, the worker, which alone sees a GPU. Its arguments and items are pickled. It can use
models that the thread that imported `spaces` loaded before the page was launched.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import wraps
from importlib.util import find_spec
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from specviz.environment import GPU_RUNNER, GRAPHS
from specviz.errors import BusyError, EngineError, SpecvizError
from specviz.serving.limits import prompt_characters
from specviz.serving.logs import MAX_TEXT

if TYPE_CHECKING:  # `start` must run before torch is imported
    from specviz.schema.settings import Request

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

LEAST, MOST = 15, 80
"""Minimum and maximum seconds that a run requests. A second on current GPUs costs 1.5 s of quota: 80 s cost 120 s, the last
documented daily quota of a visitor without an account."""

# Estimates, not measured on ZeroGPU. Longer requests have lower priority in the queue, but unused seconds are not charged. A run that
# takes longer than requested is ended.
_START = 8.0  # seconds that a new worker needs: fork, CUDA, first kernels
_MOVED = 2e9  # bytes of weights per second, from disk to the GPU
_READ = 5e11  # bytes of weights per second, in a pass
_ROUND = 0.05  # seconds per token: draft, verification, decision
_MORE = 0.01  # further seconds per token, for each text of the batch
_CHARACTER = 0.0005  # seconds of prefill per character


def active() -> bool:
    """Whether this process runs on ZeroGPU. Imports nothing."""
    named = os.environ.get("SPACES_ZERO_GPU", "").lower() in ("1", "t", "true")
    return named and find_spec("spaces") is not None


def start() -> None:
    """Prepare for ZeroGPU if it is active. Call first, in the main thread, before torch is imported."""
    if active():
        # transformers would load in several threads, but outside a worker only the thread that imports `spaces` sees a (virtual) GPU.
        os.environ["HF_DEACTIVATE_ASYNC_LOAD"] = "1"
        # A worker lives for one call, too short for captured passes and compiled kernels to save the time that they cost.
        os.environ[GRAPHS.name] = "0"
        os.environ[GPU_RUNNER.name] = "torch"
        import spaces  # noqa: F401  # an optional package


def seconds(requests: Sequence[Request], parameters: int) -> int:
    """GPU seconds to request for writing all texts as one batch, from `LEAST` to `MOST`.

    Args:
        requests: the texts.
        parameters: number of parameters of both models together.
    """
    weights = parameters * 2  # bytes, in bfloat16
    token = _ROUND + _MORE * len(requests) + weights / _READ
    tokens = max((request.max_new_tokens for request in requests), default=0)
    prompts = sum(prompt_characters(each) + 4 * len(each.token_ids or ()) for each in requests)
    estimate = _START + weights / _MOVED + _CHARACTER * prompts + token * tokens
    return math.ceil(min(max(estimate, LEAST), MOST))


@dataclass(frozen=True)
class _Failure:
    """One of our errors, yielded as an item, because a worker passes on only the type of an exception."""

    error: SpecvizError


def on_gpu(function: Callable[P, Iterator[T]], duration: Callable[P, int]) -> Callable[P, Iterator[T]]:
    """A generator function that runs with a GPU if ZeroGPU is active; otherwise `function` itself.

    Call `on_gpu` at import time, before the page is launched, with a module-level function. `duration` takes the same
    arguments and returns the seconds to request. Call the result within the visitor's event: it uses the visitor's quota.
    Closing the iterator ends the run after its next item.

    Raises, when iterated:
        BusyError: no GPU is free, or the visitor's quota is used up.
        EngineError: the worker failed or was ended, for example because its time was over.
        SpecvizError: any error of ours that `function` raised.
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
                    failure = item.error  # raised after the worker has ended, so that it can be reused
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
    """Our error for a failure of ZeroGPU. Visitors see ZeroGPU's own messages about queues and quotas."""
    title = str(getattr(error, "title", ""))[:MAX_TEXT]
    log.warning("no result from ZeroGPU", exc_info=error, extra={"fields": {"title": title}})
    if title == "ZeroGPU worker error":
        return EngineError(
            "The run on the GPU broke off, or took longer than the time it had: ask for fewer tokens, or try again."
        )
    if title.startswith("ZeroGPU"):
        return BusyError(str(getattr(error, "message", error)))
    return EngineError("No GPU could be had just now: try again later.")
