"""The page's look: colours that can be read and told apart."""

from __future__ import annotations

import itertools

import pytest

from specviz.app import marks
from specviz.app.marks import colours, method_symbol, method_token
from specviz.core.methods import METHODS

MEANINGS = ("drafter", "verifier", "rejected", "target")


def luminance(colour: str) -> float:
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_can_be_read_on_every_ground(theme: str) -> None:
    """WCAG's 4.5 for every ink on every surface, and on every tint that it is written on; 3 for what is drawn."""
    found = colours(theme)
    surfaces = ("page", "panel", "sunken")
    tints = [f"{each}-tint" for each in (*MEANINGS, "error")]
    inks = [f"{each}-ink" for each in MEANINGS]
    pairs = [
        *itertools.product(("text", "muted", "error", *inks), surfaces),
        *itertools.product(("text", "muted"), tints),
        *((f"{each}-ink", f"{each}-tint") for each in MEANINGS),
        ("error", "error-tint"),
        ("on-button", "button"),
    ]
    assert not [(one, other) for one, other in pairs if contrast(found[one], found[other]) < 4.5]
    fills = [*MEANINGS, *(name for name in found if name.startswith("method-"))]
    drawn = itertools.product(fills, ("page", "panel"))
    assert not [(one, other) for one, other in drawn if contrast(found[one], found[other]) < 3]


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
