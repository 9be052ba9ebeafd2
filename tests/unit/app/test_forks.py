"""Forks that a page asks for: what it sends is read as a file is, and nothing but what a fork may change can be changed."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from specviz.app.traces import asked_fork, fork_lines
from specviz.errors import SpecvizError
from specviz.serving.service import Service
from tests.support.traces import line, make_trace, run_entry

TRACE = make_trace(method="cascade_tokenV3", lenience=0.4).value


def sent(**changes: Any) -> dict[str, Any]:
    return {"id": 3, "trace": TRACE, "tokens": 5, "chosen": None, "changes": {}} | changes


def test_a_fork_keeps_what_the_run_was_asked_for_and_records_as_the_page_does() -> None:
    pair, request = asked_fork(sent(changes={"lenience": 0.7}), 10)
    asked = (pair, request.method, request.lenience, request.inspect)
    assert asked == ("embedded", "cascade_tokenV3", 0.7, 10)
    assert request.continues
    assert (request.continues.tokens, request.continues.chosen) == (5, None)
    _, request = asked_fork(sent(chosen=17), 10)
    assert list(request.token_ids or ())[-1] == 17


FAR = {"prompt": "", "text": "", "tokens": 10**9, "chosen": None, "chosen_text": ""}
WRONG: tuple[dict[str, Any], ...] = (
    *({"trace": trace} for trace in (None, "", "<b>x", TRACE[:300])),
    {"trace": line(run_entry(continues=FAR)) + TRACE.split("\n", 1)[1]},
    *({"tokens": tokens} for tokens in (-1, 10**9, 1.5, True)),
    *({"chosen": chosen} for chosen in ("x", -1)),
    *({"changes": changes} for changes in (None, {"seed": 1}, {"method": []}, {"lenience": 7})),
)


@pytest.mark.parametrize("changes", WRONG, ids=lambda changes: json.dumps(changes)[:40])
def test_what_no_page_sends_is_refused_in_a_sentence(changes: dict[str, Any]) -> None:
    with pytest.raises(SpecvizError, match=r"\.$"):
        asked_fork(sent(**changes), 10)


def test_no_models_are_loaded_for_a_fork() -> None:
    lines = list(fork_lines(Service(), sent(), 10, threading.Event(), ""))
    assert [json.loads(each) for each in lines] == [{"type": "fork", "id": 3}, {"type": "unloaded"}]
