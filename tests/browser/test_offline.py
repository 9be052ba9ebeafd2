"""The page without any network but its own server: every tab, a run, a replay, a saved page.

That no test in this directory may ask another host for anything is the business of conftest.py; here such requests are
cut off as well, and the page is used from end to end.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import gradio as gr
from playwright.sync_api import Page, Route, expect

from specviz.app.page import build_page
from tests.browser.conftest import LOOPBACK
from tests.browser.driving import MINUTES, open_app, run
from tests.hostile.conftest import FakeService

OPENED = {
    "Compare methods": "#compare-run",
    "Speed or quality": "#tradeoff-figure .js-plotly-plot",
    "Learn": "#lessons .sl-card",
    "Playground": "#playground .specviz > *",
}
"""Tabs, and what is there once they have been drawn."""


def test_the_page_needs_nobody_but_its_own_server(
    page: Page, serve: Callable[[gr.Blocks], str], tmp_path: Path
) -> None:
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
        open_app(page, serve(build_page(FakeService())))
        run(page)
        expect(page.get_by_test_id("token").first).to_be_visible()
        with page.expect_download() as download:
            page.locator("#view").get_by_test_id("save-page").click()
        download.value.save_as(tmp_path / "run.html")
        for name, drawn in OPENED.items():
            page.get_by_role("tab", name=name, exact=True).click()
            expect(page.locator(drawn).first).to_be_visible(timeout=MINUTES)
        page.get_by_role("tab", name="One run", exact=True).click()
        page.locator("#view [data-go=first]").click()
        page.locator("#view [data-go=last]").click()
        expect(page.locator("#view").get_by_test_id("token").first).to_be_visible()
        for address in page.locator("[src], link[href]").evaluate_all(
            "all => all.map(each => each.src || each.href)"
        ):
            assert urlsplit(address).hostname in {*LOOPBACK, None}, address
        page.goto((tmp_path / "run.html").as_uri())
        expect(page.locator(".sv-round-words")).to_be_visible()
    finally:
        page.unroute("**/*")
    assert not foreign
