"""The command `sweep`: its options. If `accelerate launch` starts the command, its processes share the work."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specviz.cli.options import Device, Dtype, Markdown, UnsafeCode, choices, option, output_file


def sweep(
    context: typer.Context,
    out: Annotated[Path, option("The sweep's folder; a sweep in it is resumed", metavar="DIR")],
    pair: Annotated[str | None, option("Model pair", "embedded", "PAIR")] = None,
    methods: Annotated[list[str] | None, option("", "all nine", "NAME...")] = None,
    leniences: Annotated[list[float] | None, option("For all methods", "each method’s own", "A...")] = None,
    temperatures: Annotated[list[float] | None, option("", "0 0.5 1", "T...")] = None,
    prompts: Annotated[
        str | None, option("built-in, skills, a file of JSON lines, or lm-eval:TASK", "built-in", "SET")
    ] = None,
    points: Annotated[int | None, option("How many of each method’s own leniences", "all", low=2)] = None,
    limit: Annotated[int | None, option("The most questions", "all", low=1)] = None,
    trials: Annotated[int | None, option("Texts of a question at a setting", 1, low=1)] = None,
    draft_length: Annotated[int | None, option("Draft length of all methods", 3, "K")] = None,
    max_new_tokens: Annotated[int | None, option("The most tokens of a text", 24)] = None,
    seed: Annotated[int | None, option("Of everything random", 0)] = None,
    timed: Annotated[int | None, option("Questions timed one at a time; 0 for none", 8, low=0)] = None,
    max_sequences: Annotated[
        int, option("Concurrent sequences; changes no result", None, "N", "--max-sequences", "--rows", low=1)
    ] = 64,
    device: Device = "auto",
    dtype: Dtype = "auto",
    confirm_run_unsafe_code: UnsafeCode = False,
    csv: Annotated[Path | None, output_file("Write the points as a table")] = None,
    markdown: Markdown = None,
) -> int:
    """Measure quality against cost of all methods; resumes where it was stopped."""
    from specviz.analysis.sweep.grid import SweepGrid  # slow to import, as is the job
    from specviz.cli.sweep_job import SweepJob

    job = SweepJob(out, choices(context.params, SweepGrid), device)
    if not job.run(dtype, max_sequences, confirm_run_unsafe_code):
        return 130
    if job.is_main:
        job.report(csv, markdown)
    return 0
