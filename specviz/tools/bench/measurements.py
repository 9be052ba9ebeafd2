"""What a benchmark measured, and what follows from it: medians, ratios pair by pair, bounds and floors.

Arithmetic on numbers that were measured, to JSON and back. Knows no model, no clock and no layout.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import takewhile
from typing import Any

from specviz.engine.draft_length import expected_passes, expected_tokens
from specviz.errors import RequestError


@dataclass(frozen=True)
class Spread:
    """Median and quartiles of a number of values."""

    median: float
    low: float
    high: float
    count: int


def spread(values: Iterable[float]) -> Spread | None:
    """Median and quartiles (linear between neighbours); None of nothing."""
    found = sorted(values)
    if not found:
        return None
    if len(found) == 1:
        return Spread(found[0], found[0], found[0], 1)
    low, middle, high = statistics.quantiles(found, n=4, method="inclusive")
    return Spread(middle, low, high, len(found))


def bound(acceptance: float, drafter_seconds: float, verifier_seconds: Sequence[float]) -> tuple[float, int]:
    """The most that drafting can gain over the verifier alone, by bare forward passes; and the K that gains it.

    A round of K proposals runs the verifier once over K tokens, `verifier_seconds[K - 1]`, and the drafter K times, but
    for the last time only where all proposals so far were accepted. K = 0 is not to draft, and gains 1.
    """
    gains = [(1.0, 0)]
    gains += [
        (
            expected_tokens(acceptance, k)
            * verifier_seconds[0]
            / (expected_passes(acceptance, k) * drafter_seconds + seconds),
            k,
        )
        for k, seconds in enumerate(verifier_seconds, 1)
    ]
    return max(gains)


@dataclass(frozen=True)
class Sample:
    """One run of one contender.

    `memory` is the most bytes taken at once beyond what the process held before; None where nobody tells.
    """

    contender: str
    prompt: int
    kind: str
    temperature: float
    repetition: int
    token_ids: list[int]
    seconds: float
    first_token_seconds: float | None
    rounds: int
    examined: int | None
    accepted: int | None
    memory: int | None

    @property
    def speed(self) -> float:
        """Tokens a second, reading the prompt included."""
        return len(self.token_ids) / self.seconds

    @property
    def place(self) -> tuple[int, float, int]:
        """What two runs must share to be compared: prompt, temperature, repetition."""
        return self.prompt, self.temperature, self.repetition


@dataclass(frozen=True)
class Forwards:
    """Bare forward passes at one cache length, and what they read.

    `verifier_seconds[n - 1]` is a pass over n tokens. Bytes are of weights and of keys and values; `bandwidth` in bytes
    a second.
    """

    positions: int
    drafter_seconds: float
    verifier_seconds: list[float]
    drafter_bytes: int
    verifier_bytes: int
    bandwidth: float

    def floor(self, passes: float) -> float:
        """Seconds that a round with so many passes of the drafter must take to read its bytes."""
        return (passes * self.drafter_bytes + self.verifier_bytes) / self.bandwidth


@dataclass(frozen=True)
class Overhead:
    """Rounds by the clock, and after each its forward passes bare; draft length 0 is the verifier alone.

    `passes` are the drafter's, of each round.
    """

    contender: str
    inspect: int
    draft_length: int
    passes: list[int]
    round_seconds: list[float]
    bare_seconds: list[float]

    @property
    def share(self) -> Spread | None:
        """The part of a round that is not its forward passes, round by round."""
        return spread(1 - b / r for r, b in zip(self.round_seconds, self.bare_seconds, strict=True))


@dataclass(frozen=True)
class Together:
    """Tokens a second of one request alone and of several at once, measured in turn."""

    contender: str
    requests: int
    alone: list[float]
    together: list[float]

    @property
    def gain(self) -> Spread | None:
        """Several over one, pair by pair."""
        return spread(many / one for one, many in zip(self.alone, self.together, strict=True))


@dataclass(frozen=True)
class Party:
    """A contender as the report tells of it; `absent` says why it did not take part, or not to the end."""

    name: str
    about: str
    lossless: bool
    threads: int
    absent: str = ""


@dataclass
class Bench:
    """One benchmark: where, when and how it was run, and everything measured."""

    pair: str
    drafter: str
    verifier: str
    device: str
    machine: str
    processor: str
    versions: dict[str, str]
    date: str
    command: str
    dtype: str
    threads: int
    tokens: int
    repetitions: int
    temperatures: list[float]
    draft_length: int
    draft_lengths: list[int]
    seed: int
    notes: list[str]
    prompts: list[str]
    parties: list[Party] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    forwards: Forwards | None = None
    overheads: list[Overhead] = field(default_factory=list)
    together: list[Together] = field(default_factory=list)
    ended: int = 0  # runs in which an end-of-text token was written and passed over
    complete: bool = False
    seconds: float = 0.0

    @property
    def present(self) -> list[Party]:
        """The contenders that were measured."""
        names = {sample.contender for sample in self.samples}
        return [party for party in self.parties if party.name in names]

    def of(self, contender: str, temperature: float | None = None, kind: str | None = None) -> list[Sample]:
        """A contender's runs."""
        return [
            sample
            for sample in self.samples
            if sample.contender == contender
            and temperature in (None, sample.temperature)
            and kind in (None, sample.kind)
        ]

    def speed(
        self, contender: str, temperature: float | None = None, kind: str | None = None
    ) -> Spread | None:
        """Tokens a second."""
        return spread(sample.speed for sample in self.of(contender, temperature, kind))

    def ratios(
        self, ours: str, theirs: str, temperature: float | None = None, kind: str | None = None
    ) -> list[float]:
        """Speed over speed, of every pair of runs that share prompt, temperature and repetition."""
        others = {sample.place: sample.speed for sample in self.of(theirs, temperature, kind)}
        return [
            sample.speed / others[sample.place]
            for sample in self.of(ours, temperature, kind)
            if sample.place in others
        ]

    def acceptance(self, contender: str, temperature: float, kind: str | None = None) -> float | None:
        """Accepted / examined proposals of all runs together; None where they were not told."""
        told = [s for s in self.of(contender, temperature, kind) if s.examined]
        examined = sum(s.examined or 0 for s in told)
        return sum(s.accepted or 0 for s in told) / examined if examined else None

    def block_efficiency(self, contender: str, temperature: float) -> float | None:
        """Tokens for each forward pass of the verifier."""
        samples = self.of(contender, temperature)
        rounds = sum(sample.rounds for sample in samples)
        return sum(len(sample.token_ids) for sample in samples) / rounds if rounds else None

    def agreement(self, contender: str, reference: str) -> tuple[int, int, float] | None:
        """Of the greedy texts: how many are the reference's, of how many, and the shortest common beginning's share."""
        theirs = {sample.place: sample.token_ids for sample in self.of(reference, 0.0)}
        shares = [
            common(sample.token_ids, theirs[sample.place]) / max(1, len(sample.token_ids))
            for sample in self.of(contender, 0.0)
            if sample.place in theirs
        ]
        return (sum(share == 1 for share in shares), len(shares), min(shares)) if shares else None

    def best_fixed(
        self, names: Sequence[str], temperature: float, kind: str | None = None
    ) -> tuple[str, Spread] | None:
        """The fastest of several contenders, by its median."""
        found = [(name, self.speed(name, temperature, kind)) for name in names]
        known = [(name, speed) for name, speed in found if speed]
        return max(known, key=lambda each: each[1].median) if known else None


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many ids two texts share before they part."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


SCHEMA = "specviz-bench"


def to_json(benches: Sequence[Bench]) -> str:
    """All that was measured, as one JSON object."""
    body = {"schema": SCHEMA, "version": 1, "benches": [asdict(bench) for bench in benches]}
    return json.dumps(body, ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def from_json(text: str) -> list[Bench]:
    """The benchmarks of a file.

    Raises:
        RequestError: it is none of `to_json`'s, or damaged.
    """
    try:
        body = json.loads(text)
        if body["schema"] != SCHEMA or body["version"] != 1:
            raise ValueError
        return [_bench(raw) for raw in body["benches"]]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise RequestError("This is no file of measurements: give one that `bench --json` wrote.") from error


def _bench(raw: dict[str, Any]) -> Bench:
    parts: dict[str, Any] = {
        "parties": [Party(**each) for each in raw["parties"]],
        "samples": [Sample(**each) for each in raw["samples"]],
        "forwards": Forwards(**raw["forwards"]) if raw["forwards"] else None,
        "overheads": [Overhead(**each) for each in raw["overheads"]],
        "together": [Together(**each) for each in raw["together"]],
    }
    return Bench(**raw | parts)
