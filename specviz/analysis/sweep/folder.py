"""A sweep's folder: its results, and the units done so far, so that the sweep can resume after any interruption.

- `plan.json` identifies the sweep.
- `part-N.jsonl` has the units that process N has done, one per line. A truncated line is ignored, and a unit that two
  processes did counts once.
- `samples.jsonl.gz` is the table of all texts, `results.json` has the estimates. Both depend only on the plan.
- `timings.jsonl` has the timings, all of one machine.
"""

from __future__ import annotations

import datetime
import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from specviz.analysis.sweep.estimates import with_latency
from specviz.analysis.sweep.grid import Unit
from specviz.analysis.sweep.results import (
    TEXTS,
    Header,
    Point,
    Results,
    Sample,
    Timing,
    packed_samples,
)
from specviz.errors import RequestError, TraceError
from specviz.files import append_json_line, json_lines, write_whole
from specviz.resources import ASSETS

PLAN_SCHEMA, RESULTS_SCHEMA, VERSION = "specviz-sweep-plan", "specviz-sweep", 1
SHELF = ASSETS / "sweep"
"""The recorded sweep behind the lenience scales and the lessons; `sweeps.json` lists all sweeps that the page shows."""


class SweepFolder:
    """One sweep's files. Methods that write raise OSError if writing fails; no finished unit is lost."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._plan = folder / "plan.json"
        self._results = folder / "results.json"
        self._timings = folder / "timings.jsonl"

    def header(self) -> Header | None:
        """The header of the folder's sweep; None if the folder has no sweep yet.

        Raises:
            RequestError: the folder's `plan.json` is damaged or not the plan of a sweep.
        """
        if not self._plan.exists():
            return None
        try:
            return _HEADER.validate_python(_read(self._plan, PLAN_SCHEMA))
        except _DAMAGED as error:
            raise RequestError(
                "There is no sweep in that folder, and it has other files: name another."
            ) from error

    def begin(self, header: Header) -> None:
        """Prepare the folder for this sweep, which may be an interrupted one.

        Raises:
            RequestError: the folder has another sweep, or its `plan.json` is not the plan of a sweep.
        """
        present = self.header()
        if present is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            _write(self._plan, PLAN_SCHEMA, asdict(header))
        elif present != header:
            raise RequestError(
                "That folder holds another sweep (the plan, the pair or the items differ): name another folder, or name "
                "the folder alone to resume it."
            )

    @property
    def is_complete(self) -> bool:
        """Whether all texts and their results are written."""
        return self._results.is_file()

    def done(self) -> dict[Unit, list[Sample]]:
        """The samples of every unit that is done, by any process. Also reads a finished sweep."""
        found: dict[Unit, list[Sample]] = {}
        if (header := self.header()) and (self.folder / TEXTS).is_file():
            settings = header.plan.settings
            for one in self.samples():
                found.setdefault(Unit(one.trial, one.item, settings[one.setting].temperature), []).append(one)
        for part in self.folder.glob("part-*.jsonl"):
            for *unit, samples in json_lines(part):
                found.setdefault(Unit(*unit), [Sample(*one) for one in samples])
        return found

    def append(self, rank: int, unit: Unit, samples: Sequence[Sample]) -> None:
        """Write a unit to disk. Once this returns, the unit survives any failure of this process."""
        append_json_line(self.folder / f"part-{rank}.jsonl", [*unit, samples])

    def finish(self, results: Results) -> None:
        """Write the results and their texts, and then remove the files `part-*.jsonl`."""
        lines = (json.dumps(one, ensure_ascii=False) + "\n" for one in sorted(results.given))
        head = {name: getattr(results, name) for name in ("drafter", "verifier", "dtype")}
        points = [asdict(point) for point in results.points]
        rest = {"items": len(results.items), "points": points, "complete": results.complete}
        # Without a time stamp, so that the same samples give the same file.
        write_whole(self.folder / TEXTS, gzip.compress("".join(lines).encode("utf-8"), mtime=0))
        _write(self._results, RESULTS_SCHEMA, {"plan": asdict(results.plan), **head, **rest})
        for part in self.folder.glob("part-*.jsonl"):
            part.unlink()

    def results(self) -> Results:
        """The finished sweep's results, without latencies.

        Raises:
            RequestError: the folder's `plan.json` is damaged or not the plan of a sweep.
            TraceError: the sweep is not finished, or its results are damaged.
        """
        header = self.header()
        try:
            record = _read(self._results, RESULTS_SCHEMA)
            points = _POINTS.validate_python(record["points"])
            more = {"complete": record["complete"], "folder": self.folder, "machine": self.machine}
            return Results(**vars(header), points=points, **more)
        except _DAMAGED as error:
            raise TraceError(
                "The results of this sweep cannot be read: delete results.json there and sweep again."
            ) from error

    def samples(self) -> list[Sample]:
        """The finished sweep's texts, sorted by setting, item and trial; TraceError if they cannot be read."""
        return [Sample(*json.loads(line)) for line in packed_samples(self.folder)]

    def timings(self) -> list[Timing]:
        """The timings so far."""
        return [Timing(*one) for one in list(json_lines(self._timings))[1:]]

    def begin_timings(self, machine: Mapping[str, Any]) -> None:
        """Prepare for timings on this machine. Timings of another machine are deleted."""
        if not machine.items() <= self.machine.items():
            today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
            write_whole(self._timings, json.dumps({**machine, "date": today}, ensure_ascii=False) + "\n")

    def add_timing(self, timing: Timing) -> None:
        """Write one timing to disk, after `begin_timings`."""
        append_json_line(self._timings, timing)

    @property
    def machine(self) -> dict[str, Any]:
        """The machine of the timings: "machine", "processor", "date" and "versions"; empty if nothing was timed."""
        return next(json_lines(self._timings), {})


def open_recorded(folder: Path = SHELF) -> Results:
    """The finished sweep in a folder, including latencies. Errors as for `SweepFolder.results`."""
    files = SweepFolder(folder)
    results = files.results()
    return with_latency(results, results.plan.settings, files.timings())


@cache
def shown_sweeps() -> dict[str, Results]:
    """The recorded sweeps by title, in the order of `sweeps.json`. Read once per process."""
    listed = json.loads((ASSETS / "sweeps.json").read_text(encoding="utf-8"))
    return {title: open_recorded(ASSETS / folder) for title, folder in listed.items()}


# ---- JSON

_DAMAGED = (OSError, ValueError, TypeError, KeyError, AttributeError)
_HEADER, _POINTS = TypeAdapter(Header), TypeAdapter(tuple[Point, ...])


def _read(path: Path, schema: str) -> dict[str, Any]:
    """The record that `_write` wrote. Raises one of `_DAMAGED` if the file is missing or has another schema."""
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if (record.pop("schema"), record.pop("version")) != (schema, VERSION):
        raise ValueError(f"{path.name} is no {schema} of version {VERSION}.")
    return record


def _write(path: Path, schema: str, record: Mapping[str, Any]) -> None:
    whole = {"schema": schema, "version": VERSION, **record}
    write_whole(path, json.dumps(whole, ensure_ascii=False, allow_nan=False, indent=1) + "\n")
