"""A sweep's folder: the units done so far, so that the sweep can be resumed after any end, and its results.

While a sweep runs, each process appends its finished units, a line each, to a file of its own; a line that was cut off
is ignored, and a unit that two processes did counts once. `plan.json` identifies the sweep, and is the same
for all. When all is done `samples.jsonl.gz` and `results.json` depend on nothing but the grid; what was timed on a
machine is in `timings.jsonl`. Knows files and records; knows no model and no process but its own.
"""

from __future__ import annotations

import gzip
import json
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from specviz.analysis.sweep.cost_model import CostModel, fit_cost_model
from specviz.analysis.sweep.estimates import estimate_points, with_latency
from specviz.analysis.sweep.grid import SweepGrid, Unit
from specviz.analysis.sweep.items import Item
from specviz.analysis.sweep.results import Results, read_record
from specviz.analysis.sweep.sample import Sample, Timing
from specviz.errors import RequestError, SpecvizError, TraceError
from specviz.files import write_whole
from specviz.resources import ASSETS

SCHEMA, VERSION = "specviz-sweep-plan", 1
SHELF = ASSETS / "sweep"
"""The project's own recorded sweep."""
_SAMPLES = "samples.jsonl.gz"


@dataclass(frozen=True)
class Header:
    """Identifies a sweep: two with the same header have the same results."""

    plan: SweepGrid
    drafter: str
    verifier: str
    dtype: str
    items: tuple[Item, ...]

    def results(self, samples: Sequence[Sample]) -> Results:
        """The results of these samples."""
        settings = self.plan.settings
        wanted = len(self.items) * sum(self.plan.trials_at(setting.temperature) for setting in settings)
        points = estimate_points(settings, len(self.items), samples)
        return Results(
            self.plan.to_record(),
            self.drafter,
            self.verifier,
            self.dtype,
            len(self.items),
            points,
            complete=len(samples) == wanted,
        )

    def to_json(self) -> str:
        """As text."""
        record = {"schema": SCHEMA, "version": VERSION} | asdict(self)
        return json.dumps(record, ensure_ascii=False, indent=1) + "\n"

    @staticmethod
    def from_json(text: str) -> Header:
        """Read what `to_json` wrote; TraceError if it is something else or of another version."""

        def build(record: dict[str, Any]) -> Header:
            items = tuple(Item(**one | {"answers": tuple(one["answers"])}) for one in record["items"])
            return Header(**record | {"items": items, "plan": SweepGrid.from_record(record["plan"])})

        return read_record(text, SCHEMA, VERSION, build)


class SweepFolder:
    """One sweep's files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def header(self) -> Header | None:
        """What the folder's sweep is; None if there is nothing yet.

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
        """Prepare the folder for this sweep, which may have begun before.

        Raises:
            RequestError: it holds another one, or cannot be written to.
        """
        if (present := self.header()) is not None:
            if present != header:
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
        """Every unit that is done, by any process or in a finished sweep; of a unit that was done twice, the first."""
        found = self._finished()
        for part in sorted(self.folder.glob("part-*.jsonl")):
            for trial, item, temperature, samples in _lines(part):
                unit = Unit(trial, item, temperature)
                found.setdefault(unit, [Sample(*one) for one in samples])
        return found

    def _finished(self) -> dict[Unit, list[Sample]]:
        """The units of a finished sweep, whose results alone may have to be made anew; none where its texts cannot be read."""
        header = self.header()
        if header is None or not (self.folder / _SAMPLES).is_file():
            return {}
        try:
            samples = list(self.samples())
        except TraceError:
            return {}
        found, settings = defaultdict[Unit, list[Sample]](list), header.plan.settings
        for one in samples:
            found[Unit(one.trial, one.item, settings[one.setting].temperature)].append(one)
        return dict(found)

    def append(self, rank: int, unit: Unit, samples: Sequence[Sample]) -> None:
        """Write a unit to disk; when this returns, it survives any end of this process."""
        record = [*astuple(unit), [astuple(one) for one in samples]]
        _append(self.folder / f"part-{rank}.jsonl", record)

    def finish(self, samples: Sequence[Sample], results: Results) -> None:
        """Write samples and results, and remove the processes' files.

        Raises:
            SpecvizError: they cannot be written; no finished unit is lost then.
        """
        lines = (json.dumps(astuple(one), ensure_ascii=False) + "\n" for one in sorted(samples))
        # Without name and time, the same samples give the same file.
        packed = gzip.compress("".join(lines).encode("utf-8"), mtime=0)
        try:
            write_whole(self.folder / _SAMPLES, packed)
            write_whole(self.folder / "results.json", results.to_json())
        except OSError as error:
            raise _unwritten(error) from error
        for part in self.folder.glob("part-*.jsonl"):
            part.unlink()

    def results(self) -> Results:
        """The finished sweep's results, without latencies; TraceError if there are none."""
        try:
            return Results.from_json((self.folder / "results.json").read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise TraceError("The results of this sweep cannot be read.") from error

    def samples(self) -> Iterator[Sample]:
        """The finished sweep's texts in order; TraceError if there are none."""
        try:
            with gzip.open(self.folder / _SAMPLES, "rt", encoding="utf-8") as file:
                for line in file:
                    yield Sample(*json.loads(line))
        except (OSError, EOFError, ValueError, TypeError) as error:
            raise TraceError("The texts of this sweep cannot be read.") from error

    def timings(self, machine: Mapping[str, Any] | None = None) -> list[Timing]:
        """The timings so far; with `machine`, those of this machine: another machine's are deleted then."""
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
        """Write one timing to disk; `timings(machine)` must have been called before."""
        _append(self.folder / "timings.jsonl", astuple(timing))

    @property
    def machine(self) -> dict[str, Any] | None:
        """The machine that timed it: "machine", "processor", "date" and "versions"; None if nothing was timed."""
        return next(iter(_lines(self.folder / "timings.jsonl")), None)


@dataclass(frozen=True, eq=False)
class Recorded:
    """A finished or running sweep to be shown: figures, texts, and the costs on the machine that timed it.

    Attributes:
        given: its texts; None reads them from `folder` when they are first needed.
    """

    results: Results
    items: tuple[Item, ...]
    given: Sequence[Sample] | None = None
    costs: CostModel | None = None
    machine: str = ""
    folder: SweepFolder | None = None

    def samples(self, setting: int) -> list[Sample]:
        """The texts of the setting with this index, the first trial's first.

        Raises:
            TraceError: they cannot be read.
        """
        return self._by_setting.get(setting, [])

    @cached_property
    def _by_setting(self) -> dict[int, list[Sample]]:
        every = self.folder.samples() if self.given is None and self.folder else self.given or ()
        found = defaultdict(list)
        for one in sorted(every, key=lambda one: (one.setting, one.trial, one.item)):
            found[one.setting].append(one)
        return found


def open_recorded(folder: Path = SHELF) -> Recorded | None:
    """The finished sweep in a folder, latencies included; None if there is none that can be read."""
    files = SweepFolder(folder)
    try:
        header = files.header()
        if header is None:
            return None
        results, timings = files.results(), files.timings()
    except SpecvizError:
        return None
    settings = header.plan.settings
    machine = files.machine or {}
    return Recorded(
        with_latency(results, settings, timings),
        header.items,
        costs=fit_cost_model(settings, timings, header.plan.draft_length),
        machine=", ".join(str(machine[name]) for name in ("machine", "processor") if name in machine),
        folder=files,
    )


@cache
def shown_sweep() -> Recorded | None:
    """The project's own sweep, read once for this process."""
    return open_recorded()


def _lines(path: Path) -> Iterator[Any]:
    """The complete lines of a file; one that was cut off when its writer ended is left out."""
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
