"""The plan of a sweep: the settings that it covers, and the division of its work into units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specviz.core.methods import METHODS, PAPER, get_method
from specviz.errors import RequestError
from specviz.schema.settings import MAX_DRAFT_LENGTH

_OF_FAVOURITE = (0, 0.3, 0.6, 0.9, 0.99, 0.999, 1)
LENIENCES: dict[str, tuple[float, ...]] = {
    "speed": (0, 0.2, 0.4, 0.6, 0.8, 0.95, 1),
    "cascade_chow": (0, 0.2, 0.4, 0.6, 0.8, 0.9, 1),
    "cascade_diff": (-1, -0.3, -0.1, 0, 0.1, 0.3, 1),
    "cascade_opt": (-5, -0.3, 0, 0.2, 0.4, 0.7, 5),
    "cascade_tokenV1": (-1, 0, 0.1, 0.3, 0.5, 0.8, 1),
    "cascade_tokenV2": (-1, 0, 0.1, 0.3, 0.5, 0.8, 1),
    "cascade_tokenV3": _OF_FAVOURITE,
    "lossless_min_p": _OF_FAVOURITE,
}
"""Default leniences of some methods, strict end first, denser where the curve bends. Other methods are sampled evenly."""
_EVEN_STEPS = 6
_RANGES = {
    "trials": (1, 1000),
    "limit": (0, 1_000_000),
    "draft_length": (1, MAX_DRAFT_LENGTH),
    "max_new_tokens": (1, 4096),
    "seed": (0, 2**31 - 1),
    "timed": (0, 1000),
    "points": (0, 1000),
}


@dataclass(frozen=True, order=True)
class Setting:
    """One point of a sweep: a method, a lenience (0 if the method has none) and a temperature."""

    temperature: float
    method: str
    lenience: float

    @property
    def title(self) -> str:
        """The method's title, with the lenience if it has one."""
        method = get_method(self.method)
        lenience = f"{self.lenience:g}".replace("-", "−")
        return f"{method.title}, α\u00a0=\u00a0{lenience}" if method.has_lenience else method.title


@dataclass(frozen=True, order=True)
class Unit:
    """One trial of an item at all settings of a temperature. Units are done in order, each completely or not at all."""

    trial: int
    item: int
    temperature: float


@dataclass(frozen=True)
class SweepGrid:
    """What a sweep covers.

    Attributes:
        pair: a key of the registry.
        methods: names of methods; verifier_only and drafter_only are always added.
        leniences: used for all methods, except those outside a method's range. If empty, each method has its own
            (`LENIENCES`).
        points: number of a method's own leniences, including both ends; 0 takes all.
        temperatures: each at least 0. At temperature 0 there is one trial, whatever `trials` says.
        prompts: "built-in", "skills", a file, or "lm-eval:TASK".
        limit: most items; 0 takes all.
        trials: number of texts per item and setting, each with its own seed.
        draft_length: K, shared by all methods.
        max_new_tokens: most tokens of a text.
        seed: seed of everything random.
        timed: number of items that are also served one at a time to measure latency.

    Raises:
        RequestError: a number is out of range, a method is unknown, or no lenience fits a method.
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
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                title = name.replace("_", " ").capitalize()
                raise RequestError(f"{title} must be a whole number from {low} to {high}, not {value!r}.")
        if self.points == 1:
            raise RequestError("Points must be at least 2: a curve has two ends.")
        if not self.temperatures or not all(
            isinstance(t, int | float) and 0 <= t < 100 for t in self.temperatures
        ):
            raise RequestError("Name at least one temperature, each a number of at least 0 and below 100.")
        _ = self.settings

    @property
    def settings(self) -> list[Setting]:
        """All settings, by temperature, then method in the registry's order, then lenience from the strict end on."""
        asked = {get_method(name).name for name in self.methods} | {"drafter_only", "verifier_only"}
        return [
            Setting(float(temperature), name, float(lenience))
            for temperature in sorted(set(self.temperatures))
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
        """Number of trials at a temperature: 1 at 0, since greedy texts are all the same."""
        return self.trials if temperature > 0 else 1

    def seed_of(self, item: int, trial: int) -> int:
        """The seed of an item's trial, shared by all settings, so that only the method makes a difference."""
        return self.seed + item * self.trials + trial

    @staticmethod
    def from_record(record: Mapping[str, Any]) -> SweepGrid:
        """Read a plan from its JSON object. Raises RequestError or TypeError if it is something else."""
        settings: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in record.items()}
        return SweepGrid(**settings)


def _leniences(name: str, asked: Sequence[float], points: int) -> Sequence[float]:
    method = METHODS[name]
    if not method.has_lenience:
        return (0.0,)
    if asked:
        low, high = method.lenience_range
        if fit := sorted({lenience for lenience in asked if low <= lenience <= high}):
            return fit
        raise RequestError(
            f"None of the leniences fits {name}, which takes numbers from {low:g} to {high:g}."
        )
    low, high = method.offered_range
    evenly = [round(low + (high - low) * step / _EVEN_STEPS, 3) for step in range(_EVEN_STEPS)]
    own = LENIENCES.get(name) or (*evenly, high)
    last, steps = len(own) - 1, min(points or len(own), len(own)) - 1
    return [own[round(step * last / steps)] for step in range(steps + 1)]
