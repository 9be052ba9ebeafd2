"""The rules since the paper, and a rule of one's own, in the engine: the same laws, on tiny models in float64."""

from __future__ import annotations

import pytest

from specviz.core.later_methods import LATER
from specviz.core.methods import OWN_RULE
from specviz.engine.engine import Engine
from specviz.schema.settings import Request
from tests.support.reference import reference
from tests.support.tiny import tiny_pair

NAMES = [*(method.name for method in LATER), OWN_RULE]
PAPER_RULES = {
    "cascade_chow": "max q1 >= 1 - a",
    "cascade_diff": "max q1 >= max p1 - a",
    "cascade_opt": "max q1 >= max p1 - a * TV",
    "cascade_tokenV1": "q1(v) >= max p1 - a",
    "cascade_tokenV2": "p1(v) >= max p1 - a",
    "cascade_tokenV3": "p1(v) >= (1 - a) * max p1",
}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return Engine(tiny_pair("llama", tmp_path_factory.mktemp("pair")), max_sequences=64)


def asked(method: str, seed: int, heat: float, **more: object) -> Request:
    return Request(prompt="The quick", method=method, seed=seed, temperature=heat, max_new_tokens=16, **more)


def test_neither_the_block_nor_neighbours_show(engine: Engine) -> None:
    """Laws 2 and 3: alone with K = 1, all together with K = 2, 3, 5 and 16, the same texts; with and without a record."""
    wanted = [(name, seed, heat) for name in NAMES for seed, heat in enumerate((1.0, 0.0, 0.7))]
    alone = [engine.generate(asked(*each, draft_length=1))[0] for each in wanted]
    for length in (2, 3, 5, 16):
        together = engine.generate([asked(*each, draft_length=length, inspect=2) for each in wanted])
        for one, other in zip(alone, together, strict=True):
            assert one.token_ids == other.token_ids, (one.method, length)
            assert one.accepted == other.accepted
            numbers = [[(t.q, t.p, t.pi, t.acceptance) for t in run.tokens] for run in (one, other)]
            assert numbers[0] == [pytest.approx(each, abs=1e-9) for each in numbers[1]]
    assert {run.method for run in alone if 0 < sum(run.accepted) < len(run.accepted)} == set(NAMES)


def test_the_engine_does_what_the_reference_does(engine: Engine) -> None:
    """No cache, no block, no batch: the same tokens, and the same pi."""
    for name in NAMES:
        run = engine.generate(asked(name, 5, 0.8))[0]
        decisions = reference(engine.pair, run.prompt_ids, name, run.lenience, 0.8, 5, 16)
        assert [each.token for each in decisions] == run.token_ids, name
        assert [each.pi for each in decisions] == pytest.approx([t.pi for t in run.tokens], abs=1e-9)


def test_the_paper_s_rules_written_as_expressions_write_the_same_texts(engine: Engine) -> None:
    requests = [
        asked(name, seed, heat, lenience=lenience)
        for name in PAPER_RULES
        for seed, (heat, lenience) in enumerate(((1.0, 0.2), (0.0, 0.6), (0.7, 0.4)))
    ]
    own = [
        asked(
            OWN_RULE,
            each.seed,
            each.temperature,
            rule=PAPER_RULES[each.method],
            lenience=each.lenience,
        )
        for each in requests
    ]
    for one, other in zip(engine.generate(requests), engine.generate(own), strict=True):
        assert (other.method, other.rule) == (OWN_RULE, PAPER_RULES[one.method])
        assert one.token_ids == other.token_ids, one.method
        assert one.accepted == other.accepted
        sides = [[(t.acceptance, t.rule.score, t.rule.threshold) for t in run.tokens] for run in (one, other)]
        assert sides[0] == [pytest.approx(each, abs=1e-12) for each in sides[1]]


def test_two_rules_of_one_s_own_in_a_batch_stay_apart(engine: Engine) -> None:
    """Law 3: sequences of one method share a decision only if they share its rule."""
    requests = [asked(OWN_RULE, 1, 1.0, rule=rule) for rule in ("q(v) >= 0", "q(v) < 0", "p1(v) > 0.01")]
    together = engine.generate(requests)
    assert [run.token_ids for run in together] == [engine.generate(each)[0].token_ids for each in requests]
    assert all(together[0].accepted)
    assert together[0].token_ids != together[1].token_ids


def test_what_is_not_known_of_a_rule_of_one_s_own_is_not_said(engine: Engine) -> None:
    run = engine.generate(asked(OWN_RULE, 1, 1.0, rule="p1(v) > a * max p1", inspect=3))[0]
    assert all(token.what_if.flips[-1] is None for token in run.tokens)
    assert run.alternatives[-1].method == OWN_RULE
    fixed = engine.generate(asked(OWN_RULE, 1, 1.0, rule="p1(v) > 0.5 * max p1", inspect=3, lenience=0))[0]
    assert all(token.what_if.flips[-1] == [] for token in fixed.tokens)  # there is no lenience in it
