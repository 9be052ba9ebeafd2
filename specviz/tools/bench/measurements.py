"""What a benchmark measured, and what follows from it: speeds, ratios pair by pair, bounds and floors.

Arithmetic on measured numbers, to JSON and back. Knows no model, no clock and no layout.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import takewhile
from typing import Any

from specviz.analysis.statistics import Quartiles, quartiles
from specviz.engine.draft_length import expected_tokens
from specviz.errors import RequestError


def bound(acceptance: float, drafter_seconds: float, verifier_seconds: Sequence[float]) -> tuple[float, int]:
    """The largest possible speed-up over the verifier alone, by bare forward passes; and the K that reaches it.

    A round of K draft tokens runs the verifier once over K tokens, `verifier_seconds[K - 1]`, and the drafter K times. K = 0 is not to draft, with a speed-up of 1.
    """
    gains = [(1.0, 0)]
    for k, seconds in enumerate(verifier_seconds, 1):
        round_seconds = k * drafter_seconds + seconds
        gains.append((expected_tokens(acceptance, k) * verifier_seconds[0] / round_seconds, k))
    return max(gains)


@dataclass(frozen=True)
class Measured:
    """One run: its text and its costs.

    Attributes:
        token_ids: the new ids.
        seconds: from the call to its end, prefill included.
        first_token_seconds: from the call until the first new id is streamed; None if nothing streams.
        rounds: forward passes of the verifier that gave new ids.
        examined, accepted: draft tokens; None if the contender does not report them.
    """

    token_ids: list[int]
    seconds: float
    first_token_seconds: float | None
    rounds: int
    examined: int | None = None
    accepted: int | None = None


@dataclass(frozen=True, kw_only=True)
class Sample(Measured):
    """One run of one contender in a benchmark.

    `memory` is the peak in bytes beyond what the process held before; None where it cannot be measured.
    """

    contender: str
    prompt: int
    kind: str
    temperature: float
    repetition: int
    memory: int | None

    @property
    def speed(self) -> float:
        """Tokens a second, prefill included."""
        return len(self.token_ids) / self.seconds

    @property
    def key(self) -> tuple[int, float, int]:
        """What two runs must share to be compared: prompt, temperature, repetition."""
        return self.prompt, self.temperature, self.repetition


@dataclass(frozen=True)
class Forwards:
    """Bare forward passes at one cache length, and the bytes they read.

    `verifier_seconds[n - 1]` is a pass over n tokens. `draft_seconds` are those of each of `draft_length` draft tokens, with their draws,
    where the drafter draws in one go. Bytes are those of weights and KV cache; `bandwidth` in bytes a second. `beside` are pairs: seconds of
    the verifier's pass over one token, and the bandwidth right after it.
    """

    positions: int
    drafter_seconds: float
    verifier_seconds: list[float]
    drafter_bytes: int
    verifier_bytes: int
    bandwidth: float
    draft_length: int = 0
    draft_seconds: float | None = None
    beside: list[list[float]] = field(default_factory=list)

    @property
    def share(self) -> Quartiles | None:
        """The share of the bandwidth at which a pass over one token reads, pair by pair: what memory gives changes within seconds."""
        return quartiles(self.verifier_bytes / seconds / rate for seconds, rate in self.beside)

    @property
    def seconds_a_draft_token(self) -> float:
        """What a round pays for each."""
        return self.drafter_seconds if self.draft_seconds is None else self.draft_seconds

    def floor(self, passes: float) -> float:
        """Seconds that a round with this many drafter passes needs to read its bytes."""
        return (passes * self.drafter_bytes + self.verifier_bytes) / self.bandwidth


@dataclass(frozen=True)
class Overhead:
    """Rounds, each timed whole and followed by its forward passes bare; draft length 0 is the verifier alone.

    `passes` are the drafter's, of each round.
    """

    contender: str
    inspect: int
    draft_length: int
    passes: list[int]
    round_seconds: list[float]
    bare_seconds: list[float]

    @property
    def share(self) -> Quartiles | None:
        """The share of a round that is not its forward passes, round by round."""
        return quartiles(1 - b / r for r, b in zip(self.round_seconds, self.bare_seconds, strict=True))


@dataclass(frozen=True)
class Together:
    """Tokens a second of one request alone and of several at once, measured in turn."""

    contender: str
    requests: int
    alone: list[float]
    together: list[float]

    @property
    def gain(self) -> Quartiles | None:
        """Speed of several over speed of one, pair by pair."""
        return quartiles(many / one for one, many in zip(self.alone, self.together, strict=True))


@dataclass
class Participant:
    """A contender in the report; `absent` says why it did not take part, or not to the end."""

    name: str
    about: str
    lossless: bool
    threads: int
    absent: str = ""


@dataclass
class Measurements:
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
    parties: list[Participant] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    forwards: Forwards | None = None
    overheads: list[Overhead] = field(default_factory=list)
    together: list[Together] = field(default_factory=list)
    ended: int = 0  # runs in which an end-of-text token was written and ignored
    complete: bool = False
    seconds: float = 0.0

    @property
    def present(self) -> list[Participant]:
        """The contenders that were measured."""
        names = {sample.contender for sample in self.samples}
        return [party for party in self.parties if party.name in names]

    def of(self, contender: str, temperature: float | None = None, kind: str | None = None) -> list[Sample]:
        """A contender's runs."""
        runs = (sample for sample in self.samples if sample.contender == contender)
        return [s for s in runs if temperature in (None, s.temperature) and kind in (None, s.kind)]

    def speed(
        self, contender: str, temperature: float | None = None, kind: str | None = None
    ) -> Quartiles | None:
        """Tokens a second."""
        return quartiles(sample.speed for sample in self.of(contender, temperature, kind))

    def ratios(
        self, ours: str, theirs: str, temperature: float | None = None, kind: str | None = None
    ) -> list[float]:
        """Speed over speed, of every pair of runs that share prompt, temperature and repetition."""
        others = {sample.key: sample.speed for sample in self.of(theirs, temperature, kind)}
        runs = self.of(ours, temperature, kind)
        return [sample.speed / others[sample.key] for sample in runs if sample.key in others]

    def acceptance(self, contender: str, temperature: float, kind: str | None = None) -> float | None:
        """Accepted / examined draft tokens of all runs together; None where the contender does not report them."""
        counted = [s for s in self.of(contender, temperature, kind) if s.examined]
        examined = sum(s.examined or 0 for s in counted)
        return sum(s.accepted or 0 for s in counted) / examined if examined else None

    def block_efficiency(self, contender: str, temperature: float) -> float | None:
        """Tokens for each forward pass of the verifier."""
        samples = self.of(contender, temperature)
        rounds = sum(sample.rounds for sample in samples)
        return sum(len(sample.token_ids) for sample in samples) / rounds if rounds else None

    def agreement(self, contender: str, reference: str) -> tuple[int, int, float] | None:
        """Of the greedy texts: how many equal the reference's, of how many, and the least share of a common prefix."""
        theirs = {sample.key: sample.token_ids for sample in self.of(reference, 0.0)}
        shares = [
            common_prefix(sample.token_ids, theirs[sample.key]) / max(1, len(sample.token_ids))
            for sample in self.of(contender, 0.0)
            if sample.key in theirs
        ]
        return (sum(share == 1 for share in shares), len(shares), min(shares)) if shares else None


def common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """How many ids two texts share before they diverge."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


SCHEMA = "specviz-bench"


def to_json(benches: Sequence[Measurements]) -> str:
    """Everything measured, as one JSON object."""
    body = {"schema": SCHEMA, "version": 1, "benches": [asdict(bench) for bench in benches]}
    return json.dumps(body, ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def from_json(text: str) -> list[Measurements]:
    """The benchmarks of a file.

    Raises:
        RequestError: it is none of `to_json`'s, or damaged.
    """
    try:
        body = json.loads(text)
        if body["schema"] != SCHEMA or body["version"] != 1:
            raise ValueError
        return [Measurements(**raw | _parts(raw)) for raw in body["benches"]]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise RequestError("This is no file of measurements: give one that `bench --json` wrote.") from error


def _parts(raw: dict[str, Any]) -> dict[str, Any]:
    """The records among a benchmark's fields."""
    kinds = {"parties": Participant, "samples": Sample, "overheads": Overhead, "together": Together}
    lists = {name: [kind(**each) for each in raw[name]] for name, kind in kinds.items()}
    return {**lists, "forwards": Forwards(**raw["forwards"]) if raw["forwards"] else None}
