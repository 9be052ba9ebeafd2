"""The command `sweep`: its arguments, its processes, what it prints and writes. Knows nothing of how texts are made.

Started by `accelerate launch`, its processes share the units among them and one of them, the first, does the rest.
"""

from __future__ import annotations

import argparse
import datetime
import os
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specviz.analysis.sweep.plan import Plan
from specviz.cli.command_line import choices, command_line
from specviz.cli.table import print_table
from specviz.errors import RequestError, SpecvizError
from specviz.files import check_output, write_output
from specviz.progress import Progress, TerminalProgress
from specviz.tools.sweep.picture import Picture

if TYPE_CHECKING:
    from specviz.analysis.sweep.items import Asked
    from specviz.analysis.sweep.job import Job
    from specviz.analysis.sweep.results import Results
    from specviz.analysis.sweep.store import Recorded, Store
    from specviz.models.pairs import ModelPair

_TABLES = 4
"""A table is printed after every so many-th part of the work."""
_STAGE = "Writing the texts"


def add_arguments(sweep: argparse.ArgumentParser) -> None:
    """What can be asked of a sweep. Defaults stay with `Plan`."""
    sweep.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="where it is kept; goes on with what is there"
    )
    sweep.add_argument("--pair", help="model pair (default: embedded)")
    sweep.add_argument("--methods", nargs="+", metavar="NAME", help="(default: all nine)")
    sweep.add_argument(
        "--leniences", type=float, nargs="+", metavar="A", help="for all methods (default: each method’s own)"
    )
    sweep.add_argument("--temperatures", type=float, nargs="+", metavar="T", help="(default: 0 0.5 1)")
    sweep.add_argument(
        "--prompts",
        metavar="SET",
        help="built-in, a file of JSON lines, or lm-eval:TASK (default: built-in)",
    )
    for name, about in (
        ("--points", "of each method’s own leniences, how many (default: all)"),
        ("--limit", "items at most (default: all)"),
        ("--trials", "texts of an item at a setting (default: 1)"),
        ("--draft-length", "K of all (default: 3)"),
        ("--max-new-tokens", "of a text (default: 24)"),
        ("--seed", "of everything random (default: 0)"),
        ("--timed", "items that are timed one at a time; 0 for none (default: 8)"),
        ("--rows", "texts written at once; changes no result (default: 64)"),
    ):
        sweep.add_argument(name, type=int, metavar="N", help=about)
    sweep.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, ... (default: auto)")
    sweep.add_argument(
        "--dtype", default="auto", help="auto, float32, bfloat16, float16, float64 (default: auto)"
    )
    sweep.add_argument(
        "--confirm-run-unsafe-code",
        action="store_true",
        help="let a task of lm-evaluation-harness run code that a model wrote",
    )
    sweep.add_argument("--csv", type=Path, metavar="FILE", help="write the points as a table")
    sweep.add_argument(
        "--markdown", type=Path, metavar="FILE", help="write the report; its pictures go to --out"
    )


def run(options: argparse.Namespace, stop: threading.Event) -> int:
    """Sweep, print and write; returns the exit status."""
    from specviz.analysis.sweep.store import Store

    for name in ("csv", "markdown"):  # before anything is done
        check_output(f"--{name}", getattr(options, name))
    if options.rows is not None and options.rows < 1:
        raise RequestError(f"--rows is {options.rows}; at least one text must be written at once.")
    store = Store(options.out)
    plan = _plan(options, store)
    crew = _Crew(options.device)
    done = store.is_complete and _is_timed(store, plan)
    crew.wait()
    if not done and not _sweep(options, plan, store, crew, stop):
        return 130
    if crew.leads:
        _report(options, store)
    return 0


def _plan(options: argparse.Namespace, store: Store) -> Plan:
    """What is asked for; what is not said, the folder says if it holds a sweep."""
    settings = choices(options, Plan)
    header = store.header()
    if header is None:
        return Plan(**settings)
    there = header.plan
    if differing := [name for name, value in settings.items() if getattr(there, name) != value]:
        raise RequestError(
            f"That folder holds a sweep with another choice of {' and '.join(differing)}: name another folder, or leave "
            "the choice out to go on with what is there."
        )
    return there


def _is_timed(store: Store, plan: Plan) -> bool:
    header = store.header()
    items = len(header.items) if header else 0
    return len(store.timings()) >= min(plan.timed, items) * len(plan.settings)


class _Crew:
    """The processes of one sweep, this one among them."""

    def __init__(self, device: str) -> None:
        import torch
        from accelerate import PartialState

        from specviz.runtime.cpu.threads import set_budget

        # Whoever is done first may have to wait for hours; by itself torch gives up after minutes.
        patience = datetime.timedelta(days=30)
        self.state = PartialState(cpu=device == "cpu" or not torch.cuda.is_available(), timeout=patience)
        self.count: int = self.state.num_processes
        self.rank: int = self.state.process_index
        self.leads: bool = self.state.is_main_process
        self.device = device if device != "auto" or self.count == 1 else str(self.state.device)
        if self.count > 1 and self.state.device.type == "cpu":
            set_budget(max(1, (os.cpu_count() or 1) // self.count))

    def wait(self) -> None:
        """Until all processes are here."""
        self.state.wait_for_everyone()


def _sweep(options: argparse.Namespace, plan: Plan, store: Store, crew: _Crew, stop: threading.Event) -> bool:
    """Write and time what is missing; False where it was stopped before the end."""
    from specviz.analysis.sweep.job import ROWS, Job
    from specviz.models.pairs import load_pair

    progress: Progress = TerminalProgress(sys.stderr) if crew.leads else _silent
    with crew.state.main_process_first():  # the first one may have to fetch and convert
        pair = load_pair(plan.pair, device=crew.device, dtype=options.dtype, progress=progress)
    items = _items(plan, pair, options.confirm_run_unsafe_code)
    job = Job(plan, pair, items, options.rows or ROWS)
    if crew.leads:
        store.begin(job.header)
    crew.wait()
    if not store.is_complete:
        done = store.done()
        crew.wait()  # nobody adds to what is done before all have seen the same
        with crew.state.split_between_processes([unit for unit in job.units if unit not in done]) as units:
            _write(job, list(units), store, crew, stop, progress)
        crew.wait()
        if crew.leads:
            found = store.done()
            if any(unit not in found for unit in job.units):
                print("Stopped; the same command goes on from here.", file=sys.stderr)
            else:
                samples = [one for unit in job.units for one in found[unit]]
                store.finish(samples, job.header.results(samples))
    crew.wait()
    if not store.is_complete:
        return False
    return not crew.leads or _time(job, store, crew, stop, progress)


def _silent(_fraction: float, _text: str) -> None:
    pass


def _items(plan: Plan, pair: ModelPair, runs_code: bool) -> Asked:
    if plan.prompts.startswith("lm-eval:"):
        from specviz.integrations.lm_eval import load_task_items

        return load_task_items(plan.prompts, plan.limit, pair, runs_code=runs_code)
    from specviz.analysis.sweep.items import load_items

    return load_items(plan.prompts, plan.limit)


def _write(
    job: Job, units: Sequence[Any], store: Store, crew: _Crew, stop: threading.Event, progress: Progress
) -> None:
    """Do units, one after another, each kept at once."""
    begin, tokens = time.perf_counter(), 0
    for count, unit in enumerate(units):
        spent = time.perf_counter() - begin
        left = f", {_duration(spent / count * (len(units) - count))} left" if count else ""
        told = f"{_STAGE}: item {unit.item + 1} of {len(job.items.items)}, T = {unit.temperature:g}{left}"
        progress(count / len(units), told)
        samples = job.samples(unit, stop)
        if samples is None:
            return
        store.append(crew.rank, unit, samples)
        tokens += sum(one.tokens for one in samples)
        if crew.leads and (count + 1) * _TABLES // len(units) > count * _TABLES // len(units):
            so_far = [one for each in store.done().values() for one in each]
            print_table(table(job.header.results(so_far)))
    if units:
        spent = time.perf_counter() - begin
        progress(1.0, _STAGE)
        if crew.leads:
            told = f"{tokens} tokens in {_duration(spent)}, {1000 * spent / max(tokens, 1):.1f} ms a token"
            print(told, file=sys.stderr)


def _time(job: Job, store: Store, crew: _Crew, stop: threading.Event, progress: Progress) -> bool:
    """Time what is not timed yet; False where it was stopped."""
    from specviz.runtime.machine import describe_machine, describe_processor, versions

    device = str(job.pair.device)
    there = store.machine or {}
    machine = {
        "machine": describe_machine(device),
        "processor": describe_processor(),
        "device": device,
        "versions": versions(),
    }
    if {name: there.get(name) for name in machine} == machine:
        machine = there
    else:
        machine["date"] = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    done = {(one.place, one.setting) for one in store.timings(machine)}
    asked = [each for each in job.timed() if each not in done]
    begin = time.perf_counter()
    for count, timing in enumerate(job.timings(asked, stop), 1):
        store.add_timing(timing)
        left = _duration((time.perf_counter() - begin) / count * (len(asked) - count))
        progress(count / len(asked), f"Timing texts alone: {count} of {len(asked)}, {left} left")
    if stop.is_set():
        print("Stopped; the same command goes on from here.", file=sys.stderr)
    return not stop.is_set()


def _report(options: argparse.Namespace, store: Store) -> None:
    from specviz.analysis.sweep.store import open_recorded

    recorded = open_recorded(store.folder)
    if recorded is None:
        raise SpecvizError(
            "The results in that folder cannot be read: delete results.json there and sweep again."
        )
    print_table(table(recorded.results))
    if options.csv:
        write_output(options.csv, recorded.results.to_csv())
    if options.markdown:
        pictures = [
            replace(each, path=_seen_from(options.markdown, each.path))
            for each in _pictures(recorded, store.folder)
        ]
        write_output(options.markdown, report(recorded, store, pictures))


def report(recorded: Recorded, store: Store, pictures: Sequence[Picture]) -> str:
    """The report of a finished sweep in Markdown."""
    from specviz.tools.sweep.report import markdown

    header, there = store.header(), store.machine or {}
    assert header is not None
    return markdown(
        recorded.results,
        header.items,
        recorded.costs,
        recorded.machine,
        versions=there.get("versions", {}),
        command=command_line("sweep", _chosen(header.plan)),
        date=there.get("date", ""),
        pictures=pictures,
        settings=header.plan.settings,
        samples=list(store.samples()),
    )


def _seen_from(file: Path, other: Path) -> Path:
    return Path(os.path.relpath(other, file.parent))


def _chosen(plan: Plan) -> dict[str, Any]:
    """What of a plan is not the default."""
    every = {each.name: (getattr(plan, each.name), each.default) for each in fields(Plan)}
    return {name: value for name, (value, default) in every.items() if value != default}


def _pictures(recorded: Recorded, folder: Path) -> list[Picture]:
    """Accuracy against what it costs, at each temperature; none, and a word on why, where they cannot be drawn here."""
    try:
        from plotly.io import write_images

        from specviz.app.figures.tradeoff import figure

        results = recorded.results
        costs = ["rejection_rate"]
        if any("relative_latency" in point.figures for point in results.points):
            costs.append("relative_latency")
        found = [
            Picture(temperature, cost, folder / f"{cost.replace('_', '-')}-{temperature:g}.svg")
            for temperature in results.temperatures
            for cost in costs
        ]
        plots = [figure(results, temperature=each.temperature, x=each.cost) for each in found]
        write_images(fig=plots, file=[each.path for each in found], width=900, height=620)
        return found
    except (ImportError, OSError, RuntimeError, ValueError) as error:  # as plotly and kaleido raise
        print(
            f"The report has no pictures ({type(error).__name__}): plotly, kaleido and Chromium draw them.",
            file=sys.stderr,
        )
        return []


def table(results: Results) -> list[tuple[str, ...]]:
    """The points in short, for a terminal."""
    shown = ("accuracy", "distance", "rejection_rate", "verifier_calls", "relative_latency")
    head = ("T", "method", "α", "texts", "accuracy (95 %)", "TV", "rejected", "calls/token", "latency")
    rows: list[tuple[str, ...]] = [head]
    for point in results.points:
        told = []
        for name in shown:
            found = point.figures.get(name)
            cell = f"{found.value:.3f}" if found else "–"
            told.append(
                f"{cell} ({found.low:.3f}–{found.high:.3f})" if found and name == "accuracy" else cell
            )
        one = point.setting
        rows.append((f"{one.temperature:g}", one.method, f"{one.lenience:g}", str(point.samples), *told))
    return rows


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
