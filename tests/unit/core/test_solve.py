"""Critical leniences: from a rule's tree, and where its test or its coin really turns."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from specviz.core.counterfactual import critical_lenience
from specviz.core.distributions import Distributions
from specviz.core.expression.tensors import compile_rule
from specviz.core.method import Method
from specviz.core.methods import OWN_RULE, get_method

SOLVED = [
    "p1(v) >= (1 - a) * max p1",
    "p1(v) >= exp(-a) * max p1",
    "q1(v) >= 1 - (max p1 + a) / (1 + H(p1))",
    "p1(v) >= max(top(3, p1), min(max p1 - a, 0.5 * max p1))",
    "max q1 >= max p1 - TV * min(a, 1)",
    "p1(v) >= max p1 - JS * exp(a)",
    "p1(v) >= max p1 / max(1, 1 + a)",
    "max q >= log(1 + exp(-a)) * max p",
    "max q >= sqrt(max(0, 1 - a)) * max p",
    "max q >= max p * (1 - TV) * (0 - a)",
    "H(q1) <= H(p1) + a",
    "a >= JS",
    "max q + a >= max p - a * TV",
    "max q >= 0.5",
    "max q + a >= max p * H(p) / H(p)",
    "max q >= -exp(a)",
    "max q >= max p - (exp(a) - TV)",
    "max q >= max(max p, max p1, TV) - a",
    "max q >= sqrt(max p) * exp(0 - a)",
]
UNSOLVED = [
    "p1(v) >= max p1 - a * a * TV - 2 * a",
    "p1(v) >= TV * min(1 - a, 0.5) - JS * exp(a)",
    "p1(v) >= a * max p1",
    "p1(v) >= (1 - a) * (1 - a) * max p1",
    "p1(v) >= a * max q1 + (1 - a) * max p1",
    "p1(v) / q1(v) >= 1 - a",
    "p1(v) >= 1 - a and H(p1) > 0.5",
    "p1(v) > 1 - a",
    "max q >= sqrt(1 - a)",
    "max q >= TV / exp(a)",
    "max q >= (max p - max q1) * exp(a)",
]
LENIENCES = [-2e3, -7.0, -1.0, -0.3, 0.0, 0.1, 0.37, 0.5, 0.8, 1.0, 1.4, 3.0, 11.0, 2e3]


def readings(method: Method, b: Distributions, tokens: torch.Tensor) -> list[dict[Any, float]]:
    """What the method's trees read at each position of b."""
    leaves = (node for tree in method.trees.values() for node in tree.walk() if not node.parts)
    keys = {node.key for node in leaves if node.name not in ("number", "a")}
    values = {key: b.reading(key, tokens).tolist() for key in keys}
    return [{key: values[key][index] for key in keys} for index in range(len(tokens))]


def criticals(method: Method, b: Distributions, tokens: torch.Tensor, levels: torch.Tensor) -> torch.Tensor:
    """The critical lenience at each position."""
    critical = critical_lenience(method)
    assert critical is not None
    each = zip(readings(method, b, tokens), levels.tolist(), strict=True)
    return torch.tensor([critical(read, level) for read, level in each], dtype=torch.float64)


def sides(temperature: float, alike: bool) -> Distributions:
    logits = 2 * torch.randn(2, 40, 12, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    return Distributions(logits[0], logits[0] if alike else logits[1], temperature)


@pytest.mark.parametrize("alike", [False, True])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("rule", SOLVED)
def test_a_test_is_passed_from_the_critical_lenience_on(rule: str, temperature: float, alike: bool) -> None:
    """The registry's rules and coins: tests/unit/core/test_counterfactual.py."""
    method, b = get_method(OWN_RULE, rule), sides(temperature, alike)
    test = compile_rule(method.trees["test"])
    low, high = method.lenience_range
    for lenience in (each for each in LENIENCES if low <= each <= high):
        score, threshold = test(b, lenience)
        critical = criticals(method, b, torch.zeros(40, dtype=torch.int64), score[..., 0])
        sure = (critical - lenience).abs() > 1e-9 * max(1.0, abs(lenience))
        passes = (score[..., 0] >= threshold.expand(40, 1)[..., 0])[sure]
        assert torch.equal(passes, (critical <= lenience)[sure]), lenience


@pytest.mark.parametrize("rule", UNSOLVED)
def test_what_cannot_be_solved_is_known_to_be_unknown(rule: str) -> None:
    """Among it what passes at some leniences only to fail at greater ones."""
    assert not critical_lenience(get_method(OWN_RULE, rule))


def test_a_ratio_may_fall_only_above_every_coin() -> None:
    """The mixture's ratio falls with the lenience where p > q, but not below 1."""

    def mixture(other: str) -> Method:
        ratio = f"((1 - a) * p(v) + a * {other}) / q(v)"
        return Method(name="m", title="M", ratio=ratio, lenience_range=(0, 1), offered_range=(0, 1))

    assert critical_lenience(mixture("q(v)"))
    assert not critical_lenience(mixture("0.5 * q(v)"))
    assert not critical_lenience(mixture("q1(v)"))
