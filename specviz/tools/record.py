"""Records the project's runs again: the page's runs and their forks at other leniences, the lessons' runs, comparisons, and the race.

Each recorded run holds its request, so the folder itself says what to record.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable
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
from specviz.schema.settings import AUTO, SETTINGS, Request
from specviz.schema.trace import Run, Token, Top
from specviz.tools.machine import describe_machine

BASELINE = "verifier-only"
"""Key of the recorded run whose time per token is the baseline for the others."""
_REPETITIONS = 5
"""How often each run of a comparison and of the race is timed."""


def record(folder: Path = FOLDER, on_start: Callable[[str], None] = lambda title: None) -> RecordedRuns:
    """Make all recordings of the project again, then replace those in `folder`. `on_start` gets the title of each run or group.

    Raises:
        EngineError: the runs of the race wrote different texts.
    """
    shelf, load = read_recorded_runs(), cache(loading.load_pair)
    # The first run has one-off costs.
    _serve(load(shelf.pair), Request(prompt="Hello", max_new_tokens=8))
    runs, offered = dict[str, Run](), []
    for each in shelf.runs:
        if each.key == INSPECTED:
            offered.append(each)
            continue
        on_start(each.title)
        runs[each.key] = run = _again(shelf, load, each.key)
        branches = record_branches(load(run.pair), run)
        forks = {Path(branch_file(each.key, lenience)).stem: fork for lenience, fork in branches.items()}
        runs |= {stem: fork for stem, fork in forks.items() if fork}
        offered.append(replace(each, leniences=tuple(branches)))
    on_start("For the lessons")
    runs |= {key: _again(shelf, load, key) for key in shelf.lessons}
    on_start("The race")
    race = medians(shelf, load, (*RACERS, INSPECTED))
    if len({tuple(run.token_ids) for run in race.values()}) > 1:
        raise EngineError("Nothing is recorded: the runs of the race wrote different texts.")
    on_start("Comparisons")
    compared = [pane.run for each in shelf.comparisons for pane in each.panes]
    panes = {}
    for key, run in medians(shelf, load, compared, inspect=0).items():
        quality = mean_log_probability(load(run.pair), run.prompt_ids, run.token_ids) or 0.0
        panes[key] = RecordedPane(key, round(run.seconds, 6), round(quality, 4))
        runs[key] = _trimmed(_again(shelf, load, key))
    seconds = statistics.median(step.seconds / len(step.tokens) for step in runs[BASELINE].rounds)
    machine = describe_machine(runs[BASELINE].device)
    comparisons = (
        replace(each, panes=tuple(panes[pane.run] for pane in each.panes), machine=machine)
        for each in shelf.comparisons
    )
    recorded = replace(
        shelf,
        folder=folder,
        machine=machine,
        verifier_only_seconds_per_token=round(seconds, 6),
        runs=tuple(offered),
        comparisons=tuple(comparisons),
    )
    _write(recorded, runs | race)
    return recorded


def _again(shelf: RecordedRuns, load: Callable[[str], ModelPair], key: str, **changes: Any) -> Run:
    """Record a run again; `changes` replace its settings."""
    former = shelf.load(key)
    settings: dict[str, Any] = {name: getattr(former, name) for name in SETTINGS}
    settings |= {"draft_length": former.draft_length or AUTO} | changes
    return _serve(load(former.pair), Request(former.prompt, **settings))


def medians(
    shelf: RecordedRuns, load: Callable[[str], ModelPair], keys: Iterable[str], **changes: Any
) -> dict[str, Run]:
    """Record runs again in turn, several times; `changes` replace their settings. Returns, by key, the run of median time."""
    made: dict[str, list[Run]] = {key: [] for key in keys}
    for _ in range(_REPETITIONS):
        for key, runs in made.items():
            runs.append(_again(shelf, load, key, **changes))
    return {key: sorted(runs, key=lambda run: run.seconds)[len(runs) // 2] for key, runs in made.items()}


def _trimmed(run: Run) -> Run:
    """Remove what comparisons do not show: other methods' verdicts, and all top tokens except each model's first and the draft token."""

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
    """Fork a run at the other `LENIENCES` of its method. Returns, by lenience, the fork from the first differing token; None if all agree.

    Forks are recorded without inspection, to keep their files small. A method that `LENIENCES` lacks has no forks.
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
    own = folder == FOLDER  # another folder may hold files of others
    for recorded_before in folder.glob("*.jsonl") if own else ():
        if recorded_before.stem not in runs:
            recorded_before.unlink()
    for key, run in runs.items():
        run.save(folder / f"{key}.jsonl")
    write_whole(folder / "index.json", json.dumps(index, ensure_ascii=False, indent=1) + "\n")
