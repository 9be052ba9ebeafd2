"""The audit's statistics find each of six wrong engines and pass a right one; the engines' true laws are exact sums."""

from __future__ import annotations

import random
from bisect import bisect
from itertools import accumulate, product

import numpy as np
import pytest

from specviz.analysis import audit
from specviz.analysis.wrong_engines import EXAMPLE, WRONG, Floats, Rule, bias

Q, P = EXAMPLE
RIGHT = np.outer(P, P)
KEPT = np.minimum(P / Q, 1).tolist()
LEFT = np.maximum(P - Q, 0).tolist()
RULES = [pytest.param(rule, id=rule.name) for rule in WRONG]


def counts(law: Floats, samples: int, seed: int) -> audit.Counts:
    """How often an engine of this law writes each pair of tokens."""
    return np.random.default_rng(seed).multinomial(samples, law.ravel()).reshape(law.shape)


def one_of(weights: list[float], coin: float) -> int:
    sums = list(accumulate(weights))
    return bisect(sums, coin * sums[-1], 0, len(sums) - 1)


def one_coin(rng: random.Random) -> tuple[int, bool]:
    """A token, and whether it was drafted."""
    token, coin = one_of(Q.tolist(), rng.random()), rng.random()
    return (token, True) if coin < KEPT[token] else (one_of(LEFT, coin), False)


def examined(rng: random.Random) -> tuple[int, bool]:
    token = one_of(Q.tolist(), rng.random())
    return (token, True) if rng.random() < KEPT[token] else (one_of(LEFT, rng.random()), False)


def unexamined(rng: random.Random) -> tuple[int, int]:
    first, kept = examined(rng)
    return first, one_of(Q.tolist(), rng.random()) if kept else examined(rng)[0]


def block(rng: random.Random) -> tuple[int, int]:
    x, y = (one_of(Q.tolist(), rng.random()) for _ in range(2))
    one, both = rng.random() < KEPT[x], rng.random() < KEPT[y]
    if both:
        return x, y
    replacement = one_of(LEFT, rng.random())
    return (x, replacement) if one else (replacement, block(rng)[0])


DRAWS = {
    WRONG[1]: lambda rng: (one_coin(rng)[0], one_coin(rng)[0]),
    WRONG[4]: unexamined,
    WRONG[5]: block,
}


@pytest.mark.parametrize("rule", [pytest.param(rule, id=rule.name) for rule in DRAWS])
def test_the_enumerated_law_is_that_of_the_draws(rule: Rule) -> None:
    """Of the rules that decide a token by more than a draft, an acceptance and a residual."""
    rng, found = random.Random(1), np.zeros((len(P), len(P)), np.int64)
    for _ in range(20_000):
        found[DRAWS[rule](rng)] += 1
    assert audit.examine(found, rule.law(Q, P)).p_value > 0.01


@pytest.mark.parametrize("rule", RULES)
def test_wrong_rules_are_biased_and_found(rule: Rule) -> None:
    """A wrong rule's law departs from its claim; 20,000 samples show it, and give about the enumerated bias."""
    law, claim = rule.law(Q, P), rule.claim(Q, P)
    assert law.sum() == pytest.approx(1, abs=1e-12)
    finding = audit.examine(counts(law, 20_000, 2), claim)
    assert finding.departs
    assert finding.low <= bias(law, claim) <= finding.high
    assert bias(law, claim) > 0.05


@pytest.mark.parametrize("rule", [pytest.param(rule, id=rule.name) for rule in WRONG[:4]])
def test_at_temperature_0_four_wrong_rules_are_right(rule: Rule) -> None:
    """They decide one token at a time, and at temperature 0 both models are certain of it: no test there sees them."""
    for q, p in product(np.eye(len(P)), repeat=2):
        assert bias(rule.law(q, p), rule.claim(q, p)) < 1e-12


def test_a_right_engine_is_rarely_accused() -> None:
    """At the 1 % level, 200 audits of 2,000 samples accuse a right engine about twice."""
    alarms = sum(audit.examine(counts(RIGHT, 2_000, seed), RIGHT).p_value < 0.01 for seed in range(200))
    assert 0 <= alarms <= 7


def test_the_promised_samples_find_the_least_visible_bias() -> None:
    """With `samples_needed` samples, a bias of 1 % spread as evenly as possible is found in 90 % of audits."""
    law = np.full((6, 6), 1 / 36)
    biased = law * np.where(np.arange(6) < 3, 1.02, 0.98)
    samples = audit.samples_needed(35)
    rng = np.random.default_rng(5)
    found = [audit.examine(rng.multinomial(samples, biased.ravel()).reshape(6, 6), law) for _ in range(300)]
    assert 0.85 < np.mean([each.departs for each in found]) < 0.95


def test_one_impossible_sample_is_enough() -> None:
    """A sequence that the law excludes is a departure, whatever the number of samples."""
    finding = audit.examine(np.array([50, 50, 1]), np.array([0.5, 0.5, 0.0]))
    assert (finding.impossible, finding.p_value, finding.departure.token) == (1, 0.0, 2)


@pytest.mark.parametrize(("statistic", "freedom", "tail"), [(3.841459, 1, 0.05), (18.307038, 10, 0.05)])
def test_tail_of_the_chi_square_distribution(statistic: float, freedom: int, tail: float) -> None:
    """Tabled critical values."""
    assert audit.chi_square_tail(statistic, freedom) == pytest.approx(tail, abs=1e-6)
