"""The page without any network but its own server: every tab, a run, a saved page."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import LOOPBACK
from tests.browser.driving import MINUTES, open_app, run

DRAWN = {
    "Compare methods": "#compare-run",
    "Speed or quality": "#tradeoff-view .st-point",
    "Learn": "#lessons .sl-card",
    "Playground": "#playground .specviz > *",
    "Wrong engines": "#wrong-engines article",
}
"""Tabs, and what is there once they are drawn."""


def test_the_page_needs_no_other_host(page: Page, address: str, tmp_path: Path) -> None:
    """No font, script, picture, manifest or measurement comes from, or goes to, another host."""
    foreign: list[str] = []

    def cut(route: Route) -> None:
        if urlsplit(route.request.url).hostname in {*LOOPBACK, None}:
            route.continue_()
        else:
            foreign.append(route.request.url)
            route.abort()

    page.route("**/*", cut)
    try:
        open_app(page, address)
        run(page)
        with page.expect_download() as download:
            page.locator("#share").click()
            page.locator("#save-page").click()
        download.value.save_as(tmp_path / "run.html")
        for name, drawn in DRAWN.items():
            page.get_by_role("tab", name=name, exact=True).click()
            expect(page.locator(drawn).first).to_be_visible(timeout=MINUTES)
        sources = page.locator("[src], link[href]").evaluate_all(
            "all => all.map(each => each.src || each.href)"
        )
        assert {urlsplit(each).hostname for each in sources} <= {*LOOPBACK, None}
        page.goto((tmp_path / "run.html").as_uri())
        expect(page.get_by_test_id("replay")).to_be_visible()
    finally:
        page.unroute("**/*")
    assert not foreign
