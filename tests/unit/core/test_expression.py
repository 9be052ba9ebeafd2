"""The language of rules: what it reads, what it refuses and where, what it computes, and what that may take."""

from __future__ import annotations

import math
import re

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from specviz.core.distributions import Distributions
from specviz.core.expression.syntax import DISTRIBUTIONS, MAX_CHARACTERS, MAX_WORK, parse, typeset
from specviz.core.expression.tensors import compile_rule
from specviz.core.method import Method
from specviz.core.methods import METHODS, OWN_RULE, get_method, register_method
from specviz.core.target import Target
from specviz.errors import RequestError, RuleError
from tests.support.rules import BAD_RULES, GOOD_RULES, hostile_rules

V = 8


def sides(seed: int = 0, rows: int = 5) -> Distributions:
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(2, rows, V, generator=generator, dtype=torch.float64)
    return Distributions(logits[0], logits[1], 0.7)


def said(b: Distributions, a: float) -> list[list[dict[str, float]]]:
    """What a rule may name at each position and token, by the plainest definitions."""
    middle = (b.q1 + b.p1) / 2
    wholes = {"TV": (b.q - b.p).clamp_min(0).sum(-1)}
    wholes["JS"] = sum((x * (x / middle).log()).sum(-1) / 2 for x in (b.q1, b.p1))
    for name in DISTRIBUTIONS:
        values = getattr(b, name)
        wholes[f"max_{name}"] = values.max(-1).values
        wholes[f"H_{name}"] = -(values * values.log()).sum(-1)
        wholes[f"third_{name}"] = values.sort(-1, descending=True).values[:, 2]
    return [
        [
            {"a": a}
            | {name: each[row].item() for name, each in wholes.items()}
            | {name: getattr(b, name)[row, token].item() for name in DISTRIBUTIONS}
            for token in range(V)
        ]
        for row in range(len(b.q))
    ]


def as_python(rule: str) -> str:
    """A rule in Python, which has the same operators and functions, of the names of `said`."""
    rule = rule.translate(str.maketrans({"₁": "1", "≥": ">=", "−": "-", "·": "*", "α": "a"}))
    for written, name in ((r"(\w+)\(v\)", r"\1"), (r"max (\w+)", r"max_\1"), (r"H\((\w+)\)", r"H_\1")):
        rule = re.sub(written, name, rule)
    return rule.replace("top(3, p1)", "third_p1")


@pytest.mark.parametrize("rule", GOOD_RULES)
def test_a_rule_says_what_it_says_in_python(rule: str) -> None:
    """And set in type it is still the same rule."""
    functions = {name: getattr(math, name) for name in ("sqrt", "log", "exp")}
    for lenience in (0.0, 0.137, 0.8):
        b = sides()
        expected = [[eval(as_python(rule), functions, names) for names in row] for row in said(b, lenience)]
        for text in (rule, typeset(parse(rule)).replace("TV(q, p)", "TV").replace("JS(q₁, p₁)", "JS")):
            score, threshold = compile_rule(parse(text))(b, lenience)
            assert (score >= threshold).expand(-1, V).tolist() == expected, text


@pytest.mark.parametrize(("rule", "position", "words"), BAD_RULES)
def test_a_bad_rule_gets_a_sentence_with_a_caret_under_the_place(
    rule: str, position: int, words: str
) -> None:
    with pytest.raises(RuleError, match=words) as caught:
        get_method(OWN_RULE, rule)
    assert caught.value.position == position
    if rule:
        assert caught.value.pointed.splitlines()[1] == " " * position + "^"
    assert f"Character {position + 1} of the rule." in str(caught.value)


@pytest.mark.parametrize(
    "rule",
    [
        "log(p1(v) - 0.1) > -1",
        "not (log(p1(v) - 0.1) > -1)",
        "max q1 >= sqrt(max p1 - 0.3)",
        "p1(v) / q1(v) >= exp(100) * a",
        "1 / (q(v) - q(v) * min(1, 20 * p(v))) > a",
    ],
)
def test_what_is_no_number_somewhere_holds_nowhere_there_and_pi_stays_a_distribution(rule: str) -> None:
    """Law 1, whatever a rule says."""
    for lenience in (0.0, 0.5, 1.0):
        pi = Target.of(get_method(OWN_RULE, rule), sides(), lenience).pi()
        assert (pi.sum(-1) - 1).abs().max() <= 1e-12
        assert pi.min() >= 0


class _Passes(TorchDispatchMode):
    """Counts the operations that make a whole vocabulary of new numbers."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size, self.count = size, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        self.count += isinstance(found, torch.Tensor) and found.numel() >= self.size
        return found


def test_no_rule_takes_more_than_its_share() -> None:
    """200 hostile rules: refused with a sentence, or computed in few passes over the vocabulary; no time is measured."""
    size, refused = 49152, 0
    logits = torch.randn(2, 1, size)
    for rule in hostile_rules(200):
        try:
            test = get_method(OWN_RULE, rule).trees["test"]
        except RuleError as error:
            refused += 0 <= error.position <= MAX_CHARACTERS
            continue
        assert test.work <= MAX_WORK
        b = Distributions(logits[0], logits[1], 0.7)
        _ = b.q, b.p, b.q1, b.p1
        with _Passes(size) as passes:
            score, threshold = compile_rule(test)(b, 0.3)
            assert not threshold.isnan().any()
        assert passes.count <= 4 * MAX_WORK, rule
        assert score.shape[-1] in (1, size)
    assert 50 <= refused <= 150


def test_a_method_is_one_row_of_the_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    from specviz.core import methods

    monkeypatch.setattr(methods, "_METHODS", dict(METHODS))
    registered = methods._METHODS
    mine = register_method(Method(name="mine", title="Mine", expression="q1(v) >= 0.2", sentence="Mine."))
    assert registered["mine"] is mine
    assert (mine.formula, mine.group, mine.score_label) == ("q₁(v) ≥ 0.2", "Your own", "q₁(v)")
    for bad, words in (
        (Method(name="speed", title="x", expression="q(v) > 0"), "already"),
        (Method(name="no name", title="x", expression="q(v) > 0"), "not a valid method name"),
        (Method(name="none", title="x"), "exactly one"),
        (Method(name="out", title="x", expression="q(v) > 0", default_lenience=2), "outside the range"),
    ):
        with pytest.raises(RequestError, match=words):
            register_method(bad)
