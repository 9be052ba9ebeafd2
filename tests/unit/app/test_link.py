"""Links: valid values of a query arrive whole; invalid ones are ignored with a sentence."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl

import pytest

from specviz.app.controls import _of_pair
from specviz.app.link import MAX_PROMPT, NAMES, Link, Pane, parse_link, query_of, ranged
from specviz.core.methods import METHODS
from specviz.models.registry import PAIRS


def parsed(query: str) -> Link:
    return parse_link(parse_qsl(query, keep_blank_values=True))


def test_a_link_sets_all_that_it_names_and_is_written_as_it_is_read() -> None:
    query = (
        "tab=generate&pair=gpt2&prompt=Why%3F%0A%26%F0%9F%8C%88&method=own_rule&rule=q1(v)+%3E+a&lenience=0.25&k=7&temperature=0"
        "&top_k=40&top_p=0.9&min_p=0.1&repetition_penalty=1.05&tokens=64&seed=123456&run=lossless&token=7"
    )
    settings = {
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
    assert set(settings) == set(NAMES.values())
    assert parsed(query) == parsed(query_of("generate", settings)[1:]) == Link("generate", settings)


def test_a_link_asks_for_no_longer_text_than_the_server_writes() -> None:
    query = [("tokens", "300")]
    assert parse_link(query, 1024).settings == {"max_new_tokens": 300}
    assert "200" in parse_link(query, 200).problems[0]
    assert ranged(5)["max_new_tokens"].offered == (4, 5)


def test_a_comparison_that_is_written_is_read_as_the_same_link() -> None:
    panes = (
        ("speed", 0.30000000000000004, "auto"),
        ("speed", 1e-05, "auto"),
        ("cascade_diff", -0.5, 5, "embedded-skip"),
    )
    link = parsed(query_of("compare", {"seed": 3}, panes)[1:])
    assert link == Link("compare", {"seed": 3}, tuple(Pane(*pane) for pane in panes))


def test_a_pair_that_is_not_offered_has_its_penalty_too() -> None:
    """A menu cannot keep it from being chosen."""
    assert all(_of_pair(key)["info"] for key in PAIRS)


def test_names_of_others_are_passed_over() -> None:
    assert parsed("__theme=dark&utm_source=x") == Link()


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
        *("prompt=%20%0A", "prompt=" + LONG, "lenience=NaN", "lenience=0.5;drop"),
        *(
            "method=cascade_chow&lenience=1.01",
            "k=17",
            "k=" + "9" * 5000,
            "k=%EF%BC%95",
            "k=1_0",
        ),
        *("temperature=2.01", "temperature=0x1", "seed=1e3", "token=-1"),
        *("pane=speed:0:5", "pane=" + "&pane=".join(["speed:0:5"] * 5), "pane=speed:0:5&pane=speed:nan:5"),
        *("pane=speed:0:5&pane=speed:0", "pane=speed:0:5&pane=speed:0:5:" + HOSTILE),
    ],
)
def test_an_invalid_value_is_ignored_with_a_sentence_that_does_not_repeat_it(query: str) -> None:
    link = parsed(query)
    [problem] = link.problems
    assert re.fullmatch(r".{10,250}\.", problem)
    assert not any(piece in problem for piece in (HOSTILE, "passwd", "9999", "xxxx", "drop", "__class__"))
    sound = {"method"} if query.startswith("method=cascade_chow") else set()
    assert set(link.settings) == sound
    assert link.tab == ("generate" if sound else None)
    assert link.panes == ()


def test_a_rule_of_ones_own_makes_its_method() -> None:
    assert parsed("rule=p1(v)+%3E+0.1").settings == {"rule": "p1(v) > 0.1", "method": "own_rule"}
    link = parsed("rule=p1(v)+%3E+<b>&seed=x&prompt=hello")
    assert (link.settings, len(link.problems)) == ({"prompt": "hello"}, 2)


def test_a_link_to_a_lesson_opens_one_that_is_there() -> None:
    def opened(query: str) -> Link:
        return parse_link(parse_qsl(query), lessons=("cascades", "mine"))

    link = opened("lesson=mine&step=3.1&language=de&tab=idea")
    assert (link.tab, link.part, link.problems) == ("learn", "lessons", ())
    for name in ("../mine", "other"):
        link = opened(f"lesson={name}")
        assert (link.tab, link.part) == (None, None)
        assert len(link.problems) == 1
    for tab, part in (("tour", "lessons"), ("playground", "playground"), ("learn", None)):
        assert (opened(f"tab={tab}").tab, opened(f"tab={tab}").part) == ("learn", part)
