"""Records traces: the page's runs, their forks at other leniences, the lessons' runs and the race of the tab The idea."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from specviz.analysis.metrics import first_divergence
from specviz.analysis.recorded_runs import (
    FOLDER,
    INSPECTED,
    RACERS,
    RecordedRuns,
    branch_file,
    read_recorded_runs,
)
from specviz.analysis.sweep.grid import LENIENCES
from specviz.engine.engine import Engine
from specviz.errors import EngineError, TraceError
from specviz.files import write_whole
from specviz.models.pair import ModelPair
from specviz.schema.settings import Request
from specviz.schema.trace import Run
from specviz.tools.machine import describe_machine
from specviz.tools.race import RacePlan, record_race

BASELINE = "verifier-only"
"""The recording whose time per token is the baseline of the others."""

_STORY = "Write a short story about a lighthouse keeper who finds a message in a bottle."
_FACT = "Why is the sky blue? Explain it to a curious child."
_CODE = "Write a Python function that checks whether a word is a palindrome."


def _request(prompt: str, **options: Any) -> Request:
    # The draft length is fixed, so that the rounds do not depend on the machine and a description can refer to them.
    settings = {"draft_length": 5, "temperature": 0.7, "seed": 1, "max_new_tokens": 56, "inspect": 5}
    return Request(prompt=prompt, **settings | options)


RECORDINGS = {
    "lossless": _request(_STORY, method="speed", lenience=0.0, max_new_tokens=96),
    "token-rule": _request(_STORY, method="cascade_tokenV3", lenience=0.8, max_new_tokens=96),
    "greedy": _request(_FACT, method="speed", lenience=0.0, temperature=0.0),
    "confident": _request(_FACT, method="cascade_chow", lenience=0.5),
    "long-block": _request(_STORY, method="speed", lenience=0.0, draft_length=16),
    "code": _request(_CODE, method="cascade_opt", lenience=0.3, draft_length=8),
    BASELINE: _request(_STORY, method="verifier_only"),
    "drafter-only": _request(_STORY, method="drafter_only"),
}
"""The requests of the page's runs, in order. Their titles and descriptions are in the index of the recorded runs."""

_SHORT = "Why is the sky blue?"
_LENIENCES = (0.0, 0.3, 0.6, 0.9, 0.99, 1.0)

LESSON_RECORDINGS = {
    # At temperature 1 and with the numbers of OPT, a trace has the values that every rule compares.
    "lesson-rules": _request(_FACT, method="cascade_opt", lenience=0.3, temperature=1.0),
    "lesson-strict": _request(_FACT, method="speed", lenience=0.0, temperature=1.0),
    **{
        f"lesson-lenience-{lenience:g}": _request(
            _SHORT, method="cascade_tokenV3", lenience=lenience, max_new_tokens=40, inspect=0
        )
        for lenience in _LENIENCES
    },
    # No inspection, since their times are compared.
    "lesson-story-alone": _request(_STORY, method="verifier_only", inspect=0),
    "lesson-story-five": _request(_STORY, method="speed", lenience=0.0, inspect=0),
    "lesson-story-sixteen": _request(_STORY, method="speed", lenience=0.0, draft_length=16, inspect=0),
}
"""The requests of runs that only lessons show."""


def record(
    pair: ModelPair,
    folder: Path = FOLDER,
    on_start: Callable[[str], None] = lambda title: None,
) -> RecordedRuns:
    """Make all recordings with `pair`, then replace those in `folder`.

    `on_start` is called with each title.
    """
    _serve(pair, Request(prompt=_FACT, max_new_tokens=8))  # warm up: the first run has one-off costs
    offered, runs = read_recorded_runs(FOLDER).runs, {}
    for each in offered:
        if each.key == INSPECTED:
            continue
        on_start(each.title)
        runs[each.key] = _serve(pair, RECORDINGS[each.key])
    branches = {}
    for key, run in runs.items():
        on_start(f"Its branches: {key}")
        branches[key] = record_branches(pair, run)
    offered = tuple(replace(each, leniences=tuple(branches.get(each.key, ()))) for each in offered)
    on_start("For the lessons")
    runs |= {key: _serve(pair, request) for key, request in LESSON_RECORDINGS.items()}
    seconds = [step.seconds / len(step.tokens) for step in runs[BASELINE].rounds]
    raced, contenders = record_race(pair, RacePlan(), on_start)
    runs |= zip((*RACERS, INSPECTED), contenders, strict=True)
    recorded = RecordedRuns(
        folder=folder,
        pair=pair.key,
        machine=describe_machine(runs[BASELINE].device),
        verifier_only_seconds_per_token=round(statistics.median(seconds), 6),
        runs=offered,
        race=raced,
        lessons=tuple(LESSON_RECORDINGS),
    )
    for key, found in branches.items():
        runs |= {Path(branch_file(key, each)).stem: run for each, run in found.items() if run}
    _write(recorded, runs)
    return recorded


def record_branches(pair: ModelPair, run: Run) -> dict[float, Run | None]:
    """Forks of a run at the other leniences of a sweep, from the first token that differs; None if no token differs.

    They are recorded without inspection, which keeps them small. A method without lenience has none.

    Raises:
        EngineError: a branch differs from a whole run at its lenience.
    """
    branches: dict[float, Run | None] = {}
    for lenience in LENIENCES.get(run.method, ()):
        if lenience == run.lenience:
            continue
        whole = _serve(pair, run.fork(0, lenience=lenience, inspect=0))
        parting = first_divergence(run, whole)
        branches[lenience] = None
        if parting is not None:
            branch = _serve(pair, run.fork(parting.index, lenience=lenience, inspect=0))
            if branch.token_ids != whole.token_ids[parting.index :]:
                raise EngineError(
                    "A branch is not recorded: a whole run at its lenience writes another text."
                )
            branches[lenience] = branch
    return branches


def _serve(pair: ModelPair, request: Request) -> Run:
    return Engine(pair).generate(request)[0]


def _write(recorded: RecordedRuns, runs: dict[str, Run]) -> None:
    index = asdict(recorded)
    folder = index.pop("folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for stale in folder.glob("*.jsonl"):
            if stale.stem not in runs:
                stale.unlink()
        for key, run in runs.items():
            run.save(folder / f"{key}.jsonl")
        write_whole(folder / "index.json", json.dumps(index, ensure_ascii=False, indent=1) + "\n")
    except OSError as error:
        raise TraceError(f"The recorded runs could not be written: {error.strerror or error}.") from error
