"""Tabs under axe-core, in light and dark, wide and narrow: no serious violation, nothing wider than the screen.

test_idea.py and test_tradeoff.py look at theirs.
"""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, ViewportSize, expect

from tests.browser.driving import MINUTES, let_draw, open_app, run, violations
from tests.browser.scripted import Script
from tests.support.traces import make_trace, story_tokens

TABS = {
    "One run": "#view [data-testid=token]",
    "Compare methods": "#compare-view .sc-verdict",
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
    page: Page, address: str, script: Script, theme: str, size: ViewportSize
) -> None:
    script.trace = make_trace(story_tokens()[:40], stop_reason="eos").lines
    open_app(page, address, __theme=theme)  # without motion: a colour in transition has no contrast yet
    found = []
    for tab in TABS:
        show(page, tab)
        page.set_viewport_size(size)
        let_draw(page)
        found += [(tab, *each) for each in violations(page)]
        page.set_viewport_size(NARROW)
        overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert overflow <= 0, f"{tab} is {overflow} pixels wider than a phone"
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
