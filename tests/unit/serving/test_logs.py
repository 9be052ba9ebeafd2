"""Logs: one line an event, and nobody's text in any of them."""

from __future__ import annotations

import io
import json
import logging
import logging.config
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from uvicorn.config import LOGGING_CONFIG

from specviz.errors import RequestError, SpecvizError
from specviz.serving.logs import OURS, configure

MARKER = "what somebody typed"


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Logging as it was."""
    root, level, hook = logging.getLogger(), logging.getLogger(OURS).level, threading.excepthook
    yield
    root.handlers = [each for each in root.handlers if each.name != OURS]
    for name in ("uvicorn.error", "uvicorn.access"):
        logging.getLogger(name).filters.clear()
    logging.getLogger(OURS).setLevel(level)
    threading.excepthook = hook


def logs(**environment: str) -> io.StringIO:
    """Where everything is written from now on."""
    stream = io.StringIO()
    configure(stream, environment)
    return stream


def failed(error: Exception) -> Exception:
    """The error, as it is once it was raised and caught."""
    try:
        try:
            raise ValueError(MARKER)
        except ValueError as cause:
            raise error from cause
    except Exception as caught:
        return caught


def test_a_line_is_one_json_object_with_the_fields_of_the_event() -> None:
    """Time, level, logger, event, and the numbers that came along."""
    stream = logs()
    sent = {"tokens": 5, "seconds": 0.5, "reason": "eos", "rate": float("nan"), "event": "not this"}
    logging.getLogger("specviz.serving.shared_engine").info("text finished", extra={"fields": sent})
    line = json.loads(stream.getvalue())
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "INFO",
        "logger": "specviz.serving.shared_engine",
        "event": "text finished",
        "tokens": 5,
        "seconds": 0.5,
        "reason": "eos",
        "rate": None,
    }


@pytest.mark.parametrize("form", ["json", "text"])
def test_an_exception_is_told_by_type_and_place_without_its_message(form: str) -> None:
    """Neither an exception's message nor its cause's is written, not even that of one of ours."""
    stream = logs(SPECVIZ_LOG=form)
    for error in (RuntimeError(MARKER), RequestError(f"There is no method {MARKER!r}."), OSError(2, MARKER)):
        logging.getLogger("specviz.app").error("a run failed", exc_info=failed(error))
    written = stream.getvalue()
    assert MARKER not in written
    for word in (
        "RuntimeError",
        "specviz.errors.RequestError",
        "builtins.ValueError",
        "test_logs.py",
        "in failed",
    ):
        assert word in written


@pytest.mark.parametrize("form", ["json", "text"])
def test_of_libraries_only_warnings_are_written_and_only_their_own_words(form: str) -> None:
    """What was filled into a library's message is left out, and a finished message altogether."""
    stream = logs(SPECVIZ_LOG=form)
    library = logging.getLogger("some.library")
    library.info("asked for %s", MARKER)
    library.warning("asked for %s", MARKER)
    library.error(f"asked for {MARKER}", exc_info=failed(ValueError(MARKER)))
    written = stream.getvalue()
    assert MARKER not in written
    assert written.count("asked for %s") == 1
    assert "a message of test_logs:" in written


def test_nobody_adds_lines_to_a_log() -> None:
    """What has line ends in it stays one line, and short."""
    stream = logs(SPECVIZ_LOG="text")
    logging.getLogger("specviz").info("a\nb", extra={"fields": {"name": "x\r\n12:00:00 ERROR " + "y" * 1000}})
    assert stream.getvalue().count("\n") == 1
    assert len(stream.getvalue()) < 400


def test_levels_are_those_asked_for() -> None:
    """SPECVIZ_LOG_LEVEL is of our own loggers; a word it does not know is said at once."""
    stream = logs(SPECVIZ_LOG_LEVEL="warning")
    logging.getLogger("specviz.x").info("quiet")
    logging.getLogger("specviz.x").warning("loud")
    assert "quiet" not in stream.getvalue()
    assert "loud" in stream.getvalue()
    for name in ("SPECVIZ_LOG", "SPECVIZ_LOG_LEVEL"):
        with pytest.raises(SpecvizError, match="must be one of"):
            logs(**{name: "nonsense"})


def test_a_second_configuring_replaces_the_first() -> None:
    """No line is written twice."""
    first = logs()
    second = logs()
    logging.getLogger("specviz").info("once")
    assert not first.getvalue()
    assert second.getvalue().count("once") == 1


def test_what_uvicorn_writes_comes_through_here_too(capfd: pytest.CaptureFixture[str]) -> None:
    """Also after uvicorn has set up its own loggers, as it does with every server; addresses are not written."""
    stream = logs()
    config: dict[str, Any] = LOGGING_CONFIG
    logging.config.dictConfig(config)
    logging.getLogger("uvicorn.error").error(f"Exception {MARKER}\n", exc_info=failed(ValueError(MARKER)))
    logging.getLogger("uvicorn.access").info("%s - %s", "127.0.0.1", f"GET /?prompt={MARKER}")
    assert json.loads(stream.getvalue())["error"][0]["type"] == "builtins.ValueError"
    assert MARKER not in stream.getvalue()
    assert not any(capfd.readouterr())


def test_a_thread_that_fails_is_told_the_same_way(capfd: pytest.CaptureFixture[str]) -> None:
    """What Python itself would print of a thread has no message either."""
    stream = logs()

    def fail() -> None:
        raise ValueError(MARKER)

    thread = threading.Thread(target=fail, name="specviz-x")
    thread.start()
    thread.join()
    line = json.loads(stream.getvalue())
    assert (line["event"], line["thread"]) == ("a thread failed", "specviz-x")
    assert MARKER not in stream.getvalue() + "".join(capfd.readouterr())
