"""Rules for the browser: one parser reads what is typed, and says where it goes wrong."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.testclient import TestClient

from specviz.app.components.rule_field import rule_route
from tests.support.rules import GOOD_RULES


def test_the_route_answers_whatever_is_sent() -> None:
    client = TestClient(Starlette(routes=[rule_route()]))
    assert client.get("/rule", params={"text": GOOD_RULES[0]}).json()["formula"] == "max q₁ ≥ 1 − α"
    for text in ("", " ", "🌈", "\ufffd", "(" * 5000):
        answer = client.get("/rule", params={"text": text})
        assert answer.status_code == 200
        assert answer.json()["position"] >= 0
    assert client.get("/rule").json()["sentence"]
