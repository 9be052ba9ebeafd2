"""The page's look in a browser: its own fonts, larger text, light and dark, and a bar that fits."""

from __future__ import annotations

from collections.abc import Callable

import gradio as gr
import pytest
from playwright.sync_api import Page, expect

from specviz.app.page import build_page
from tests.browser.test_accessibility import Played

PROMPT = "#compare-prompt textarea"


@pytest.fixture(scope="module")
def address(serve: Callable[[gr.Blocks], str]) -> str:
    return serve(build_page(Played()))


def open_page(page: Page, address: str, query: str = "?tab=compare") -> None:
    page.goto(address + query)
    expect(page.locator(PROMPT)).to_be_visible(timeout=60_000)
    expect(page.locator("#large-type")).to_be_visible()


def test_the_fonts_are_the_packages_own(page: Page, address: str) -> None:
    """Of this machine and of nobody else; the fixture fails at any foreign request."""
    fetched: list[str] = []
    page.on("request", lambda request: request.resource_type == "font" and fetched.append(request.url))
    open_page(page, address)
    page.evaluate("document.fonts.ready")
    for family in ("Inter", "JetBrains Mono", "Source Serif 4"):
        page.evaluate("family => document.fonts.load(`16px '${family}'`, 'a')", family)
        assert page.evaluate(
            "family => [...document.fonts].some((one) => one.family.includes(family) && one.status === 'loaded')",
            family,
        )
    assert page.evaluate(
        "getComputedStyle(document.querySelector('.gradio-container')).fontFamily"
    ).startswith("Inter")
    assert fetched
    assert all("/specviz/app/static/fonts/" in url for url in fetched)


def test_larger_text_says_that_it_is_on_clips_nothing_and_is_remembered(page: Page, address: str) -> None:
    """One button for the projector: the views' text and gradio's own grow, and the prompt is still whole."""
    open_page(page, address)
    sizes = """() => ['#compare-prompt textarea', '#compare-run', '.sc-empty', '#tabs [role=tab]']
      .map((at) => parseFloat(getComputedStyle(document.querySelector(at)).fontSize))"""
    before = page.evaluate(sizes)
    button = page.locator("#large-type")
    expect(button).to_have_attribute("aria-pressed", "false")
    quiet = button.evaluate("node => getComputedStyle(node).backgroundColor")
    page.locator(PROMPT).fill("A prompt that takes more than a few lines of the box. " * 8)
    button.click()
    expect(button).to_have_attribute("aria-pressed", "true")
    assert button.evaluate("node => getComputedStyle(node).backgroundColor") != quiet
    assert "on" in button.evaluate("node => getComputedStyle(node, '::after').content")
    assert all(new > 1.25 * old for new, old in zip(page.evaluate(sizes), before, strict=True))
    assert page.locator(PROMPT).evaluate("node => node.scrollHeight - node.clientHeight") <= 1
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    page.reload()
    expect(page.locator(PROMPT)).to_be_visible()
    expect(button).to_have_attribute("aria-pressed", "true")
    assert page.locator(PROMPT).evaluate("node => node.scrollHeight - node.clientHeight") <= 1
    button.click()
    assert page.evaluate(sizes) == before


def test_light_or_dark_is_chosen_and_remembered_and_an_address_wins(page: Page, address: str) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    open_page(page, address)
    light = page.evaluate(background)
    page.click("#theme-switch")
    expect(page.locator("body.dark")).to_be_attached()
    dark = page.evaluate(background)
    assert dark != light
    open_page(page, address)
    expect(page.locator("body.dark")).to_be_attached()
    expect(page.locator("#bar .specviz")).to_have_attribute("data-theme", "dark")
    open_page(page, address, "?tab=compare&__theme=light")
    assert page.evaluate(background) == light
    page.evaluate("localStorage.clear()")


@pytest.mark.parametrize("width", [1280, 900, 390])
def test_the_bar_fits(page: Page, address: str, width: int) -> None:
    """No place lies under the name or the switches, and the chosen one is in sight."""
    page.set_viewport_size({"width": width, "height": 844})
    open_page(page, address, "?tab=compare")
    box = lambda at: page.locator(at).bounding_box()  # noqa: E731
    chosen = box("#tabs > .tab-wrapper [role=tab][aria-selected=true]")
    assert chosen
    assert chosen["x"] >= 0
    assert chosen["x"] + chosen["width"] <= width
    for other in (box(".sb-name"), box(".sb-switches")):
        assert other
        apart = (
            chosen["x"] + chosen["width"] <= other["x"]
            or other["x"] + other["width"] <= chosen["x"]
            or other["y"] + other["height"] <= chosen["y"]
        )
        assert apart
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


@pytest.mark.parametrize(("old", "now"), [("tour", "lessons"), ("playground", "playground")])
def test_an_old_link_opens_what_is_in_its_place(page: Page, address: str, old: str, now: str) -> None:
    page.goto(f"{address}?tab={old}")
    expect(page.locator(f"#{now} .specviz")).to_be_visible(timeout=60_000)
    expect(page.get_by_role("tab", name=now.title())).to_have_attribute("aria-selected", "true")
