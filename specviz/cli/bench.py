"""The command `bench`: its options, and what it prints and writes. Knows nothing of how anything is measured."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specviz.cli.options import Json, Markdown, asks, choices, command_line, flag, writes
from specviz.cli.terminal import interrupt, print_tables
from specviz.errors import RequestError, SpecvizError
from specviz.files import write_output
from specviz.progress import TerminalProgress

if TYPE_CHECKING:
    from specviz.tools.bench.measurements import Measurements


def bench(
    context: typer.Context,
    pair: Annotated[str | None, asks("Model pair", "embedded", "PAIR")] = None,
    shape: Annotated[
        tuple[str, str] | None,
        asks(
            "Random weights at two real models’ shapes, such as qwen2.5-0.5b qwen2.5-7b",
            metavar="DRAFTER VERIFIER",
        ),
    ] = None,
    acceptance: Annotated[
        float | None, asks("With --shape: seek the temperature at which so much is accepted", metavar="A")
    ] = None,
    contenders: Annotated[list[str] | None, asks("Who takes part", "all", "NAME...")] = None,
    repetitions: Annotated[
        int | None, asks("Runs of every contender for each prompt and temperature", 1)
    ] = None,
    tokens: Annotated[int | None, asks("New tokens of every run", 40)] = None,
    prompts: Annotated[int | None, asks("Of those held out, their kinds in turn", 14)] = None,
    draft_length: Annotated[int | None, asks("Of all who draft a fixed number", 3, "K")] = None,
    threads: Annotated[int | None, asks("Of everybody", "torch’s own choice")] = None,
    seed: Annotated[int | None, asks("Of the first prompt", 0)] = None,
    temperatures: Annotated[list[float] | None, asks("", "0 1", "T...")] = None,
    draft_lengths: Annotated[
        list[int] | None, asks("Fixed K that lossless decoding is tried at", "1 2 3 5", "K...")
    ] = None,
    device: Annotated[str | None, asks("auto, cpu, cuda, cuda:1, ...", "auto", "DEVICE")] = None,
    dtype: Annotated[str | None, asks("auto, float32, bfloat16, float16, float64", "auto", "DTYPE")] = None,
    quick: Annotated[bool | None, flag("quick", "A minute’s trial; its figures mean little.")] = None,
    json: Json = None,
    markdown: Markdown = None,
    figure: Annotated[Path | None, writes("Write a figure as one HTML file")] = None,
    sources: Annotated[
        list[Path] | None,
        asks(
            "Measure nothing: report what --json wrote before, one file or several", None, "FILE...", "--from"
        ),
    ] = None,
) -> int:
    """Measure this machine: our methods, transformers and flashspec side by side."""
    # Slow to import.
    from specviz.tools.bench import report
    from specviz.tools.bench.benchmark import Benchmark, load_bed
    from specviz.tools.bench.measurements import from_json, to_json
    from specviz.tools.bench.options import BenchmarkOptions

    with interrupt() as stop:
        if sources:
            benches = [each for source in sources for each in from_json(_read(source))]
        else:
            asked = choices(context.params, BenchmarkOptions)
            plan, progress = BenchmarkOptions(**asked), TerminalProgress(sys.stderr)
            bed = load_bed(plan, progress)
            gc.freeze()  # as the server does: what is loaded is not looked through for garbage again and again, whoever's turn it is
            benches = [Benchmark(plan, bed, progress, stop, command_line("bench", asked)).run()]
        for each in benches:
            _print(each, report.tables(each))
        if json:
            write_output(json, to_json(benches))
        if markdown:
            write_output(markdown, report.markdown(benches))
        if figure:
            try:
                from specviz.tools.bench.figure import page  # needs an optional package
            except ImportError as error:
                raise SpecvizError("A figure needs the package plotly, which is not installed.") from error
            write_output(figure, page(benches))
        if sources or benches[0].complete:
            return 0
        return 130 if stop.is_set() else 1


def _read(source: Path) -> str:
    try:
        return source.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"{source.name} cannot be read: name a file that --json wrote.") from error


def _print(bench: Measurements, tables: Iterable[Any]) -> None:
    print(
        f"{bench.pair} · {bench.machine} · {bench.dtype} · {bench.threads} thread(s)", *bench.notes, sep="\n"
    )
    print_tables(tables)
    for party in bench.parties:
        if party.absent:
            print(f"\n{party.name} did not take part: {party.absent}")
    if not bench.complete:
        print("\nIncomplete: stopped before the end.")
