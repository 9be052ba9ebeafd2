"""Recorded runs: a table of what to record, the recording, and reading the shelf they lie on.

Each run is chosen to teach one thing, and is kept as a trace with a title and a story. Knows pairs and traces; knows
no page. Reading needs no model and no torch.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specviz.errors import TraceError
from specviz.files import write_whole
from specviz.resources import ASSETS
from specviz.runtime.machine import describe_machine
from specviz.schema.settings import Request
from specviz.schema.trace import Run

if TYPE_CHECKING:
    from specviz.models.pairs import ModelPair

SHELF = ASSETS / "runs"
"""Where the recorded runs of the project lie."""
YARDSTICK = "verifier-only"
"""The recording whose time a token the others are held against."""

_STORY = "Write a short story about a lighthouse keeper who finds a message in a bottle."
_FACT = "Why is the sky blue? Explain it to a curious child."
_CODE = "Write a Python function that checks whether a word is a palindrome."


@dataclass(frozen=True)
class Recording:
    """A run worth keeping: what it is called, what it teaches in two sentences, how it is asked for."""

    key: str
    title: str
    story: str
    request: Request


def _recording(key: str, title: str, story: str, prompt: str, **options: Any) -> Recording:
    # A fixed draft length: its rounds can be told about, and do not depend on the machine.
    settings = {"draft_length": 5, "temperature": 0.7, "seed": 1, "max_new_tokens": 56, "inspect": 5}
    return Recording(key, title, story, Request(prompt=prompt, **settings | options))


RECORDINGS = (
    _recording(
        "lossless",
        "Lossless: the verifier’s own text",
        "At lenience 0 speculative decoding writes exactly what the verifier would have written, whatever the drafter "
        "proposes. Watch how accepted proposals save verifier calls, and how each rejection ends its round.",
        _STORY,
        method="speed",
        lenience=0.0,
    ),
    _recording(
        "token-rule",
        "A token rule: let good enough pass",
        "The same prompt, seed and coins as the lossless run, but Token V3 also trusts every proposal that the verifier "
        "finds at least half as likely as its own favourite. Compare where the two texts part: the rule parted them.",
        _STORY,
        method="cascade_tokenV3",
        lenience=0.5,
    ),
    _recording(
        "greedy",
        "Greedy: no chance at all",
        "At temperature 0 both models name one favourite each, and a proposal passes only where the favourites agree. "
        "The coins no longer matter: every acceptance probability is 0 or 1.",
        _FACT,
        method="speed",
        lenience=0.0,
        temperature=0.0,
    ),
    _recording(
        "confident",
        "Chow: a drafter that is sure of itself",
        "Chow asks only how confident the drafter is, and never what the verifier thinks. Look for proposals that pass "
        "although the verifier’s probability p is low: confident is not the same as right.",
        _FACT,
        method="cascade_chow",
        lenience=0.5,
    ),
    _recording(
        "long-block",
        "Sixteen at a time: drafting too far ahead",
        "A round is cut at its first rejection, and what was drafted beyond it is thrown away unseen. The text is the "
        "lossless run’s, token for token, because the draft length changes the time and never the text.",
        _STORY,
        method="speed",
        lenience=0.0,
        draft_length=16,
    ),
    _recording(
        "code",
        "Code: where the next token is plain",
        "Much of a program is spelled out by what stands before it: brackets, indents, a name that was just used. See "
        "which of those tokens the drafter gets right by itself, and which it leaves to the verifier.",
        _CODE,
        method="cascade_opt",
        lenience=0.3,
        draft_length=8,
    ),
    _recording(
        YARDSTICK,
        "Verifier only: the yardstick",
        "No drafter, no coins: the verifier runs once for every token, and this is what all the others try to beat. Its "
        "measured time for a token is the third lane in every other recorded run.",
        _STORY,
        method="verifier_only",
    ),
    _recording(
        "drafter-only",
        "Drafter only: nobody checks",
        "The drafter writes alone and every proposal is kept. Read the text and judge for yourself what the verifier is "
        "there for.",
        _STORY,
        method="drafter_only",
    ),
)
"""What lies on the shelf, in the order it is offered."""


@dataclass(frozen=True)
class RecordedRun:
    """One run on the shelf."""

    key: str
    title: str
    story: str


@dataclass(frozen=True)
class Shelf:
    """A folder of recorded runs, all made with one pair on one machine in one session.

    `verifier_only_seconds_per_token` is the median time of a round of the `verifier_only` run among them.
    """

    folder: Path
    pair: str
    machine: str
    verifier_only_seconds_per_token: float
    runs: tuple[RecordedRun, ...]

    def load(self, key: str) -> Run:
        """One of the runs.

        Raises:
            TraceError: there is no such run, or its trace is not sound.
        """
        if key not in {run.key for run in self.runs}:
            raise TraceError(f"There is no recorded run of that name; there are {len(self.runs)} others.")
        return Run.load(self.folder / f"{key}.jsonl")


def open_shelf(folder: Path = SHELF) -> Shelf:
    """Read what runs there are, without reading the runs.

    Raises:
        TraceError: the index is missing or not sound.
    """
    try:
        index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
        runs = tuple(RecordedRun(**run) for run in index.pop("runs"))
        return Shelf(folder=folder, runs=runs, **index)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise TraceError(
            "The recorded runs cannot be read: make them anew with `python -m specviz record`."
        ) from error


def record(pair: ModelPair, folder: Path = SHELF, tell: Callable[[str], None] = lambda _: None) -> Shelf:
    """Make every recording with `pair`, one after another, and put them on the shelf in place of what lies there.

    Nothing is written before all of them are made.
    """
    pair.generate(_FACT, max_new_tokens=8)  # the first run pays for what is set up once
    runs: dict[str, Run] = {}
    for recording in RECORDINGS:
        tell(recording.title)
        runs[recording.key] = _serve(pair, recording.request)
    times = [round_.seconds / len(round_.tokens) for round_ in runs[YARDSTICK].rounds]
    shelf = Shelf(
        folder=folder,
        pair=pair.key,
        machine=describe_machine(runs[YARDSTICK].device),
        verifier_only_seconds_per_token=round(statistics.median(times), 6),
        runs=tuple(RecordedRun(each.key, each.title, each.story) for each in RECORDINGS),
    )
    _write(shelf, runs)
    return shelf


def _serve(pair: ModelPair, request: Request) -> Run:
    from specviz.engine.engine import Engine

    return Engine(pair).generate(request)[0]


def _write(shelf: Shelf, runs: dict[str, Run]) -> None:
    index = asdict(shelf)
    del index["folder"]
    try:
        shelf.folder.mkdir(parents=True, exist_ok=True)
        for stale in shelf.folder.glob("*.jsonl"):
            if stale.stem not in runs:
                stale.unlink()
        for key, run in runs.items():
            run.save(shelf.folder / f"{key}.jsonl")
        write_whole(shelf.folder / "index.json", json.dumps(index, ensure_ascii=False, indent=1) + "\n")
    except OSError as error:
        raise TraceError(f"The recorded runs could not be written: {error.strerror or error}.") from error
