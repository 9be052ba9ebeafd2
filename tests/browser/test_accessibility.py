"""Tabs under axe-core: no serious violation in light, no faint text in dark, nothing wider than a phone.

Other tests of this folder look at the other places.
"""

from __future__ import annotations

from playwright.sync_api import Page, ViewportSize, expect

from tests.browser.driving import MINUTES, let_draw, open_app, run, violations
from tests.browser.scripted import Script
from tests.support.traces import make_trace, story_tokens

TABS = {
    "One run": (None, "#view [data-testid=token]"),
    "Compare methods": ("#compare-place", "#compare-view .sc-verdict"),
    "Learn": ("#lessons", "#lessons .sl-card"),
}
"""Tabs by their names: what axe looks at, for the first the whole page, and what is there once they are filled."""


def show(page: Page, tab: str) -> None:
    """Open a tab and fill it."""
    page.set_viewport_size(ViewportSize(width=1280, height=900))
    page.get_by_role("tab", name=tab, exact=True).click()
    if tab != "Learn":
        run(page, prefix="" if tab == "One run" else "compare-")
        page.locator(":is(#view .sv-text .resampled, #compare-view [data-badge]):visible").first.click()
    expect(page.locator(TABS[tab][1]).first).to_be_visible(timeout=MINUTES)


def test_no_serious_violation_on_any_tab_nor_while_a_pair_is_loaded(
    page: Page, address: str, script: Script
) -> None:
    """Loading shows how far it is."""
    script.trace = make_trace(story_tokens()[:40], stop_reason="eos").lines
    open_app(page, address, __theme="light")  # without motion: a colour in transition has no contrast yet
    found = []
    for tab in TABS:
        page.evaluate("document.body.classList.remove('dark')")
        show(page, tab)
        let_draw(page)
        found += [(tab, *each) for each in violations(page, TABS[tab][0])]
        page.evaluate("document.body.classList.add('dark')")
        page.set_viewport_size(ViewportSize(width=390, height=844))
        let_draw(page)
        found += [(tab, "dark", *each) for each in violations(page, TABS[tab][0], "color-contrast")]
        overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert overflow <= 0, f"{tab} is {overflow} pixels wider than a phone"
    page.get_by_role("tab", name="One run", exact=True).click()
    script.loaded.clear()
    page.click("#run")
    try:
        expect(page.locator("#view").get_by_role("progressbar")).to_be_visible()
        found += [("loading", *each) for each in violations(page, "#view")]
    finally:
        script.loaded.set()
    expect(page.locator("#view [data-testid=token]").first).to_be_visible()
    assert not found, "\n".join(map(str, found))
