"""Engines that an audit drives: SpecViz, transformers, flashspec, or a function of the user's."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from specviz.errors import EngineError, RequestError, quoted
from specviz.schema.settings import Request
from specviz.tools.audit.models import PROMPT
from specviz.tools.bench.contenders import Bed, contenders

Draws = Iterator[list[int]]
Engine = Callable[[int, float, Sequence[int]], Draws]
"""Number of new tokens, temperature, seeds -> the new token ids of a sample for each seed."""

_CONTENDERS = {"transformers": "assisted", "flashspec": "flashspec"}
OWN = "specviz"
BUILT_IN = (OWN, *_CONTENDERS)
_BATCH = 50
"""Samples that SpecViz draws as one batch."""


def is_installed(name: str) -> bool:
    """Whether a built-in engine can run here."""
    return importlib.util.find_spec(name) is not None


def find_engine(name: str, bed: Bed) -> Engine:
    """A built-in engine, or the one of a `module:function`.

    Raises:
        RequestError: there is no such engine.
    """
    if ":" in name:
        return _function(name)
    if name not in BUILT_IN:
        raise RequestError(
            f"There is no engine {quoted(name)}: known are {', '.join(BUILT_IN)}, and any module:function."
        )
    if not is_installed(name):
        raise RequestError(f"{name} is not installed: install it, or leave it out.")
    return _ours(bed) if name == OWN else _contender(_CONTENDERS[name], bed)


def _request(tokens: int, temperature: float, seed: int, **more: Any) -> Request:
    return Request(
        token_ids=PROMPT,
        max_new_tokens=tokens,
        temperature=temperature,
        seed=seed,
        repetition_penalty=1.0,
        **more,
    )


def _ours(bed: Bed) -> Engine:
    """Lossless decoding (method speed at lenience 0), in batches."""
    settings = {"method": "speed", "lenience": 0.0, "draft_length": bed.draft_length}

    def draw(tokens: int, temperature: float, seeds: Sequence[int]) -> Draws:
        for start in range(0, len(seeds), _BATCH):
            batch = [_request(tokens, temperature, seed, **settings) for seed in seeds[start : start + _BATCH]]
            runs = {event.index: event.run for event in bed.engine.stream(batch)}
            yield from (runs[index].token_ids for index in range(len(batch)))

    return draw


def _contender(key: str, bed: Bed) -> Engine:
    """A contender of the benchmark."""
    write = next(each.write for each in contenders(bed) if each.key == key)

    def draw(tokens: int, temperature: float, seeds: Sequence[int]) -> Draws:
        for seed in seeds:
            yield write(_request(tokens, temperature, seed)).token_ids or []

    return draw


def _function(name: str) -> Engine:
    """The engine of a `module:function`, called as function(prompt_ids, count, seed)."""
    module, _, attribute = name.partition(":")
    sys.path.append(os.getcwd())  # as `python -m` does
    try:
        function = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise RequestError(
            f"{quoted(name)} cannot be imported: name a module and one of its functions."
        ) from error
    finally:
        sys.path.pop()

    def draw(tokens: int, _: float, seeds: Sequence[int]) -> Draws:
        for seed in seeds:
            try:
                yield [int(token) for token in function(list(PROMPT), tokens, seed)]
            except Exception as error:
                raise EngineError(f"{name} failed on a sample: {type(error).__name__}.") from error

    return draw
