"""The API: generate, compare, methods and pairs, for gradio_client, plain HTTP and MCP clients.

Turns what a client sends into requests and what comes of them into dicts; what a client sends wrongly is a
`RequestError`. Knows the service and the registries; knows no tab.
"""

# No `from __future__ import annotations`: gradio reads the types at run time and documents them.

import contextlib
import inspect
import json
import math
import os
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from time import monotonic
from typing import Any, cast, get_args, get_origin

import gradio as gr

from specviz.analysis.metrics import Sentence, table
from specviz.app.running import session_of, streaming
from specviz.app.settings import CONTROLS
from specviz.compat.gradio import is_tool_call
from specviz.core.method import Method
from specviz.core.methods import METHODS
from specviz.engine.events import Waiting
from specviz.errors import PairError, RequestError, has_half_characters
from specviz.models.availability import describe_pairs
from specviz.schema.settings import SETTINGS, Request, arguments
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
PAIRS_SECONDS = 30.0
"""How long an answer of `pairs` holds at most: finding out may mean asking the model hub."""
_asking = threading.Lock()


def offers_mcp() -> bool:
    """Whether the endpoints are MCP tools too: where the package `mcp` is installed, unless SPECVIZ_MCP is 0."""
    return os.environ.get("SPECVIZ_MCP") != "0" and find_spec("mcp") is not None


@dataclass(frozen=True)
class Parameter:
    """One argument of an endpoint; `help` is a sentence for clients."""

    name: str
    kind: Any
    default: Any
    help: str


_SETTINGS = {
    name: Parameter(name, each.kind, each.default, CONTROLS[name].help) for name, each in SETTINGS.items()
}
PANE = {name: _SETTINGS[name] for name, each in SETTINGS.items() if "pane" in each.endpoints}
"""What a pane of `compare` may say."""


def _parameters(endpoint: str) -> list[Parameter]:
    panes = 'Two or more of {"method": text, "lenience": number, "draft_length": 1 to 16 or "auto", "rule": text}.'
    trace = "The last answer carries the trace: JSON lines, one a round."
    needed = inspect.Parameter.empty
    own = [
        Parameter("prompt", str, needed, "What the models should answer or continue."),
        Parameter("panes", list[dict], needed, panes),
        Parameter("pair", str, default_pair(), "One of those that `pairs` lists."),
        Parameter("trace", bool, False, trace),
    ]
    known = {each.name: each for each in own} | _SETTINGS
    return [known[name] for name in arguments(endpoint)]


def wire_api(service: Service) -> None:
    """Offer the endpoints; to be called inside the page's Blocks, which send the sentence of every `SpecvizError` to the client."""

    for serve in (generate, compare):
        endpoint = _make_endpoint(serve, service, _parameters(serve.__name__))
        gr.api(endpoint, concurrency_limit=None, concurrency_id="engine")
    for small in (methods, pairs):
        gr.api(small, queue=False, concurrency_limit=None)


def generate(
    service: Service, who: gr.Request | None, *, pair: str, trace: bool, **settings: Any
) -> Iterator[dict[str, Any]]:
    """Continue a prompt with a small and a large language model, by one of the methods; streams the text.

    Returns:
        An object with the text so far; the last one also says why it stopped and what it took.
    """
    runs: list[Run | None] = [None]
    for position in _follow(service, pair, [Request(**settings)], runs, who):
        yield _so_far(runs[0]) | _queued(position) | {"stop_reason": ""}
    for run in filter(None, runs):
        last = _so_far(run) | _queued(None) | _figures(run)
        yield last | ({"trace": "".join(run.lines())} if trace else {})


def compare(
    service: Service, who: gr.Request | None, *, pair: str, panes: list[dict], **settings: Any
) -> Iterator[dict[str, Any]]:
    """Continue one prompt by several methods with the same coins, and say where their texts part; streams them.

    Returns:
        An object with the texts so far; the last one also says what each took and where it parts from the first.
    """
    if not 2 <= len(panes) <= service.limits.max_panes:
        raise RequestError(f"{len(panes)} panes came; there must be 2 to {service.limits.max_panes}.")
    requests = [Request(**settings, **_pane(number, pane)) for number, pane in enumerate(panes, 1)]
    runs: list[Run | None] = [None] * len(requests)
    for position in _follow(service, pair, requests, runs, who):
        yield {"panes": [_so_far(run) for run in runs]} | _queued(position)
    ended = [run for run in runs if run is not None]
    nothing = [None] * len(ended)
    rows = table(ended, nothing, None, nothing)
    last = [_so_far(run) | _figures(run) | _parting(row) for run, row in zip(ended, rows, strict=True)]
    yield {"panes": last} | _queued(None)


def methods(request: gr.Request | None = None) -> list[dict]:
    """List the methods, what each does, and the range of its lenience."""
    return _answer([_method(method) for method in METHODS.values()], request)


def pairs(request: gr.Request | None = None) -> list[dict]:
    """List the pairs of models that can be asked for, and whether each can be used now."""
    with _asking:  # who asks meanwhile gets the same answer
        return _answer(_pairs(int(monotonic() // PAIRS_SECONDS)), request)


def _answer(answer: Any, request: gr.Request | None) -> Any:
    """The answer as it is; over MCP its JSON, because gradio sends an assistant the `str` of what an endpoint returns."""
    return json.dumps(answer, ensure_ascii=False) if is_tool_call(request) else answer


def _pane(number: int, pane: dict[str, Any]) -> dict[str, Any]:
    if not pane.keys() <= PANE.keys():
        raise RequestError(f"Pane {number} says something other than {', '.join(PANE)}.")
    for name, value in pane.items():
        _check_kind(PANE[name], value, f" of pane {number}")
    return pane


def _follow(
    service: Service, pair: str, requests: Sequence[Request], runs: list[Run | None], who: gr.Request | None
) -> Iterator[int | None]:
    """Serve `requests`, putting their runs into `runs`; a few times a second yields the position in the queue, None once one has begun.

    Gradio closes this where the client has gone, which ends the runs.
    """
    if pair not in (offered := offered_pairs()):
        raise PairError(f"There is no model pair of that name here; there are {', '.join(offered)}.")
    position: int | None = None
    shown = -math.inf
    events = service.events(pair, requests, threading.Event(), visitor=_visitor(who))
    with contextlib.closing(cast(Any, events)), streaming() as pause:
        for event in events:
            if not isinstance(event, Waiting):
                runs[event.index], position = event.run, None
            elif not any(runs):  # later it is only a sign of life
                position = event.queue_position or None
            if monotonic() - shown >= pause():
                yield position
                shown = monotonic()


def _visitor(request: gr.Request | None) -> str:
    """Who asks. Gradio asks in the name of all MCP clients: there each call is somebody else's."""
    if request is None or is_tool_call(request):
        return secrets.token_hex()
    return session_of(request)


def _queued(position: int | None) -> dict[str, Any]:
    return {"queue_position": position, "place": position}  # "place" is what it was called at first


def _so_far(run: Run | None) -> dict[str, Any]:
    accepted = run.accepted if run else []
    return {
        "text": run.text if run else "",
        "tokens": len(accepted),
        "accepted": sum(accepted),
        "resampled": len(accepted) - sum(accepted),
        "stop_reason": run.stop_reason if run else "",
    }


def _figures(run: Run) -> dict[str, Any]:
    return {name: getattr(run, name) for name in FIGURES}


def _parting(row: dict[str, Any]) -> dict[str, Any]:
    parts: Sentence = row["parting"] or []
    words = "".join(part if isinstance(part, str) else repr(part["label"]) for part in parts)
    return {"parts_at": row["parts_at"], "parting": words or None}


def _method(method: Method) -> dict[str, Any]:
    low, high = (end if math.isfinite(end) else None for end in method.lenience_range)
    return {
        name: getattr(method, name)
        for name in ("name", "title", "label", "group", "sentence", "formula", "source")
    } | {
        "lenience_range": [low, high] if method.has_lenience else None,
        "default_lenience": method.default_lenience if method.has_lenience else None,
        "strict_end": method.strict_end or None,
        "drafter_end": method.drafter_end or None,
    }


@lru_cache(maxsize=1)
def _pairs(period: int) -> list[dict]:
    """What is offered, and how it stands in a period of `PAIRS_SECONDS`; on ZeroGPU, where nothing can be asked of a GPU here, all is taken to be there."""
    found = [] if zerogpu.active() else describe_pairs(offered_pairs().values())
    states = {state.spec.key: (state.usable, state.note) for state in found}
    return [
        {
            "key": key,
            "title": spec.title,
            "drafter": spec.drafter_name,
            "verifier": spec.verifier_name,
            "about": spec.about,
            "repetition_penalty": spec.repetition_penalty,
        }
        | dict(zip(("usable", "note"), states.get(key, (True, "")), strict=True))
        for key, spec in offered_pairs().items()
    ]


# ---- an endpoint


def _check_kind(parameter: Parameter, value: object, where: str = "") -> None:
    """Raises RequestError where `value` is of another kind. The sentence leaves the value out: it may be long."""
    kind = parameter.kind
    kinds = (kind,) if get_origin(kind) is list else get_args(kind) or (kind,)
    if not any(_is(value, each) for each in kinds):
        words = " or ".join(WORDS[each] for each in kinds)
        raise RequestError(f"{parameter.name}{where} must be {words}.")


def _make_endpoint(
    serve: Callable[..., Iterator[dict]], service: Any, parameters: Sequence[Parameter]
) -> Callable[..., Iterator[dict]]:
    """What gradio takes for an endpoint: a function of `parameters`, which checks what came before it serves.

    `serve` is called with the service, who asks, and the values by their names; its name and the words of its docstring are the endpoint's.
    To clients, what streams is one object.
    """
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    inputs = [
        inspect.Parameter(each.name, kind, default=each.default, annotation=each.kind) for each in parameters
    ]
    who = inspect.Parameter("request", kind, default=None, annotation=gr.Request | None)
    signature = inspect.Signature([*inputs, who], return_annotation=dict)

    def endpoint(*values: Any) -> Iterator[dict]:
        came = signature.bind(*values)
        came.apply_defaults()
        asked = dict(came.arguments)
        request = asked.pop("request")
        for each in parameters:
            _check_kind(each, asked[each.name])
        with contextlib.closing(cast(Any, serve(service, request, **asked))) as answers:
            for answer in answers:
                yield _answer(answer, request)

    words, _, returns = (serve.__doc__ or "").partition("Returns:")
    arguments = "".join(f"\n    {each.name}: {each.help}" for each in parameters)
    function: Any = endpoint
    function.__name__ = serve.__name__
    function.__doc__ = f"{words.strip()}\n\nArgs:{arguments}\n\nReturns:{returns}"
    function.__signature__ = signature
    function.__annotations__ = {name: each.annotation for name, each in signature.parameters.items()}
    return endpoint


def _is(value: object, kind: Any) -> bool:
    if kind in (int, float):
        number = isinstance(value, int if kind is int else int | float) and not isinstance(value, bool)
        return number and abs(value) <= LARGEST  # type: ignore[arg-type]  # false for NaN
    if kind is str:
        return isinstance(value, str) and not has_half_characters(value)
    if get_origin(kind) is list:
        return isinstance(value, list) and all(_is(each, *get_args(kind)) for each in value)
    return type(value) is kind
