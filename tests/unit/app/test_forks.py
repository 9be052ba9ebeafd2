"""Forks that a page asks for: what it sends is read as a file is, and nothing but what a fork may change can be changed."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from specviz.app.forks import asked_fork, fork_lines
from specviz.errors import SpecvizError
from specviz.serving.service import Service
from tests.support.traces import line, make_trace, run_entry

TRACE = make_trace(method="cascade_tokenV3", lenience=0.4).value


def sent(**changes: Any) -> dict[str, Any]:
    return {"id": 3, "trace": TRACE, "tokens": 5, "chosen": None, "changes": {}} | changes


def test_a_fork_keeps_what_the_run_was_asked_for_and_records_as_the_page_does() -> None:
    pair, request = asked_fork(sent(changes={"lenience": 0.7}), 10)
    assert (pair, request.method, request.lenience, request.inspect) == (
        "embedded",
        "cascade_tokenV3",
        0.7,
        10,
    )
    assert request.continues
    assert (request.continues.tokens, request.continues.chosen) == (5, None)
    _, request = asked_fork(sent(chosen=17), 10)
    assert list(request.token_ids or ())[-1] == 17


@pytest.mark.parametrize("changes", [
    {"trace": None}, {"trace": ""}, {"trace": "<b>x"}, {"trace": TRACE[:300]}, {"tokens": -1}, {"tokens": 10**9},
    {"tokens": 1.5}, {"tokens": True}, {"chosen": "x"}, {"chosen": -1}, {"changes": None}, {"changes": {"seed": 1}},
    {"changes": {"max_new_tokens": 10**9}}, {"changes": {"inspect": 1}}, {"changes": {"method": "<b>x"}},
    {"changes": {"method": []}}, {"changes": {"lenience": 7}}, {"changes": {"lenience": float("nan")}},
    {"changes": {"draft_length": 10**6}},
    {"trace": line(run_entry(continues={"prompt": "", "text": "", "tokens": 10**9, "chosen": None, "chosen_text": ""}))
     + TRACE.split("\n", 1)[1]},
], ids=lambda changes: json.dumps(changes)[:40])  # fmt: skip
def test_what_no_page_sends_is_refused_in_a_sentence(changes: dict[str, Any]) -> None:
    with pytest.raises(SpecvizError) as error:
        asked_fork(sent(**changes), 10)
    assert str(error.value).endswith(".")


@pytest.mark.parametrize("odd", [None, 5, "x", [], {}, {"trace": "x"}])
def test_anything_else_is_refused_too(odd: object) -> None:
    with pytest.raises(SpecvizError, match="cannot be made"):
        asked_fork(odd, 10)


def test_no_models_are_loaded_for_a_fork() -> None:
    lines = list(fork_lines(Service(), sent(), 10, threading.Event(), ""))
    assert [json.loads(each) for each in lines] == [{"type": "fork", "id": 3}, {"type": "unloaded"}]
