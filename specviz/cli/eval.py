"""The command `eval`: its arguments, and what it prints and writes. Knows nothing of how anything is scored."""

from __future__ import annotations

import argparse
import json
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specviz.cli.table import print_table
from specviz.errors import RequestError
from specviz.files import check_output, write_output
from specviz.progress import TerminalProgress
from specviz.schema.settings import AUTO, read_draft_length


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What can be asked of an evaluation."""
    parser.add_argument("--tasks", nargs="+", required=True, metavar="NAME", help="tasks, groups or tags")
    parser.add_argument("--pair", default="embedded", help="model pair (default: embedded)")
    parser.add_argument("--method", default="cascade_tokenV3", help="(default: cascade_tokenV3)")
    parser.add_argument(
        "--lenience", type=float, help="within the method's range (default: the method's own)"
    )
    parser.add_argument(
        "--temperature",
        type=float,
        metavar="T",
        help="of all texts and likelihoods (default: each task's own, and 1 for likelihoods)",
    )
    parser.add_argument(
        "--draft-length", type=read_draft_length, default=AUTO, metavar="K", help="1 to 16, or auto (default)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the first answer (default: 0)")
    parser.add_argument("--limit", type=int, metavar="N", help="documents of each task (default: all)")
    parser.add_argument(
        "--num-fewshot", type=int, metavar="N", help="examples in a prompt (default: each task's own)"
    )
    parser.add_argument("--include-path", type=Path, metavar="DIR", help="a folder with tasks of your own")
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--chat",
        action="store_true",
        default=None,
        help="through the chat template (default, if there is one)",
    )
    form.add_argument("--raw", dest="chat", action="store_false", help="prompts as they stand")
    parser.add_argument(
        "--confirm-run-unsafe-code", action="store_true", help="let tasks run code that a model wrote"
    )
    parser.add_argument("--rows", type=int, default=32, metavar="N", help="served at once (default: 32)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was scored")


def run(options: argparse.Namespace, stop: threading.Event) -> int:
    """Evaluate, print and write; returns the exit status."""
    for name in ("limit", "num_fewshot"):
        value, low = getattr(options, name), int(name == "limit")
        if value is not None and value < low:
            raise RequestError(f"--{name.replace('_', '-')} is {value}; it must be at least {low}.")
    check_output("--json", options.json)
    from specviz.integrations.lm_eval import HarnessModel, load_tasks

    generation = None
    if options.temperature is not None:
        generation = {"temperature": options.temperature, "do_sample": options.temperature > 0}
    model = HarnessModel(
        options.pair,
        method=options.method,
        lenience=options.lenience,
        temperature=options.temperature or 0.0,
        draft_length=options.draft_length,
        seed=options.seed,
        rows=options.rows,
        progress=TerminalProgress(sys.stderr),
        stop=stop,
    )
    tasks = load_tasks(
        options.tasks,
        include_path=options.include_path,
        num_fewshot=options.num_fewshot,
        generation=generation,
        runs_code=options.confirm_run_unsafe_code,
    )
    from lm_eval.evaluator import evaluate

    results = evaluate(
        model,
        tasks,
        limit=options.limit,
        log_samples=False,
        apply_chat_template=model.pair.is_chat if options.chat is None else options.chat,
        fewshot_as_multiturn=True,
        confirm_run_unsafe_code=options.confirm_run_unsafe_code,
    )
    assert results is not None  # it is None in the further processes of a distributed run only
    print_table([("task", "filter", "metric", "value", "stderr"), *_rows(results["results"])])
    if options.json:
        record = {"model": model.get_model_info(), "limit": options.limit, **_kept(results)}
        write_output(options.json, json.dumps(record, ensure_ascii=False, indent=1, default=str) + "\n")
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
