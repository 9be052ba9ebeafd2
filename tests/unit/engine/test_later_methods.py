"""A rule of one's own in the engine, on tiny models in float64."""

from __future__ import annotations

import pytest

from specviz.core.methods import OWN_RULE
from specviz.engine.engine import Engine
from specviz.schema.settings import Request
from tests.support.tiny import tiny_pair

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


def test_the_paper_s_rules_written_as_expressions_write_the_same_texts(engine: Engine) -> None:
    requests = [
        asked(name, seed, heat, lenience=lenience)
        for name in PAPER_RULES
        for seed, (heat, lenience) in enumerate(((1.0, 0.2), (0.0, 0.6), (0.7, 0.4)))
    ]
    own = [
        asked(OWN_RULE, each.seed, each.temperature, rule=PAPER_RULES[each.method], lenience=each.lenience)
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
