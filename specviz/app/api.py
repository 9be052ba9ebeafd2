"""The API: generate, compare, methods and pairs, for gradio_client, plain HTTP and MCP clients.

Turns what a client sends into requests and what comes of them into dicts; what a client sends wrongly is a
`RequestError`. Knows the service and the registries; knows no tab, and torch only when there is work.
"""

# No `from __future__ import annotations`: gradio reads the types as they stand and tells clients of them.

import contextlib
import functools
import inspect
import math
import os
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from time import monotonic
from typing import Any, cast, get_args, get_origin

import gradio as gr

from specviz.analysis.metrics import Sentence, table
from specviz.app.running import Streaming, session_of
from specviz.core.methods import METHODS, Method
from specviz.errors import PairError, RequestError, has_half_characters
from specviz.models.pairs import describe_pairs
from specviz.schema.settings import AUTO, Request
from specviz.schema.trace import Run
from specviz.serving import zerogpu
from specviz.serving.offer import default_pair, offered_pairs
from specviz.serving.service import Service

FIGURES = (
    "acceptance_rate",
    "block_efficiency",
    "verifier_calls",
    "drafter_calls",
    "seconds",
    "tokens_per_second",
    "neighbours",
)
"""Of a whole run, by the names that `Run` has for them."""
PANE: dict[str, Any] = {"method": str, "lenience": float | None, "draft_length": int | str}
"""What a pane of `compare` may say."""
PAIRS_SECONDS = 30.0
"""How long an answer of `pairs` holds: finding out may mean asking the model hub."""
LARGEST = 2**63 - 1
"""No number that a client sends may be larger, and none smaller than minus this."""

WORDS: dict[Any, str] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    type(None): "null",
    list[dict]: "a list of objects",
}
"""How the types of arguments are called."""


def offers_mcp() -> bool:
    """Whether the endpoints are MCP tools too: where the package `mcp` is installed, unless SPECVIZ_MCP is 0."""
    return os.environ.get("SPECVIZ_MCP") != "0" and find_spec("mcp") is not None


def wire_api(service: Service) -> None:
    """Offer the endpoints; to be called inside the page's Blocks, which tell every `SpecvizError` to the client."""

    @_streaming
    def generate(
        prompt: str,
        method: str = "cascade_tokenV3",
        lenience: float | None = None,
        pair: str = default_pair(),
        draft_length: int | str = AUTO,
        temperature: float = 0.7,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        max_new_tokens: int = 128,
        inspect: int = 0,
        trace: bool = False,
        request: gr.Request | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Continue a prompt with a small and a large language model, by one of nine methods; streams the text.

        Args:
            prompt: What the models should answer or continue.
            method: One of those that `methods` lists.
            lenience: How far the drafter is trusted, within the method's range; null takes the method's default.
            pair: One of those that `pairs` lists.
            draft_length: Proposals in a round, 1 to 16 or "auto"; changes the speed, never the text.
            temperature: From 0; 0 is greedy.
            top_k: Keep the k most probable tokens; 0 keeps all.
            top_p: Keep the most probable tokens up to this probability together, above 0; 1 keeps all.
            seed: From 0; with the same settings and the same seed the text is the same.
            max_new_tokens: Most tokens to write, from 1.
            inspect: So many of the most probable tokens are told at every token of the trace, 0 to 100.
            trace: The last answer carries the trace: JSON lines, one a round.

        Returns:
            An object with the text so far; the last one also says why it stopped and what it took.
        """
        asked = Request(
            prompt=prompt,
            method=method,
            lenience=lenience,
            draft_length=draft_length,  # type: ignore[arg-type]
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
            max_new_tokens=max_new_tokens,
            inspect=inspect,
        )
        runs: list[Run | None] = [None]
        for place in _follow(service, pair, [asked], runs, request):
            yield _so_far(runs[0]) | {"place": place, "stop_reason": ""}
        for run in filter(None, runs):
            told = _so_far(run) | {"place": None} | _figures(run)
            yield told | ({"trace": "".join(run.lines())} if trace else {})

    @_streaming
    def compare(
        prompt: str,
        panes: list[dict],
        pair: str = default_pair(),
        temperature: float = 0.7,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        max_new_tokens: int = 128,
        request: gr.Request | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Continue one prompt by several methods with the same coins, and say where their texts part; streams them.

        Args:
            prompt: What the models should answer or continue.
            panes: Two or more of {"method": text, "lenience": number, "draft_length": 1 to 16 or "auto"}.
            pair: One of those that `pairs` lists.
            temperature: From 0; 0 is greedy.
            top_k: Keep the k most probable tokens; 0 keeps all.
            top_p: Keep the most probable tokens up to this probability together, above 0; 1 keeps all.
            seed: From 0; with the same settings and the same seed the texts are the same.
            max_new_tokens: Most tokens to write in each pane, from 1.

        Returns:
            An object with the texts so far; the last one also says what each took and where it parts from the first.
        """
        if not 2 <= len(panes) <= service.limits.max_panes:
            raise RequestError(f"{len(panes)} panes came; there must be 2 to {service.limits.max_panes}.")
        asked = [
            Request(
                prompt=prompt,
                temperature=temperature,
                top_k=top_k,
                top_p=top_p,
                seed=seed,
                max_new_tokens=max_new_tokens,
                **_pane(number, pane),
            )
            for number, pane in enumerate(panes, 1)
        ]
        runs: list[Run | None] = [None] * len(asked)
        for place in _follow(service, pair, asked, runs, request):
            yield {"panes": [_so_far(run) for run in runs], "place": place}
        ended = [run for run in runs if run is not None]
        nothing = [None] * len(ended)
        rows = table(ended, nothing, None, nothing)
        told = [_so_far(run) | _figures(run) | _parting(row) for run, row in zip(ended, rows, strict=True)]
        yield {"panes": told, "place": None}

    def methods() -> list[dict]:
        """List the nine methods, what each does, and the range of its lenience."""
        return [_method(method) for method in METHODS.values()]

    said: list[dict] = []
    asked_at = -math.inf
    asking = threading.Lock()

    def pairs() -> list[dict]:
        """List the pairs of models that can be asked for, and whether each can be used now."""
        nonlocal said, asked_at
        with asking:
            if monotonic() - asked_at > PAIRS_SECONDS:
                said = _pairs()
                asked_at = monotonic()
            return said

    for streaming in (generate, compare):
        gr.api(streaming, concurrency_limit=None, concurrency_id="engine")
    for small in (methods, pairs):
        gr.api(small, queue=False, concurrency_limit=None)


def _streaming(endpoint: Callable[..., Iterator[dict]]) -> Callable[..., Iterator[dict]]:
    """The same endpoint, which first looks at what came; to clients, what streams is one object."""
    signature = inspect.signature(endpoint)
    kinds = {name: each.annotation for name, each in signature.parameters.items() if name != "request"}

    @functools.wraps(endpoint)
    def looking(*values: Any) -> Iterator[dict]:
        for name, value in signature.bind(*values).arguments.items():
            if name in kinds:
                _check(name, value, kinds[name])
        yield from endpoint(*values)

    looking.__signature__ = signature.replace(return_annotation=dict)  # type: ignore[attr-defined]
    return looking


def _check(name: str, value: object, kind: Any) -> None:
    """Raises RequestError where `value` is not of the kind that is documented. Never says the value: it may be long."""
    kinds = (kind,) if get_origin(kind) is list else get_args(kind) or (kind,)
    if not any(_is(value, each) for each in kinds):
        raise RequestError(f"{name} must be {' or '.join(WORDS[each] for each in kinds)}.")


def _is(value: object, kind: Any) -> bool:
    if kind in (int, float):
        number = isinstance(value, int if kind is int else int | float) and not isinstance(value, bool)
        return number and abs(value) <= LARGEST  # type: ignore[arg-type]  # false for NaN
    if kind is str:
        return isinstance(value, str) and not has_half_characters(value)
    if get_origin(kind) is list:
        return isinstance(value, list) and all(_is(each, *get_args(kind)) for each in value)
    return type(value) is kind


def _pane(number: int, pane: dict[str, Any]) -> dict[str, Any]:
    """What a pane asks for, as arguments of a `Request`."""
    if not pane.keys() <= PANE.keys():
        raise RequestError(f"Pane {number} says something other than {', '.join(PANE)}.")
    for name, value in pane.items():
        _check(f"{name} of pane {number}", value, PANE[name])
    return pane


def _follow(
    service: Service, pair: str, requests: Sequence[Request], runs: list[Run | None], who: gr.Request | None
) -> Iterator[int | None]:
    """Serve `requests`, putting their runs into `runs`; a few times a second, the place in the queue while none has begun.

    Gradio closes this where the client has gone, which ends the runs.
    """
    if pair not in (offered := offered_pairs()):
        raise PairError(f"There is no model pair of that name here; there are {', '.join(offered)}.")
    from specviz.engine.engine import Waiting

    place: int | None = None
    shown = -math.inf
    events = service.events(pair, requests, threading.Event(), visitor=_visitor(who))
    with contextlib.closing(cast(Any, events)), Streaming() as streaming:
        for event in events:
            if not isinstance(event, Waiting):
                runs[event.index], place = event.run, None
            elif not any(runs):  # later it only says that nothing has happened for a while
                place = event.place or None
            if monotonic() - shown >= streaming.pause:
                yield place
                shown = monotonic()


def _visitor(request: gr.Request | None) -> str:
    """Who asks. Gradio asks in the name of all MCP clients: there each call is somebody else's."""
    if request is None or request.headers.get("x-gradio-user") == "mcp":
        return secrets.token_hex()
    return session_of(request)


def _so_far(run: Run | None) -> dict[str, Any]:
    """What every answer says of a text."""
    tokens = run.tokens if run else []
    accepted = sum(token.accepted for token in tokens)
    return {
        "text": "".join(token.text for token in tokens),
        "tokens": len(tokens),
        "accepted": accepted,
        "resampled": len(tokens) - accepted,
        "stop_reason": run.stop_reason if run else "",
    }


def _figures(run: Run) -> dict[str, Any]:
    return {name: getattr(run, name) for name in FIGURES}


def _parting(row: dict[str, Any]) -> dict[str, Any]:
    told: Sentence = row["parting"] or []
    words = "".join(part if isinstance(part, str) else repr(part["label"]) for part in told)
    return {"parts_at": row["parts_at"], "parting": words or None}


def _method(method: Method) -> dict[str, Any]:
    low, high = (end if math.isfinite(end) else None for end in method.lenience_range)
    return {
        "name": method.name,
        "title": method.title,
        "sentence": method.sentence,
        "formula": method.formula,
        "lenience_range": [low, high] if method.has_lenience else None,
        "default_lenience": method.default_lenience if method.has_lenience else None,
        "strict_end": method.strict_end or None,
        "drafter_end": method.drafter_end or None,
    }


def _pairs() -> list[dict]:
    """What is offered, and how it stands; on ZeroGPU, where nothing can be asked of a GPU here, all is taken to be there."""
    found = [] if zerogpu.active() else describe_pairs(offered_pairs().values())
    states = {state.key: state for state in found}
    return [
        {
            "key": key,
            "title": spec.title,
            "drafter": spec.drafter_name,
            "verifier": spec.verifier_name,
            "about": spec.about,
            "usable": states[key].usable if key in states else True,
            "note": states[key].note if key in states else "",
        }
        for key, spec in offered_pairs().items()
    ]
