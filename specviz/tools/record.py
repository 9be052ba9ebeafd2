"""Records traces: the page's runs, their forks at other leniences, comparisons, the lessons' runs and the race of the tab The idea."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
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
from specviz.analysis.sweep.claim import MODELS
from specviz.analysis.sweep.grid import LENIENCES
from specviz.engine.engine import Engine
from specviz.errors import EngineError
from specviz.files import write_whole
from specviz.models import loading
from specviz.models.pair import ModelPair
from specviz.schema.settings import Request
from specviz.schema.trace import Run, Token, Top
from specviz.tools.machine import describe_machine
from specviz.tools.race import RacePlan, record_race

BASELINE = "verifier-only"
"""The recording whose time per token is the baseline for the others."""

_STORY = "Write a short story about a lighthouse keeper who finds a message in a bottle."
_FACT = "Why is the sky blue? Explain it to a curious child."
_SUM = "What is the sum of 89 and 16? Answer with a number."
_WEEK = "Answer in a few words: How many days are in a week?"
_BOTH = "Answer both questions. What color is a ripe strawberry? What is 79 minus 68?"
EDITING = (
    "Turn this text into a numbered list of its sentences:\nOur shop opens at nine. We sell bread, milk and fresh eggs. "
    "On Sundays we close at noon. Please ask for Anna if you need help."
)
SPECIALIST, LOOKUP = "embedded-specialist", "embedded-lookup"
_CODE = "Write a Python function that checks whether a word is a palindrome."


def _request(prompt: str, **options: Any) -> Request:
    # The draft length is fixed, so that the rounds do not depend on the machine and a description can refer to them. A text of
    # this length fills most of the first screen.
    settings = {"draft_length": 5, "temperature": 0.7, "seed": 1, "max_new_tokens": 96, "inspect": 5}
    return Request(prompt=prompt, **settings | options)


RECORDINGS = {
    "lossless": _request(_STORY, method="speed", lenience=0.0),
    "token-rule": _request(_STORY, method="cascade_tokenV3", lenience=0.8),
    "greedy": _request(_FACT, method="speed", lenience=0.0, temperature=0.0),
    "confident": _request(_FACT, method="cascade_chow", lenience=0.5),
    "long-block": _request(_STORY, method="speed", lenience=0.0, draft_length=16),
    "code": _request(_CODE, method="cascade_opt", lenience=0.3, draft_length=8),
    "expert": _request(_SUM, method="cascade_diff", lenience=0.0, temperature=0.0, inspect=50),
    "editing": _request(EDITING, method="speed", lenience=0.0, temperature=0.0),
    BASELINE: _request(_STORY, method="verifier_only"),
    "drafter-only": _request(_STORY, method="drafter_only"),
}
"""The requests of the page's runs, in order. Their titles and descriptions are in the index of the recorded runs."""
PAIRS_OF = {"expert": SPECIALIST, "editing": LOOKUP}
"""The pairs of the recordings that are not made with the common pair."""

_SHORT = "Why is the sky blue?"
_LENIENCES = (0.0, 0.3, 0.6, 0.9, 0.99, 1.0)


def _lesson(prompt: str, **options: Any) -> Request:
    # No inspection by itself, since most of their times are compared.
    return _request(prompt, **{"max_new_tokens": 56, "inspect": 0} | options)


LESSON_RECORDINGS = {
    # A trace of OPT at temperature 1 has the values that every rule compares.
    "lesson-rules": _lesson(_FACT, method="cascade_opt", lenience=0.3, temperature=1.0, inspect=5),
    "lesson-strict": _lesson(_FACT, method="speed", lenience=0.0, temperature=1.0, inspect=5),
    **{
        f"lesson-lenience-{lenience:g}": _lesson(
            _SHORT, method="cascade_tokenV3", lenience=lenience, max_new_tokens=40
        )
        for lenience in _LENIENCES
    },
    "lesson-story-alone": _lesson(_STORY, method="verifier_only"),
    "lesson-story-five": _lesson(_STORY, method="speed", lenience=0.0),
    "lesson-story-sixteen": _lesson(_STORY, method="speed", lenience=0.0, draft_length=16),
}
"""The requests of runs that only lessons show."""


def _compared(method: str, lenience: float, prompt: str = _STORY, temperature: float = 0.7) -> Request:
    # At temperature 0 the view shows each model's probability of the other's favourite, which may rank low.
    inspect = 0 if temperature or method in MODELS else 50
    return _request(prompt, method=method, lenience=lenience, temperature=temperature, inspect=inspect)


_QUESTIONS = {"both": _BOTH, "sum": _SUM, "fact": _WEEK}
_JUDGED = ("verifier_only", "drafter_only", "cascade_diff")
COMPARED = {
    "compare-lossless": ("embedded", _compared("speed", 0.0, temperature=0.0)),
    "compare-cascade": ("embedded", _compared("cascade_tokenV3", 0.5, temperature=0.0)),
    "compare-verifier-only": ("embedded", _compared("verifier_only", 0.0, temperature=0.0)),
    "compare-layer-skip": ("embedded-skip", _compared("speed", 0.0, temperature=0.0)),
    **{
        f"compare-editing-{name}": (pair, _compared(method, 0.0, EDITING, temperature=0.0))
        for name, pair, method in (
            ("lossless", "embedded", "speed"),
            ("lookup", LOOKUP, "speed"),
            ("verifier-only", "embedded", "verifier_only"),
        )
    },
    **{
        f"compare-token-v{version}": ("embedded", _compared(f"cascade_tokenV{version}", 0.3))
        for version in (1, 2, 3)
    },
    **{
        f"compare-caution-{lenience:g}": ("embedded", _compared("cascade_tokenV3", lenience, _FACT))
        for lenience in (0.1, 0.5, 0.9)
    },
    **{
        f"compare-{question}-{method}": (SPECIALIST, _compared(method, 0.0, prompt, temperature=0.0))
        for question, prompt in _QUESTIONS.items()
        for method in _JUDGED
    },
}
"""Pair and request of each run of a comparison."""
COMPARISONS = {
    "lossless": ("Lossless?", ("compare-lossless", "compare-cascade", "compare-verifier-only")),
    **{
        f"better-{question}": (
            "Better than both",
            tuple(f"compare-{question}-{method}" for method in _JUDGED),
        )
        for question in _QUESTIONS
    },
    "token-rules": ("Token rules", tuple(f"compare-token-v{version}" for version in (1, 2, 3))),
    "caution": ("Caution", tuple(f"compare-caution-{lenience:g}" for lenience in (0.1, 0.5, 0.9))),
    "drafters": ("Which drafter?", ("compare-lossless", "compare-layer-skip", "compare-verifier-only")),
    "drafters-editing": (
        "Which drafter?",
        ("compare-editing-lossless", "compare-editing-lookup", "compare-editing-verifier-only"),
    ),
}
"""Title and runs of each comparison, in order. Comparisons with the same title share a button."""
NOTES = {
    "drafters-editing": "The text repeats its prompt: looking the draft up there costs nothing, and more of it is kept.",
    "better-both": "Right: red, and 11. Only the cascade has both.",
    "better-sum": "Right: 105. The verifier is wrong, and the cascade trusts the drafter.",
    "better-fact": "Right: 7. The drafter would make it 72; there the cascade leaves the word to the verifier.",
}
"""What the page adds to the sentence of a comparison."""
_REPETITIONS = 5
"""How often each run of a comparison is timed."""


def record(
    pair: ModelPair,
    folder: Path = FOLDER,
    on_start: Callable[[str], None] = lambda title: None,
) -> RecordedRuns:
    """Make all recordings with `pair`, then replace those in `folder`.

    `on_start` is called with each title.
    """
    _serve(pair, Request(prompt=_FACT, max_new_tokens=8))  # warm up: the first run has one-off costs
    pairs = _Loaded({pair.key: pair})
    offered, runs, branches = read_recorded_runs(FOLDER).runs, {}, {}
    for each in offered:
        if each.key == INSPECTED:
            continue
        on_start(each.title)
        writes = pairs[PAIRS_OF.get(each.key, pair.key)]
        runs[each.key] = run = _serve(writes, RECORDINGS[each.key])
        branches[each.key] = record_branches(writes, run)
    offered = tuple(replace(each, leniences=tuple(branches.get(each.key, ()))) for each in offered)
    on_start("For the lessons")
    runs |= {key: _serve(pair, request) for key, request in LESSON_RECORDINGS.items()}
    seconds = [step.seconds / len(step.tokens) for step in runs[BASELINE].rounds]
    raced, contenders = record_race(pair, RacePlan(), on_start)
    runs |= zip((*RACERS, INSPECTED), contenders, strict=True)
    comparisons, compared = record_comparisons(pairs, on_start)
    runs |= compared
    recorded = RecordedRuns(
        folder=folder,
        pair=pair.key,
        machine=describe_machine(runs[BASELINE].device),
        verifier_only_seconds_per_token=round(statistics.median(seconds), 6),
        runs=offered,
        race=raced,
        lessons=tuple(LESSON_RECORDINGS),
        comparisons=comparisons,
    )
    for key, found in branches.items():
        runs |= {Path(branch_file(key, each)).stem: run for each, run in found.items() if run}
    _write(recorded, runs)
    return recorded


class _Loaded(dict[str, ModelPair]):
    """Pairs by key, each loaded on first access."""

    def __missing__(self, key: str) -> ModelPair:
        self[key] = loading.load_pair(key)
        return self[key]


def record_comparisons(
    pairs: Mapping[str, ModelPair], on_start: Callable[[str], None] = lambda title: None
) -> tuple[tuple[Comparison, ...], dict[str, Run]]:
    """Record `COMPARISONS`. Returns all comparisons, and their runs by key; other comparisons in the index stay as they are."""
    shelf = read_recorded_runs(FOLDER)
    others = [each for each in shelf.comparisons if each.key not in COMPARISONS]
    runs = {pane.run: shelf.load(pane.run) for each in others for pane in each.panes}
    seconds: dict[str, list[float]] = {key: [] for key in COMPARED}
    for turn in range(_REPETITIONS):
        on_start(f"Comparisons: {turn + 1} of {_REPETITIONS}")
        for key, (name, request) in COMPARED.items():
            seconds[key].append(_serve(pairs[name], replace(request, inspect=0)).seconds)
    made = {key: _trimmed(_serve(pairs[name], request)) for key, (name, request) in COMPARED.items()}
    panes = {
        key: RecordedPane(
            key,
            round(statistics.median(seconds[key]), 6),
            round(mean_log_probability(pairs[COMPARED[key][0]], run.prompt_ids, run.token_ids) or 0.0, 4),
        )
        for key, run in made.items()
    }
    machine = describe_machine(made[next(iter(made))].device)
    comparisons = [
        Comparison(key, title, tuple(panes[name] for name in names), machine, NOTES.get(key, ""))
        for key, (title, names) in COMPARISONS.items()
    ]
    return (*comparisons, *others), runs | made


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
    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.glob("*.jsonl"):
        if stale.stem not in runs:
            stale.unlink()
    for key, run in runs.items():
        run.save(folder / f"{key}.jsonl")
    write_whole(folder / "index.json", json.dumps(index, ensure_ascii=False, indent=1) + "\n")
