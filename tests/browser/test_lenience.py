"""The lenience track in a real browser: exact, even in the acceptance rate, and to be used with keys, fingers and eyes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import FloatRect, Locator, Page, Route, expect

from specviz.app.components.lenience_track import LenienceTrack, lenience_value, recorded_scales
from specviz.core.methods import METHODS, OWN_RULE
from specviz.models.registry import DEFAULT_PAIR
from specviz.schema.settings import DEFAULT_METHOD, SETTINGS
from tests.browser.bare import mount, open_bare
from tests.browser.driving import choose, close_settings, open_app, open_settings, run, set_number
from tests.browser.scripted import Script
from tests.support.traces import make_trace

SCALES, FLAT = recorded_scales(), 0.01
TEMPERATURE = SETTINGS["temperature"].default
USUAL = f"{METHODS[DEFAULT_METHOD].default_lenience:g}"
"""The lenience that the page begins with, as its field shows it."""


def open_track(page: Page) -> Locator:
    """The track alone, as One run begins with it."""
    mount(page, LenienceTrack(lenience_value(DEFAULT_METHOD)))
    return page.locator(".host")


@pytest.fixture
def track(page: Page) -> Locator:
    return open_track(page)


def slider(track: Locator) -> Locator:
    return track.locator("input[type=range]")


def number(track: Locator) -> float:
    return float(track.locator("input[type=number]").input_value())


def position(track: Locator) -> float:
    return float(slider(track).input_value())


def curve_at(method: str, temperature: float) -> Any:
    """Leniences, acceptance rates and shares of right answers, linear between two measured temperatures."""
    curves = dict(SCALES["scales"][method])
    below = max(heat for heat in curves if heat <= temperature)
    above = min(heat for heat in curves if heat >= temperature)
    share = (temperature - below) / ((above - below) or 1)
    return (np.array(curves[below]) * (1 - share) + np.array(curves[above]) * share).T


def expect_words(track: Locator, method: str, lenience: float, temperature: float = TEMPERATURE) -> None:
    """Every number that stands there is what Python computes from the recorded sweep."""
    curve = curve_at(method, temperature)
    kept, right = (f"{int(100 * np.interp(lenience, curve[0], each) + 0.5)}\u00a0%" for each in curve[1:])
    expect(track.locator("[data-part=keeps]")).to_have_text(f"≈ {kept} accepted in tests")
    spoken = f"{lenience:.12g}".replace("-", "−") + f", about {kept}".replace("\u00a0", " ")
    expect(slider(track)).to_have_attribute("aria-valuetext", re.compile(re.escape(spoken)))
    if curve[1][0] < curve[1][-1]:
        expect(track.locator("[data-part=note]")).to_have_text(f"answers right ≈ {right}")


def test_keys_move_it_evenly_in_the_acceptance_rate(page: Page, track: Locator) -> None:
    """The slider is the tab stop after the number, and its focus can be seen."""
    track.locator("input[type=number]").focus()
    page.keyboard.press("Tab")
    expect(slider(track)).to_be_focused()
    assert track.locator(".sl-track").evaluate("it => getComputedStyle(it).outlineStyle") == "solid"
    for key, way in (("ArrowRight", 0.01), ("PageUp", 0.1), ("ArrowLeft", -0.01)):
        before = position(track)
        page.keyboard.press(key)
        assert position(track) - before == pytest.approx(way, abs=0.005)
        expect_words(track, DEFAULT_METHOD, number(track))
    for key, end in (("End", 1), ("Home", 0)):
        page.keyboard.press(key)
        assert number(track) == end
        expect_words(track, DEFAULT_METHOD, end)
    assert page.evaluate("JSON.parse(props.value).lenience") == number(track)


def test_the_number_is_exact_and_bad_ones_are_refused(page: Page, track: Locator) -> None:
    field = track.locator("input[type=number]")
    field.fill("")
    field.press_sequentially("0.123456789")
    assert page.evaluate("JSON.parse(props.value).lenience") == 0.123456789
    field.fill("7")
    expect(field).to_have_attribute("aria-invalid", "true")
    field.press("Enter")
    expect(field).to_have_value("1")
    field.fill("")
    field.blur()
    expect(field).to_have_value("1")


def test_a_method_brings_its_default_and_its_scale_without_asking_the_server(
    page: Page, address: str, script: Script
) -> None:
    """And one without a lenience a line of words, in a place of the same height. What is chosen is asked."""
    script.trace = make_trace([" short"]).lines
    open_app(page, address)
    track = page.locator("#lenience")
    expect(track.locator(".sl-number")).to_have_value(USUAL)
    height = box(track.locator(".sl"))["height"]
    asked: list[Route] = []
    for events in ("queue/join", "run/predict"):
        page.route(f"**/{events}*", lambda route: asked.append(route))  # unanswered for now
    for name in ("verifier_only", "cascade_opt", OWN_RULE, "speed"):
        method = METHODS[name]
        choose(page, "method", method.label)
        if not method.has_lenience:
            expect(track.locator(".sl-none")).to_contain_text("no lenience")
            expect(slider(track)).to_be_hidden()
        else:
            expect(track.locator("input[type=number]")).to_have_value(f"{method.default_lenience:g}")
            if name != OWN_RULE:
                expect_words(track, name, method.default_lenience)
            strict = "lossless" if method.strict_end.endswith("lossless") else "strict"
            expect(track.locator("[data-part=strict]")).to_have_text(strict)
        assert box(track.locator(".sl"))["height"] == height
    assert asked
    page.unroute_all()

    # A dropdown is closed and keeps its value when tabbed past.
    set_number(page, "lenience", 0.75)
    field = page.locator("#method input")
    field.focus()
    expect(field).to_have_attribute("aria-expanded", "true")
    page.keyboard.press("Tab")
    expect(field).to_have_attribute("aria-expanded", "false")
    expect(field).to_have_value(METHODS["speed"].label)
    open_settings(page)
    set_number(page, "temperature", 0.5)
    close_settings(page)
    expect_words(track, "speed", 0.75, 0.5)
    run(page)
    assert (script.asked[-1][1].method, script.asked[-1][1].lenience) == ("speed", 0.75)


def box(place: Locator) -> FloatRect:
    found = place.bounding_box()
    assert found is not None
    return found


def test_words_are_shown_only_where_they_were_measured(page: Page, track: Locator) -> None:
    """On the measured pair; at temperature 0 every lenience accepts as much."""

    def form(temperature: float, pair: str = DEFAULT_PAIR) -> None:
        page.evaluate(
            "form => { window.specvizForm = { '': form }; document.dispatchEvent(new CustomEvent('specviz-form', { detail: '' })); }",
            {"temperature": temperature, "pair": pair},
        )

    page.evaluate("value => change('value', value)", lenience_value("speed", 0.8))
    note = track.locator("[data-part=note]")
    form(0.85)
    expect_words(track, "speed", 0.8, 0.85)
    form(0)
    expect(note).to_have_text("the same at every α")
    assert position(track) == pytest.approx(0.8)  # a flat curve: an even scale
    form(0.5, "embedded-skip")
    expect(note).to_have_text("not measured on this pair")
    expect(track.locator("[data-part=keeps]")).to_be_hidden()


def test_a_finger_moves_it_and_the_page_still_scrolls(phone: Page) -> None:
    page, track = phone, open_track(phone)
    place = box(track.locator(".sl-track"))
    page.touchscreen.tap(place["x"] + 0.75 * place["width"], place["y"] + place["height"] / 2)
    page.wait_for_function("document.querySelector('.sl-range').valueAsNumber > 0.7")
    assert position(track) == pytest.approx(0.75, abs=0.03)
    expect_words(track, DEFAULT_METHOD, number(track))
    assert slider(track).evaluate("(node) => getComputedStyle(node).touchAction") == "pan-y"
    assert box(slider(track))["height"] >= 24


def test_a_scale_is_invertible_and_even_in_the_acceptance_rate(page: Page) -> None:
    """At every method and at temperatures that were and were not measured; where the rate hardly changes, even in the lenience."""
    open_bare(page, None, "lenience_track/scale")
    cases: list[dict[str, Any]] = [
        {"method": name, "temperature": heat, "range": METHODS[name].offered_range, "pair": SCALES["pair"]}
        for name in SCALES["scales"]
        for heat in (0, 0.2, 0.5, 1)
    ]
    answers: list[Any] = page.evaluate(
        """([sweep, cases]) => cases.map((each) => {
            const scale = SpecViz.scaleOf(sweep, each);
            const places = Array.from({ length: 11 }, (_, at) => at / 10);
            return places.map((at) => [scale.lenience(at), scale.acceptance(scale.lenience(at)), scale.position(scale.lenience(at))]);
        })""",
        [LenienceTrack().props["sweep"], cases],
    )
    places = np.arange(11) / 10
    for case, rows in zip(cases, answers, strict=True):
        leniences, acceptances, back = np.array(rows).T
        curve = curve_at(case["method"], case["temperature"])
        assert back == pytest.approx(places, abs=1e-9), case
        assert acceptances == pytest.approx(np.interp(leniences, curve[0], curve[1]), abs=1e-4), case
        whole = acceptances[-1] - acceptances[0]
        if whole > FLAT:
            assert all(0 <= step <= 1.2 * whole / 10 + 1e-3 for step in np.diff(acceptances)), case
        else:
            low, high = case["range"]
            assert leniences == pytest.approx(low + places * (high - low), abs=1e-4), case
