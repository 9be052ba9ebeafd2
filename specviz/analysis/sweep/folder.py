"""A sweep's folder: its results, and the units done so far, so that the sweep can resume after any interruption.

- `plan.json` identifies the sweep.
- `part-N.jsonl` has the units that process N has done, one per line. A truncated line is ignored, and a unit that two
  processes did counts once.
- `samples.jsonl.gz` is the table of all texts, `results.json` has the estimates. Both depend only on the plan.
- `timings.jsonl` has the timings, all of one machine.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from specviz.analysis.sweep.estimates import estimate_points, with_latency
from specviz.analysis.sweep.grid import SweepGrid, Unit
from specviz.analysis.sweep.items import Item
from specviz.analysis.sweep.results import Results, Sample, Timing, read_record
from specviz.errors import RequestError, SpecvizError, TraceError
from specviz.files import append_json_line, json_lines, write_whole
from specviz.resources import ASSETS

SCHEMA, VERSION = "specviz-sweep-plan", 1
_UNREAD = "The texts of this sweep cannot be read."
SHELF = ASSETS / "sweep"
"""The recorded sweep behind the lenience scales and the lessons; `sweeps.json` lists all that the page shows."""


@dataclass(frozen=True)
class Header:
    """Identifies a sweep. Sweeps with equal headers have equal results."""

    plan: SweepGrid
    drafter: str
    verifier: str
    dtype: str
    items: tuple[Item, ...]

    def results(self, samples: Sequence[Sample]) -> Results:
        """The results of these samples."""
        settings, count = self.plan.settings, len(self.items)
        wanted = count * sum(self.plan.trials_at(setting.temperature) for setting in settings)
        points = estimate_points(settings, count, samples)
        names = self.drafter, self.verifier, self.dtype
        return Results(self.plan, *names, count, points, complete=len(samples) == wanted)

    def to_json(self) -> str:
        """The header as JSON text."""
        record = {"schema": SCHEMA, "version": VERSION} | asdict(self)
        return json.dumps(record, ensure_ascii=False, indent=1) + "\n"

    @staticmethod
    def from_json(text: str) -> Header:
        """Read the output of `to_json`. Raises TraceError if the text is something else or of another version."""

        def build(record: dict[str, Any]) -> Header:
            items = tuple(
                Item(**one | {name: tuple(one.get(name, ())) for name in ("answers", "also")})
                for one in record["items"]
            )
            return Header(**record | {"items": items, "plan": SweepGrid.from_record(record["plan"])})

        return read_record(text, SCHEMA, VERSION, build)


class SweepFolder:
    """One sweep's files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._samples = folder / "samples.jsonl.gz"
        self._results = folder / "results.json"
        self._timings = folder / "timings.jsonl"

    def header(self) -> Header | None:
        """The header of the folder's sweep; None if the folder has no sweep yet.

        Raises:
            RequestError: the folder contains something else.
        """
        try:
            return Header.from_json((self.folder / "plan.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError, TraceError) as error:
            raise RequestError(
                "There is no sweep in that folder, and it has other files: name another."
            ) from error

    def begin(self, header: Header) -> None:
        """Prepare the folder for this sweep, which may be an interrupted one.

        Raises:
            RequestError: the folder has another sweep, or cannot be written to.
        """
        if (present := self.header()) is not None:
            if present != header:
                raise RequestError(
                    "That folder holds another sweep (the plan, the pair or the items differ): name another folder, or name "
                    "the folder alone to resume it."
                )
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_whole(self.folder / "plan.json", header.to_json())
        except OSError as error:
            raise RequestError("That folder cannot be made or written to: name another.") from error

    @property
    def is_complete(self) -> bool:
        """Whether all texts and their results are written."""
        return self._results.is_file()

    def done(self) -> dict[Unit, list[Sample]]:
        """Every unit that is done, by any process or in a finished sweep."""
        found = self._finished()
        for part in sorted(self.folder.glob("part-*.jsonl")):
            for trial, item, temperature, samples in json_lines(part):
                found.setdefault(Unit(trial, item, temperature), [Sample(*one) for one in samples])
        return found

    def _finished(self) -> dict[Unit, list[Sample]]:
        header = self.header()
        if header is None or not self._samples.is_file():
            return {}
        found, settings = defaultdict[Unit, list[Sample]](list), header.plan.settings
        try:
            for one in self.samples():
                found[Unit(one.trial, one.item, settings[one.setting].temperature)].append(one)
        except TraceError:
            return {}
        return dict(found)

    def append(self, rank: int, unit: Unit, samples: Sequence[Sample]) -> None:
        """Write a unit to disk. Once this returns, the unit survives any failure of this process."""
        record = [*astuple(unit), [astuple(one) for one in samples]]
        _append(self.folder / f"part-{rank}.jsonl", record)

    def finish(self, samples: Sequence[Sample], results: Results) -> None:
        """Write samples and results, and remove the processes' files.

        Raises:
            SpecvizError: they cannot be written. No finished unit is lost.
        """
        lines = (json.dumps(astuple(one), ensure_ascii=False) + "\n" for one in sorted(samples))
        # Without a time stamp, so that the same samples give the same file.
        packed = gzip.compress("".join(lines).encode("utf-8"), mtime=0)
        try:
            write_whole(self._samples, packed)
            write_whole(self._results, results.to_json())
        except OSError as error:
            raise _unwritten(error) from error
        for part in self.folder.glob("part-*.jsonl"):
            part.unlink()

    def results(self) -> Results:
        """The finished sweep's results, without latencies; TraceError if there are none."""
        try:
            return Results.from_json(self._results.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise TraceError("The results of this sweep cannot be read.") from error

    def samples(self) -> Iterator[Sample]:
        """The finished sweep's texts in order; TraceError if there are none."""
        return map(_read_sample, self.packed())

    def packed(self) -> Iterator[bytes]:
        """The lines of `samples`, unread."""
        try:
            with gzip.open(self._samples) as file:
                yield from file
        except (OSError, EOFError) as error:
            raise TraceError(_UNREAD) from error

    def timings(self) -> list[Timing]:
        """The timings so far."""
        return [Timing(*one) for one in list(json_lines(self._timings))[1:]]

    def begin_timings(self, machine: Mapping[str, Any]) -> None:
        """Prepare for timings on this machine. Timings of another machine are deleted."""
        if self.machine != machine:
            self._timings.unlink(missing_ok=True)
            _append(self._timings, dict(machine))

    def add_timing(self, timing: Timing) -> None:
        """Write one timing to disk, after `begin_timings`."""
        _append(self._timings, astuple(timing))

    @property
    def machine(self) -> dict[str, Any]:
        """The machine of the timings: "machine", "processor", "date" and "versions"; empty if nothing was timed."""
        return next(json_lines(self._timings), {})


@dataclass(frozen=True, eq=False)
class Recorded:
    """A finished or running sweep, to be shown: figures, texts, and the machine that timed it.

    Attributes:
        given: the texts; None to read them from `folder` when they are first needed.
    """

    results: Results
    items: tuple[Item, ...]
    given: Sequence[Sample] | None = None
    machine: str = ""
    folder: SweepFolder | None = None

    @property
    def name(self) -> str:
        """Its name in an address: its folder's, which outlasts its title; "" without a folder."""
        return self.folder.folder.name if self.folder else ""

    def samples(self, setting: int) -> list[Sample]:
        """The texts of the setting with this index, the first trial's first.

        Raises:
            TraceError: they cannot be read.
        """
        if self.given is not None:
            found = [one for one in self.given if one.setting == setting]
        else:
            found = [_read_sample(line) for line in self._packed.get(f"[{setting}".encode(), ())]
        return sorted(found, key=lambda one: (one.trial, one.item))

    @cached_property
    def _packed(self) -> dict[bytes, list[bytes]]:
        """The folder's texts by setting. Only what is shown is read: a sweep has tens of thousands."""
        found = defaultdict(list)
        for line in self.folder.packed() if self.folder else ():
            found[line.partition(b",")[0]].append(line)
        return found


def open_recorded(folder: Path = SHELF) -> Recorded | None:
    """The finished sweep in a folder, including latencies; None if there is none or it cannot be read."""
    files = SweepFolder(folder)
    try:
        header = files.header()
        if header is None:
            return None
        results, timings = files.results(), files.timings()
    except SpecvizError:
        return None
    timed_on = files.machine
    machine = ", ".join(str(timed_on[name]) for name in ("machine", "processor") if name in timed_on)
    shown = with_latency(results, header.plan.settings, timings)
    return Recorded(shown, header.items, machine=machine, folder=files)


@cache
def shown_sweeps() -> dict[str, Recorded]:
    """The recorded sweeps that can be read, by the titles in `sweeps.json`, in its order. Read once per process."""
    try:
        listed = json.loads((ASSETS / "sweeps.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    found = {title: open_recorded(ASSETS / folder) for title, folder in listed.items()}
    return {title: sweep for title, sweep in found.items() if sweep}


def _read_sample(line: bytes) -> Sample:
    """A line of the table of texts; TraceError if it is something else."""
    try:
        return Sample(*json.loads(line))
    except (ValueError, TypeError) as error:
        raise TraceError(_UNREAD) from error


def _append(path: Path, record: Any) -> None:
    try:
        append_json_line(path, record)
    except OSError as error:
        raise _unwritten(error) from error


def _unwritten(error: OSError) -> SpecvizError:
    return SpecvizError(
        f"The sweep cannot be written: {error.strerror or error}. Run the same command again to resume it."
    )
