"""The command `bench`: its options, and what it prints and writes."""

from __future__ import annotations

import gc
import sys
from typing import Annotated

import typer

from specviz.cli.options import Json, Markdown, choices, command_line, option
from specviz.cli.terminal import print_table
from specviz.files import write_whole
from specviz.progress import TerminalProgress


def bench(
    context: typer.Context,
    pair: Annotated[str | None, option("Model pair", "embedded", "PAIR")] = None,
    shape: Annotated[
        tuple[str, str] | None,
        option("Random weights in two models’ shapes: qwen2.5-0.5b qwen2.5-7b", None, "DRAFTER VERIFIER"),
    ] = None,
    contenders: Annotated[list[str] | None, option("Who takes part", "all", "NAME...")] = None,
    repetitions: Annotated[int | None, option("Runs for each prompt and temperature", 1, low=1)] = None,
    tokens: Annotated[int | None, option("New tokens of every run", 40, low=1)] = None,
    prompts: Annotated[int | None, option("The most prompts", 14, low=1)] = None,
    draft_length: Annotated[int | None, option("Draft tokens a round, where fixed", 3, "K", low=1)] = None,
    sequences: Annotated[int | None, option("Concurrent sequences", 8, low=1)] = None,
    temperatures: Annotated[list[float] | None, option("Temperatures", "0 1", "T...")] = None,
    seed: Annotated[int | None, option("Seed of the first prompt", 0)] = None,
    device: Annotated[str | None, option("auto, cpu, cuda, cuda:1, ...", "auto", "DEVICE")] = None,
    dtype: Annotated[str | None, option("auto, float32, bfloat16, float16, float64", "auto", "DTYPE")] = None,
    json: Json = None,
    markdown: Markdown = None,
) -> int:
    """Measure this machine: SpecViz, transformers, flashspec and llama.cpp side by side."""
    from specviz.tools.bench.benchmark import BenchmarkOptions, load_bed, measure  # slow to import

    asked = choices(context.params, BenchmarkOptions)
    options, progress = BenchmarkOptions(**asked), TerminalProgress(sys.stderr)
    bed = load_bed(options, progress)
    gc.freeze()  # as the server does: garbage collection skips everything loaded so far
    found = measure(options, bed, progress, command_line("bench", asked))
    print(f"{found.about['pair']}, {found.about['machine']}\n")
    print_table(found.rows())
    print("", *found.notes, sep="\n")
    if json:
        write_whole(json, found.to_json())
    if markdown:
        write_whole(markdown, found.markdown())
    return 0 if found.complete else 130
