"""One point of a sweep: a method at a lenience and a temperature; and which of them a sweep goes through.

Knows the registry of methods; knows no model, no item and no result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specviz.core.methods import METHODS, get_method
from specviz.errors import RequestError

LENIENCES: dict[str, tuple[float, ...]] = {
    "speed": (0, 0.2, 0.4, 0.6, 0.8, 0.95, 1),
    "cascade_chow": (0, 0.2, 0.4, 0.6, 0.8, 0.9, 1),
    "cascade_diff": (-1, -0.3, -0.1, 0, 0.1, 0.3, 1),
    "cascade_opt": (-5, -0.3, 0, 0.2, 0.4, 0.7, 5),
    "cascade_tokenV1": (-1, 0, 0.1, 0.3, 0.5, 0.8, 1),
    "cascade_tokenV2": (-1, 0, 0.1, 0.3, 0.5, 0.8, 1),
    "cascade_tokenV3": (0, 0.3, 0.6, 0.9, 0.99, 0.999, 1),
}
"""Where each method's curve is sampled unless asked otherwise, from the strict end to the drafter's; denser where
something happens."""


@dataclass(frozen=True, order=True)
class Setting:
    """A method at a lenience and a temperature; the methods without lenience have 0."""

    temperature: float
    method: str
    lenience: float

    @property
    def title(self) -> str:
        """The method's title, and its lenience where it has one."""
        method = get_method(self.method)
        return f"{method.title}, α\u00a0=\u00a0{self.lenience:g}" if method.has_lenience else method.title


def grid(
    methods: Sequence[str],
    temperatures: Sequence[float],
    leniences: Sequence[float] = (),
    points: int = 0,
) -> list[Setting]:
    """All settings of a sweep: by temperature, then method in the registry's order, then lenience, strict end first.

    Args:
        methods: names of the registry; what the others are held against, verifier_only and drafter_only, always
            comes along.
        temperatures: each >= 0.
        leniences: the same for all methods, each where it is within the method's range; none takes `LENIENCES`.
        points: so many of `LENIENCES`, spread evenly, the ends among them; 0 takes all.

    Raises:
        RequestError: an unknown method, a temperature below 0, or a method for which no lenience is left.
    """
    asked = {get_method(name).name for name in methods} | {"drafter_only", "verifier_only"}
    if not temperatures or any(not (isinstance(t, int | float) and 0 <= t < 100) for t in temperatures):
        raise RequestError("Name at least one temperature, each a number of at least 0 and below 100.")
    return [
        Setting(float(temperature), name, float(lenience))
        for temperature in sorted(set(temperatures))
        for name in METHODS
        if name in asked
        for lenience in _leniences(name, leniences, points)
    ]


def _leniences(name: str, asked: Sequence[float], points: int) -> Sequence[float]:
    method = METHODS[name]
    if not method.has_lenience:
        return (0.0,)
    if not asked:
        own = LENIENCES[name]
        last, steps = len(own) - 1, min(points or len(own), len(own)) - 1
        return [own[round(step * last / steps)] for step in range(steps + 1)]
    low, high = method.lenience_range
    if fit := sorted({lenience for lenience in asked if low <= lenience <= high}):
        return fit
    raise RequestError(f"None of the leniences fits {name}, which takes numbers from {low:g} to {high:g}.")
