"""The page's look in a browser: its own fonts, larger text, light and dark, and a bar that fits."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.browser.driving import let_draw

PROMPT = "#compare-prompt textarea"
SIZES = """() => ['#compare-prompt textarea', '#compare-run', '.sc-says', '#tabs [role=tab]']
    .map((at) => parseFloat(getComputedStyle(document.querySelector(at)).fontSize))"""
FONT = """async (family) => {
    await document.fonts.load(`16px '${family}'`, 'a');
    return [...document.fonts].some((one) => one.family.includes(family) && one.status === 'loaded');
}"""
BAR = """() => {
    const box = (at) => document.querySelector(at).getBoundingClientRect();
    const tab = box('#tabs > .tab-wrapper [role=tab][aria-selected=true]');
    const apart = (a, b) => a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top;
    return [...['.sb-name', '.sb-switches'].filter((at) => !apart(tab, box(at))), ...(tab.left < 0 || tab.right > innerWidth ? ['cut'] : [])];
}"""
OVERFLOW = "document.documentElement.scrollWidth - innerWidth"
BACKGROUND = "getComputedStyle(document.body).backgroundColor"


def open_page(page: Page, address: str, query: str = "?tab=compare") -> None:
    page.goto(address + query)
    expect(page.locator(PROMPT)).to_be_visible(timeout=60_000)
    expect(page.locator("#large-type")).to_be_visible()


def test_fonts_bar_larger_text_and_theme(page: Page, address: str) -> None:
    """Fonts are the package's own; no tab lies under the name or the switches; larger text cuts nothing off; both
    choices are remembered, and a theme in the address counts more."""
    fetched: list[str] = []
    page.on("request", lambda request: request.resource_type == "font" and fetched.append(request.url))
    open_page(page, address)
    for family in ("Inter", "JetBrains Mono", "SpecViz Serif"):
        assert page.evaluate(FONT, family)
    assert fetched
    assert all("/specviz/app/static/fonts/" in url for url in fetched)

    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 844})
        let_draw(page)
        assert page.evaluate(BAR) == []

    page.set_viewport_size({"width": 1280, "height": 900})
    light, before = page.evaluate(BACKGROUND), page.evaluate(SIZES)
    button = page.locator("#large-type")
    page.locator(PROMPT).fill("A prompt that takes more than a few lines of the box. " * 8)
    button.click()
    expect(button).to_have_attribute("aria-pressed", "true")
    assert all(new > 1.25 * old for new, old in zip(page.evaluate(SIZES), before, strict=True))
    assert page.locator(PROMPT).evaluate("node => node.scrollHeight - node.clientHeight") <= 1
    assert page.evaluate(OVERFLOW) <= 0
    page.click("#theme-switch")
    expect(page.locator("body.dark")).to_be_attached()
    assert page.evaluate(BACKGROUND) != light

    open_page(page, address)
    expect(page.locator("body.dark")).to_be_attached()
    expect(button).to_have_attribute("aria-pressed", "true")
    open_page(page, address, "?tab=compare&__theme=light")
    assert page.evaluate(BACKGROUND) == light
