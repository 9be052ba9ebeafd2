"""The page's look: fonts that are in the package and small, colours that can be read, a theme that gradio has."""

from __future__ import annotations

import itertools
import math
import re

import pytest

from specviz.app.components.scripted_html import STATIC
from specviz.app.look import FONTS, ICON, font_faces, head, theme
from specviz.app.marks import method_colour, method_symbol, method_token
from specviz.app.tokens import colours
from specviz.core.methods import METHODS

FOLDER = STATIC / "fonts"
MEANINGS = ("drafter", "verifier", "rejected", "target")


def test_every_font_is_in_the_package_with_its_licence() -> None:
    files = {file for _, file, _, _ in FONTS}
    assert files == {path.stem for path in FOLDER.glob("*.woff2")}
    for family, file, _, _ in FONTS:
        [licence] = [
            path for path in FOLDER.glob("*-OFL.txt") if file.startswith(path.name.removesuffix("-OFL.txt"))
        ]
        assert "SIL OPEN FONT LICENSE Version 1.1" in licence.read_text(encoding="utf-8"), family


def test_the_fonts_are_small() -> None:
    assert sum(path.stat().st_size for path in FOLDER.glob("*.woff2")) <= 250_000


def test_fonts_come_from_this_server() -> None:
    addresses = re.findall(r'url\("([^"]+)"\)', font_faces())
    assert len(addresses) == len(FONTS)
    assert all(address.startswith("gradio_api/file=") for address in addresses)


@pytest.mark.parametrize("host", ["", "someone-specviz.hf.space"])
def test_a_link_preview_has_a_whole_address_where_it_is_known(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPACE_HOST", host)
    [image] = re.findall(r'<meta property="og:image" content="([^"]+)">', head())
    assert image.startswith(f"https://{host}/gradio_api/file=" if host else "gradio_api/file=")
    assert (STATIC / "page/preview.png").is_file()
    assert ICON.is_file()


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
    """WCAG's 4.5 for every ink on every surface, and on every tint that it is written on."""
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
    poor = {pair: round(contrast(found[pair[0]], found[pair[1]]), 2) for pair in pairs}
    assert not {pair: ratio for pair, ratio in poor.items() if ratio < 4.5}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_fills_stand_out_from_every_surface(theme: str) -> None:
    """WCAG's 3 for what is drawn."""
    found = colours(theme)
    fills = [*MEANINGS, *(name for name in found if name.startswith("method-"))]
    poor = {
        (fill, ground): round(contrast(found[fill], found[ground]), 2)
        for fill, ground in itertools.product(fills, ("page", "panel"))
    }
    assert not {pair: ratio for pair, ratio in poor.items() if ratio < 3}


def test_both_themes_have_the_same_colours() -> None:
    assert colours("light").keys() == colours("dark").keys()
    assert len(colours("light")) >= 20


def test_gradios_buttons_are_ink() -> None:
    """`set` takes no name that gradio does not have; what it is given is what the browser gets."""
    css = theme()._get_theme_css()
    assert f"--button-primary-background-fill: {colours('light')['button']}" in css
    assert f"--button-primary-background-fill: {colours('dark')['button']}" in css


def seen_by(colour: str, matrix: tuple[tuple[float, ...], ...]) -> tuple[float, float, float]:
    """A colour in CIE Lab, as somebody sees it who is colour-blind by `matrix` (Machado, Oliveira and Fernandes 2009)."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    red, green, blue = (
        min(max(sum(weight * part for weight, part in zip(row, linear, strict=True)), 0.0), 1.0)
        for row in matrix
    )
    x, y, z = (
        (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505,
        0.2126 * red + 0.7152 * green + 0.0722 * blue,
        (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089,
    )
    f, g, h = (part ** (1 / 3) if part > 0.008856 else 7.787 * part + 16 / 116 for part in (x, y, z))
    return 116 * g - 16, 500 * (f - g), 200 * (g - h)


SIGHTS = {
    "all colours": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "no red": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "no green": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "no blue": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("sight", SIGHTS)
def test_methods_and_origins_can_be_told_apart(theme: str, sight: str) -> None:
    """Also by the colour-blind: no two are closer than 10 in Lab, where 2 can just be seen side by side."""
    found = colours(theme)
    for group in (dict.fromkeys(map(method_token, METHODS)), ["drafter", "verifier", "rejected"]):
        places = {name: seen_by(found[name], SIGHTS[sight]) for name in group}
        close = {
            pair
            for pair in itertools.combinations(group, 2)
            if math.dist(*(places[one] for one in pair)) < 10
        }
        assert not close


def test_no_method_has_a_colour_that_means_something_else() -> None:
    for each in ("light", "dark"):
        found = colours(each)
        meanings = {found[name] for name in (*MEANINGS, "error")}
        assert meanings.isdisjoint(method_colour(name, each) for name in METHODS)
    for side in zip(*map(method_symbol, METHODS), strict=True):
        assert len(set(side)) == len(METHODS)
