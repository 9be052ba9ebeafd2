"""Logs: JSON objects or plain text, one line per event, without any prompt or generated text.

An exception is logged with its type and frames, but without its message, which may repeat user input. Libraries log only
warnings and errors, and only the template of the message, which the library's authors wrote.
"""

from __future__ import annotations

import json
import logging
import math
import sys
import threading
import traceback
from collections.abc import Mapping
from datetime import datetime, timezone
from time import monotonic
from typing import Any, TextIO

from specviz.environment import LOG, LOG_LEVEL

OURS = "specviz"
MAX_TEXT = 200
"""Maximum characters of an event, and of a text that comes from another program."""
REPEAT_SECONDS = 10.0
"""Seconds in which the same warning is written only once, so that nobody can fill the disk by causing it."""
_MOST_WARNINGS = 1000
MAX_CAUSES, MAX_FRAMES = 4, 12
"""Maximum number of exceptions logged per chain, and of frames logged per exception (the innermost frames)."""


def configure(stream: TextIO | None = None, environment: Mapping[str, str] | None = None) -> None:
    """Send all logs of this process to `stream`, by default stderr. A second call replaces the first.

    SPECVIZ_LOG is "json" or "text" (by default text on a terminal, JSON elsewhere). SPECVIZ_LOG_LEVEL is the lowest level
    of our own loggers (by default INFO).

    Raises:
        SpecvizError: one of these variables has an invalid value.
    """
    stream = sys.stderr if stream is None else stream
    form = LOG.value(environment) or ("text" if stream.isatty() else "json")
    level = LOG_LEVEL.value(environment)
    handler = _Handler(stream, is_json=form == "json")
    root = logging.getLogger()
    root.handlers = [each for each in root.handlers if not isinstance(each, _Handler)]
    root.addHandler(handler)
    logging.getLogger(OURS).setLevel(level)
    # Filters, because uvicorn replaces the handlers of its loggers whenever a server starts, but keeps filters.
    _divert("uvicorn.error", handler)
    _divert("uvicorn.access", None)  # it logs addresses with their queries, which have prompts in links
    threading.excepthook = _thread_failed


class _Handler(logging.StreamHandler):
    """Writes our own records and libraries' warnings, without any user input."""

    def __init__(self, stream: TextIO, *, is_json: bool) -> None:
        super().__init__(stream)
        self._is_json = is_json
        self._written: dict[Any, float] = {}
        """When each warning was last written."""

    def filter(self, record: logging.LogRecord) -> Any:
        """Whether a record is written."""
        is_loggable = _is_ours(record) or record.levelno >= logging.WARNING
        return is_loggable and super().filter(record) and not self._is_repeated(record)

    def _is_repeated(self, record: logging.LogRecord) -> bool:
        """Whether the same warning was written recently."""
        if record.levelno < logging.WARNING:
            return False
        error = record.exc_info[0] if record.exc_info else None
        key = (record.name, _event(record), error, getattr(record, "fields", {}).get("pair"))
        if monotonic() - self._written.get(key, -math.inf) < REPEAT_SECONDS:
            return True
        if len(self._written) >= _MOST_WARNINGS:
            self._written.clear()
        self._written[key] = monotonic()
        return False

    def format(self, record: logging.LogRecord) -> str:
        """A record as one JSON object, or as a line of text, with lines for its exception. It has only the parts that may be logged."""
        time = datetime.fromtimestamp(record.created, timezone.utc)
        fields = getattr(record, "fields", {})
        error = _origin(record.exc_info[1]) if record.exc_info else []
        head = {"level": record.levelname, "logger": record.name, "event": _event(record)}
        if self._is_json:
            failed = {"error": error} if error else {}
            return json.dumps({"time": time.isoformat()} | head | fields | failed, default=str)
        line = [f"{time:%H:%M:%S}", *head.values()]
        line += [f"{name}={json.dumps(value, default=str)}" for name, value in fields.items()]
        return "\n".join([" ".join(line), *(f"  {each}" for each in error)])


def _origin(error: BaseException | None) -> list[str]:
    """The types of an exception and its causes, with file, line and function of their frames, but without their messages."""
    seen, lines = list[BaseException](), list[str]()
    while error is not None and error not in seen and len(seen) < MAX_CAUSES:
        seen.append(error)
        lines.append(f"{type(error).__module__}.{type(error).__qualname__}")
        frames = traceback.extract_tb(error.__traceback__, limit=-MAX_FRAMES)
        lines += [f"  {frame.filename}:{frame.lineno} in {frame.name}" for frame in frames]
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return lines


def _is_ours(record: logging.LogRecord) -> bool:
    return record.name.partition(".")[0] == OURS


def _event(record: logging.LogRecord) -> str:
    """The first line of our own message, or a library's template; the module and line for a library message without a template."""
    if _is_ours(record):
        text = record.getMessage()
    elif record.args and isinstance(record.msg, str):
        text = record.msg
    else:
        text = f"a message of {record.module}:{record.lineno}"
    first = (text.splitlines() or [""])[0][:MAX_TEXT]
    return "".join(each if each.isprintable() else "?" for each in first)


def _divert(name: str, handler: logging.Handler | None) -> None:
    """Send all records of a logger to `handler` (None: nowhere) instead of to the logger's own handlers."""

    def divert(record: logging.LogRecord) -> bool:
        if handler:
            handler.handle(record)
        return False

    logging.getLogger(name).filters = [divert]


def _thread_failed(failure: Any) -> None:
    """Replaces Python's hook for threads, which prints the exception's message."""
    if failure.exc_type is not SystemExit:
        caught = (failure.exc_type, failure.exc_value, failure.exc_traceback)
        name = failure.thread.name if failure.thread else ""
        log = logging.getLogger(__name__)
        log.error("a thread failed", exc_info=caught, extra={"fields": {"thread_name": name}})
