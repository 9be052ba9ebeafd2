"""A method of one's own, registered as one row: it is offered, run, inspected, listed and swept with no other file touched."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from specviz.analysis.sweep.grid import SweepGrid
from specviz.app.api import methods as listed
from specviz.app.components.lenience_track import LenienceTrack
from specviz.app.components.lessons import Playground
from specviz.app.controls import describe_method, method_dropdown
from specviz.app.link import parse_link
from specviz.core import methods
from specviz.core.method import Method
from specviz.core.methods import METHODS, register_method
from specviz.engine.engine import Engine
from specviz.schema.settings import Request
from tests.support.tiny import tiny_pair

RULES = {"expression": "q1(v) >= (1 - a) * max p1", "ratio": "p(v) / q(v) + a"}


@pytest.fixture(params=list(RULES))
def mine(request: pytest.FixtureRequest) -> Iterator[Method]:
    """One line that is a deferral test, and one that is an acceptance ratio."""
    method = register_method(
        Method(
            name="mine",
            title="Mine",
            **{request.param: RULES[request.param]},
            sentence="Trusts what the drafter finds nearly as likely as the verifier its favourite.",
            lenience_range=(0, 1),
            offered_range=(0, 1),
            default_lenience=0.5,
            strict_end="0: seldom trust",
            drafter_end="1: always trust",
        )
    )
    yield method
    del methods._METHODS["mine"]


def test_it_stands_wherever_methods_are_listed(mine: Method) -> None:
    assert list(METHODS)[-1] == "mine"
    assert ("Mine", "mine") in method_dropdown("speed").choices
    assert ("q₁(v) ≥ (1 − α)·max p₁" if mine.expression else "p(v) / q(v) + α") in describe_method("mine")
    # What the playground computes from.
    tree = Playground().props["methods"]["mine"]["tree"]
    assert tree.keys() == ({"test", "score", "threshold"} if mine.expression else {"ratio"})
    assert "mine" in LenienceTrack().props["methods"]
    assert listed()[-1]["formula"] == mine.formula
    assert not parse_link([("method", "mine"), ("lenience", "0.25")]).problems
    grid = SweepGrid(methods=("mine",))
    assert [each.lenience for each in grid.settings if each.method == "mine"][:2] == [0.0, 0.167]


def test_it_runs_and_is_inspected(mine: Method, tmp_path: Path) -> None:
    """The trace records its test, its critical leniences and its alternatives."""
    asked = Request(prompt="The quick", method="mine", inspect=3, max_new_tokens=12)
    runs = Engine(tiny_pair("llama", tmp_path)).generate([replace(asked, seed=seed) for seed in range(6)])
    for run in runs:
        assert run.alternatives[-1].method == "mine"
        for token in run.tokens:
            if mine.expression:
                assert token.rule.trusted == (token.rule.score >= token.rule.threshold)
            assert token.what_if.flips[-1] is not None
    assert any(token.what_if.flips[-1] for run in runs for token in run.tokens)
