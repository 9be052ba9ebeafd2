"""Rules for tests of the language: good ones, bad ones with where they go wrong, and hostile ones."""

from __future__ import annotations

import random
from contextlib import suppress

from specviz.core.methods import OWN_RULE, get_method
from specviz.errors import RuleError

GOOD_RULES = [
    "max q1 >= 1 - a",
    "max q1 >= max p1 - a * TV",
    "q1(v) >= max p1 - a",
    "p1(v) >= (1 - a) * max p1",
    "p1(v) >= (1 - a) * max p1 and H(p1) > 0.5",
    "p(v) >= min((1 - a) * (1 - a), (1 - a) * exp(-H(p)))",
    "p1(v) >= max(top(3, p1), max p1 - a)",
    "JS <= a",
    "a > 0.5 or q(v) < p(v)",
    "not (q(v) > p(v) or 1 - (2 - 3) * a < q1(v) / (2 / 3))",
    "sqrt(p(v) * q(v)) > 0.1 and not max q < max p",
    "log(q1(v)) - log(p1(v)) < a and p(v) > 0.01",
    "p₁(v) ≥ (1 − α)·max p₁",
    "q(v) - p(v) - 0.1 < a - 0.5 - 0.1",
    "-q(v) * 2 < -a / 4",
    "max(q(v), p(v), 0.2) <= 2e-1",
]
BAD_RULES = [
    ("p1(v)", 0, "must be a comparison"),
    ("1 + 2", 2, "must be a comparison"),
    ("p1 >= 0.1", 3, r"Write p1\(v\)"),
    ("p2(v) >= 0.1", 0, "no such name"),
    ("p1(v) >=", 8, "ends too early"),
    ("p1(v) >= (1 - a", 15, "closing parenthesis"),
    ("p1(v) >= 0.1 > 0.2", 13, "two numbers at a time"),
    ("p1(v) >= 0.1 0.2", 13, "missing between"),
    ("p1(v) >= '0.1'", 9, "no such character"),
    ("__import__('os') > 1", 0, "no such character"),
    ("p1(v) >= 1e7", 9, "too large"),
    ("p1(v) > 1 and 3", 14, "joins comparisons"),
    ("(p1(v) > 1) + 1 > 2", 7, "number is wanted"),
    ("sqrt(1, 2) > q(v)", 0, "takes 1 number"),
    ("H(x) > 1", 2, "distribution must be named"),
    ("top(0, p1) > a", 4, "whole number from 1"),
    ("q(v) / (1 - 1) > a", 5, "divides by zero"),
    ("log(-1 - max q) > a", 0, "no logarithm"),
    ("sqrt(max q - 2) > a", 0, "no square root"),
    ("(" * 17 + "a" + ")" * 17 + " > q(v)", 17, "nests too deep"),
    ("q(v) > " + "1 + " * 80 + "1", 300, "may have 300 characters"),
    ("exp(exp(exp(exp(exp(exp(exp(exp(q(v))))))))) + q(v) > 1", 52, "computes too much"),
]


_WORDS = "p1(v);q(v);max q;H(p1);JS;TV;a;1e6;0;top(9, p);log(;exp(;min(;(;);+;-;*;/;,;>=;<;and;or;not;nan;inf;__class__;\u0000;🌈;';{{"


def hostile_rules(count: int) -> list[str]:
    """Texts meant to break the parser, the page or the machine; the same ones every time."""
    luck = random.Random(0)
    words = _WORDS.split(";")
    found = [
        "(" * 300,
        "-" * 299 + "a",
        "not " * 70 + "a > 1",
        "a" * 300,
        "1" * 299,
        "9e999 > a",
        "q(v) > " + "exp(" * 15 + "q(v)" + ")" * 15,
        " + ".join(["q(v)"] * 30) + " > a",
        " * ".join(["exp(q(v))"] * 6) + " > a",
        "q(v)/" * 20 + "p(v) > a",
        "+".join(f"log(p{'1' * (i % 2)}(v))" for i in range(7)) + " < H(q) + H(p) + H(q1)",
        "JS + H(p) + H(q) < top(100, p)",
    ]
    for _ in range(count // 3):
        found.append(" ".join(luck.choice(words) for _ in range(luck.randint(1, 40)))[:400])
    while len(found) < count:  # well-formed and long
        found.append(f"{_number(luck, 4)} {luck.choice(['>=', '>', '<', '<='])} {_number(luck, 4)}")
    return found[:count]


def random_rules(count: int) -> list[str]:
    """Valid rules made at random; the same ones every time."""
    luck, found = random.Random(1), []
    while len(found) < count:
        text = f"{_number(luck, 3)} {luck.choice(['>=', '>', '<', '<='])} {_number(luck, 3)}"
        with suppress(RuleError):
            get_method(OWN_RULE, text)
            found.append(text)
    return found


def _number(luck: random.Random, depth: int) -> str:
    if depth == 0 or luck.random() < 0.2:
        return luck.choice(["p1(v)", "q(v)", "q1(v)", "max p1", "a", "H(q)", "TV", "0.3", "1e6", "1e-6"])
    if luck.random() < 0.3:
        return f"{luck.choice(['exp', 'log', 'sqrt'])}({_number(luck, depth - 1)})"
    return f"({_number(luck, depth - 1)} {luck.choice('+-*/')} {_number(luck, depth - 1)})"
