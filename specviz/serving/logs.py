"""Logs: one JSON object a line, or plain lines on a terminal. Never a prompt or a generated text.

Messages of exceptions are left out, our own too, since they may repeat user input; their types and frames are kept. Of
libraries only warnings are logged, and of these only the template, which the library's authors wrote. Knows
logging; knows nothing of models, pages and requests.
"""

from __future__ import annotations

import json
import logging
import math
import os
import sys
import threading
import traceback
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any, TextIO

from specviz.errors import SpecvizError

OURS = "specviz"
FORMATS = ("json", "text")
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
MAX_TEXT = 200
"""Characters of any text in a line."""
MAX_CAUSES, MAX_FRAMES = 4, 12
"""Of an exception: those that caused it, and the innermost frames of each, that are written."""


def configure(stream: TextIO | None = None, environment: Mapping[str, str] | None = None) -> None:
    """Send all logs of this process to `stream`, by default stderr; a second call replaces the first.

    SPECVIZ_LOG is "json" or "text" (by default text on a terminal, JSON elsewhere), SPECVIZ_LOG_LEVEL the lowest level
    of our own loggers (by default INFO).

    Raises:
        SpecvizError: either of them is something else.
    """
    stream = sys.stderr if stream is None else stream
    found = os.environ if environment is None else environment
    form = _one_of(
        FORMATS, "SPECVIZ_LOG", found.get("SPECVIZ_LOG") or ("text" if stream.isatty() else "json")
    )
    level = _one_of(LEVELS, "SPECVIZ_LOG_LEVEL", found.get("SPECVIZ_LOG_LEVEL") or "INFO")
    handler = logging.StreamHandler(stream)
    handler.name = OURS
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    handler.addFilter(lambda record: is_ours(record) or record.levelno >= logging.WARNING)
    root = logging.getLogger()
    for each in [*root.handlers]:
        if each.name == OURS:
            root.removeHandler(each)
    root.addHandler(handler)
    logging.getLogger(OURS).setLevel(level)
    # uvicorn gives its loggers handlers of their own whenever a server starts, but leaves filters in place.
    _filter_only("uvicorn.error", lambda record: handler.filter(record) and handler.handle(record) and False)
    _filter_only("uvicorn.access", lambda record: False)  # addresses with queries: links carry prompts there
    threading.excepthook = _thread_failed


class JsonFormatter(logging.Formatter):
    """A record as one JSON object: time (UTC), level, logger, event, its `fields`, and where an exception came from."""

    def format(self, record: logging.LogRecord) -> str:
        """One line without its end."""
        line: dict[str, Any] = {
            "time": _time(record).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "event": event(record),
        }
        line |= {name: value for name, value in fields(record).items() if name not in line}
        if failure := error(record):
            line["error"] = failure
        return json.dumps(line, allow_nan=False)


class TextFormatter(logging.Formatter):
    """The same as readable text."""

    def format(self, record: logging.LogRecord) -> str:
        """One line; an exception adds a line for each of its frames."""
        words = [f"{_time(record):%H:%M:%S}", record.levelname, record.name, event(record)]
        words += [f"{name}={json.dumps(value)}" for name, value in fields(record).items()]
        lines = [" ".join(words)]
        for failure in error(record):
            lines += [f"  {failure['type']}", *(f"    {frame}" for frame in failure["frames"])]
        return "\n".join(lines)


def is_ours(record: logging.LogRecord) -> bool:
    """Whether SpecViz itself wrote it."""
    return record.name.partition(".")[0] == OURS


def event(record: logging.LogRecord) -> str:
    """The message. Of a library's record its template, without its arguments; where there are none, where it was logged."""
    if is_ours(record):
        text = record.getMessage()
    elif record.args and isinstance(record.msg, str):
        text = record.msg
    else:  # user input may have been formatted into it
        text = f"a message of {record.module}:{record.lineno}"
    return _line(text)


def fields(record: logging.LogRecord) -> dict[str, Any]:
    """The numbers and names that came with one of our records."""
    given = getattr(record, "fields", None)
    return {str(name): _plain(value) for name, value in given.items()} if isinstance(given, dict) else {}


def error(record: logging.LogRecord) -> list[dict[str, Any]]:
    """A record's exception and what caused it: types, and file, line and function of their frames."""
    found, seen = record.exc_info[1] if record.exc_info else None, []
    failures: list[dict[str, Any]] = []
    while found is not None and found not in seen and len(failures) < MAX_CAUSES:
        seen.append(found)
        frames = [
            f"{frame.f_code.co_filename}:{line} in {frame.f_code.co_name}"
            for frame, line in traceback.walk_tb(found.__traceback__)
        ]
        kind = type(found)
        failures.append({"type": f"{kind.__module__}.{kind.__qualname__}", "frames": frames[-MAX_FRAMES:]})
        found = found.__cause__ or (None if found.__suppress_context__ else found.__context__)
    return failures


def _one_of(known: tuple[str, ...], name: str, value: str) -> str:
    for each in known:
        if value.lower() == each.lower():
            return each
    raise SpecvizError(f"{name} is {value!r}; it must be one of {', '.join(known)}.")


def _filter_only(name: str, passes: Any) -> None:
    """Make `passes` the one filter of ours on a logger."""
    logger = logging.getLogger(name)
    for each in [*logger.filters]:
        if getattr(each, "ours", False):
            logger.removeFilter(each)
    passes.ours = True
    logger.addFilter(passes)


def _thread_failed(failure: Any) -> None:
    """In place of Python's own hook, which prints the exception's message."""
    if failure.exc_type is not SystemExit:
        caught = (failure.exc_type, failure.exc_value, failure.exc_traceback)
        name = failure.thread.name if failure.thread else ""
        log = logging.getLogger(__name__)
        log.error("a thread failed", exc_info=caught, extra={"fields": {"thread": name}})


def _time(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, timezone.utc)


def _line(text: str) -> str:
    """Its first line, cut and printable: user input cannot add lines to a log."""
    first = (text.splitlines() or [""])[0][:MAX_TEXT]
    return "".join(each if each.isprintable() else "?" for each in first)


def _plain(value: Any) -> Any:
    """A value for a line: a number, a short text, or the name of its type."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return _line(value) if isinstance(value, str) else type(value).__name__
