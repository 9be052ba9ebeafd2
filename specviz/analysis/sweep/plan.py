"""What a sweep is to go through: checked here, once, in sentences. Knows methods and ranges; knows no model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from specviz.analysis.sweep.setting import Setting, grid
from specviz.core.methods import METHODS
from specviz.errors import RequestError
from specviz.schema.settings import MAX_DRAFT_LENGTH


@dataclass(frozen=True)
class Plan:
    """A sweep.

    Attributes:
        pair: a key of the registry.
        methods: by name; verifier_only and drafter_only always come along.
        leniences: the same for all methods, each where it is within the method's range; none takes each method's own
            (`specviz.analysis.sweep.setting.LENIENCES`).
        points: with each method's own leniences, how many of them, the ends among them; 0 takes all.
        temperatures: each >= 0. At 0 every text is written once, whatever `trials` says.
        prompts: "built-in", a file, or "lm-eval:TASK", see `specviz.analysis.sweep.items`.
        limit: items at most; 0 takes all.
        trials: texts of an item at a setting, each with coins of its own.
        draft_length: K, one number for all: what a round costs can then be compared.
        max_new_tokens: of a text.
        seed: of everything random.
        timed: items that are also served one at a time, to measure latency; 0 measures none.
    """

    pair: str = "embedded"
    methods: tuple[str, ...] = tuple(METHODS)
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
        """All settings, in order."""
        return grid(self.methods, self.temperatures, self.leniences, self.points)

    def trials_at(self, temperature: float) -> int:
        """Texts of an item at a temperature: greedy ones would all be the same."""
        return self.trials if temperature > 0 else 1

    def seed_of(self, item: int, trial: int) -> int:
        """The coins of an item's trial: the same for all settings, so that the method makes the difference."""
        return self.seed + item * self.trials + trial

    def to_record(self) -> dict[str, Any]:
        """JSON-ready."""
        return {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self).items()}

    @staticmethod
    def from_record(record: Mapping[str, Any]) -> Plan:
        """Read what `to_record` made; RequestError or TypeError where it is something else."""
        settings: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in record.items()}
        return Plan(**settings)
