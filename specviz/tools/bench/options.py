"""What a benchmark can be asked to measure: its options, checked here, and its prompts. Knows no model and no clock."""

from __future__ import annotations

from dataclasses import dataclass

from specviz.errors import RequestError
from specviz.schema.settings import MAX_DRAFT_LENGTH
from specviz.tools.bench.contenders import KEYS
from specviz.tools.distill.prompts import held_out_by_kind


@dataclass(frozen=True)
class BenchmarkOptions:
    """What to measure.

    Attributes:
        pair: a key of the registry; or `shape`, two names of `specviz.tools.bench.shapes`.
        acceptance: if given, one temperature is searched for at which about this share of draft tokens is accepted.
        contenders: keys of `specviz.tools.bench.contenders.KEYS`.
        tokens: new ids of every run.
        prompts: how many of those held out, their kinds in turn.
        draft_lengths: K of lossless speculative decoding at fixed K.
        draft_length: K of all others who draft a fixed number.
        threads: of each contender; 0 is torch's own choice.
        quick: a few short runs, to see that everything works; its figures mean little.
    """

    pair: str = "embedded"
    shape: tuple[str, str] | None = None
    acceptance: float | None = None
    contenders: tuple[str, ...] = KEYS
    repetitions: int = 1
    tokens: int = 40
    temperatures: tuple[float, ...] = (0.0, 1.0)
    prompts: int = 14
    draft_lengths: tuple[int, ...] = (1, 2, 3, 5)
    draft_length: int = 3
    threads: int = 0
    device: str = "auto"
    dtype: str = "auto"
    seed: int = 0
    quick: bool = False

    def __post_init__(self) -> None:
        if unknown := [key for key in self.contenders if key not in KEYS]:
            raise RequestError(f"There is no contender {unknown[0]!r}: known are {', '.join(KEYS)}.")
        held_out = held_out_by_kind().values()
        most = len(held_out) * min(map(len, held_out))
        for name, value, low, high in (
            ("Repetitions", self.repetitions, 1, 1000),
            ("Tokens", self.tokens, 2, 4096),
            ("Prompts", self.prompts, 1, most),
            ("The draft length", self.draft_length, 1, MAX_DRAFT_LENGTH),
            ("Threads", self.threads, 0, 4096),
            *(("A draft length", k, 1, MAX_DRAFT_LENGTH) for k in self.draft_lengths),
        ):
            if not low <= value <= high:
                raise RequestError(f"{name}: {value} was asked for; from {low} to {high} can be.")
        if not self.contenders or not self.temperatures or min(self.temperatures) < 0:
            raise RequestError("Name at least one contender, and temperatures of at least 0.")
        if self.acceptance is not None and not 0 < self.acceptance < 1:
            raise RequestError(f"Acceptance {self.acceptance} was asked for; it must lie between 0 and 1.")
        if self.acceptance is not None and not self.shape:
            raise RequestError("An acceptance can be asked for with --shape only: a real pair has its own.")
        if self.quick:
            small = {"tokens": 12, "prompts": 2, "draft_lengths": (1, 3), "repetitions": 1}
            for name, few in small.items():
                object.__setattr__(self, name, few)


def choose_prompts(count: int) -> list[tuple[str, str]]:
    """Kind and text of this many held-out prompts, the kinds in turn."""
    by_kind = held_out_by_kind()
    turns = zip(*by_kind.values(), strict=False)
    return [each for texts in turns for each in zip(by_kind, texts, strict=True)][:count]
