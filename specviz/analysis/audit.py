"""Tests whether an engine follows the law it claims: compares counts of its first tokens with their enumerated probabilities.

A law is the probability of every sequence of first tokens: an array [V, V, …] with one axis for each token.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from specviz.analysis.bisection import least

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

LEVEL = 0.001
"""An engine departs from its law if the p-value is below this."""
_LEAST_EXPECTED = 5.0
"""Cells with a smaller expected count are merged: below it, the chi-square distribution is a poor approximation."""
_BIAS, _POWER = 0.01, 0.9
"""The bias, as total variation, and the power for which `samples_needed` computes the number of samples."""
_NORMAL_95 = 1.96


@dataclass(frozen=True)
class Departure:
    """The prefix and the next token whose count deviates most from the law. `expected` is the token's mean count, given the prefix's."""

    prefix: list[int]
    token: int
    expected: float
    observed: int
    deviations: float


@dataclass(frozen=True)
class Finding:
    """How counts compare with a law.

    Attributes:
        statistic, freedom, p_value: of the G-test over merged cells.
        impossible: number of samples to which the law gives probability 0; if there are any, the p-value is 0.
        distance, low, high: an unbiased estimate of a lower bound of the total variation distance, and its 95 % interval. For an
            engine without bias, the estimate is around 0, and half of the time negative.
        samples_needed: number of samples with which the test finds any bias of 1 % total variation over the merged cells, with 90 % power.
    """

    samples: int
    statistic: float
    freedom: int
    p_value: float
    impossible: int
    distance: float
    low: float
    high: float
    samples_needed: int
    departure: Departure

    @property
    def departs(self) -> bool:
        """Whether the engine does not follow the law."""
        return self.p_value < LEVEL


def examine(counts: Counts, law: Floats, seed: int = 0) -> Finding:
    """Compare counts with a law of the same shape. `seed` seeds the random split into halves with which the distance is estimated."""
    samples = int(counts.sum())
    impossible = int(counts[law == 0].sum())
    statistic, freedom = _g(counts.ravel(), samples * law.ravel())
    p_value = 0.0 if impossible else chi_square_tail(statistic, freedom)
    distance = _distance(counts.ravel(), law.ravel(), np.random.default_rng(seed))
    error = _NORMAL_95 * 0.5 / samples**0.5
    test, interval = (statistic, freedom, p_value), (distance, distance - error, distance + error)
    needed = samples_needed(freedom)
    return Finding(samples, *test, impossible, *interval, needed, _departure(counts, law))


def chi_square_tail(statistic: float, freedom: float) -> float:
    """The probability that a chi-square variable exceeds `statistic`; 1 if there is no degree of freedom."""
    if freedom <= 0:
        return 1.0
    halves = torch.tensor([freedom / 2, max(statistic, 0.0) / 2], dtype=torch.float64)
    return torch.special.gammaincc(halves[0], halves[1]).item()


def samples_needed(freedom: int) -> int:
    """Number of samples with which the test at `LEVEL` finds any bias of 1 % total variation, with 90 % power; 0 if `freedom` is 0.

    Of all biases with total variation d, the least visible one has a noncentrality of 4 d² per sample. The noncentral chi-square
    distribution is approximated as in Patnaik (1949), by a central one that is scaled to the same mean and variance.
    """
    if freedom < 1:
        return 0
    critical = least(lambda statistic: chi_square_tail(statistic, freedom) < LEVEL)

    def found(noncentrality: float) -> bool:
        scale = (freedom + 2 * noncentrality) / (freedom + noncentrality)
        return chi_square_tail(critical / scale, (freedom + noncentrality) / scale) > _POWER

    return round(least(found) / (4 * _BIAS**2))


def _g(observed: Counts, expected: Floats) -> tuple[float, int]:
    """The G statistic and its degrees of freedom, after small cells were merged in the order of their expected counts.

    G is divided by Williams' correction: with many small cells, G alone rejects a correct engine twice as often as it should.
    """
    order = np.argsort(expected, kind="stable")
    order = order[expected[order] > 0]
    cells: list[list[float]] = [[0.0, 0.0]]
    for seen, mean in zip(observed[order].tolist(), expected[order].tolist(), strict=True):
        if cells[-1][1] >= _LEAST_EXPECTED:
            cells.append([0.0, 0.0])
        cells[-1][0] += seen
        cells[-1][1] += mean
    counts, means = np.array(cells).T
    freedom = len(cells) - 1
    statistic = 2 * float((counts * np.log(np.maximum(counts, 1) / means)).sum())
    correction = 1 + float((1 / means).sum() - 1 / means.sum()) / (6 * max(freedom, 1))
    return statistic / correction, freedom


def _distance(observed: Counts, law: Floats, rng: np.random.Generator) -> float:
    """An unbiased estimate of a lower bound of the total variation distance.

    The distance between counts and law grows with the number of cells even without bias. Therefore one half of the samples
    selects the sequences that are too frequent, and the other half measures their excess; then the halves swap roles.
    """
    half = rng.multivariate_hypergeometric(observed, int(observed.sum()) // 2)
    shares = [part / max(part.sum(), 1) for part in (half, observed - half)]
    excesses = [(other - law)[chosen > law].sum() for chosen, other in (shares, shares[::-1])]
    return float(np.mean(excesses))


def _departure(counts: Counts, law: Floats) -> Departure:
    """The prefix and next token whose count deviates most, in standard deviations, from its mean given the prefix's count."""
    worst = Departure([], 0, 0.0, 0, 0.0)
    for axes in range(1, law.ndim + 1):
        later = tuple(range(axes, law.ndim))
        observed, probability = counts.sum(axis=later), law.sum(axis=later)
        before = probability.sum(axis=-1, keepdims=True)
        share = np.divide(probability, before, out=np.zeros_like(probability), where=before > 0)
        arrived = observed.sum(axis=-1, keepdims=True)
        expected = arrived * share
        # Tokens that are expected less than once count little.
        spread = np.sqrt(np.maximum(expected * (1 - share), 1.0))
        deviations = (observed - expected) / spread
        place = np.unravel_index(np.abs(deviations).argmax(), deviations.shape)
        if abs(deviations[place]) > abs(worst.deviations):
            *prefix, token = map(int, place)
            found = float(expected[place]), int(observed[place]), float(deviations[place])
            worst = Departure(prefix, token, *found)
    return worst
