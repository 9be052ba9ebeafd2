"""What a stage has found so far: one small JSON file, written after every step, so that a stage goes on where it was.

Knows steps by name and the time that is left; knows nothing of what they measure.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from specviz.files import write_whole
from specviz.models.loading import release_memory
from specviz.progress import Progress
from specviz.tools.machine import describe_machine, describe_processor, versions

Found = dict[str, Any]
"""What a step found: numbers, words and lists of them, by name. With `error`, it broke off, and is tried again."""

_LONGEST = 30.0
"""Seconds that a step is expected to take before any has been timed."""


class Record:
    """The steps of one stage.

    Attributes:
        steps: what was found, by the step's name.
        left: names of steps that there was no time for.
        progress: hears of every step.
    """

    def __init__(self, path: Path, device: Any, seconds: float, progress: Progress) -> None:
        """Read `path`, if it is there; new steps may begin for about `seconds`."""
        self.steps: dict[str, Found] = {}
        self.left: list[str] = []
        self._path, self.progress = path, progress
        self._begin, self._end = time.monotonic(), time.monotonic() + seconds
        self._longest = min(_LONGEST, seconds / 4)
        self._about = {
            "device": describe_machine(str(device)),
            "processor": describe_processor(),
            "versions": versions(),
        }
        if path.is_file():
            self.steps = json.loads(path.read_text(encoding="utf-8"))["steps"]

    @property
    def seconds_left(self) -> float:
        """Until the stage should end."""
        return self._end - time.monotonic()

    @property
    def is_complete(self) -> bool:
        """Whether every step asked for was done and none broke off."""
        return not self.left and not any("error" in found for found in self.steps.values())

    @contextmanager
    def until_the_end(self, reserve: float = 0.0) -> Iterator[threading.Event]:
        """An event that is set `reserve` seconds before the stage should end, for work that can be stopped midway."""
        stop = threading.Event()
        timer = threading.Timer(max(1.0, self.seconds_left - reserve), stop.set)
        timer.start()
        try:
            yield stop
        finally:
            timer.cancel()

    def step(self, name: str, work: Callable[[], Found]) -> Found | None:
        """What a step found, now or earlier; None where there is no time for it. An error of `work` is recorded."""
        found = self.steps.get(name)
        if found is not None and "error" not in found:
            return found
        if self.seconds_left < self._longest:
            self.left.append(name)
            return None
        begin = time.monotonic()
        done = (begin - self._begin) / max(1e-9, self._end - self._begin)
        self.progress(min(0.99, done), name)
        try:
            found = work()
        except Exception as error:
            words = (str(error).strip().splitlines() or [""])[0]
            found = {"error": f"{type(error).__name__}: {words[:300]}"}
        release_memory()
        self._longest = max(self._longest, time.monotonic() - begin)
        self.steps[name] = found | {"seconds": round(time.monotonic() - begin, 1)}
        self.save()
        return self.steps[name]

    def save(self) -> None:
        """Write everything found so far."""
        content = self._about | {"complete": self.is_complete, "left": self.left, "steps": self.steps}
        write_whole(self._path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
