"""The file format of a trace: JSON lines, one for the run, one for each round, one for the end.

The fields of a line are those of a dataclass. A run's fields are in the first line, except those in `_AT_END` and `_UNSAVED`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import orjson

from specviz import __version__
from specviz.errors import TraceError, has_half_characters, quoted
from specviz.schema.settings import SETTINGS

SCHEMA = "specviz-trace"
VERSION = 4
READABLE = (2, 3, 4)
"""Readable versions. In version 2 the draft length is always a number; up to version 3 every round drafts all K tokens."""

_AT_END = (
    "stop_reason",
    "seconds",
    "prefill_seconds",
    "verifier_calls",
    "drafter_calls",
    "neighbours",
    "tail",
)
"""Fields of a run that are in the last line."""
_UNSAVED = ("rounds", "drafter_logits", "verifier_logits")
"""Fields of a run that are in neither the first nor the last line. Each of the `rounds` has a line of its own."""
_IF_ANY = ("continues", "neighbours", "tail")
"""Fields of a run that are left out if empty."""

R = TypeVar("R")


def opening(run: Any) -> dict[str, Any]:
    """The fields of a run that are known when it begins."""
    return _known(run, _at_begin(type(run)))


def ending(run: Any) -> dict[str, Any]:
    """The fields of a run that are known only when it is over."""
    return _known(run, _AT_END)


def plain(record: dict[str, Any]) -> dict[str, Any]:
    """A record with dictionaries in place of dataclasses."""
    return dict(json.loads(_line(record)))


def header_line(run: Any) -> str:
    """The first line of a trace."""
    head = {"type": "run", "schema": SCHEMA, "version": VERSION, "specviz": __version__}
    return _line(head | opening(run))


def round_line(round_: Any) -> str:
    """The line of a round. Uses orjson, because a page needs many lines per second."""
    record = {"type": "round"} | {name: value for name, value in vars(round_).items() if value is not None}
    try:
        return orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE).decode()
    except orjson.JSONEncodeError:  # an integer of more than 64 bits, from a trace that was read
        return _line(record)


def end_line(run: Any) -> str:
    """The last line of a trace. Its metrics are for other programs; `parse` ignores them."""
    return _line({"type": "end"} | ending(run) | {"metrics": asdict(run.metrics())})


def parse(lines: Iterable[str], run_type: type[R], round_type: type) -> R:
    """Make a `run_type` with its `rounds` from untrusted lines, which are checked field by field.

    Raises:
        TraceError: the trace is foreign, truncated, damaged, or of an unknown version.
    """
    header, *rounds, end = _records(lines)
    version = header["version"]
    for record in rounds:
        if version < 4 and isinstance(record.get("proposals"), list):
            record["draft_length"] = len(record["proposals"])
    built = [_build(round_type, record, "round", number) for number, record in enumerate(rounds, 2)]
    hints = get_type_hints(run_type) | ({"draft_length": int} if version == 2 else {})
    values: dict[str, Any] = {}
    # Fields that are newer than the trace get their defaults.
    may_lack = {*_IF_ANY, *(name for name, setting in SETTINGS.items() if setting.added)}
    for names, record, number in ((_at_begin(run_type), header, 1), (_AT_END, end, len(rounds) + 2)):
        _require([name for name in names if name not in may_lack], record, number)
        values |= {name: _build(hints[name], record[name], name, number) for name in names if name in record}
    make: Callable[..., R] = run_type
    return make(**values, rounds=built)


def _known(run: Any, names: Sequence[str]) -> dict[str, Any]:
    """The fields `names` of a run, without optional fields that are empty."""
    return {name: getattr(run, name) for name in names if name not in _IF_ANY or getattr(run, name)}


def _at_begin(run_type: type) -> list[str]:
    """Names of the fields in the first line."""
    return [each.name for each in fields(run_type) if each.name not in (*_AT_END, *_UNSAVED)]


def _line(record: dict[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=vars) + "\n"


def _records(lines: Iterable[str]) -> list[dict[str, Any]]:
    """The records of all lines; TraceError unless they are a run, its rounds and its end, in this order."""
    records = [_record(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    header = records[0] if records else {}
    if header.get("type") != "run" or header.get("schema") != SCHEMA:
        raise TraceError("This is not a SpecViz trace: its first line must be the run's own.")
    if header.get("version") not in READABLE:
        raise TraceError(
            f"This trace has schema version {quoted(header.get('version'))}; this SpecViz reads versions "
            f"{READABLE[0]} to {READABLE[-1]}."
        )
    if records[-1].get("type") != "end":
        raise TraceError("This trace is truncated: its last line, which says how the run ended, is missing.")
    if any(each.get("type") != "round" for each in records[1:-1]):
        raise TraceError("This trace is damaged: between its first and last line there may only be rounds.")
    return records


def _record(number: int, line: str) -> dict[str, Any]:
    with suppress(ValueError, RecursionError):
        if isinstance(record := json.loads(line), dict):
            return record
    raise TraceError(
        f"Line {number} of this trace is no JSON object: the file is damaged, truncated or foreign."
    )


@cache
def _hints(kind: type) -> Mapping[str, Any]:
    """The types of a dataclass's fields. Cached, since finding them takes as long as checking a hundred values."""
    return get_type_hints(kind)


def _build(kind: Any, value: Any, name: str, line: int) -> Any:
    """`value` as a `kind` (a dataclass, list[...], X | None, int, float, str, bool), checked recursively."""
    if get_origin(kind) is UnionType:
        return None if value is None else _build(get_args(kind)[0], value, name, line)
    if get_origin(kind) is list and isinstance(value, list):
        return [_build(get_args(kind)[0], item, name, line) for item in value]
    if is_dataclass(kind) and isinstance(kind, type) and isinstance(value, dict):
        hints = _hints(kind)
        _require([key for key in hints if not hasattr(kind, key)], value, line)  # those without a default
        return kind(
            **{key: _build(hint, value[key], key, line) for key, hint in hints.items() if key in value}
        )
    if kind is float and type(value) in (int, float) and abs(value) <= sys.float_info.max:
        return float(value)
    if kind in (int, str, bool) and type(value) is kind and not (kind is str and has_half_characters(value)):
        return value
    raise TraceError(f"Line {line} of this trace is damaged: {name!r} is of the wrong kind.")


def _require(names: Iterable[str], record: dict[str, Any], line: int) -> None:
    """Raise TraceError if a name is missing in a record."""
    if missing := [name for name in names if name not in record]:
        raise TraceError(f"Line {line} of this trace is damaged: {missing[0]!r} is missing.")
