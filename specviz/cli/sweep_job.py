"""The work of the command `sweep`: divides the units among processes, saves each unit, and prints and writes the results."""

from __future__ import annotations

import datetime
import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState

from specviz.analysis.sweep.estimates import estimated
from specviz.analysis.sweep.folder import SweepFolder, open_recorded
from specviz.analysis.sweep.grid import SweepGrid
from specviz.analysis.sweep.items import Items, load_items
from specviz.analysis.sweep.results import Results
from specviz.analysis.sweep.sweep import Sweep
from specviz.cli.options import command_line
from specviz.cli.terminal import interrupt, print_table
from specviz.engine.engine import Engine
from specviz.errors import RequestError
from specviz.files import write_whole
from specviz.models import loading
from specviz.progress import TerminalProgress, silent
from specviz.runtime.cpu.threads import budget, set_budget
from specviz.tools.machine import describe_machine, describe_processor, versions
from specviz.tools.sweep.report import markdown as sweep_report
from specviz.tools.sweep.report import picture

# The process that finishes first may have to wait for hours; torch's default timeout is minutes.
_PATIENCE = datetime.timedelta(days=30)


class SweepJob:
    """One process's share of a sweep."""

    def __init__(self, folder: Path, asked: Mapping[str, Any], device: str) -> None:
        """Resume the sweep in `folder`. If there is none, begin a sweep; `asked` has fields of `SweepGrid` by name.

        Raises:
            RequestError: the folder has a sweep with other settings, or the settings are invalid.
        """
        self._folder = SweepFolder(folder)
        header = self._folder.header()
        if header and (different := [name for name in asked if getattr(header.plan, name) != asked[name]]):
            raise RequestError(
                f"That folder holds a sweep with another choice of {' and '.join(different)}: name another folder, or leave "
                "the choice out to resume it."
            )
        self._grid = header.plan if header else SweepGrid(**asked)
        self._state = PartialState(cpu=device == "cpu" or not torch.cuda.is_available(), timeout=_PATIENCE)
        count = self._state.num_processes
        self._device = device if device != "auto" or count == 1 else str(self._state.device)
        if count > 1 and self._state.device.type == "cpu":
            set_budget(max(1, budget() // count))
        self.is_main: bool = self._state.is_main_process
        self._progress = TerminalProgress(sys.stderr) if self.is_main else silent

    def run(self, dtype: str, max_sequences: int, runs_code: bool) -> bool:
        """Generate and time the missing texts. Returns False if stopped before the end."""
        done = self._is_done()
        self._state.wait_for_everyone()
        if done:
            return True
        with interrupt() as stop:
            with self._state.main_process_first():  # the main process may have to download and convert
                pair = loading.load_pair(
                    self._grid.pair, device=self._device, dtype=dtype, progress=self._progress
                )
            if self._grid.prompts.startswith("lm-eval:"):
                from specviz.integrations.lm_eval import TaskItems  # needs an optional package

                asked: Items = TaskItems(self._grid.prompts, pair, self._grid.limit, runs_code=runs_code)
            else:
                asked = load_items(self._grid.prompts, self._grid.limit)
            sweep = Sweep(self._grid, asked, Engine(pair, max_sequences=max_sequences))
            if self.is_main:
                self._folder.begin(sweep.header)
            self._state.wait_for_everyone()
            if not self._folder.is_complete:
                self._write(sweep, stop)
            self._state.wait_for_everyone()
            if self.is_main and self._folder.is_complete:
                self._time(sweep, stop)
            stopped = stop.is_set() or not self._folder.is_complete
        if stopped and self.is_main:
            print("Stopped; the same command resumes it.", file=sys.stderr)
        return not stopped

    def _is_done(self) -> bool:
        header = self._folder.header()
        if header is None or not self._folder.is_complete:
            return False
        timed = min(self._grid.timed, len(header.items)) * len(self._grid.settings)
        return len(self._folder.timings()) >= timed

    def _write(self, sweep: Sweep, stop: threading.Event) -> None:
        """Generate this process's share of the missing units, until stopped. If all units are done, the main process writes the results."""
        done = self._folder.done()
        self._state.wait_for_everyone()  # before any process writes a unit, so that all divide the same units
        missing = [unit for unit in sweep.units if unit not in done]
        with self._state.split_between_processes(missing) as units:
            for count, unit in enumerate(units):
                item = f"item {unit.item + 1} of {len(sweep.items.items)}, T = {unit.temperature:g}"
                self._progress(count / len(units), f"Writing: {item}")
                if not (samples := sweep.samples(unit, stop)):
                    break
                self._folder.append(self._state.process_index, unit, samples)
        self._state.wait_for_everyone()
        if self.is_main:
            found = self._folder.done()
            if all(unit in found for unit in sweep.units):
                samples = [one for unit in sweep.units for one in found[unit]]
                self._folder.finish(estimated(sweep.header, samples))

    def _time(self, sweep: Sweep, stop: threading.Event) -> None:
        """Time the texts that are not timed yet, until stopped."""
        device = str(sweep.engine.pair.device)
        names = {"machine": describe_machine(device), "processor": describe_processor(), "device": device}
        self._folder.begin_timings(names | {"versions": versions()})
        done = {(one.timed, one.setting) for one in self._folder.timings()}
        missing = [each for each in sweep.timed() if each not in done]
        for count, timing in enumerate(sweep.timings(missing, stop), 1):
            self._folder.add_timing(timing)
            self._progress(count / len(missing), f"Timing texts alone: {count} of {len(missing)}")

    def report(self, csv: Path | None, markdown: Path | None) -> None:
        """Print the finished sweep's points, and write the files that are not None."""
        recorded = open_recorded(self._folder.folder)
        print_table(table(recorded))
        if csv:
            write_whole(csv, recorded.to_csv())
        if markdown:
            pictures = {}
            for temperature in recorded.temperatures:
                file = self._folder.folder / f"rejection-rate-{temperature:g}.svg"
                write_whole(file, picture(recorded, temperature))
                pictures[temperature] = Path(os.path.relpath(file, markdown.parent))
            write_whole(markdown, report(recorded, pictures))


def report(results: Results, pictures: Mapping[float, Path]) -> str:
    """The report of a finished sweep in Markdown, with the command that makes the same sweep."""
    plan = results.plan
    chosen = {
        each.name: value for each in fields(plan) if (value := getattr(plan, each.name)) != each.default
    }
    if "prompts" in chosen:
        chosen["prompts"] = Path(plan.prompts).name
    return sweep_report(results, pictures, command_line("sweep", {"out": "DIR"} | chosen))


def table(results: Results) -> list[tuple[str, ...]]:
    """The sweep's points as rows of a table, with a header, for `print_table`."""
    shown = ("accuracy", "distance", "rejection_rate", "verifier_calls", "relative_latency")
    head = ("T", "method", "α", "texts", "accuracy (95 %)", "TV", "rejected", "calls/token", "latency")
    rows: list[tuple[str, ...]] = [head]
    for point in results.points:
        cells = [f"{found.value:.3f}" if (found := point.figures.get(name)) else "–" for name in shown]
        if found := point.figures.get("accuracy"):
            cells[0] += f" ({found.low:.3f}–{found.high:.3f})"
        one = point.setting
        rows.append((f"{one.temperature:g}", one.method, f"{one.lenience:g}", str(point.samples), *cells))
    return rows
