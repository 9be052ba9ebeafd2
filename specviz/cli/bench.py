"""The command `bench`: its arguments, and what it prints and writes. Knows nothing of how anything is measured."""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from specviz.cli.command_line import choices, command_line
from specviz.cli.table import print_table
from specviz.errors import RequestError, SpecvizError
from specviz.files import check_output, write_output
from specviz.progress import TerminalProgress

if TYPE_CHECKING:
    from specviz.tools.bench.measurements import Bench

_OUTPUTS = ("json", "markdown", "figure")


def add_arguments(bench: argparse.ArgumentParser) -> None:
    """What can be asked of a benchmark. Defaults stay with `specviz.tools.bench.job.Plan`."""
    bench.add_argument("--pair", help="model pair (default: embedded)")
    bench.add_argument(
        "--shape",
        nargs=2,
        metavar=("DRAFTER", "VERIFIER"),
        help="random weights at two real models’ shapes, such as qwen2.5-0.5b qwen2.5-7b",
    )
    bench.add_argument(
        "--acceptance", type=float, help="with --shape: seek the temperature at which so much is accepted"
    )
    bench.add_argument("--contenders", nargs="+", metavar="NAME", help="who takes part (default: all)")
    for name, about in (
        ("--repetitions", "runs of every contender for each prompt and temperature (default: 1)"),
        ("--tokens", "new tokens of every run (default: 40)"),
        ("--prompts", "of four kinds in turn (default: 12)"),
        ("--draft-length", "K of all who draft a fixed number (default: 3)"),
        ("--threads", "of everybody (default: torch’s own choice)"),
        ("--seed", "of the first prompt (default: 0)"),
    ):
        bench.add_argument(name, type=int, metavar="N", help=about)
    bench.add_argument("--temperatures", type=float, nargs="+", metavar="T", help="(default: 0 1)")
    bench.add_argument(
        "--draft-lengths",
        type=int,
        nargs="+",
        metavar="K",
        help="fixed K that lossless decoding is tried at (default: 1 2 3 5)",
    )
    bench.add_argument("--device", help="auto, cpu, cuda, cuda:1, ... (default: auto)")
    bench.add_argument("--dtype", help="auto, float32, bfloat16, float16, float64 (default: auto)")
    bench.add_argument(
        "--quick", action="store_true", default=None, help="a minute’s trial; its figures mean little"
    )
    bench.add_argument("--json", type=Path, metavar="FILE", help="write everything that was measured")
    bench.add_argument("--markdown", type=Path, metavar="FILE", help="write the report")
    bench.add_argument("--figure", type=Path, metavar="FILE", help="write a figure as one HTML file")
    bench.add_argument(
        "--from",
        dest="sources",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="measure nothing: report what --json wrote before, one file or several",
    )


def run(options: argparse.Namespace, stop: threading.Event) -> int:
    """Measure, print and write; returns the exit status."""
    for name in _OUTPUTS:  # before anything is measured
        check_output(f"--{name}", getattr(options, name))
    benches = _saved(options.sources) if options.sources else [_measured(options, stop)]
    for bench in benches:
        _print(bench)
    _write(options, benches)
    if options.sources or benches[0].complete:
        return 0
    return 130 if stop.is_set() else 1


def _saved(sources: Sequence[Path]) -> list[Bench]:
    from specviz.tools.bench.measurements import from_json

    found = []
    for source in sources:
        try:
            found += from_json(source.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise RequestError(f"{source.name} cannot be read: name a file that --json wrote.") from error
    return found


def _measured(options: argparse.Namespace, stop: threading.Event) -> Bench:
    from specviz.tools.bench.job import Job, Plan, load_bed

    asked = choices(options, Plan)
    plan = Plan(**asked)
    progress = TerminalProgress(sys.stderr)
    bed = load_bed(plan, progress)
    return Job(plan, bed, progress, stop, command_line("bench", asked)).run()


def _print(bench: Bench) -> None:
    from specviz.tools.bench.report import tables

    print(
        f"{bench.pair} · {bench.machine} · {bench.dtype} · {bench.threads} thread(s)", *bench.notes, sep="\n"
    )
    for table in tables(bench):
        print(f"\n{table.title}")
        print_table(table.rows)
    for party in bench.parties:
        if party.absent:
            print(f"\n{party.name} did not take part: {party.absent}")
    if not bench.complete:
        print("\nIncomplete: stopped before the end.")


def _write(options: argparse.Namespace, benches: Sequence[Bench]) -> None:
    from specviz.tools.bench.measurements import to_json

    if options.json:
        write_output(options.json, to_json(benches))
    if options.markdown:
        from specviz.tools.bench.report import markdown

        write_output(options.markdown, markdown(benches))
    if options.figure:
        try:
            from specviz.tools.bench.figure import page
        except ImportError as error:
            raise SpecvizError("A figure needs the package plotly, which is not installed.") from error
        write_output(options.figure, page(benches))
