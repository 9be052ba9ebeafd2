"""The endpoints without a server: what they make of what a client sends, and of what the engine tells."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import gradio as gr
import pytest

from specviz.app import api, running
from specviz.app.api import wire_api
from specviz.engine.events import Decided, Event, Finished, Loading, Started, Waiting
from specviz.errors import RequestError, SpecvizError
from specviz.schema.settings import Request
from specviz.schema.trace import Run, parse_trace
from specviz.serving.limits import Visitor
from specviz.serving.service import Service
from tests.support.traces import make_trace, story_tokens


class Script(Service):
    """A service without models: tells the same events to everyone, and keeps what it was asked and by whom."""

    script: Iterable[Event | Waiting]
    asked: list[tuple[str, list[Request], Visitor]]

    def events(
        self, key: str, requests: Sequence[Request], *_: Any, visitor: Visitor, **__: Any
    ) -> Iterator[Event | Waiting]:
        self.asked.append((key, list(requests), visitor))
        yield from self.script


@pytest.fixture(scope="module")
def offered() -> tuple[Script, gr.Blocks]:
    """A service and a page with its endpoints, made once: gradio takes its time."""
    service = Script()
    with gr.Blocks(analytics_enabled=False) as page:
        wire_api(service)
    return service, page


@pytest.fixture
def service(offered: tuple[Script, gr.Blocks]) -> Script:
    offered[0].script, offered[0].asked = [], []
    return offered[0]


@pytest.fixture
def endpoint(
    offered: tuple[Script, gr.Blocks], monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Callable[..., Any]]:
    """An endpoint by its name; each look at the clock is a second later than the one before."""
    clock = itertools.count(0.0)
    monkeypatch.setattr(api, "monotonic", lambda: next(clock))
    return {str(fn.api_name): fn.fn for fn in offered[1].fns.values() if fn.fn}.__getitem__


@pytest.fixture(scope="module")
def run() -> Run:
    """A run whose rounds have all been."""
    return parse_trace(make_trace(story_tokens()[:30], seed=3).lines)


SPEED = ("Hi", "speed")
WRONG: list[tuple[Any, ...]] = [
    *((None,), ("   ",), ("Hi", ["speed"]), (*SPEED, "0.5"), (*SPEED, 0, None)),
    (*SPEED, 0, "embedded", "auto", 10**400),
]
"""Of every kind of mistake one; tests/unit/schema/test_settings.py has the rest."""
WRONG_PANES = (
    None,
    [{}],
    [{}] * 5,
    [{}, None],
    *([{}, each] for each in ({"prompt": "Hi"}, {"lenience": "1"})),
)


@pytest.mark.parametrize(
    ("name", "values"),
    [*(("generate", values) for values in WRONG), *(("compare", ("Hi", panes)) for panes in WRONG_PANES)],
    ids=lambda value: repr(value)[:60],
)
def test_a_wrong_value_is_refused_in_a_sentence_and_nothing_is_asked(
    service: Script, endpoint: Callable, name: str, values: tuple[Any, ...]
) -> None:
    """Whatever a client sends, it is told what would be right, and no engine sees it."""
    with pytest.raises(SpecvizError, match=r"^.{10,499}\.$"):
        list(endpoint(name)(*values))
    assert not service.asked


@pytest.mark.parametrize("name", ["generate", "compare"])
def test_an_argument_of_another_kind_is_named(endpoint: Callable, name: str) -> None:
    """A client learns which argument to mend."""
    valid = {"prompt": "Hi", "panes": [{}, {}]}
    known = {each.name: valid.get(each.name, each.default) for each in api.parameters_of(name)}
    for wrong in known.keys() - {"trace"}:
        with pytest.raises(SpecvizError, match=rf"(?i)\b{wrong.replace('_', ' ')}\b"):
            list(endpoint(name)(*(known | {wrong: object()}).values()))


def test_a_pane_that_is_wrong_is_named(service: Script, endpoint: Callable) -> None:
    """A client that sends four panes learns which one to mend; of a setting that all share it is told as of its own."""
    for wrong in ({"method": "no"}, {"lenience": 9}, {"rule": "(("}, {"seed": 1}):
        with pytest.raises(RequestError, match=r"^Pane 2: .*[.)]$"):
            list(endpoint("compare")("Hi", [{}, wrong]))
    with pytest.raises(RequestError, match=r"^Temperature is -1"):
        list(endpoint("compare")("Hi", [{}, {}], "embedded", -1))
    assert not service.asked


def test_what_is_asked_for_is_what_was_sent(service: Script, endpoint: Callable) -> None:
    """Values reach the request in the documented order; what is left out has its documented default."""
    list(endpoint("generate")("Hi", "speed", 0.25, "embedded-skip", 3, 0.5, 7, 0.9, 11, 13, 2))
    list(endpoint("generate")("Hi"))
    (key, [full], _), (default_key, [short], _) = service.asked
    assert key == "embedded-skip"
    assert full == Request("Hi", None, None, False, "speed", 0.25, 3, 0.5, 7, 0.9, 11, 13, inspect=2)
    assert default_key == "embedded"
    assert short == Request("Hi")


def test_an_answer_tells_the_position_then_the_text_then_the_figures(
    service: Script, endpoint: Callable, run: Run
) -> None:
    """A client learns its position while it waits, also by its first name, then all of the text so far, and at the end what it took."""
    rounds = list(run.rounds)
    growing = parse_trace(run.lines())
    growing.rounds.clear()
    growing.stop_reason = ""

    def script() -> Iterator[Event | Waiting]:
        yield Loading(0, 0, "Loading the models")
        yield Waiting(0, 2)
        yield Waiting(0, 1)
        yield Started(0, growing)
        for each in rounds:
            growing.rounds.append(each)
            yield Decided(0, growing, each)
            yield Waiting(0, 0)  # only a sign of life
        growing.stop_reason = run.stop_reason
        yield Finished(0, growing)

    service.script = script()
    answers = list(endpoint("generate")("Hi", "speed"))
    assert [answer["loading"] for answer in answers[:2]] == ["Loading the models", None]
    assert [answer["queue_position"] for answer in answers[1:]] == [2, 1] + [None] * (len(answers) - 3)
    assert all(answer["place"] == answer["queue_position"] for answer in answers)
    for before, after in itertools.pairwise(answers):
        assert after["text"].startswith(before["text"])
        assert after["accepted"] + after["resampled"] == after["tokens"]
        assert before["stop_reason"] == ""
    last = answers[-1]
    told = {"text": run.text, "tokens": len(run.tokens), "accepted": sum(run.accepted)}
    told |= {name: getattr(run, name) for name in ("stop_reason", *api.FIGURES)}
    assert last.items() >= told.items()
    assert "trace" not in last


def test_answers_come_at_a_bounded_pace(
    service: Script, endpoint: Callable, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However fast the engine is, a client is told a few times a second, and always of the end."""
    service.script = [Waiting(0, 1)] * 500 + [Finished(0, run)]
    clock = itertools.count(0, 0.01)
    monkeypatch.setattr(api, "monotonic", lambda: next(clock))
    answers = list(endpoint("generate")("Hi", "speed"))
    assert len(answers) == pytest.approx(5 / running.UPDATE_SECONDS, rel=0.2)
    assert answers[-1]["stop_reason"] == run.stop_reason


def test_a_comparison_tells_where_texts_part(service: Script, endpoint: Callable, run: Run) -> None:
    """Each pane is told against the first: nothing where the texts are the same, else the token and the reason."""
    other = parse_trace(make_trace(story_tokens()[3:20], seed=4).lines)
    service.script = [
        *(Started(index, each) for index, each in enumerate((run, run, other))),
        *(Finished(index, each) for index, each in enumerate((run, run, other))),
    ]
    *_, last = endpoint("compare")("Hi", [{}, {"method": "speed"}, {"lenience": 0.1, "draft_length": 4}])
    first, same, apart = last["panes"]
    assert (first["parts_at"], same["parts_at"], same["parting"]) == (None, None, None)
    ids = zip(run.token_ids, other.token_ids, strict=False)
    assert apart["parts_at"] == next(position for position, (one, two) in enumerate(ids) if one != two)
    assert apart["parting"].endswith(".")
    [(_, asked, _)] = service.asked
    assert [each.method for each in asked] == ["cascade_tokenV3", "speed", "cascade_tokenV3"]
    assert (asked[2].lenience, asked[2].draft_length) == (0.1, 4)
    assert {(each.prompt, each.temperature, each.seed) for each in asked} == {("Hi", 0.7, 0)}


def test_a_session_is_one_visitor_and_every_mcp_call_another(service: Script, endpoint: Callable) -> None:
    """Gradio makes all MCP calls in one session of its own: they must not count as one visitor's."""
    values = ("Hi", "speed", 0, "embedded", "auto", 1, 0, 1, 0, 8, 0, False, 0, "", None)
    for session, headers in (("a", {}), ("b", {"x-gradio-user": "mcp"})) * 2:
        request = gr.Request(headers=headers, client=None)
        request.session_hash = session
        list(endpoint("generate")(*values, request))
    first, tool, again, other_tool = (visitor.session for *_, visitor in service.asked)
    assert first == again == "a"
    assert len({"", "b", tool, other_tool}) == 4
