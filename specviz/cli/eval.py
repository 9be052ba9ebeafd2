"""The command `eval`: its options, and what it prints and writes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from specviz.cli.options import Pair, UnsafeCode, option, output_file, with_settings
from specviz.cli.terminal import interrupt
from specviz.files import write_whole
from specviz.progress import TerminalProgress

_SAVED_KEYS = ("results", "groups", "n-shot", "n-samples", "versions")


@with_settings(("method", "lenience", "draft_length", "seed", "repetition_penalty"))
def evaluate(
    tasks: Annotated[list[str], option("Tasks, groups or tags", metavar="NAME...")],
    temperature: Annotated[
        float | None, option("Temperature of texts and likelihoods", "each task's; 1 for likelihoods", "T")
    ] = None,
    pair: Pair = "embedded",
    limit: Annotated[int | None, option("Documents of each task", "all", low=1)] = None,
    num_fewshot: Annotated[int | None, option("Few-shot examples per prompt", "each task's", low=0)] = None,
    include_path: Annotated[Path | None, option("A folder with tasks of your own", metavar="DIR")] = None,
    chat: Annotated[
        bool | None,
        typer.Option(
            "--chat/--raw",
            help="Through the chat template (default, if there is one), or prompts as they stand.",
        ),
    ] = None,
    confirm_run_unsafe_code: UnsafeCode = False,
    max_sequences: Annotated[int, option("Concurrent sequences", low=1)] = 32,
    as_json: Annotated[Path | None, output_file("Write the scores as JSON", "--json")] = None,
    **settings: Any,
) -> int:
    """Score a pair and a method on the tasks of lm-evaluation-harness."""
    from specviz.integrations.lm_eval import HarnessModel, load_tasks  # slow to import

    generation = {} if temperature is None else {"temperature": temperature, "do_sample": temperature > 0}
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
        from lm_eval.utils import make_table

        results = evaluate(
            model,
            found,
            limit=limit,
            log_samples=False,
            apply_chat_template=model.pair.is_chat if chat is None else chat,
            fewshot_as_multiturn=True,
            confirm_run_unsafe_code=confirm_run_unsafe_code,
        )
    assert results is not None  # it is None only in the other processes of a distributed run
    print(make_table(results))
    if as_json:
        record = {"model": model.get_model_info(), "limit": limit}
        record |= {name: results[name] for name in _SAVED_KEYS if name in results}
        write_whole(as_json, json.dumps(record, ensure_ascii=False, indent=1, default=str) + "\n")
    return 0
