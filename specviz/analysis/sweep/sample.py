"""What a sweep keeps of one text: its origin, counts and quality; and of a timed one, its costs. Plain records.

Knows no model and no statistics.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Sample:
    """One text: an item asked once at one setting.

    Attributes:
        setting, item, trial: indices of the setting, the item and the trial.
        seed: of its coins; the same for all settings.
        text: the answer.
        tokens: emitted, an end-of-text marker included.
        examined, accepted, drafted: draft tokens. None are examined where only one model ran.
        verifier_calls: forward passes in rounds.
        score: of the task, in [0, 1]; None where the item has no answer to check against.
        distance: sum over the tokens of TV(pi, p), at the temperature of the run.
        log_probability: sum over the tokens of log p1(token), natural, at temperature 1.
        greedy: tokens that are the verifier's most probable at their position.
        stop_reason: as a run's.
    """

    setting: int
    item: int
    trial: int
    seed: int
    text: str
    tokens: int
    examined: int
    accepted: int
    drafted: int
    verifier_calls: int
    score: float | None
    distance: float
    log_probability: float
    greedy: int
    stop_reason: str


@dataclass(frozen=True)
class Timing:
    """The costs of one text served by itself; seconds of its rounds, without the prefill.

    `item` is the index of its item in the sweep, `index` that among the timed items.
    """

    setting: int
    item: int
    index: int
    tokens: int
    seconds: float
    drafted: int
    drafter_seconds: float
    rounds: int
