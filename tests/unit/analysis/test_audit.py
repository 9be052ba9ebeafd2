"""The audit's statistics find each of six wrong engines, whose true laws are exact sums; tools/test_audit.py has right ones."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from specviz.analysis import audit
from specviz.analysis.wrong_engines import EXAMPLE, WRONG, Rule, bias

Q, P = EXAMPLE
KEPT, LEFT = np.minimum(P / Q, 1), np.maximum(P - Q, 0) / np.maximum(P - Q, 0).sum()


def one_coin(rng: np.random.Generator) -> int:
    token, coin = rng.choice(6, p=Q), rng.random()
    return token if coin < KEPT[token] else int(LEFT.cumsum().searchsorted(coin))


def block(rng: np.random.Generator) -> tuple[int, int]:
    x, y = rng.choice(6, 2, p=Q)
    one, both = rng.random(2) < KEPT[[x, y]]
    if both:
        return x, y
    replacement = rng.choice(6, p=LEFT)
    return (x, replacement) if one else (replacement, block(rng)[0])


def test_the_enumerated_laws_are_those_of_the_draws() -> None:
    """Of the two rules that decide a token by more than a draft, an acceptance and a residual."""
    rng, found = np.random.default_rng(1), np.zeros((2, 6, 6), np.int64)
    for _ in range(10_000):
        found[0, one_coin(rng), one_coin(rng)] += 1
        found[1][block(rng)] += 1
    for counts, rule in zip(found, (WRONG[1], WRONG[5]), strict=True):
        assert audit.examine(counts, rule.law(Q, P)).p_value > 0.01


@pytest.mark.parametrize("rule", WRONG, ids=lambda rule: rule.name)
def test_wrong_rules_are_biased_and_found(rule: Rule) -> None:
    """A wrong rule's law departs from its claim; 20,000 samples show it, and give about the enumerated bias."""
    law, claim = rule.law(Q, P), rule.claim(Q, P)
    assert law.sum() == pytest.approx(1, abs=1e-12)
    counts = np.random.default_rng(2).multinomial(20_000, law.ravel()).reshape(law.shape)
    finding = audit.examine(counts, claim)
    assert finding.departs
    assert finding.low <= bias(law, claim) <= finding.high
    assert bias(law, claim) > 0.05


@pytest.mark.parametrize("rule", WRONG[:4], ids=lambda rule: rule.name)
def test_at_temperature_0_four_wrong_rules_are_right(rule: Rule) -> None:
    """They decide one token at a time, and at temperature 0 both models are certain of it: no test there sees them."""
    for q, p in product(np.eye(len(P)), repeat=2):
        assert bias(rule.law(q, p), rule.claim(q, p)) < 1e-12


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


def test_tail_of_the_chi_square_distribution() -> None:
    """Tabled critical values."""
    for statistic, freedom in ((3.841459, 1), (18.307038, 10)):
        assert audit.chi_square_tail(statistic, freedom) == pytest.approx(0.05, abs=1e-6)
