"""The page's look: colours that can be told apart. That text can be read on them, axe shows in the browser."""

from __future__ import annotations

import itertools

import pytest

from specviz.app import marks
from specviz.app.marks import colours, method_symbol, method_token
from specviz.core.methods import METHODS

MEANINGS = ("drafter", "verifier", "rejected", "target")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_method_has_a_colour_of_its_own(theme: str) -> None:
    """None that means something else, and none like another's."""
    found = colours(theme)
    own = {name: found[method_token(name)] for name in METHODS}
    assert {found[name] for name in (*MEANINGS, "error")}.isdisjoint(own.values())
    for one, other in itertools.combinations(own, 2):
        parts = ([int(own[name][at : at + 2], 16) for at in (1, 3, 5)] for name in (one, other))
        assert sum(abs(a - b) for a, b in zip(*parts, strict=True)) >= 40, (one, other)


def test_methods_have_symbols_of_their_own_and_many_registered_ones_marks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count, names = len(METHODS), [*METHODS, *(f"mine_{number}" for number in range(40))]
    monkeypatch.setattr(marks, "METHODS", dict.fromkeys(names))
    assert len({(method_token(name), method_symbol(name)) for name in names}) == len(names)
    for side in zip(*map(method_symbol, names[:count]), strict=True):
        assert len(set(side)) == count
