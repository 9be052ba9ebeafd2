"""What a sweep goes through: its settings, its texts and how they are cut into units of work; checked here, once.

Knows the registry of methods and the ranges of numbers; knows no model, no item and no result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from specviz.core.methods import METHODS, PAPER, get_method
from specviz.errors import RequestError
from specviz.schema.settings import MAX_DRAFT_LENGTH

LENIENCES: dict[str, tuple[float, ...]] = {
    "speed": (0, 0.2, 0.4, 0.6, 0.8, 0.95, 1),
    "cascade_chow": (0, 0.2, 0.4, 0.6, 0.8, 0.9, 1),
    "cascade_diff": (-1, -0.3, -0.1, 0, 0.1, 0.3, 1),
    "cascade_opt": (-5, -0.3, 0, 0.2, 0.4, 0.7, 5),
    "cascade_tokenV1": (-1, 0, 0.1, 0.3, 0.5, 0.8, 1),
    "cascade_tokenV2": (-1, 0, 0.1, 0.3, 0.5, 0.8, 1),
    "cascade_tokenV3": (0, 0.3, 0.6, 0.9, 0.99, 0.999, 1),
}
"""Where a method's curve is sampled by default, from the strict end to the drafter's; denser where it bends. Others: evenly."""
_EVENLY = 7


@dataclass(frozen=True, order=True)
class Setting:
    """One point of a sweep: a method at a lenience and a temperature; methods without a lenience have 0."""

    temperature: float
    method: str
    lenience: float

    @property
    def title(self) -> str:
        """The method's title, and its lenience where it has one."""
        method = get_method(self.method)
        lenience = f"{self.lenience:g}".replace("-", "−")
        return f"{method.title}, α\u00a0=\u00a0{lenience}" if method.has_lenience else method.title


@dataclass(frozen=True, order=True)
class Unit:
    """An item's trial at a temperature, at all its settings: done whole or not at all. Ordered as they are worked on."""

    trial: int
    item: int
    temperature: float


@dataclass(frozen=True)
class SweepGrid:
    """What a sweep goes through.

    Attributes:
        pair: a key of the registry.
        methods: by name; verifier_only and drafter_only are always added.
        leniences: the same for all methods, each where it is within the method's range; none takes each method's own
            (`LENIENCES`).
        points: with each method's own leniences, how many of them, the ends among them; 0 takes all.
        temperatures: each >= 0. At 0 every text is written once, whatever `trials` says.
        prompts: "built-in", a file, or "lm-eval:TASK", see `specviz.analysis.sweep.items`.
        limit: items at most; 0 takes all.
        trials: texts of an item at a setting, each with coins of its own.
        draft_length: K, the same for all, so that the costs of a round compare.
        max_new_tokens: of a text.
        seed: of everything random.
        timed: items that are also served one at a time, to measure latency; 0 measures none.

    Raises:
        RequestError: a number out of its range, an unknown method, or one for which no lenience is left.
    """

    pair: str = "embedded"
    methods: tuple[str, ...] = PAPER
    leniences: tuple[float, ...] = ()
    points: int = 0
    temperatures: tuple[float, ...] = (0.0, 0.5, 1.0)
    prompts: str = "built-in"
    limit: int = 0
    trials: int = 1
    draft_length: int = 3
    max_new_tokens: int = 24
    seed: int = 0
    timed: int = 8

    def __post_init__(self) -> None:
        for name, value, low, high in (
            ("Trials", self.trials, 1, 1000),
            ("The limit of items", self.limit, 0, 1_000_000),
            ("The draft length", self.draft_length, 1, MAX_DRAFT_LENGTH),
            ("New tokens", self.max_new_tokens, 1, 4096),
            ("The seed", self.seed, 0, 2**31 - 1),
            ("Timed items", self.timed, 0, 1000),
            ("Points of a curve", self.points, 0, 1000),
        ):
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise RequestError(
                    f"{name}: {value!r} was asked for; a whole number from {low} to {high} can be."
                )
        if self.points == 1:
            raise RequestError(
                "Points of a curve: 1 was asked for; both ends belong to it, so at least 2 can be."
            )
        _ = self.settings

    @property
    def settings(self) -> list[Setting]:
        """All settings: by temperature, then method in the registry's order, then lenience, strict end first."""
        asked = {get_method(name).name for name in self.methods} | {"drafter_only", "verifier_only"}
        temperatures = self.temperatures
        if not temperatures or any(not (isinstance(t, int | float) and 0 <= t < 100) for t in temperatures):
            raise RequestError("Name at least one temperature, each a number of at least 0 and below 100.")
        return [
            Setting(float(temperature), name, float(lenience))
            for temperature in sorted(set(temperatures))
            for name in METHODS
            if name in asked
            for lenience in _leniences(name, self.leniences, self.points)
        ]

    def units(self, items: int) -> list[Unit]:
        """The work for this many items, in order."""
        return sorted(
            Unit(trial, item, float(temperature))
            for temperature in set(self.temperatures)
            for trial in range(self.trials_at(temperature))
            for item in range(items)
        )

    def trials_at(self, temperature: float) -> int:
        """Texts of an item at a temperature: greedy ones would all be the same."""
        return self.trials if temperature > 0 else 1

    def seed_of(self, item: int, trial: int) -> int:
        """The seed of an item's trial: the same for all settings, so that the method makes the difference."""
        return self.seed + item * self.trials + trial

    def to_record(self) -> dict[str, Any]:
        """JSON-ready."""
        return {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self).items()}

    @staticmethod
    def from_record(record: Mapping[str, Any]) -> SweepGrid:
        """Read what `to_record` made; RequestError or TypeError if it is something else."""
        settings: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in record.items()}
        return SweepGrid(**settings)


def _evenly(low: float, high: float) -> tuple[float, ...]:
    steps = _EVENLY - 1
    return (*tuple(round(low + (high - low) * step / steps, 3) for step in range(steps)), high)


def _leniences(name: str, asked: Sequence[float], points: int) -> Sequence[float]:
    method = METHODS[name]
    if not method.has_lenience:
        return (0.0,)
    if not asked:
        own = LENIENCES.get(name) or _evenly(*method.offered_range)
        last, steps = len(own) - 1, min(points or len(own), len(own)) - 1
        return [own[round(step * last / steps)] for step in range(steps + 1)]
    low, high = method.lenience_range
    if fit := sorted({lenience for lenience in asked if low <= lenience <= high}):
        return fit
    raise RequestError(f"None of the leniences fits {name}, which takes numbers from {low:g} to {high:g}.")
