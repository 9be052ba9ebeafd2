"""Links: valid values of a query arrive whole; invalid ones are ignored with a sentence."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl

import pytest

from specviz.app.link import MAX_PROMPT, NAMES, Link, Pane, parse_link, query_of, ranged
from specviz.core.methods import METHODS
from specviz.schema.settings import Request


def parsed(query: str) -> Link:
    return parse_link(parse_qsl(query, keep_blank_values=True))


def test_a_link_sets_all_that_it_names() -> None:
    link = parsed(
        "tab=generate&pair=gpt2&prompt=Why%3F%0A%26%F0%9F%8C%88&method=own_rule&rule=q1(v)+%3E+a&lenience=0.25&k=7&temperature=0"
        "&top_k=40&top_p=0.9&min_p=0.1&repetition_penalty=1.05&tokens=64&seed=123456&run=lossless&token=7"
    )
    assert link.problems == ()
    assert link.settings == {
        "pair": "gpt2",
        "prompt": "Why?\n&🌈",
        "method": "own_rule",
        "rule": "q1(v) > a",
        "lenience": 0.25,
        "draft_length": 7,
        "temperature": 0.0,
        "top_k": 40,
        "top_p": 0.9,
        "min_p": 0.1,
        "repetition_penalty": 1.05,
        "max_new_tokens": 64,
        "seed": 123456,
        "run": "lossless",
        "token": 7,
    }
    assert set(link.settings) == set(NAMES.values())
    Request(**{name: value for name, value in link.settings.items() if name not in ("pair", "run", "token")})


def test_a_link_asks_for_no_longer_text_than_the_server_writes() -> None:
    query = [("tokens", "300")]
    assert parse_link(query, 1024).settings == {"max_new_tokens": 300}
    [problem] = parse_link(query, 200).problems
    assert problem == "The link’s “tokens” was ignored: it must be a whole number from 8 to 200."
    five = ranged(5)["max_new_tokens"]
    assert (five.offered, five.default) == ((5, 5), 5)


def test_a_query_that_is_written_is_read_as_the_same_link() -> None:
    settings = {
        "prompt": "Why?\n&🌈",
        "method": "cascade_opt",
        "lenience": -2.5,
        "draft_length": 7,
        "max_new_tokens": 64,
    }
    query = query_of("generate", settings)
    assert query.startswith("?tab=generate&")
    assert parsed(query[1:]) == Link("generate", settings)
    panes = (("speed", 0.30000000000000004, "auto"), ("cascade_diff", -0.5, 5, "embedded-skip"))
    link = parsed(query_of("compare", {"seed": 3}, panes)[1:])
    assert link == Link("compare", {"seed": 3}, tuple(Pane(*pane) for pane in panes))
    assert link.compares


def test_names_of_others_are_passed_over() -> None:
    assert parsed("__theme=dark&view=api&utm_source=x&pane2=y") == parsed("") == Link()


def test_a_lenience_is_judged_by_its_method_wherever_it_stands() -> None:
    for name, method in METHODS.items():
        low, high = method.offered_range
        for query in (f"method={name}&lenience={high:g}", f"lenience={high:g}&method={name}"):
            assert parsed(query).settings == {"method": name, "lenience": high}
        if method.has_lenience:
            assert parsed(f"lenience={low - 0.5:g}&method={name}").settings == {"method": name}


HOSTILE = "<script>alert(1)</script>"
LONG = "x" * (MAX_PROMPT + 1)


@pytest.mark.parametrize(
    "query",
    [
        *("pair=" + HOSTILE, "pair=../../etc/passwd", "method=__class__", "tab=" + HOSTILE),
        *("prompt=%20%0A", "prompt=" + LONG, "lenience=NaN", "lenience=1e999", "lenience=0.5;drop"),
        *("method=cascade_chow&lenience=1.01", "k=0", "k=17", "k=5.0", "k=" + "9" * 5000),
        *("k=%EF%BC%95", "k=1_0", "k=auto&k=5", "temperature=2.01", "temperature=0x1"),
        *("temperature=", "top_k=-1", "top_p=0", "repetition_penalty=nan", "tokens=1000000"),
        *("seed=" + "9" * 400, "seed=1e3", "seed=%201", "token=-1", "token=x", "method=speed&method=speed"),
        *("pane=speed:0:5", "pane=" + "&pane=".join(["speed:0:5"] * 5)),
        *("pane=speed:0:5&pane=" + HOSTILE, "pane=speed:0:5&pane=speed:nan:5"),
        *("pane=speed:0:5&pane=speed:0:99", "pane=speed:0:5&pane=speed:0"),
        *("pane=speed:0:5&pane=speed:0:5:" + HOSTILE, "pane=speed:0:5&pane=speed:0:5:embedded:x"),
    ],
)
def test_an_invalid_value_is_ignored_with_a_sentence_that_does_not_repeat_it(query: str) -> None:
    link = parsed(query)
    [problem] = link.problems
    assert re.fullmatch("The link’s “.{4,230}\\.", problem)
    assert not any(piece in problem for piece in (HOSTILE, "passwd", "9999", "xxxx", "drop", "__class__"))
    sound = {"method"} if query.startswith("method=cascade_chow") else set()
    assert set(link.settings) == sound
    assert link.tab is None
    assert link.panes == ()


def test_one_bad_value_does_not_spoil_the_others() -> None:
    link = parsed("method=nonsense&lenience=0.5&temperature=0.5&seed=x&prompt=hello")
    assert link.settings == {"temperature": 0.5, "prompt": "hello"}
    assert len(link.problems) == 3


def test_a_rule_of_ones_own_makes_its_method_and_a_foreign_one_is_ignored() -> None:
    assert parsed("rule=p1(v)+%3E+0.1").settings == {"rule": "p1(v) > 0.1", "method": "own_rule"}
    link = parsed("rule=p1(v)+%3E+0.1&method=speed")
    assert link.settings == {"method": "speed"}
    assert link.problems == ("The link’s “rule” was ignored: it is for the method own_rule.",)
    link = parsed("rule=p1(v)+%3E+<b>")
    assert link.settings == {}
    assert link.problems == ("The link’s “rule” was ignored: it is not a valid rule: see character 9.",)


def test_a_link_to_a_lesson_opens_one_that_is_there() -> None:
    def opened(query: str) -> Link:
        return parse_link(parse_qsl(query), lessons=("cascades", "mine"))

    link = opened("lesson=mine&step=3.1&language=de&tab=idea")
    assert (link.tab, link.part, link.problems) == ("learn", "lessons", ())
    for name in ("../mine", "other"):
        link = opened(f"lesson={name}")
        assert (link.tab, link.part) == (None, None)
        assert link.problems == ("The link’s “lesson” was ignored: it must be one of cascades, mine.",)
    for tab, part in (("tour", "lessons"), ("playground", "playground"), ("learn", None)):
        assert (opened(f"tab={tab}").tab, opened(f"tab={tab}").part) == ("learn", part)
