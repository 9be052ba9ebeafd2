"""Records the project's runs again: the page's, their forks at other leniences, the lessons', comparisons, and the race.

Each recorded run holds its request, so the folder itself says what to record.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

from specviz.analysis.metrics import first_divergence
from specviz.analysis.quality import mean_log_probability
from specviz.analysis.recorded_runs import (
    FOLDER,
    INSPECTED,
    RACERS,
    Comparison,
    RecordedPane,
    RecordedRuns,
    branch_file,
    read_recorded_runs,
)
from specviz.analysis.sweep.grid import LENIENCES
from specviz.engine.engine import Engine
from specviz.errors import EngineError
from specviz.files import write_whole
from specviz.models import loading
from specviz.models.pair import ModelPair
from specviz.models.registry import PAIRS
from specviz.schema.settings import AUTO, SETTINGS, Request
from specviz.schema.trace import Run, Token, Top
from specviz.tools.machine import describe_machine

BASELINE = "verifier-only"
"""The recording whose time per token is the baseline for the others."""
_REPETITIONS = 5
"""How often each run of a comparison and of the race is timed."""


def record(folder: Path = FOLDER, on_start: Callable[[str], None] = lambda title: None) -> RecordedRuns:
    """Make all recordings of the project again, then replace those in `folder`. `on_start` is called with the title of each."""
    shelf, load = read_recorded_runs(), cache(loading.load_pair)
    pair = load(shelf.pair)
    _serve(pair, Request(prompt="Hello", max_new_tokens=8))  # warm up: the first run has one-off costs
    runs, offered = dict[str, Run](), []
    for each in shelf.runs:
        if each.key == INSPECTED:
            offered.append(each)
            continue
        on_start(each.title)
        former = shelf.load(each.key)
        runs[each.key] = run = _serve(load(former.pair), request_of(former))
        branches = record_branches(load(former.pair), run)
        forks = {Path(branch_file(each.key, lenience)).stem: fork for lenience, fork in branches.items()}
        runs |= {stem: fork for stem, fork in forks.items() if fork}
        offered.append(replace(each, leniences=tuple(branches)))
    on_start("For the lessons")
    lessons = {key: shelf.load(key) for key in shelf.lessons}
    runs |= {key: _serve(load(run.pair), request_of(run)) for key, run in lessons.items()}
    runs |= record_race(shelf, pair, on_start)
    comparisons, compared = record_comparisons(shelf, load, on_start)
    seconds = statistics.median(step.seconds / len(step.tokens) for step in runs[BASELINE].rounds)
    recorded = replace(
        shelf,
        folder=folder,
        machine=describe_machine(runs[BASELINE].device),
        verifier_only_seconds_per_token=round(seconds, 6),
        runs=tuple(offered),
        comparisons=comparisons,
    )
    _write(recorded, runs | compared)
    return recorded


def request_of(run: Run) -> Request:
    """The request that made a recorded run."""
    settings: dict[str, Any] = {name: getattr(run, name) for name in SETTINGS}
    return Request(run.prompt, **settings | {"draft_length": run.draft_length or AUTO})


def record_race(shelf: RecordedRuns, pair: ModelPair, on_start: Callable[[str], None]) -> dict[str, Run]:
    """Record the race's runs in turn, several times. Returns those of median time by key.

    Raises:
        EngineError: their texts differ.
    """
    on_start("The race")
    keys = (*RACERS, INSPECTED)
    turns = [[_serve(pair, request_of(shelf.load(key))) for key in keys] for _ in range(_REPETITIONS)]
    timed = [sorted(runs, key=lambda run: run.seconds) for runs in zip(*turns, strict=True)]
    found = {key: runs[len(runs) // 2] for key, runs in zip(keys, timed, strict=True)}
    if len({tuple(run.token_ids) for run in found.values()}) > 1:
        raise EngineError(
            "The race is not recorded: verifier only and speculative decoding wrote different texts."
        )
    return found


def record_comparisons(
    shelf: RecordedRuns, load: Callable[[str], ModelPair], on_start: Callable[[str], None]
) -> tuple[tuple[Comparison, ...], dict[str, Run]]:
    """Record and time the comparisons' runs with pairs that SpecViz ships. Returns all comparisons, and their runs by key."""
    runs = {pane.run: shelf.load(pane.run) for each in shelf.comparisons for pane in each.panes}
    shipped = {key for key, spec in PAIRS.items() if spec.origin == "embedded"}
    made = {key: run for key, run in runs.items() if run.pair in shipped}
    seconds: dict[str, list[float]] = {key: [] for key in made}
    for turn in range(_REPETITIONS):
        on_start(f"Comparisons: {turn + 1} of {_REPETITIONS}")
        for key, run in made.items():
            seconds[key].append(_serve(load(run.pair), replace(request_of(run), inspect=0)).seconds)
    panes = {}
    for key, run in made.items():
        pair = load(run.pair)
        runs[key] = run = _trimmed(_serve(pair, request_of(run)))
        quality = mean_log_probability(pair, run.prompt_ids, run.token_ids) or 0.0
        panes[key] = RecordedPane(key, round(statistics.median(seconds[key]), 6), round(quality, 4))
    comparisons = []
    for each in shelf.comparisons:
        if all(pane.run in panes for pane in each.panes):
            machine = describe_machine(runs[each.panes[0].run].device)
            each = replace(each, panes=tuple(panes[pane.run] for pane in each.panes), machine=machine)
        comparisons.append(each)
    return tuple(comparisons), runs


def _trimmed(run: Run) -> Run:
    """The run without what comparisons do not show: other methods' verdicts, and top tokens other than both favourites and the draft."""

    def few(token: Token) -> Token:
        if token.top is None:
            return replace(token, what_if=None)
        lists = {"q": token.top.q or [], "p": token.top.p or []}
        shown = {each[0].id for each in lists.values() if each} | {(token.draft or token).id}
        kept = {name: [each for each in found if each.id in shown] for name, found in lists.items()}
        return replace(token, what_if=None, top=Top(**kept, pi=[]))

    run.rounds = [replace(each, tokens=[few(token) for token in each.tokens]) for each in run.rounds]
    run.alternatives = []
    return run


def record_branches(pair: ModelPair, run: Run) -> dict[float, Run | None]:
    """Forks of a run at the other leniences of a sweep, from the first token that differs; None if no token differs.

    They are recorded without inspection, to keep them small. A method without lenience has no forks.
    """
    branches: dict[float, Run | None] = {}
    for lenience in LENIENCES.get(run.method, ()):
        if lenience != run.lenience:
            whole = _serve(pair, run.fork(0, lenience=lenience, inspect=0))
            branches[lenience] = None
            if parting := first_divergence(run, whole):
                branches[lenience] = _serve(pair, run.fork(parting.index, lenience=lenience, inspect=0))
    return branches


def _serve(pair: ModelPair, request: Request) -> Run:
    return Engine(pair).generate(request)[0]


def _write(recorded: RecordedRuns, runs: dict[str, Run]) -> None:
    index = asdict(recorded)
    folder = index.pop("folder")
    folder.mkdir(parents=True, exist_ok=True)
    own = folder == FOLDER  # elsewhere, others' files may lie beside
    for recorded_before in folder.glob("*.jsonl") if own else ():
        if recorded_before.stem not in runs:
            recorded_before.unlink()
    for key, run in runs.items():
        run.save(folder / f"{key}.jsonl")
    write_whole(folder / "index.json", json.dumps(index, ensure_ascii=False, indent=1) + "\n")
