"""The API: `generate`, `compare`, `methods` and `pairs`, for gradio_client, plain HTTP and MCP clients.

Converts arguments to a `Request`, and each `Run` to a dict. An invalid argument raises `RequestError`.
"""

# No `from __future__ import annotations`: gradio reads the types at run time and documents them.

import contextlib
import inspect
import json
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from time import monotonic
from typing import Any, cast

import gradio as gr

from specviz.analysis.metrics import Sentence, table
from specviz.app.clients import call_ended
from specviz.app.running import streaming, visitor_of
from specviz.app.settings import HELP as SETTINGS_HELP
from specviz.compat.gradio import is_tool_call, label_endpoint
from specviz.core.method import Method
from specviz.core.methods import METHODS
from specviz.engine.events import Loading, Waiting
from specviz.errors import PairError, RequestError
from specviz.schema.settings import SETTINGS, Request, arguments
from specviz.schema.trace import Run
from specviz.serving.limits import Limits, Visitor
from specviz.serving.offer import default_pair, offered_pairs
from specviz.serving.service import Service


def parameters_of(endpoint: str) -> list[inspect.Parameter]:
    """The parameters of `generate` or `compare`, in order."""
    needed = inspect.Parameter.empty
    known = {"prompt": (str, needed), "panes": (list[dict], needed), "pair": (str, default_pair())}
    known |= {"trace": (bool, False)} | {name: (each.kind, each.default) for name, each in SETTINGS.items()}
    return [_parameter(name, *known[name]) for name in arguments(endpoint)]


def _parameter(name: str, kind: Any, default: Any) -> inspect.Parameter:
    either = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Parameter(name, either, default=default, annotation=kind)


HELP = SETTINGS_HELP | {
    "prompt": "The text to answer or continue.",
    "panes": 'Two or more of {"method": text, "lenience": number, "draft_length": 1 to 16 or "auto", "rule": text}.',
    "pair": "A pair that `pairs` lists.",
    "trace": "Whether the last answer has the trace: JSON lines, one per round.",
}
"""A sentence about each argument, for clients."""
LIMITED = {
    "prompt": ("max_prompt", "characters"),
    "panes": ("max_panes", "panes"),
    "max_new_tokens": ("max_new_tokens", "tokens"),
}
"""Arguments that a server limits: for each, the field of `Limits` and the unit of the limit."""
PANE = {name for name, each in SETTINGS.items() if "pane" in each.endpoints}
"""Names of the settings that a pane of `compare` may have."""
FIGURES = ("verifier_calls", "drafter_calls", "seconds", "neighbours")
"""Names of the fields of `Run` that `figures` adds to a run's metrics."""


def wire_api(service: Service) -> None:
    """Add the endpoints to the current `GuardedBlocks`, which send the message of a `SpecvizError` to the client."""
    for serve in (generate, compare):
        parameters = parameters_of(serve.__name__)
        told = [(each.name, help_of(each.name, service.limits)) for each in parameters]
        endpoint = _make_endpoint(serve, service, parameters)
        label_endpoint(gr.api(endpoint, concurrency_limit=None, concurrency_id="engine"), told, "Answer")

    def pairs(request: gr.Request | None = None) -> list[dict]:
        """List the pairs of models, and say whether each pair can be used now."""
        return _answer(_pairs(service), request)

    for small in (methods, pairs):
        label_endpoint(gr.api(small, queue=False, concurrency_limit=None), (), "Answer")


def help_of(name: str, limits: Limits) -> str:
    """An argument's help, with its limit on this server."""
    field, unit = LIMITED.get(name, ("", ""))
    return f"{HELP[name]} At most {getattr(limits, field)} {unit} here." if field else HELP[name]


def generate(
    service: Service, who: gr.Request | None, *, pair: str, trace: bool, **settings: Any
) -> Iterator[dict[str, Any]]:
    """Continue a prompt with a small and a large language model and one of the methods; streams the text.

    Returns:
        Objects with the text so far. The last object also has the reason why the text ended, and the run's figures.
    """
    runs: list[Run | None] = [None]
    for waiting in follow(service, pair, [Request(**settings)], runs, visitor_of(who), call_ended(who)):
        yield _so_far(runs[0]) | _waiting(waiting) | {"stop_reason": ""}
    for run in filter(None, runs):
        last = _so_far(run) | _waiting(None) | figures(run)
        yield last | ({"trace": "".join(run.lines())} if trace else {})


def compare(
    service: Service, who: gr.Request | None, *, pair: str, panes: list[dict], **settings: Any
) -> Iterator[dict[str, Any]]:
    """Continue one prompt with several methods and the same uniforms, and say where their texts differ; streams the texts.

    Returns:
        Objects with the texts so far. The last object also has, for each text, its figures and its first difference from the first text.
    """
    if not isinstance(panes, list) or not 2 <= len(panes) <= service.limits.max_panes:
        raise RequestError(f"panes must be a list of 2 to {service.limits.max_panes} objects.")
    Request(**settings)  # checks the shared settings first: their errors must not name a pane
    requests = [_pane(number, pane, settings) for number, pane in enumerate(panes, 1)]
    runs: list[Run | None] = [None] * len(requests)
    for waiting in follow(service, pair, requests, runs, visitor_of(who), call_ended(who)):
        yield {"panes": [_so_far(run) for run in runs]} | _waiting(waiting)
    ended = [run for run in runs if run is not None]
    rows = table(ended)
    last = [_so_far(run) | figures(run) | _parting(row) for run, row in zip(ended, rows, strict=True)]
    yield {"panes": last} | _waiting(None)


def methods(request: gr.Request | None = None) -> list[dict]:
    """List the methods, with what each does and the range of its lenience."""
    return _answer([_method(method) for method in METHODS.values()], request)


def _answer(answer: Any, request: gr.Request | None) -> Any:
    """Return `answer`; for MCP clients as JSON text, because gradio would send them `str(answer)`."""
    return json.dumps(answer, ensure_ascii=False) if is_tool_call(request) else answer


def _pane(number: int, pane: object, settings: dict[str, Any]) -> Request:
    try:
        if not isinstance(pane, dict) or not PANE.issuperset(pane):
            raise RequestError(f"a pane is an object, which takes {', '.join(sorted(PANE))}.")
        return Request(**settings, **pane)
    except RequestError as error:
        raise RequestError(f"Pane {number}: {error}") from None


def follow(
    service: Service,
    pair: str,
    requests: Sequence[Request],
    runs: list[Run | None],
    visitor: Visitor,
    ended: threading.Event,
) -> Iterator[Waiting | None]:
    """Serve `requests` and store the runs in `runs`. A few times a second, yields the latest `Waiting` event, or None once a run has begun.

    The runs end if `ended` is set, or if the generator is closed. Gradio closes the generator when the client disconnects.
    """
    offered = offered_pairs()
    if not isinstance(pair, str) or pair not in offered:
        raise PairError(f"There is no model pair of that name here; there are {', '.join(offered)}.")
    waiting: Waiting | None = None
    shown = -math.inf
    events = service.events(pair, requests, ended, visitor=visitor)
    with contextlib.closing(cast(Any, events)), streaming() as pause:
        for event in events:
            if not isinstance(event, Waiting):
                runs[event.index], waiting = event.run, None
            elif not any(runs):  # once a run has begun, a `Waiting` event only shows that the server is alive
                waiting = event
            if monotonic() - shown >= pause():
                yield waiting
                shown = monotonic()


def _waiting(event: Waiting | None) -> dict[str, Any]:
    position = event.queue_position or None if event else None
    loading = event.text if isinstance(event, Loading) else None
    return {"queue_position": position, "place": position, "loading": loading}  # "place" is the former name


def _so_far(run: Run | None) -> dict[str, Any]:
    accepted = run.accepted if run else []
    return {
        "text": run.text if run else "",
        "tokens": len(accepted),
        "accepted": sum(accepted),
        "resampled": len(accepted) - sum(accepted),
        "stop_reason": run.stop_reason if run else "",
    }


def figures(run: Run) -> dict[str, Any]:
    """The numbers of a run, by name: its metrics and the fields in `FIGURES`."""
    return asdict(run.metrics()) | {name: getattr(run, name) for name in FIGURES}


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


def _pairs(service: Service) -> list[dict]:
    states = {state.spec.key: {"usable": state.usable, "note": state.note} for state in service.states()}
    own = ("key", "title", "about", "repetition_penalty")
    return [
        {name: getattr(spec, name) for name in own}
        | {"drafter": spec.drafter_name, "verifier": spec.verifier_name}
        | states.get(key, {"usable": True, "note": ""})
        for key, spec in offered_pairs().items()
    ]


# ---- an endpoint


def _make_endpoint(
    serve: Callable[..., Iterator[dict]], service: Any, parameters: Sequence[inspect.Parameter]
) -> Callable[..., Iterator[dict]]:
    """Make a function for `gr.api` with the signature `parameters`. It calls `serve(service, request, **arguments)`.

    The function gets the name of `serve`, and the docstring of `serve` with the help of each argument added. `serve` checks the arguments.
    """
    signature = inspect.Signature(
        [*parameters, _parameter("request", gr.Request | None, None)], return_annotation=dict
    )

    def endpoint(*values: Any) -> Iterator[dict]:
        came = signature.bind(*values)
        came.apply_defaults()
        asked = dict(came.arguments)
        request = asked.pop("request")
        with contextlib.closing(cast(Any, serve(service, request, **asked))) as answers:
            for answer in answers:
                yield _answer(answer, request)

    words, _, returns = (serve.__doc__ or "").partition("Returns:")
    arguments = "".join(f"\n    {each.name}: {help_of(each.name, service.limits)}" for each in parameters)
    function: Any = endpoint
    function.__name__ = serve.__name__
    function.__doc__ = f"{words.strip()}\n\nArgs:{arguments}\n\nReturns:{returns}"
    function.__signature__ = signature
    function.__annotations__ = {name: each.annotation for name, each in signature.parameters.items()}
    return endpoint
