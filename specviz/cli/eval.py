"""The command `eval`: its options, and what it prints and writes. Knows nothing of how anything is scored."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from specviz.cli.options import Pair, UnsafeCode, asks, with_settings, writes
from specviz.cli.terminal import interrupt, print_table
from specviz.errors import RequestError
from specviz.files import write_output
from specviz.progress import TerminalProgress


@with_settings(("method", "lenience", "draft_length", "seed", "repetition_penalty"))
def evaluate(
    tasks: Annotated[list[str], asks("Tasks, groups or tags", metavar="NAME...")],
    temperature: Annotated[
        float | None, asks("Of all texts and likelihoods", "each task's own, and 1 for likelihoods", "T")
    ] = None,
    pair: Pair = "embedded",
    limit: Annotated[int | None, asks("Documents of each task", "all")] = None,
    num_fewshot: Annotated[int | None, asks("Examples in a prompt", "each task's own")] = None,
    include_path: Annotated[Path | None, asks("A folder with tasks of your own", metavar="DIR")] = None,
    chat: Annotated[
        bool | None,
        typer.Option(
            "--chat/--raw",
            help="Through the chat template (default, if there is one), or prompts as they stand.",
        ),
    ] = None,
    confirm_run_unsafe_code: UnsafeCode = False,
    max_sequences: Annotated[int, asks("Served at once", None, "N", "--max-sequences", "--rows")] = 32,
    as_json: Annotated[Path | None, writes("Write everything that was scored", "--json")] = None,
    **settings: Any,
) -> int:
    """Score a pair and a method on the tasks of lm-evaluation-harness."""
    for name, value, low in (("--limit", limit, 1), ("--num-fewshot", num_fewshot, 0)):
        if value is not None and value < low:
            raise RequestError(f"{name} is {value}; it must be at least {low}.")
    from specviz.integrations.lm_eval import HarnessModel, load_tasks  # slow to import

    generation = None
    if temperature is not None:
        generation = {"temperature": temperature, "do_sample": temperature > 0}
    with interrupt() as stop:
        model = HarnessModel(
            pair,
            temperature=temperature or 0.0,
            max_sequences=max_sequences,
            progress=TerminalProgress(sys.stderr),
            stop=stop,
            **settings,
        )
        found = load_tasks(
            tasks,
            include_path=include_path,
            num_fewshot=num_fewshot,
            generation=generation,
            runs_code=confirm_run_unsafe_code,
        )
        from lm_eval.evaluator import evaluate  # an optional package

        results = evaluate(
            model,
            found,
            limit=limit,
            log_samples=False,
            apply_chat_template=model.pair.is_chat if chat is None else chat,
            fewshot_as_multiturn=True,
            confirm_run_unsafe_code=confirm_run_unsafe_code,
        )
    assert results is not None  # it is None in the further processes of a distributed run only
    print_table([("task", "filter", "metric", "value", "stderr"), *_rows(results["results"])])
    if as_json:
        record = {"model": model.get_model_info(), "limit": limit, **_kept(results)}
        write_output(as_json, json.dumps(record, ensure_ascii=False, indent=1, default=str) + "\n")
    return 0


def _rows(results: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for task, found in results.items():
        for name, value in found.items():
            metric, comma, kind = name.partition(",")
            if comma and not metric.endswith("_stderr"):
                error = found.get(f"{metric}_stderr,{kind}")
                rows.append((task, kind, metric, _number(value), _number(error)))
    return rows


def _number(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, int | float) else ""


def _kept(results: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: results[name]
        for name in ("results", "groups", "n-shot", "n-samples", "versions")
        if name in results
    }
