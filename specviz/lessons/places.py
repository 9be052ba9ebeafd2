"""Where in a recorded run a step looks: by rule, never by position, so that a lesson holds when its run is recorded anew.

Knows traces; knows no text and no picture.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

from specviz.schema.trace import Draft, Run, Token

_SEEN = 0.01
"""A share below this makes no bar that one sees."""
_ACCIDENT = 0.05
"""A draft token below this probability of the drafter's own is one that nobody would expect."""


def examined(token: Token) -> Token | Draft:
    """The draft token that a token's coin was about."""
    return token.draft or token


def is_word(text: str) -> bool:
    """Whether a token reads as a word of its own: such are easier to talk about."""
    return text.strip().isalpha() and len(text.strip()) >= 3


def _most(run: Run, fits: Callable[[Token], bool], worth: Callable[[Token], float]) -> int | None:
    """The examined token that fits and is worth most; one whose draft is a word and no mere accident, if there is any."""
    found = [
        (is_word(examined(token).text) and (examined(token).q or 0.0) >= _ACCIDENT, worth(token), -at)
        for at, token in enumerate(run.tokens)
        if token.acceptance is not None and token.coin is not None and fits(token)
    ]
    return -max(found)[2] if found else None


def _odds(token: Token) -> float:
    return token.acceptance if token.acceptance is not None else 1.0


def beside_favourite(token: Token) -> float:
    """How probable the verifier finds the examined draft token, its own favourite counting as 1."""
    best = token.top.p[0].probability if token.top and token.top.p else 0.0
    return (examined(token).p or 0.0) / best if best > 0 else 0.0


def listed_by_both(token: Token) -> list[tuple[str, float, float]]:
    """The tokens among the most probable ones of both models, as far as one can see them: (label, q, p), p descending."""
    if not token.top or not token.top.q or not token.top.p:
        return []
    drafter = {one.id: one.probability for one in token.top.q}
    shared = [(one.text, drafter[one.id], one.probability) for one in token.top.p if one.id in drafter]
    return [one for one in shared if max(one[1:]) >= _SEEN]


TOKENS: MappingProxyType[str, Callable[[Run], int | None]] = MappingProxyType(
    {
        "first rejected": lambda run: _most(run, lambda t: t.draft is not None, lambda _: 0.0),
        "most doubtful coin": lambda run: _most(run, lambda t: True, lambda t: -abs(_odds(t) - 0.5)),
        "nearest to the favourite": lambda run: _most(run, lambda t: t.draft is not None, beside_favourite),
        "most shared": lambda run: _most(
            run,
            lambda t: len(listed_by_both(t)) >= 2,
            lambda t: len(listed_by_both(t)) + sum(min(q, p) for _, q, p in listed_by_both(t)),
        ),
    }
)
"""Rules that choose a token: its index in the run, or None where no token fits."""


def _longest(run: Run) -> int | None:
    found = [(r.accepted, -r.index) for r in run.rounds if r.examined]
    return -max(found)[1] if found and max(found)[0] else None


def _mixed(run: Run) -> int | None:
    found = [(r.accepted, -r.index) for r in run.rounds if 0 < r.accepted < r.examined]
    return -max(found)[1] if found else None


ROUNDS: MappingProxyType[str, Callable[[Run], int | None]] = MappingProxyType(
    {"longest accepted block": _longest, "some kept, one rejected": _mixed}
)
"""Rules that choose a round: its index in the run, or None where none fits."""
