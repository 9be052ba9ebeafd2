"""Engines that an audit can drive: known packages, a server, or a function of the user."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import httpx

from specviz.errors import EngineError, RequestError, quoted
from specviz.schema.settings import Request
from specviz.tools.audit.llama_cpp import llama_cpp
from specviz.tools.audit.models import PROMPT
from specviz.tools.bench.contenders import Bed, contenders

Draw = Callable[[int, float, Sequence[int]], Iterator[list[int]]]
"""An engine: number of new tokens, temperature, seeds -> for each seed, the new token ids of a sample."""

_BATCH = 50
"""Number of samples that SpecViz draws as one batch, or asks of a server as one group. An audit can be stopped between them."""
_AT_ONCE = 8
"""Number of concurrent calls to a server, which can batch them."""
_SECONDS = 60.0


def is_url(name: str) -> bool:
    """Whether an engine's name is the address of a server."""
    return name.startswith(("http://", "https://"))


def is_installed(name: str) -> bool:
    """Whether the package of a known engine is installed."""
    return importlib.util.find_spec(BUILT_IN[name][0]) is not None


def find_engine(name: str, bed: Bed, body: str) -> Draw:
    """The engine with this name: a known one, the URL of a server, or `module:function`. `body` is JSON with more parameters for a server.

    Raises:
        RequestError, EngineError: there is no such engine here, `body` is no JSON object, or llama.cpp's logits are wrong.
    """
    if is_url(name):
        return _endpoint(name, bed, body)
    if ":" in name:
        return _function(name)
    if name not in BUILT_IN:
        known = ", ".join(BUILT_IN)
        raise RequestError(
            f"There is no engine {quoted(name)}: known are {known}, any URL, and any module:function."
        )
    if not is_installed(name):
        raise RequestError(f"{name} is not installed: install it, or leave it out.")
    return BUILT_IN[name][1](bed)


def _request(tokens: int, temperature: float, seed: int, **more: Any) -> Request:
    sampling: dict[str, Any] = {"max_new_tokens": tokens, "temperature": temperature, "seed": seed}
    return Request(token_ids=PROMPT, repetition_penalty=1.0, **sampling, **more)


def _ours(bed: Bed) -> Draw:
    """SpecViz's lossless decoding as an engine, in batches."""
    settings: dict[str, Any] = {"method": "speed", "lenience": 0.0, "draft_length": bed.draft_length}

    def draw(tokens: int, temperature: float, seeds: Sequence[int]) -> Iterator[list[int]]:
        for start in range(0, len(seeds), _BATCH):
            some = seeds[start : start + _BATCH]
            batch = [_request(tokens, temperature, seed, **settings) for seed in some]
            yield from (run.token_ids for run in bed.engine.generate(batch))

    return draw


def _contender(key: str, bed: Bed) -> Draw:
    """A contender of the benchmark as an engine."""
    write = next(each.write for each in contenders(bed) if each.key == key)
    return lambda tokens, temperature, seeds: (
        write(_request(tokens, temperature, seed)).token_ids or [] for seed in seeds
    )


BUILT_IN: dict[str, tuple[str, Callable[[Bed], Draw]]] = {
    "specviz": ("specviz", _ours),
    "transformers": ("transformers", partial(_contender, "assisted")),
    "flashspec": ("flashspec", partial(_contender, "flashspec")),
    "llama-cpp-python": ("llama_cpp", lambda bed: llama_cpp(bed.plain, bed.draft_length)),
}
"""By name of a known engine: the module that it needs, and the function that makes the engine."""


def _function(name: str) -> Draw:
    """A user's function as an engine. It is called with the prompt's ids, the number of new tokens and a seed."""
    module, _, attribute = name.partition(":")
    sys.path.append(os.getcwd())  # as `python -m` does
    try:
        function = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        what = f"{quoted(name)} cannot be imported: name a module and one of its functions."
        raise RequestError(what) from error

    def draw(tokens: int, _: float, seeds: Sequence[int]) -> Iterator[list[int]]:
        for seed in seeds:
            try:
                yield [int(token) for token in function(list(PROMPT), tokens, seed)]
            except Exception as error:
                raise EngineError(f"{name} failed on a sample: {type(error).__name__}.") from error

    return draw


def _endpoint(address: str, bed: Bed, body: str) -> Draw:
    """A server with OpenAI's completions API as an engine; the pair's tokenizer encodes its texts. `body`: more parameters, as JSON."""
    try:
        more = json.loads(body)
    except ValueError:
        more = None
    if not isinstance(more, dict):
        raise RequestError(f"--body is {quoted(body)}; it must be a JSON object.")

    def draw(tokens: int, temperature: float, seeds: Sequence[int]) -> Iterator[list[int]]:
        with httpx.Client(timeout=_SECONDS, trust_env=False) as client, ThreadPoolExecutor(_AT_ONCE) as pool:
            ask = partial(_ask, client, address.rstrip("/"))
            asked = {"max_tokens": tokens, "temperature": temperature, "top_p": 1.0, "prompt": PROMPT}
            asked["model"] = more.get("model") or ask("GET", "models", "data", "id")

            def sample(seed: int) -> str:
                return str(ask("POST", "completions", "choices", "text", json=asked | {"seed": seed} | more))

            for start in range(0, len(seeds), _BATCH):
                for text in pool.map(sample, seeds[start : start + _BATCH]):
                    yield bed.ours.tokenizer.encode(text, add_special_tokens=False)

    return draw


def _ask(client: httpx.Client, address: str, method: str, path: str, rows: str, key: str, **sent: Any) -> Any:
    """Send a request to a server. Returns the field `key` of the first entry in the answer's list `rows`.

    Raises:
        EngineError: the server did not answer as OpenAI's API does.
    """
    url = f"{address}/{path}"
    try:
        answer = client.request(method, url, **sent)
        if answer.is_success:
            return answer.json()[rows][0][key]
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise EngineError(f"{url} did not answer: {type(error).__name__}.") from error
    except (ValueError, LookupError, TypeError) as error:
        raise EngineError(f"{url} did not answer as OpenAI's API does, with {rows}[0].{key}.") from error
    raise EngineError(f"{url} answered with status {answer.status_code}: {answer.text[:200]!r}.")
