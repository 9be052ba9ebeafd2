"""Rules for the browser: one parser reads what is typed, and says where it goes wrong."""

from __future__ import annotations

import json

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from specviz.app.rules import read_rule, rule_route
from specviz.core.expression.syntax import MAX_CHARACTERS, typeset
from specviz.core.methods import OWN_RULE, get_method
from tests.support.rules import BAD_RULES, GOOD_RULES, hostile_rules


@pytest.mark.parametrize("rule", GOOD_RULES)
def test_a_rule_comes_as_its_trees(rule: str) -> None:
    words, method = read_rule(rule), get_method(OWN_RULE, rule)
    assert method.test is not None
    assert words["formula"] == typeset(method.test)
    assert words["tree"]["test"] == json.loads(json.dumps(method.test.as_json()))
    assert ("score" in words["tree"]) == (method.threshold_label is not None)


@pytest.mark.parametrize(("rule", "position", "words"), BAD_RULES)
def test_a_bad_rule_comes_with_its_sentence_and_its_place(rule: str, position: int, words: str) -> None:
    found = read_rule(rule)
    assert found["position"] == position
    assert "Character" not in found["sentence"]
    assert "tree" not in found


def test_two_hundred_hostile_rules_get_a_tree_or_a_caret() -> None:
    """None breaks the parser, and no caret is outside the text."""
    refused = 0
    for text in hostile_rules(200):
        found = read_rule(text)
        if "tree" in found:
            json.dumps(found)
            continue
        refused += 1
        assert found["sentence"].endswith(".")
        assert 0 <= found["position"] <= min(len(text), MAX_CHARACTERS), text
    assert 50 <= refused <= 150


def test_the_route_answers_whatever_is_sent() -> None:
    client = TestClient(Starlette(routes=[rule_route()]))
    assert client.get("/rule", params={"text": GOOD_RULES[0]}).json()["formula"] == "max q₁ ≥ 1 − α"
    for text in (
        "",
        " ",
        "🌈",
        "\ud800".encode("utf-8", "surrogatepass").decode("utf-8", "replace"),
        "(" * 5000,
    ):
        answer = client.get("/rule", params={"text": text})
        assert answer.status_code == 200
        assert answer.json()["position"] >= 0
    assert client.get("/rule").json()["sentence"]
