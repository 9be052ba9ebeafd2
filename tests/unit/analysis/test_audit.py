"""The audit's statistics find each of six wrong engines and pass the right ones; the engines' true laws are exact sums."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from specviz.analysis import audit
from specviz.analysis.wrong_engines import EXAMPLE, RIGHT, WRONG, Rule, bias

Q, P = EXAMPLE
RULES = [pytest.param(rule, id=rule.name) for rule in RIGHT + WRONG]


def counts(rule: Rule, samples: int, seed: int) -> audit.Counts:
    """How often a rule draws each pair of tokens."""
    found = np.zeros((len(P), len(P)), np.int64)
    np.add.at(found, tuple(rule.draw(Q, P, samples, np.random.default_rng(seed)).T), 1)
    return found


@pytest.mark.parametrize("rule", RULES)
def test_the_enumerated_law_is_that_of_the_draws(rule: Rule) -> None:
    """Each rule's exact sums are a distribution, and its draws follow it."""
    assert rule.law(Q, P).sum() == pytest.approx(1, abs=1e-12)
    assert audit.examine(counts(rule, 20_000, 1), rule.law(Q, P)).p_value > 0.01


@pytest.mark.parametrize("rule", RULES)
def test_only_wrong_rules_are_biased_and_found(rule: Rule) -> None:
    """A wrong rule's law departs from its claim; 20,000 samples show it, and give about the enumerated bias."""
    finding = audit.examine(counts(rule, 20_000, 2), rule.claim(Q, P))
    assert finding.departs == (rule in WRONG)
    true = bias(rule.law(Q, P), rule.claim(Q, P))
    assert finding.low <= true <= finding.high
    if rule in WRONG:
        assert true > 0.05
    else:
        assert true < 1e-12


@pytest.mark.parametrize("rule", [pytest.param(rule, id=rule.name) for rule in WRONG[:4]])
def test_at_temperature_0_four_wrong_rules_are_right(rule: Rule) -> None:
    """They decide one token at a time, and at temperature 0 both models are certain of it: no test there sees them."""
    for q, p in product(np.eye(len(P)), repeat=2):
        assert bias(rule.law(q, p), rule.claim(q, p)) < 1e-12


@pytest.mark.parametrize("rule", [pytest.param(rule, id=rule.name) for rule in RIGHT])
def test_a_right_engine_is_rarely_accused(rule: Rule) -> None:
    """At the 1 % level, 200 audits of 2,000 samples accuse a right engine about twice."""
    law = rule.claim(Q, P)
    alarms = sum(audit.examine(counts(rule, 2_000, 1000 + seed), law).p_value < 0.01 for seed in range(200))
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
