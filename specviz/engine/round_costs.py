"""What rounds cost: by the draft length that all sequences share, or by the tokens that the verifier reads where each has its own.

Knows times and counts; knows no sequence, no model and no token.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable

import numpy as np

from specviz.schema.settings import MAX_DRAFT_LENGTH

_RECENT, _YOUNG, _REFRESHED = 128, 32, 16
"""Rounds whose times are kept, so that a slow one is forgotten; and after how many estimates are made anew no more after each, and how often
then.
"""
_USUAL_SLOPE, _SLOPE_WEIGHT = 0.03, 4.0
"""Expected cost of one more token in a verifier pass, as a share of the pass, and the weight of what is expected beside what was seen."""
_SLOW = 3.0
"""Rounds that took so many times as long as most, by the round and by the token, were held up: they say nothing of what drafting costs."""
_TOLD, _FORGOTTEN = 3, 0.1
"""Rounds of a length from which on it is believed; how much of what was found is forgotten with each estimate that finds only one such
length, and so nothing of what another costs.
"""
_TOKEN_SHARE = 0.5
"""Expected share of what the tokens of a round cost, where there are many, in the whole."""
_PASS_SHARE = 0.05
"""Expected share of what one more pass of the drafter costs, whatever it reads, in a round of several sequences."""
_LEAST_SHARE = 0.25
"""A token more costs no less than so much of what is expected before anything was seen."""


class RoundCosts:
    """Recent costs of rounds: seconds of drafting by passes, and of the rest of a round by its draft length."""

    def __init__(self) -> None:
        self.rounds_seen = 0
        self._drafting: deque[tuple[int, float]] = deque(maxlen=_RECENT)
        self._remaining: deque[tuple[int, float]] = deque(maxlen=_RECENT)
        self._estimates: tuple[float, list[float]] | None = None
        self._slope: float | None = None  # of one more token, as lengths that were believed had it

    def update(
        self, draft_length: int, passes: int, drafter_seconds: float, remaining_seconds: float
    ) -> None:
        """Add a round: its draft length, its drafter passes, their seconds, and the seconds of all else."""
        self.rounds_seen += 1
        self._drafting.append((passes, drafter_seconds))
        self._remaining.append((draft_length, remaining_seconds))
        if _is_due(self.rounds_seen):
            self._estimates = None

    def estimates(self) -> tuple[float, list[float]]:
        """Expected seconds of one more drafter pass, and of all else in a round of draft length 1, 2, … MAX_DRAFT_LENGTH, from the recent
        ones; kept for a few rounds, since making them takes time too.

        The first pass after the verifier's finds its weights in memory, those after it in the caches: what it takes longer belongs
        to all else.
        """
        if (found := self._estimates) is None:
            drafting, others = _undisturbed(self._drafting), _undisturbed(self._remaining)
            one = _middle(seconds / passes for passes, seconds in drafting)
            first, more = _line(_grouped(drafting), one)
            if more > one:
                first, more = 0.0, one
            found = self._estimates = more, [first + each for each in self._by_length(others)]
        return found

    def _by_length(self, observed: list[tuple[int, float]]) -> list[float]:
        """Seconds of a round without its drafting, of each length, from the most frequent one on: what those of a length took, drawn towards
        what the length beside it leads to expect while few have been seen.
        """
        times = _grouped(observed)
        # By the times of few rounds, which another program may have held up, no text would draft as far again.
        believed = {length: each for length, each in times.items() if len(each) >= _TOLD}
        told = believed or times
        common = max(told, key=lambda length: len(told[length]))
        usual = _USUAL_SLOPE * _middle(told[common])
        _, slope = _line(told, usual if self._slope is None else self._slope)
        if len(believed) > 1:
            self._slope = slope
        elif self._slope is not None:
            self._slope += _FORGOTTEN * (usual - self._slope)

        def drawn(length: int, expected: float) -> float:
            own = told.get(length)
            if not own:
                return expected
            return (len(own) * _middle(own) + _SLOPE_WEIGHT * expected) / (len(own) + _SLOPE_WEIGHT)

        found, step, least = {common: _middle(told[common])}, slope, min(map(min, told.values())) / 2
        for length in range(common + 1, MAX_DRAFT_LENGTH + 1):
            found[length] = max(found[length - 1], drawn(length, found[length - 1] + step))
            if length in believed:
                step = found[length] - found[length - 1]  # a pass grows dearer with each token
        for length in range(common - 1, 0, -1):
            found[length] = max(least, min(found[length + 1], drawn(length, found[length + 1] - slope)))
        return [found[length] for length in range(1, MAX_DRAFT_LENGTH + 1)]


class BatchCosts:
    """Recent costs of rounds of several sequences, each with a draft length of its own: seconds by sequences, by tokens that the
    verifier reads, and by passes of the drafter.
    """

    def __init__(self) -> None:
        self.rounds_seen = 0
        self._seen: deque[tuple[int, int, int, float]] = deque(maxlen=_RECENT)
        self._estimates: tuple[float, float, float, float] | None = None

    def update(self, sequences: int, tokens: int, passes: int, seconds: float) -> None:
        """Add a round: its sequences, the tokens that the verifier read of them, at least one each, the drafter's passes, at least one,
        and the seconds of it all.
        """
        self.rounds_seen += 1
        self._seen.append((sequences, tokens, passes, seconds))
        if _is_due(self.rounds_seen):
            self._estimates = None

    def estimates(self, sequences: int) -> tuple[float, float, float]:
        """Expected seconds of a round of so many sequences and one pass of the drafter without any token, of each token that the
        verifier reads, drafting it included, and of one more pass of the drafter; kept for a few rounds.

        Least squares, drawn towards what is usual while draft lengths have hardly differed.
        """
        if self._estimates is None:
            self._estimates = self._fitted()
        level, a_sequence, a_token, a_pass = self._estimates
        return max(0.0, level + a_sequence * sequences) + a_pass, a_token, a_pass

    def _fitted(self) -> tuple[float, float, float, float]:
        lasting = set(_undisturbed([(each[1], each[3]) for each in self._seen]))
        seen = np.array([each for each in self._seen if (each[1], each[3]) in lasting])
        mean = seen.mean(0)
        counts, seconds = (seen - mean)[:, :3], seen[:, 3] - mean[3]
        usual = np.array([0.0, min(_USUAL_SLOPE, _TOKEN_SHARE / mean[1]), _PASS_SHARE]) * mean[3]
        # As if so many rounds had had a sequence more, a token more of each sequence, or a pass more.
        weight = _SLOPE_WEIGHT * np.array([1.0, mean[0] ** 2, 1.0])
        found = np.linalg.solve(counts.T @ counts + np.diag(weight), counts.T @ seconds + weight * usual)
        found = np.maximum(found, _LEAST_SHARE * usual)
        a_sequence, a_token, a_pass = map(float, found)
        return float(mean[3] - found @ mean[:3]), a_sequence, a_token, a_pass


def _is_due(rounds: int) -> bool:
    """Whether estimates are made anew after so many rounds."""
    return rounds <= _YOUNG or rounds % _REFRESHED == 0


def _undisturbed(observed: Iterable[tuple[int, float]]) -> list[tuple[int, float]]:
    """Those that were not held up, by what the faster of them take."""
    each = list(observed)
    usual, a_token = (
        sorted(times)[len(each) // 4] for times in ([y for _, y in each], [y / x for x, y in each])
    )
    return [(x, y) for x, y in each if y <= _SLOW * usual or y / x <= _SLOW * a_token]


def _grouped(observed: Iterable[tuple[int, float]]) -> dict[int, list[float]]:
    found: defaultdict[int, list[float]] = defaultdict(list)
    for x, y in observed:
        found[x].append(y)
    return found


def _middle(values: Iterable[float]) -> float:
    """Their median, the higher one of two."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


def _line(observed: dict[int, list[float]], usual_slope: float) -> tuple[float, float]:
    """Level at 0 and slope of a line through the medians at each x; the slope, at least 0, is drawn towards the usual one."""
    points = [(x, _middle(each), len(each)) for x, each in observed.items()]
    total = sum(weight for *_, weight in points)
    mean = sum(weight * x for x, _, weight in points) / total
    level = sum(weight * y for _, y, weight in points) / total
    covariance = sum(weight * (x - mean) * (y - level) for x, y, weight in points)
    variance = sum(weight * (x - mean) ** 2 for x, _, weight in points)
    slope = max(0.0, (covariance + _SLOPE_WEIGHT * usual_slope) / (variance + _SLOPE_WEIGHT))
    return level - slope * mean, slope
