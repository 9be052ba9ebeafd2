"""A sweep's folder: what is done so far, so that it can go on after any end, and what came of it.

While a sweep is on, each process appends its finished units, a line each, to a file of its own; a line that was cut off
is not counted, and a unit that two processes did counts once. `plan.json` says what the folder holds, and is the same
for all. When all is done `samples.jsonl.gz` and `results.json` depend on nothing but the plan; what was timed on a
machine is in `timings.jsonl`. Knows files and records; knows no model and no process but its own.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple
from functools import cached_property
from pathlib import Path
from typing import Any

from specviz.analysis.sweep.cost_model import CostModel
from specviz.analysis.sweep.header import Header
from specviz.analysis.sweep.items import Item
from specviz.analysis.sweep.results import Results
from specviz.analysis.sweep.sample import Sample, Timing
from specviz.analysis.sweep.unit import Unit
from specviz.errors import RequestError, SpecvizError, TraceError
from specviz.files import write_whole
from specviz.resources import ASSETS

SHELF = ASSETS / "sweep"
"""Where the project's own recorded sweep lies."""


class Store:
    """One sweep's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def header(self) -> Header | None:
        """What the folder is about; None where there is nothing yet.

        Raises:
            RequestError: something else is in the way.
        """
        try:
            return Header.from_json((self.folder / "plan.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError, TraceError) as error:
            raise RequestError(
                "There is no sweep in that folder, and no room for one: name another."
            ) from error

    def begin(self, header: Header) -> None:
        """Make the folder hold this sweep, which may have begun before.

        Raises:
            RequestError: it holds another one, or cannot be written to.
        """
        if (there := self.header()) is not None:
            if there != header:
                raise RequestError(
                    "That folder holds another sweep (the plan, the pair or the items differ): name another folder, "
                    "or ask for nothing but the folder to go on with what is there."
                )
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_whole(self.folder / "plan.json", header.to_json())
        except OSError as error:
            raise RequestError("That folder cannot be made or written to: name another.") from error

    @property
    def is_complete(self) -> bool:
        """Whether all texts are written and their results too."""
        return (self.folder / "results.json").is_file()

    def done(self) -> dict[Unit, list[Sample]]:
        """Every unit that is done, by any process; of a unit that is there twice the first."""
        found: dict[Unit, list[Sample]] = {}
        for part in sorted(self.folder.glob("part-*.jsonl")):
            for trial, item, temperature, samples in _lines(part):
                unit = Unit(trial, item, temperature)
                found.setdefault(unit, [Sample(*one) for one in samples])
        return found

    def append(self, rank: int, unit: Unit, samples: Sequence[Sample]) -> None:
        """Keep a unit; when this returns it will be found again, however this process ends."""
        record = [*astuple(unit), [astuple(one) for one in samples]]
        _append(self.folder / f"part-{rank}.jsonl", record)

    def finish(self, samples: Sequence[Sample], results: Results) -> None:
        """Write what came of it, and clear away the processes' files.

        Raises:
            SpecvizError: it cannot be written; nothing of what is done is lost then.
        """
        lines = (json.dumps(astuple(one), ensure_ascii=False) + "\n" for one in sorted(samples))
        # Neither name nor time: the same samples are the same file.
        packed = gzip.compress("".join(lines).encode("utf-8"), mtime=0)
        try:
            write_whole(self.folder / "samples.jsonl.gz", packed)
            write_whole(self.folder / "results.json", results.to_json())
        except OSError as error:
            raise _unwritten(error) from error
        for part in self.folder.glob("part-*.jsonl"):
            part.unlink()

    def results(self) -> Results:
        """The finished sweep's results, without what was timed; TraceError where there are none."""
        try:
            return Results.from_json((self.folder / "results.json").read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise TraceError("The results of this sweep cannot be read.") from error

    def samples(self) -> Iterator[Sample]:
        """The finished sweep's texts in order; TraceError where there are none."""
        try:
            with gzip.open(self.folder / "samples.jsonl.gz", "rt", encoding="utf-8") as file:
                for line in file:
                    yield Sample(*json.loads(line))
        except (OSError, EOFError, ValueError, TypeError) as error:
            raise TraceError("The texts of this sweep cannot be read.") from error

    def timings(self, machine: Mapping[str, Any] | None = None) -> list[Timing]:
        """What was timed so far; with `machine`, on this one: what another one timed is thrown away then."""
        path = self.folder / "timings.jsonl"
        head, *found = list(_lines(path)) or [None]
        if machine is None:
            return [Timing(*one) for one in found]
        if head != machine:
            path.unlink(missing_ok=True)
            _append(path, dict(machine))
            return []
        return [Timing(*one) for one in found]

    def add_timing(self, timing: Timing) -> None:
        """Keep what one text took; `timings(machine)` was called before."""
        _append(self.folder / "timings.jsonl", astuple(timing))

    @property
    def machine(self) -> dict[str, Any] | None:
        """Where it was timed: "machine", "processor", "date" and "versions"."""
        return next(iter(_lines(self.folder / "timings.jsonl")), None)


def _lines(path: Path) -> Iterator[Any]:
    """The whole lines of a file; one that was cut off when its writer ended is not among them."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return
    for line in text.split(b"\n")[:-1]:
        try:
            yield json.loads(line)
        except ValueError:
            continue


def _append(path: Path, record: Any) -> None:
    try:
        with path.open("ab+") as file:
            if file.tell() and (file.seek(-1, os.SEEK_END), file.read(1))[1] != b"\n":
                file.write(b"\n")  # ends a line that was cut off
            file.write(json.dumps(record, ensure_ascii=False).encode("utf-8") + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise _unwritten(error) from error


def _unwritten(error: OSError) -> SpecvizError:
    return SpecvizError(
        f"The sweep cannot be written on: {error.strerror or error}. The same command goes on from here."
    )


class Recorded:
    """A sweep to be looked at: figures, texts, and the costs of the machine it was timed on."""

    def __init__(
        self,
        results: Results,
        items: Sequence[Item],
        samples: Sequence[Sample] | None = None,
        costs: CostModel | None = None,
        machine: str = "",
        store: Store | None = None,
    ) -> None:
        """`samples` may be left out where `store` has them: they are read when they are first asked for."""
        self.results, self.items, self.costs, self.machine = results, tuple(items), costs, machine
        self._given, self._store = samples, store

    def samples(self, setting: int) -> list[Sample]:
        """The texts of the plan's setting at this place, the first trial's first.

        Raises:
            TraceError: they cannot be read.
        """
        return self._by_setting.get(setting, [])

    @cached_property
    def _by_setting(self) -> dict[int, list[Sample]]:
        every = self._given if self._given is not None else self._store.samples() if self._store else ()
        found: dict[int, list[Sample]] = {}
        for one in sorted(every, key=lambda one: (one.setting, one.trial, one.item)):
            found.setdefault(one.setting, []).append(one)
        return found


def open_recorded(folder: Path = SHELF) -> Recorded | None:
    """The finished sweep in a folder, what was timed included; None where there is none that can be read."""
    from specviz.analysis.sweep.estimates import cost_model, with_latency

    store = Store(folder)
    try:
        header = store.header()
        if header is None:
            return None
        results, timings = store.results(), store.timings()
    except SpecvizError:
        return None
    settings = header.plan.settings
    machine = store.machine or {}
    return Recorded(
        with_latency(results, settings, timings),
        header.items,
        costs=cost_model(settings, timings, header.plan.draft_length),
        machine=", ".join(str(machine[name]) for name in ("machine", "processor") if name in machine),
        store=store,
    )
