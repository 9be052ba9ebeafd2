"""Every tab under axe-core, in light and dark, wide and narrow: no serious violation, nothing wider than the screen."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect

from tests.browser.driving import MINUTES, open_app, run, violations
from tests.browser.scripted import Script

TABS = {
    "The idea": "#race .specviz[data-theme]",
    "One run": "#view [data-testid=token]",
    "Compare methods": "#compare-view .sc-verdict",
    "Speed or quality": "#tradeoff-view .st-point",
    "Learn": "#lessons .sl-card",
}
"""Tabs by their names, and what is there once they are filled."""
WIDE, NARROW = ViewportSize(width=1280, height=900), ViewportSize(width=390, height=844)


def show(page: Page, tab: str) -> None:
    """Open a tab and fill it."""
    page.set_viewport_size(WIDE)
    page.get_by_role("tab", name=tab, exact=True).click()
    if tab == "One run":
        run(page)
        page.locator("#view .sv-text .resampled").first.click()
    elif tab == "Compare methods":
        run(page, prefix="compare-")
        page.locator("#compare-view [data-badge]").first.click()
    expect(page.locator(TABS[tab]).first).to_be_visible(timeout=MINUTES)


@pytest.mark.parametrize(("theme", "size"), [("light", WIDE), ("dark", NARROW)])
def test_no_serious_violation_on_any_tab(
    browser: Browser, address: str, theme: str, size: ViewportSize
) -> None:
    context = browser.new_context(reduced_motion="reduce")  # a colour in transition has no contrast yet
    page, found = context.new_page(), []
    page.set_viewport_size(WIDE)
    page.goto(f"{address}?tab=generate&__theme={theme}")
    expect(page.locator("#run")).to_be_enabled(timeout=MINUTES)
    for tab in TABS:
        show(page, tab)
        page.set_viewport_size(size)
        page.wait_for_timeout(300)  # the chart follows in a coming frame
        found += [(tab, *each) for each in violations(page)]
        page.set_viewport_size(NARROW)
        overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert overflow <= 0, f"{tab} is {overflow} pixels wider than a phone"
    context.close()
    assert not found, "\n".join(map(str, found))


def test_loading_shows_how_far_it_is_and_can_be_read(page: Page, address: str, script: Script) -> None:
    open_app(page, address, __theme="dark")
    script.loaded.clear()
    page.click("#run")
    try:
        expect(page.locator("#view").get_by_role("progressbar")).to_be_visible()
        expect(page.locator("#view")).to_contain_text("Reading weights")
        assert not violations(page)
    finally:
        script.loaded.set()
    expect(page.locator("#view [data-testid=token]").first).to_be_visible()
    expect(page.locator("#view").get_by_role("progressbar")).to_have_count(0)
