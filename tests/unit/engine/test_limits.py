"""Settings at their limits are served like the nearest that computes, or refused in a sentence; by every computation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from specviz.engine.engine import Engine
from specviz.engine.pair import Pair
from specviz.errors import RequestError
from specviz.schema.settings import Request
from tests.support.tiny import tiny_pair

SERVED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"temperature": 1e-40}, {"temperature": 0}),
    ({"temperature": 1e300}, {"temperature": 1e29}),
    ({"temperature": 1e300, "forbidden_tokens": [7]}, {"temperature": 1e29, "forbidden_tokens": [7]}),
    ({"top_p": 1e-300}, {"temperature": 0}),
    ({"top_k": 2**63}, {}),
    ({"top_k": 10**30, "min_p": 1e-300}, {}),
    ({"method": "cascade_opt", "lenience": 1e39}, {"method": "cascade_opt", "lenience": 1e20}),
    ({"method": "cascade_opt", "lenience": -1e308}, {"method": "cascade_opt", "lenience": -1e20}),
    ({"max_new_tokens": 2**63}, {"max_new_tokens": 10**6}),
]


@pytest.fixture(scope="module", params=[torch.float32, torch.float64], ids=["compiled", "torch"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """A tiny pair whose rounds compiled loops decide, and one whose rounds torch does."""
    return replace(
        tiny_pair("llama", tmp_path_factory.mktemp("pair"), dtype=request.param), context_length=60
    )


def test_a_setting_at_its_limit_is_served_as_the_nearest(pair: Pair) -> None:
    few: dict[str, Any] = {"prompt": "hello", "max_new_tokens": 12, "seed": 3}
    limits, nearest = (
        Engine(pair).generate([Request(**few | settings[side]) for settings in SERVED]) for side in (0, 1)
    )
    for (asked, _), one, other in zip(SERVED, limits, nearest, strict=True):
        assert one.token_ids == other.token_ids, asked


@pytest.mark.parametrize(
    "asked", [{"draft_length": 2**63}, {"inspect": 2**63}, {"forbidden_tokens": [2**63]}]
)
def test_a_setting_beyond_its_limit_is_refused(asked: dict[str, Any], pair: Pair) -> None:
    with pytest.raises(RequestError, match="max_sequences"):
        Engine(pair, max_sequences=0)
    with pytest.raises(RequestError, match=str(2**63)):
        pair.generate("hello", max_new_tokens=2, **asked)


def test_any_seed_can_be_recorded(pair: Pair) -> None:
    run = pair.generate("hello", max_new_tokens=2, seed=2**63 - 1, inspect=100)
    assert "".join(run.lines())


@pytest.mark.parametrize(("rule", "is_trusted"), [("p1(v) >= log(a)", True), ("max q1 >= 1 / a", False)])
def test_an_infinite_threshold_decides_and_can_be_recorded(rule: str, is_trusted: bool, pair: Pair) -> None:
    run = pair.generate("hello", method="own_rule", rule=rule, lenience=0, max_new_tokens=12)
    assert {token.rule.trusted for token in run.tokens if token.rule} == {is_trusted}
    assert "".join(run.lines())


def test_one_token_must_be_left_to_write_with(pair: Pair) -> None:
    with pytest.raises(RequestError, match="forbidden"):
        pair.generate("hello", forbidden_tokens=list(range(pair.vocabulary_size)))
