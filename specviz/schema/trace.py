"""What happened: Run, Round, Token; to JSON lines and back, with a schema version.

A trace is one JSON object a line: the run, then every round, then the end. What is written comes from the
decisions themselves; rates are derived from it and never stored. Knows no model, no tensor and no page.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from specviz import __version__
from specviz.errors import TraceError, has_half_characters, quoted
from specviz.files import write_whole

SCHEMA = "specviz-trace"
VERSION = 4
READABLE = (2, 3, 4)
"""Versions that are read; up to 2 the draft length was always a number, up to 3 a round drafted all its K proposals."""

STOP_REASONS = ("eos", "length", "context", "cancelled", "time")
CUT = ("", "cancelled", "time")
"""Stop reasons of a text that would have gone on, and of one that still does."""


@dataclass(frozen=True)
class Proposal:
    """A token the drafter proposed, and its probability under q."""

    id: int
    text: str
    q: float


@dataclass(frozen=True)
class Draft:
    """A rejected proposal: its probability under drafter, verifier and target."""

    id: int
    text: str
    q: float
    p: float
    pi: float


@dataclass(frozen=True)
class RuleTest:
    """The two sides of a deferral test for the examined proposal."""

    score: float
    threshold: float
    trusted: bool


@dataclass(frozen=True)
class Likely:
    """One of the most probable tokens of a distribution."""

    id: int
    text: str
    probability: float


@dataclass(frozen=True)
class Top:
    """The most probable tokens of q, p and pi, most probable first; None where that model did not run."""

    q: list[Likely] | None
    p: list[Likely] | None
    pi: list[Likely] | None


@dataclass(frozen=True)
class Alternative:
    """A method, and the lenience at which every token is asked what it would have done."""

    method: str
    lenience: float


@dataclass(frozen=True)
class WhatIf:
    """What each of the run's alternatives would have done with the examined proposal, at the same coin.

    Attributes:
        acceptance: in the order of the run's alternatives; accepted where coin < acceptance.
        flips: of each alternative, the leniences from which on its verdict is the other one, ascending; at most two.
        kept: [from, to) the leniences between which this run's rule, having rejected, draws the same replacement;
            None where that does not depend on lenience, or nothing was rejected.
    """

    acceptance: list[float]
    flips: list[list[float]]
    kept: list[float] | None


@dataclass(frozen=True)
class Token:
    """One emitted token.

    Attributes:
        id, text, label: the id; the text it adds to the run ("" for special tokens and for the first bytes of
            an unfinished character); how to name it alone.
        position: absolute, prompt included.
        round: index of its round.
        accepted: drafted and accepted; otherwise drawn by the verifier.
        special: an end-of-text marker or the like.
        draft: the proposal that was rejected here.
        q, p, pi: probability of this token under drafter, verifier, target; None where that model did not run.
        acceptance, coin: of the examined proposal: accepted where coin < acceptance. None where none was examined.
        rule: the deferral test, for the cascades.
        top: the most probable tokens, where inspection was asked for.
        what_if: what other methods and leniences would have done, where inspection was asked for and both models ran.
    """

    id: int
    text: str
    label: str
    position: int
    round: int
    accepted: bool
    special: bool
    draft: Draft | None
    q: float | None
    p: float | None
    pi: float
    acceptance: float | None
    coin: float | None
    rule: RuleTest | None
    top: Top | None
    what_if: WhatIf | None


@dataclass(frozen=True)
class Round:
    """One round: up to K proposals, one verification, at most K tokens. Seconds are those of the whole batch's round.

    Attributes:
        draft_length: K. The K-th proposal is drafted only once all before it were accepted, so there are K of them or one
            less. 0 where the drafter does not run.
        proposals: what was drafted.
        examined, accepted: how many of them were.
        drafter_seconds, verifier_seconds: of the forward passes, and of drawing the proposals.
        tokens: what was emitted.
    """

    index: int
    draft_length: int
    proposals: list[Proposal]
    examined: int
    accepted: int
    seconds: float
    drafter_seconds: float
    verifier_seconds: float
    tokens: list[Token]


@dataclass
class Run:
    """One request, served: its settings and everything that was decided.

    `draft_length` is None where it was chosen round by round: then the rounds tell it.
    `stop_reason` is "eos", "length", "context" (the models' context is full), "cancelled" or "time" (a server's
    deadline passed); "" while it runs. `neighbours` is the most texts of others that a round was shared with.
    `alternatives` are what every token's `what_if` speaks of, this run's own method among them; empty without.
    `verifier_calls` and `drafter_calls` count forward passes in rounds, as far as this run had a use for them; reading the
    prompt is not among them.
    `drafter_logits` and `verifier_logits` ([tokens, V], on request) are not part of a saved trace.
    """

    pair: str
    drafter: str
    verifier: str
    device: str
    dtype: str
    method: str
    lenience: float
    draft_length: int | None
    temperature: float
    top_k: int
    top_p: float
    seed: int
    max_new_tokens: int
    forbidden_tokens: list[int]
    echo: bool
    inspect: int
    prompt: str
    prompt_ids: list[int]
    alternatives: list[Alternative]
    rounds: list[Round] = field(default_factory=list)
    stop_reason: str = ""
    seconds: float = 0.0
    prefill_seconds: float = 0.0
    verifier_calls: int = 0
    drafter_calls: int = 0
    neighbours: int = 0
    drafter_logits: Any = field(default=None, compare=False, repr=False)
    verifier_logits: Any = field(default=None, compare=False, repr=False)

    @property
    def tokens(self) -> list[Token]:
        """All emitted tokens in order."""
        return [token for round_ in self.rounds for token in round_.tokens]

    @property
    def token_ids(self) -> list[int]:
        """Ids of all emitted tokens, an end-of-text marker included."""
        return [token.id for token in self.tokens]

    @property
    def accepted(self) -> list[bool]:
        """For each emitted token, whether it was drafted and accepted."""
        return [token.accepted for token in self.tokens]

    @property
    def text(self) -> str:
        """The generated text, after the prompt's where `echo` was asked for."""
        return (self.prompt if self.echo else "") + "".join(token.text for token in self.tokens)

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted / examined proposals; None where nothing was examined."""
        return _ratio(
            sum(r.accepted for r in self.rounds), sum(r.examined for r in self.rounds), self._examines
        )

    @property
    def draft_utilisation(self) -> float | None:
        """Accepted / drafted proposals; None where nothing was examined."""
        return _ratio(
            sum(r.accepted for r in self.rounds), sum(len(r.proposals) for r in self.rounds), self._examines
        )

    @property
    def mean_draft_length(self) -> float | None:
        """Proposals drafted in a round, on average; None where nothing was drafted."""
        drafted = sum(len(r.proposals) for r in self.rounds)
        return _ratio(drafted, len(self.rounds), meaningful=drafted > 0)

    @property
    def block_efficiency(self) -> float | None:
        """Tokens emitted per verifier call; None where the verifier never ran."""
        return _ratio(len(self.tokens), self.verifier_calls)

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens over the seconds of computing, reading the prompt included."""
        return _ratio(len(self.tokens), self.seconds)

    @property
    def _examines(self) -> bool:
        return any(r.examined for r in self.rounds)

    def summary(self) -> dict[str, Any]:
        """The run's public fields as one JSON-ready object: settings, text, figures, rounds."""
        figures = {name: getattr(self, name) for name in (*_DERIVED, *_ENDING)}
        return _settings(self) | figures | {"rounds": [asdict(r) for r in self.rounds]}

    def lines(self) -> Iterator[str]:
        """The trace, line by line, each ending in a newline."""
        yield header_line(self)
        for round_ in self.rounds:
            yield round_line(round_)
        if self.stop_reason:
            yield end_line(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the trace as JSON lines; a file of that name is replaced whole or not at all.

        Raises:
            TraceError: the file cannot be written.
        """
        try:
            write_whole(Path(path), "".join(self.lines()))
        except OSError as error:
            raise TraceError(f"The trace could not be written: {error.strerror or error}.") from error

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Run:
        """Read a trace file.

        Raises:
            TraceError: unreadable, foreign, truncated, damaged, or of a schema version this one does not know.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise TraceError(
                "The trace cannot be read: it must be a UTF-8 text file of JSON lines."
            ) from error
        return parse_trace(text.split("\n"))  # not splitlines: U+2028 may stand inside a string


_DERIVED = (
    *("text", "token_ids", "accepted", "acceptance_rate"),
    *("draft_utilisation", "block_efficiency", "tokens_per_second"),
)
_OWN = ("rounds", "neighbours", "drafter_logits", "verifier_logits")
_ENDING = ("stop_reason", "seconds", "prefill_seconds", "verifier_calls", "drafter_calls")
_SETTINGS = tuple(f.name for f in fields(Run) if f.name not in (*_OWN, *_ENDING))


def _ratio(part: float, whole: float, meaningful: bool = True) -> float | None:
    return part / whole if meaningful and whole > 0 else None


def _line(record: dict[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"


def _settings(run: Run) -> dict[str, Any]:
    plain = {name: getattr(run, name) for name in _SETTINGS}
    return plain | {"alternatives": [asdict(one) for one in run.alternatives]}


def header_line(run: Run) -> str:
    """First line of a trace: what was asked of whom."""
    opening = {"type": "run", "schema": SCHEMA, "version": VERSION, "specviz": __version__}
    return _line(opening | _settings(run))


def round_line(round_: Round) -> str:
    """One round of a trace."""
    return _line({"type": "round"} | asdict(round_))


def end_line(run: Run) -> str:
    """Last line of a trace: why it stopped and what it took."""
    return _line({"type": "end"} | ending(run))


def ending(run: Run) -> dict[str, Any]:
    """What is known of a run only when it is over, by the names of its fields."""
    company = {"neighbours": run.neighbours} if run.neighbours else {}
    return {name: getattr(run, name) for name in _ENDING} | company


def parse_trace(lines: Iterable[str]) -> Run:
    """Build a Run from the lines of a trace; they are taken as untrusted and checked field by field.

    Raises:
        TraceError: foreign, truncated, damaged, or of a schema version this one does not know.
    """
    records: list[dict[str, Any]] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        record = _record(number, line)
        if not records:
            _check_header(record)
        elif records[-1].get("type") == "end" or record.get("type") not in ("round", "end"):
            raise TraceError(
                "This trace is damaged: between its first and last line there may only be rounds."
            )
        records.append(record)
    if not records:
        raise TraceError(_FOREIGN)
    header = records[0]
    if records[-1].get("type") != "end":
        raise TraceError("This trace is truncated: its last line, which says how the run ended, is missing.")
    rounds = [_round(record, header["version"], number) for number, record in enumerate(records[1:-1], 2)]
    if missing := [name for name in _SETTINGS if name not in header]:
        raise TraceError(f"Line 1 of this trace is damaged: {missing[0]!r} is missing.")
    hints = get_type_hints(Run) | ({"draft_length": int} if header["version"] == 2 else {})
    values = {name: _build(hints[name], header.get(name), name, 1) for name in _SETTINGS}
    values |= {name: _build(hints[name], records[-1].get(name), name, len(records)) for name in _ENDING}
    neighbours = _build(int, records[-1].get("neighbours", 0), "neighbours", len(records))
    run = Run(**values, rounds=rounds, neighbours=neighbours)
    if run.stop_reason not in STOP_REASONS:
        raise TraceError(f"This trace is damaged: {run.stop_reason!r} is no reason to stop.")
    if not all(_fits(token.what_if, run) for token in run.tokens if token.what_if):
        raise TraceError("This trace is damaged: a 'what_if' does not fit the run's 'alternatives'.")
    return run


def _round(record: dict[str, Any], version: int, line: int) -> Round:
    if version < 4 and isinstance(record.get("proposals"), list):
        record = record | {"draft_length": len(record["proposals"])}
    round_: Round = _build(Round, record, "round", line)
    return round_


_FOREIGN = "This is not a SpecViz trace: its first line must be the run's own."


def _check_header(record: dict[str, Any]) -> None:
    if record.get("type") != "run" or record.get("schema") != SCHEMA:
        raise TraceError(_FOREIGN)
    if record.get("version") not in READABLE:
        raise TraceError(
            f"This trace has schema version {quoted(record.get('version'))}; this SpecViz reads versions "
            f"{READABLE[0]} to {READABLE[-1]}."
        )


def _fits(what_if: WhatIf, run: Run) -> bool:
    lengths = {len(what_if.acceptance), len(what_if.flips)}
    own = run.method in [one.method for one in run.alternatives]
    return own and lengths == {len(run.alternatives)} and len(what_if.kept or (0.0, 0.0)) == 2


def _record(number: int, line: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise TraceError(
            f"Line {number} of this trace is not JSON: the file is damaged, truncated or foreign."
        ) from error
    if not isinstance(record, dict):
        raise TraceError(f"Line {number} of this trace is not a JSON object.")
    return record


def _build(kind: Any, value: Any, name: str, line: int) -> Any:
    """`value` as a `kind` (a dataclass, list[...], X | None, int, float, str, bool), checked all the way down."""
    if get_origin(kind) is UnionType:
        return None if value is None else _build(get_args(kind)[0], value, name, line)
    if get_origin(kind) is list and isinstance(value, list):
        return [_build(get_args(kind)[0], item, name, line) for item in value]
    if is_dataclass(kind) and isinstance(kind, type) and isinstance(value, dict):
        hints = get_type_hints(kind)
        if missing := [key for key in hints if key not in value]:
            raise TraceError(f"Line {line} of this trace is damaged: {missing[0]!r} is missing.")
        return kind(**{key: _build(hint, value[key], key, line) for key, hint in hints.items()})
    if kind is float and type(value) in (int, float) and abs(value) <= sys.float_info.max:
        return float(value)
    if kind in (int, str, bool) and type(value) is kind:
        if kind is str and has_half_characters(value):
            raise TraceError(f"Line {line} of this trace is damaged: {name!r} has half a character in it.")
        return value
    raise TraceError(f"Line {line} of this trace is damaged: {name!r} is of the wrong kind.")
