"""The two services that the browser tests share: one that plays back traces, and the real one, which keeps what it sent."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

from specviz.progress import Progress
from specviz.schema.settings import Request
from specviz.schema.trace import Run, parse_trace
from specviz.serving.lines import record, table_line, tagged
from specviz.serving.service import Service
from tests.support.traces import Trace, end_entry, line, make_trace, round_entry, run_entry, token_entry

HOSTILE = (
    "<img src=x onerror=window.pwned=1>",
    "</script><script>window.pwned=1</script>",
    "<!--<script>",
    "`${window.pwned=1}{{window.pwned=1}}`\\",
    "$& $` \u2028 ]]>",
)
"""Markup and template code."""


def hostile_trace() -> Trace:
    """`HOSTILE` wherever a trace carries text."""
    top = [{"id": index, "text": text, "probability": 0.1} for index, text in enumerate(HOSTILE)]
    tokens = [
        token_entry(
            text,
            id=index,
            accepted=False,
            coin=0.9,
            acceptance=0.1,
            draft={"id": 9, "text": text, "q": 0.2, "p": 0.1, "pi": 0.1},
            top={"q": top, "p": top, "pi": top},
        )
        for index, text in enumerate(HOSTILE)
    ]
    run = run_entry("speed", prompt=" ".join(HOSTILE), seed=7, drafter=HOSTILE[0])
    rounds = [line(round_entry([token], index=index)) for index, token in enumerate(tokens)]
    return Trace([line(run), *rounds, line(end_entry(len(rounds), "speed", "length"))], tokens)


def diverging() -> list[list[str]]:
    """Three panes' traces: the second diverges from the first at token 3, the third never."""

    def kept(text: str, number: int) -> dict[str, Any]:
        return token_entry(text, id=number)

    draft = {"id": 30, "text": " was", "q": 0.5, "p": 0.1, "pi": 0.1}
    redone = token_entry(" is", id=31, accepted=False, draft=draft, acceptance=0.2, coin=0.6)
    start = [kept("It", 1), kept(HOSTILE[0], 2)]
    same, other = ([*start, third, kept(" late", 5)] for third in (kept(" was", 30), redone))
    end = {
        "type": "end", "stop_reason": "length", "seconds": 0.5, "prefill_seconds": 0.1, "verifier_calls": 1,
        "drafter_calls": 4,
    }  # fmt: skip
    settings = ({"lenience": 0.3}, {"lenience": 0.1}, {"lenience": 0.2, "draft_length": None})
    return [
        [line(entry) for entry in (run_entry("cascade_chow", **own), round_entry(text), end)]
        for own, text in zip(settings, (same, other, same), strict=True)
    ]


class Script(Service):
    """A service without models: plays back what a test gives it, or fails; keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.active = 0
        self.reset()

    def reset(self) -> None:
        """As new, for the next test."""
        self.asked: list[tuple[str, Request]] = []
        self.compared: list[tuple[list[str], list[Request]]] = []
        self.finished = 0
        self.trace = make_trace(stop_reason="eos").lines
        self.panes = diverging()
        self.failure: Exception | None = None
        self.pause = 0.0
        self.loaded = threading.Event()
        self.loaded.set()
        self.goes_on = threading.Event()
        self.goes_on.set()

    def engine(self, *_: Any, **__: Any) -> Any:
        """No test may load a pair here."""
        raise AssertionError("a pair was asked for")

    def lines(
        self, key: str, request: Request, stop: threading.Event, progress: Progress | None = None, **_: Any
    ) -> Iterator[str]:
        """The script's trace; says that it is loading until `loaded` is set, and halts in its middle until `goes_on` is."""
        self.asked.append((key, request))
        self.active += 1
        try:
            while progress and not self.loaded.wait(0.2):
                progress(0.5, "Reading weights")
            for number, each in enumerate(self.trace):
                if stop.is_set():
                    return
                if self.failure and number == 3:
                    raise self.failure
                time.sleep(self.pause)
                if number == len(self.trace) // 2 + 1 and not self.goes_on.is_set():
                    yield ""  # what came before is shown
                    while not self.goes_on.wait(0.05):
                        if stop.is_set():
                            return
                yield each
        finally:
            self.active -= 1

    def compare_lines(
        self, keys: Sequence[str], requests: Sequence[Request], stop: threading.Event, *_: Any, **__: Any
    ) -> Iterator[str]:
        """The script's panes and a table made of them. A stop is noticed before each line; others wait for `goes_on`."""
        self.compared.append((list(keys), list(requests)))
        count = min(len(self.panes), len(requests))
        runs: list[Run] = [parse_trace(trace) for trace in self.panes[:count]]
        yield record("compare", panes=count)
        for number in range(max(map(len, self.panes))):
            for pane, trace in enumerate(self.panes[:count]):
                if number < len(trace):
                    yield tagged(pane, trace[number])
            if number == 1 and self.failure:
                raise self.failure
            time.sleep(self.pause)
            while not (self.goes_on.wait(0.05) or stop.is_set()):
                pass
            if stop.is_set():
                return
        self.finished += 1
        yield table_line(runs, [-0.5, -1.25, -2.0, -0.5][:count])


class Recorder(Service):
    """The real service over models that are loaded, which keeps the lines of every run."""

    def __init__(self, loaded: Service) -> None:
        super().__init__()
        self.engine = loaded.engine  # type: ignore[method-assign]
        self.has_loaded = loaded.has_loaded  # type: ignore[method-assign]
        self.runs: list[list[str]] = []

    def lines(
        self, key: str, request: Request, stop: threading.Event, *more: Any, **named: Any
    ) -> Iterator[str]:
        """The real lines, but kept."""
        self.runs.append([])
        for each in super().lines(key, request, stop, *more, **named):
            if each and json.loads(each)["type"] != "waiting":
                self.runs[-1].append(each)
            yield each
