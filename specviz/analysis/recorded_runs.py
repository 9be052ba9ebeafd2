"""The recorded runs that the page replays. Does not import torch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from specviz.errors import TraceError
from specviz.resources import ASSETS
from specviz.schema.trace import Run

FOLDER = ASSETS / "runs"
"""The project's own recorded runs."""


@dataclass(frozen=True)
class RecordedRun:
    """A recorded run. `key` is its file's stem, `story` two sentences about it, `leniences` the leniences of its forks."""

    key: str
    title: str
    story: str
    leniences: tuple[float, ...] = ()


@dataclass(frozen=True)
class Race:
    """How the two runs of a race were chosen. Both wrote the same text; each was timed alone.

    Attributes:
        prompts, draft_lengths: numbers of prompts and of draft lengths that were tried.
        repetitions: how often each run was timed; the run with the median time was recorded.
    """

    prompts: int
    draft_lengths: int
    repetitions: int


@dataclass(frozen=True)
class RecordedPane:
    """One pane of a recorded comparison.

    Attributes:
        run: key of the run.
        seconds: median time of the request without inspection, timed alone and in turn with the other panes; None if not measured.
        quality: mean log-probability of the text's tokens under the verifier.
    """

    run: str
    seconds: float | None = None
    quality: float | None = None


@dataclass(frozen=True)
class Comparison:
    """A recorded comparison. Its runs share all that can change a text, except method, lenience and pair."""

    key: str
    title: str
    panes: tuple[RecordedPane, ...]
    machine: str = ""
    """The machine on which the panes were timed."""
    note: str = ""
    """Further information for the reader, such as the right answer; may be ""."""


RACERS = ("race-verifier-only", "race-lossless")
"""Keys of the two runs of a race at temperature 0, the verifier alone and speculative decoding. Inspection, which takes time, is off."""
CASCADE = ("lossless", "token-rule")
"""Keys of a lossless run, and of a cascade with the same prompt, seed and length that needs fewer verifier calls."""
INSPECTED = "race-inspected"
"""Key of a run that repeats the second run of `RACERS` with inspection: the same decisions, but other times."""


@dataclass(frozen=True)
class RecordedRuns:
    """A folder of runs recorded with one pair on one machine.

    Attributes:
        verifier_only_seconds_per_token: median seconds per token of the run "verifier-only".
        race: the race; None if the folder lacks `RACERS`.
        lessons: keys of further runs that only lessons show.
        comparisons: what the tab Compare shows without a model. To add a comparison of another pair, add its files and an index entry.
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
        """The keys of all runs in the folder, except branches."""
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
        """By lenience, the fork of a run from the token at which the texts diverge; None if they are equal. Empty for an unknown run.

        Raises:
            TraceError: a trace is invalid.
        """
        leniences = next((run.leniences for run in self.runs if run.key == key), ())
        files = {lenience: self.folder / branch_file(key, lenience) for lenience in leniences}
        return {each: Run.load(file) if file.exists() else None for each, file in files.items()}


def branch_file(key: str, lenience: float) -> str:
    """The file name of a recorded run's branch at a lenience."""
    return f"{key}.at{lenience:+g}.jsonl"


def read_recorded_runs(folder: Path = FOLDER) -> RecordedRuns:
    """Read a folder's index, but not its runs.

    Raises:
        TraceError: the index is missing or invalid.
    """
    try:
        index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
        return TypeAdapter(RecordedRuns).validate_python(index | {"folder": folder})
    except (OSError, ValueError, TypeError) as error:
        raise TraceError(
            "The recorded runs cannot be read: make them anew with `python -m specviz record`."
        ) from error
