"""The answers of the endpoints: the type and the meaning of each field, and their JSON schemas for assistants."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any, TypeAlias

from specviz.schema.run_metrics import RunMetrics

Fields: TypeAlias = dict[str, tuple[str, str]]
"""By name: JSON types, separated by spaces, and the meaning."""

SO_FAR: Fields = {
    "text": ("string", "the text so far"),
    "tokens": ("integer", "number of its tokens"),
    "accepted": ("integer", "number of accepted draft tokens"),
    "resampled": ("integer", "number of tokens that the verifier drew"),
    "stop_reason": (
        "string",
        "empty during the run; then `eos` (the text has ended), `length`, `context` (the models' context is full), "
        "`time` (the server's limit) or `cancelled`",
    ),
}
WAITING: Fields = {
    "queue_position": (
        "integer null",
        "position in the queue, from 1 (the next to begin); null outside the queue",
    ),
    "place": ("integer null", "the former name of `queue_position`"),
    "loading": (
        "string null",
        "what is being done to load the pair's models, about once a second; null once they are in memory",
    ),
}
_MEANINGS = dict(re.findall(r"^\s+(\w+): (.+)\.$", RunMetrics.__doc__ or "", re.MULTILINE))
METRICS: Fields = {
    each.name: ("array" if "list" in str(each.type) else "number null", _MEANINGS.get(each.name, ""))
    for each in fields(RunMetrics)
}
FIGURES: Fields = {
    "verifier_calls": ("integer", "forward passes of the verifier in rounds"),
    "drafter_calls": ("integer", "forward passes of the drafter in rounds"),
    "seconds": ("number", "computing time"),
    "neighbours": (
        "integer",
        "largest number of concurrent sequences in a round; they make the run slower and do not change its text",
    ),
}
"""The numbers of a whole run beside its metrics, by their names in `Run`."""
TRACE: Fields = {"trace": ("string", "JSON lines, if requested")}
PARTING: Fields = {
    "parts_at": ("integer null", "index of the first token that differs from the first pane's, or null"),
    "parting": ("string null", "a sentence that says what the two rules did at that token"),
}
_METHOD: Fields = {
    **dict.fromkeys(("name", "title", "label", "group", "sentence", "formula", "source"), ("string", "")),
    "lenience_range": (
        "array null",
        "two numbers; null where the method has no lenience, or for a missing bound",
    ),
    "default_lenience": ("number null", ""),
    "strict_end": ("string null", "what the method does at the first bound"),
    "drafter_end": ("string null", "what the method does at the second bound"),
}
_PAIR: Fields = {
    **dict.fromkeys(("key", "title", "drafter", "verifier", "about"), ("string", "")),
    "repetition_penalty": ("number null", "the verifier's own; 1 is off"),
    "usable": ("boolean", "whether it can be used now"),
    "note": ("string", "what is missing or will be downloaded"),
}


def _object(shown: Fields, **more: Any) -> dict[str, Any]:
    properties = {
        name: {"type": kinds.split(), "description": words} for name, (kinds, words) in shown.items()
    }
    required = [*shown.keys() - TRACE.keys(), *more]
    return {"type": "object", "properties": properties | more, "required": sorted(required)}


def _objects(shown: Fields) -> dict[str, Any]:
    return {"type": "array", "items": _object(shown)}


SCHEMAS: dict[str, dict[str, Any]] = {
    "generate": _object(SO_FAR | WAITING | METRICS | FIGURES | TRACE),
    "compare": _object(WAITING, panes=_objects(SO_FAR | METRICS | FIGURES | PARTING)),
    "methods": _object({}, result=_objects(_METHOD)),
    "pairs": _object({}, result=_objects(_PAIR)),
}
"""Schema of each endpoint's last answer, for assistants' tools. A tool answers with an object, so a list becomes its "result"."""
