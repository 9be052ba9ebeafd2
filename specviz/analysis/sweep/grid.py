"""The plan of a sweep: the settings that it covers, and the division of its work into units."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from specviz.core.methods import METHODS, PAPER, get_method
from specviz.errors import RequestError
from specviz.schema.settings import SETTINGS

MODELS = ("verifier_only", "drafter_only")
"""The methods that run one model alone; every sweep has them."""
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


@dataclass(frozen=True, order=True)
class Setting:
    """One point of a sweep: a method, a lenience (0 if the method has none) and a temperature."""

    temperature: float
    method: str
    lenience: float

    def named(self, pattern: str) -> str:
        """Fill `pattern`, such as "{title}, α = {alpha}", with title and lenience. Returns only the title if the method has no lenience."""
        method, alpha = METHODS[self.method], f"{self.lenience:g}".replace("-", "−")
        return pattern.format(title=method.title, alpha=alpha) if method.has_lenience else method.title

    @property
    def title(self) -> str:
        """The method's title, with the lenience if it has one."""
        return self.named("{title}, α\u00a0=\u00a0{alpha}")


class Unit(NamedTuple):
    """One trial of an item at all settings of a temperature. Units are done in order, each completely or not at all."""

    trial: int
    item: int
    temperature: float


@dataclass(frozen=True)
class SweepGrid:
    """What a sweep covers.

    Attributes:
        pair: a key of the registry.
        methods: names of methods; `MODELS` are always added.
        leniences: the leniences of each method, except values outside the method's range. If empty, each method has its default
            leniences (`LENIENCES`).
        points: number of default leniences to take, including both ends: at least 2, or 0 for all.
        temperatures: each at least 0. At temperature 0 there is one trial, whatever `trials` says.
        prompts: "built-in", "skills", the path of a file, or "lm-eval:TASK".
        limit: maximum number of items; 0 takes all.
        trials: number of texts per item and setting, each with its own seed.
        draft_length: K, shared by all methods.
        max_new_tokens: maximum number of tokens of a text.
        seed: seed of the first text; `seed_of` derives the seeds of the other texts.
        timed: number of items that are also served one at a time to measure latency.

    Raises:
        RequestError: draft length, tokens, seed or a temperature is out of range, a method is unknown, or no lenience fits a method.
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
        for name in ("draft_length", "max_new_tokens", "seed"):
            SETTINGS[name].check(getattr(self, name))
        for temperature in self.temperatures:
            SETTINGS["temperature"].check(temperature)
        _ = self.settings

    @property
    def settings(self) -> list[Setting]:
        """All settings, by temperature, then method in the registry's order, then lenience from the strict end on."""
        asked = {get_method(name).name for name in self.methods} | set(MODELS)
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
        """The seed of an item's trial. All settings share it, so that their texts differ only because of the setting."""
        return self.seed + item * self.trials + trial


def _leniences(name: str, asked: Sequence[float], points: int) -> Sequence[float]:
    method = METHODS[name]
    if not method.has_lenience:
        return (0.0,)
    if asked:
        low, high = method.lenience_range
        if fit := sorted(
            {lenience for lenience in asked if low <= lenience <= high and math.isfinite(lenience)}
        ):
            return fit
        raise RequestError(
            f"None of the leniences fits {name}, which takes numbers from {low:g} to {high:g}."
        )
    low, high = method.offered_range
    evenly = [round(low + (high - low) * step / _EVEN_STEPS, 3) for step in range(_EVEN_STEPS)]
    own = LENIENCES.get(name) or (*evenly, high)
    last, steps = len(own) - 1, max(1, min(points or len(own), len(own)) - 1)
    return [own[round(step * last / steps)] for step in range(steps + 1)]
