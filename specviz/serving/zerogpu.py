"""ZeroGPU, where a Space gets a GPU for the time of one call. Elsewhere all of this does nothing and imports nothing.

A decorated generator runs in a forked process that alone has the GPU. Its arguments and items are pickled. Its models are
those loaded before the page was launched, by the thread that imported `spaces`.
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

from specviz.errors import BusyError, EngineError, SpecvizError
from specviz.serving.limits import prompt_characters

if TYPE_CHECKING:  # `start` comes before torch
    from specviz.schema.settings import Request

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

LEAST, MOST = 15, 80
"""Seconds that a run asks for. Today's GPUs count them one and a half times: 80 are 120, the last documented daily quota of a
visitor without an account."""

# Estimates, not measured on ZeroGPU. Too long costs priority in the queue and is not charged; too short ends the run.
_START = 8.0  # seconds of a new worker: fork, CUDA, first kernels
_MOVED = 2e9  # bytes of weights a second, from disk to the GPU
_READ = 5e11  # bytes of weights a second, in a pass
_ROUND = 0.05  # seconds of a token: draft, verification, decision
_MORE = 0.01  # seconds of a token, for each text of the batch
_CHARACTER = 0.0005  # seconds of prefill


def active() -> bool:
    """Whether this process runs on ZeroGPU. Imports nothing."""
    named = os.environ.get("SPACES_ZERO_GPU", "").lower() in ("1", "t", "true")
    return named and find_spec("spaces") is not None


def start() -> None:
    """Prepare for ZeroGPU if it is active. Call first, in the main thread, before torch is imported."""
    if active():
        # Only the thread that imports `spaces` sees a GPU before there is one; transformers loads in several.
        os.environ["HF_DEACTIVATE_ASYNC_LOAD"] = "1"
        # A worker lives for one call: captures and kernels would cost more time than they save.
        os.environ["SPECVIZ_GRAPHS"] = "0"
        os.environ["SPECVIZ_GPU_RUNNER"] = "torch"
        import spaces  # noqa: F401  # an optional package


def seconds(requests: Sequence[Request], parameters: int) -> int:
    """Seconds of a GPU to ask for, from `LEAST` to `MOST`, to write all texts as one batch.

    Args:
        requests: the texts.
        parameters: of both models together.
    """
    weights = parameters * 2  # bytes, in bfloat16
    token = _ROUND + _MORE * len(requests) + weights / _READ
    tokens = max((request.max_new_tokens for request in requests), default=0)
    prompts = sum(prompt_characters(each) + 4 * len(each.token_ids or ()) for each in requests)
    estimate = _START + weights / _MOVED + _CHARACTER * prompts + token * tokens
    return math.ceil(min(max(estimate, LEAST), MOST))


@dataclass(frozen=True)
class _Failure:
    """One of our errors as an item, since a worker passes on only the types of exceptions."""

    error: SpecvizError


def on_gpu(function: Callable[P, Iterator[T]], duration: Callable[P, int]) -> Callable[P, Iterator[T]]:
    """A generator function that runs with a GPU if ZeroGPU is active; otherwise `function` itself.

    Call at import time, before the page is launched, with a function of a module. `duration` returns the seconds for the
    same arguments. The caller of the generator has to be in the context of the visitor's event, whose quota it uses.
    Closing the iterator ends the run after its next item.

    Raises, when iterated:
        BusyError: no GPU is free, or the visitor's quota is used up.
        EngineError: the worker failed or was ended, as when its time was over.
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
                    failure = item.error  # raised after the worker has ended, so that it can be used again
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
    """The sentence for a failure of ZeroGPU, whose own words about queues and quotas visitors may read."""
    title = str(getattr(error, "title", ""))
    log.warning("no result from ZeroGPU", exc_info=error, extra={"fields": {"title": title}})
    if title == "ZeroGPU worker error":
        return EngineError(
            "The run on the GPU broke off, or took longer than the time it had: ask for fewer tokens, or try again."
        )
    if title.startswith("ZeroGPU"):
        return BusyError(str(getattr(error, "message", error)))
    return EngineError("No GPU could be had just now: try again later.")
