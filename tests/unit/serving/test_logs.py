"""Logs: one line an event, without user input."""

from __future__ import annotations

import io
import json
import logging
import logging.config
import threading
from collections.abc import Iterator

import pytest
from uvicorn.config import LOGGING_CONFIG

from specviz.errors import RequestError
from specviz.serving.logs import OURS, REPEAT_SECONDS, configure

TYPED = "what somebody typed"


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Logging as it was."""
    root, level, hook = logging.getLogger(), logging.getLogger(OURS).level, threading.excepthook
    handlers = [*root.handlers]
    yield
    root.handlers = handlers
    for name in ("uvicorn.error", "uvicorn.access"):
        logging.getLogger(name).filters.clear()
    logging.getLogger(OURS).setLevel(level)
    threading.excepthook = hook


def logs(**environment: str) -> io.StringIO:
    """The stream of all logs from now on."""
    stream = io.StringIO()
    configure(stream, environment)
    return stream


def failed(error: Exception) -> Exception:
    """The error, raised from another and caught."""
    try:
        try:
            raise ValueError(TYPED)
        except ValueError as cause:
            raise error from cause
    except Exception as caught:
        return caught


def test_a_line_is_one_json_object_with_the_fields_of_the_event() -> None:
    first, stream = logs(), logs()
    sent = {"tokens": 5, "reason": "eos", "rate": None}
    logging.getLogger("specviz.serving.engine_loop").info("text finished", extra={"fields": sent})
    assert not first.getvalue()  # configuring again replaces it
    line = json.loads(stream.getvalue())
    assert line.pop("time").endswith("+00:00")
    known = {"level": "INFO", "logger": "specviz.serving.engine_loop", "event": "text finished"}
    assert line == known | sent


@pytest.mark.parametrize("form", ["json", "text"])
def test_no_user_input_is_logged(form: str) -> None:
    """Neither messages of exceptions and their causes, nor what was filled into a library's message, nor its infos."""
    stream = logs(SPECVIZ_LOG=form)
    for error in (RuntimeError(TYPED), RequestError(f"There is no method {TYPED!r}."), OSError(2, TYPED)):
        logging.getLogger("specviz.app").error("a run failed", exc_info=failed(error))
    library = logging.getLogger("some.library")
    library.info("asked for %s", TYPED)
    library.warning("asked for %s", TYPED)
    library.error(f"asked for {TYPED}", exc_info=failed(ValueError(TYPED)))
    written = stream.getvalue()
    assert TYPED not in written
    for word in ("RuntimeError", "specviz.errors.RequestError", "builtins.ValueError", "in failed"):
        assert word in written
    assert written.count("asked for %s") == 1
    assert "a message of test_logs:" in written


def test_user_input_adds_no_lines_to_a_log() -> None:
    stream = logs(SPECVIZ_LOG="text")
    logging.getLogger("specviz").info("a\nb", extra={"fields": {"title": "x\r\n12:00:00 ERROR"}})
    logging.getLogger("specviz").info("c" * 1000)
    assert stream.getvalue().count("\n") == 2
    assert len(stream.getvalue()) < 400


def test_errors_of_uvicorn_and_of_threads_are_logged_likewise(capfd: pytest.CaptureFixture[str]) -> None:
    """Also after uvicorn has set up its own loggers, as it does with every server. Its addresses are not logged."""
    stream = logs()
    logging.config.dictConfig(LOGGING_CONFIG)
    logging.getLogger("uvicorn.error").error(f"Exception {TYPED}\n", exc_info=failed(ValueError(TYPED)))
    logging.getLogger("uvicorn.access").info("%s - %s", "127.0.0.1", f"GET /?prompt={TYPED}")
    thread = threading.Thread(target=int, args=(TYPED,), name="specviz-x")
    thread.start()
    thread.join()
    served, failure = map(json.loads, stream.getvalue().splitlines())
    assert served["error"][0] == failure["error"][0] == "builtins.ValueError"
    assert (failure["event"], failure["thread_name"]) == ("a thread failed", "specviz-x")
    assert TYPED not in stream.getvalue() + "".join(capfd.readouterr())


def test_a_warning_that_repeats_is_written_once_for_some_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever makes the server warn, however often, fills no disk; other lines are written as ever."""
    stream, now = logs(), [0.0]
    monkeypatch.setattr("specviz.serving.logs.monotonic", lambda: now[0])
    for number in range(100):
        now[0] = number * 2 * REPEAT_SECONDS / 100
        logging.getLogger("asyncio").error(f"{TYPED}\n{number}")
        logging.getLogger("specviz.serving").info("text finished")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    warnings = [line for line in lines if line["logger"] == "asyncio"]
    assert len(warnings) == 2
    assert len(lines) == 102
    for pair in ("one", "two", "one"):
        logging.getLogger("specviz.serving").warning("pair not loaded", extra={"fields": {"pair": pair}})
    assert [json.loads(line)["pair"] for line in stream.getvalue().splitlines()[102:]] == ["one", "two"]
