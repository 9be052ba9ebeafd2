"""The recorded runs that the page replays. Imports no torch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from specviz.errors import TraceError
from specviz.resources import ASSETS
from specviz.schema.trace import Run

FOLDER = ASSETS / "runs"
"""The project's own recorded runs."""


@dataclass(frozen=True)
class RecordedRun:
    """One recorded run: stem of its file, title, a description of two sentences, and the leniences at which it was forked."""

    key: str
    title: str
    story: str
    leniences: tuple[float, ...] = ()


@dataclass(frozen=True)
class Race:
    """How the two runs of a race were chosen. Both wrote the same text; each was timed alone.

    Attributes:
        prompts, draft_lengths: how many of each were tried.
        repetitions: how often each run was timed. The run of median time was recorded.
    """

    prompts: int
    draft_lengths: int
    repetitions: int


@dataclass(frozen=True)
class RecordedPane:
    """One pane of a recorded comparison.

    Attributes:
        run: key of the run.
        seconds: median time of the same request without inspection, each pane timed alone and in turn; None where not measured.
        quality: mean log-probability of the text's tokens under the verifier.
    """

    run: str
    seconds: float | None = None
    quality: float | None = None


@dataclass(frozen=True)
class Comparison:
    """A recorded comparison. Its runs differ in method, lenience or pair, and in nothing else that changes a text."""

    key: str
    title: str
    panes: tuple[RecordedPane, ...]
    machine: str = ""
    """Where the panes were timed."""
    note: str = ""
    """What else a reader should know, such as the right answer; "" for nothing."""


RACERS = ("race-verifier-only", "race-lossless")
"""The two runs of a race: the verifier alone, and speculative decoding, at temperature 0. Without inspection, which takes time."""
CASCADE = ("lossless", "token-rule")
"""A lossless run, and a cascade with the same prompt, seed and length that needs fewer calls."""
INSPECTED = "race-inspected"
"""The second run, recorded again with inspection: the same decisions, but other times."""


@dataclass(frozen=True)
class RecordedRuns:
    """A folder of runs recorded with one pair on one machine.

    Attributes:
        verifier_only_seconds_per_token: median time of a step of the `verifier_only` run.
        race: the race; None if the folder lacks `RACERS`.
        lessons: keys of further runs, which only lessons show.
        comparisons: what the tab Compare shows without a model. One of another pair needs only its files and its entry here.
    """

    folder: Path
    pair: str
    machine: str
    verifier_only_seconds_per_token: float
    runs: tuple[RecordedRun, ...]
    race: Race | None = None
    lessons: tuple[str, ...] = ()
    comparisons: tuple[Comparison, ...] = ()

    @property
    def keys(self) -> frozenset[str]:
        """The names of all runs in the folder."""
        compared = (pane.run for each in self.comparisons for pane in each.panes)
        return frozenset(
            (*(run.key for run in self.runs), *(RACERS if self.race else ()), *self.lessons, *compared)
        )

    def load(self, key: str) -> Run:
        """Read one of `keys`.

        Raises:
            TraceError: there is no such run, or its trace is invalid.
        """
        if key not in self.keys:
            raise TraceError(f"There is no recorded run of that name; there are {len(self.runs)} others.")
        return Run.load(self.folder / f"{key}.jsonl")

    def branches(self, key: str) -> dict[float, Run | None]:
        """Forks of a run at other leniences, each from the token at which its text diverges; None if it does not diverge.

        Raises:
            TraceError: there is no such run, or a trace is invalid.
        """
        leniences = next((run.leniences for run in self.runs if run.key == key), ())
        files = {lenience: self.folder / branch_file(key, lenience) for lenience in leniences}
        return {each: Run.load(file) if file.exists() else None for each, file in files.items()}


def branch_file(key: str, lenience: float) -> str:
    """The name of the file with the branch of a recorded run at a lenience."""
    return f"{key}.at{lenience:+g}.jsonl"


def read_recorded_runs(folder: Path = FOLDER) -> RecordedRuns:
    """Read a folder's index, without reading the runs.

    Raises:
        TraceError: the index is missing or invalid.
    """
    try:
        index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
        runs = tuple(
            RecordedRun(**run | {"leniences": tuple(run.get("leniences", ()))}) for run in index.pop("runs")
        )
        race = Race(**raced) if (raced := index.pop("race", None)) else None
        lessons = tuple(index.pop("lessons", ()))
        comparisons = tuple(
            Comparison(**each | {"panes": tuple(RecordedPane(**pane) for pane in each["panes"])})
            for each in index.pop("comparisons", ())
        )
        return RecordedRuns(
            folder=folder, runs=runs, race=race, lessons=lessons, comparisons=comparisons, **index
        )
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise TraceError(
            "The recorded runs cannot be read: make them anew with `python -m specviz record`."
        ) from error
