"""The language of rules: what it reads, what it refuses and where, what it computes, and what that may take."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from specviz.core.distributions import Distributions
from specviz.core.expression.syntax import MAX_CHARACTERS, MAX_WORK, parse, typeset
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


class Said(SimpleNamespace):
    """The quantities of some positions, each by the plainest definition: of tokens [n, V], of positions [n, 1]."""

    @staticmethod
    def of(b: Distributions, a: float) -> Said:
        said = Said(a=a, q=b.q, p=b.p, q1=b.q1, p1=b.p1)
        for name in ("q", "p", "q1", "p1"):
            values = getattr(b, name)
            setattr(said, f"max_{name}", values.max(-1, keepdim=True).values)
            setattr(said, f"H_{name}", -(values * values.log()).sum(-1, keepdim=True))
        said.TV = (b.q - b.p).clamp_min(0).sum(-1, keepdim=True)
        middle = (b.q1 + b.p1) / 2
        said.JS = sum((x * (x / middle).log()).sum(-1, keepdim=True) / 2 for x in (b.q1, b.p1))
        said.third = b.p1.sort(-1, descending=True).values[:, 2:3]
        return said


MEANINGS: list[Callable[[Said], torch.Tensor]] = [
    lambda s: s.max_q1 >= 1 - s.a,
    lambda s: s.max_q1 >= s.max_p1 - s.a * s.TV,
    lambda s: s.q1 >= s.max_p1 - s.a,
    lambda s: s.p1 >= (1 - s.a) * s.max_p1,
    lambda s: (s.p1 >= (1 - s.a) * s.max_p1) & (s.H_p1 > 0.5),
    lambda s: s.p >= torch.minimum(torch.full_like(s.H_p, (1 - s.a) ** 2), (1 - s.a) * torch.exp(-s.H_p)),
    lambda s: s.p1 >= torch.maximum(s.third, s.max_p1 - s.a),
    lambda s: s.a >= s.JS,
    lambda s: (s.q < s.p) | (s.a > 0.5),
    lambda s: ~((s.q > s.p) | (1 + s.a < s.q1 * 1.5)),
    lambda s: ((s.p * s.q).sqrt() > 0.1) & ~(s.max_q < s.max_p),
    lambda s: ((s.q1 / s.p1).log() < s.a) & (s.p > 0.01),
    lambda s: s.p1 >= (1 - s.a) * s.max_p1,
    lambda s: s.q - s.p < s.a - 0.5,
    lambda s: s.q > s.a / 8,
    lambda s: torch.maximum(s.q, s.p) <= 0.2,
]


@pytest.mark.parametrize(("rule", "meaning"), zip(GOOD_RULES, MEANINGS, strict=True), ids=GOOD_RULES)
def test_a_rule_says_what_it_says(rule: str, meaning: Callable[[Said], torch.Tensor]) -> None:
    """And set in type it is still the same rule."""
    for lenience in (0.0, 0.137, 0.8):
        b = sides()
        for text in (rule, typeset(parse(rule)).replace("TV(q, p)", "TV").replace("JS(q₁, p₁)", "JS")):
            score, threshold = compile_rule(parse(text))(b, lenience)
            expected = meaning(Said.of(b, lenience)).expand(-1, V)
            assert torch.equal((score >= threshold).expand(-1, V), expected), text


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
            method = get_method(OWN_RULE, rule)
        except RuleError as error:
            refused += 0 <= error.position <= MAX_CHARACTERS
            continue
        assert method.test is not None
        assert method.rule is not None
        assert method.test.work <= MAX_WORK
        b = Distributions(logits[0], logits[1], 0.7)
        _ = b.q, b.p, b.q1, b.p1
        with _Passes(size) as passes:
            score, threshold = method.rule(b, 0.3)
            assert not threshold.isnan().any()
        assert passes.count <= 4 * MAX_WORK, rule
        assert score.shape[-1] in (1, size)
    assert 50 <= refused <= 150


def test_what_a_rule_costs_counts_every_operation() -> None:
    """Also those on one number of a position, many of which cost as much as a pass over the vocabulary."""
    costs = [parse("+".join(["a"] * count) + " > q(v)").work for count in (1, 70, 140)]
    assert costs[0] < costs[1] < costs[2] <= MAX_WORK


def test_a_method_is_one_row_of_the_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    from specviz.core import methods

    monkeypatch.setattr(methods, "_METHODS", dict(METHODS))
    registered = methods._METHODS
    mine = register_method(Method(name="mine", title="Mine", expression="q1(v) >= 0.2", sentence="Mine."))
    assert registered["mine"] is mine
    assert (mine.formula, mine.group, mine.score_label) == ("q₁(v) ≥ 0.2", "Your own", "q₁(v)")
    for bad, words in (
        (Method(name="speed", title="x", expression="q(v) > 0"), "already"),
        (Method(name="no name", title="x", expression="q(v) > 0"), "is no name"),
        (Method(name="none", title="x"), "exactly one"),
        (Method(name="out", title="x", expression="q(v) > 0", default_lenience=2), "outside the range"),
    ):
        with pytest.raises(RequestError, match=words):
            register_method(bad)
