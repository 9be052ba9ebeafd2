"""Every tab under axe-core, in light and dark, wide and narrow: no serious fault, nothing wider than the screen."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr
import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect

from specviz.app.page import build_page
from specviz.schema.settings import Request
from tests.browser import test_compare
from tests.browser.driving import run, violations
from tests.support.traces import make_trace

TABS = ("idea", "generate", "compare", "tradeoff", "learn")
WIDE, NARROW = ViewportSize(width=1280, height=900), ViewportSize(width=390, height=844)


class Played(test_compare.Script):
    """Plays back one run, or several side by side."""

    def lines(
        self, key: str, request: Request, stop: threading.Event, progress: Any = None, *, visitor: str = ""
    ) -> Iterator[str]:
        yield from make_trace(stop_reason="eos").lines


@pytest.fixture(scope="module")
def address(serve: Callable[[gr.Blocks], str]) -> str:
    return serve(build_page(Played()))


def show(page: Page, tab: str) -> None:
    """Open a tab as a link does, and fill it."""
    expect(page.locator("#bar")).to_be_attached(timeout=60_000)
    if tab == "idea":
        expect(page.locator("#race .specviz[data-theme]")).to_be_visible(timeout=60_000)
    if tab == "generate":
        expect(page.locator("#run")).to_be_enabled(timeout=60_000)
        run(page)
        expect(page.locator("#view [data-testid=token]").first).to_be_visible(timeout=30_000)
        page.locator("#view .sv-text .resampled").first.click()
    elif tab == "compare":
        expect(page.locator("#compare-run")).to_be_enabled(timeout=60_000)
        run(page, prefix="compare-")
        expect(page.locator("#compare-view .sc-table tbody tr").first).to_be_visible(timeout=30_000)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_serious_violation_on_any_tab(browser: Browser, address: str, theme: str) -> None:
    context = browser.new_context(reduced_motion="reduce")  # in motion colours are on their way
    page, found = context.new_page(), []
    for tab in TABS:
        page.set_viewport_size(WIDE)
        page.goto(f"{address}?tab={tab}&__theme={theme}")
        show(page, tab)
        for size in (WIDE, NARROW):
            page.set_viewport_size(size)
            page.wait_for_timeout(300)  # the chart follows in a coming frame
            found += [(tab, size["width"], *each) for each in violations(page)]
            overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert overflow <= 0, f"{tab} is {overflow} pixels wider than a screen of {size['width']}"
    context.close()
    assert not found, "\n".join(map(str, found))


class Waiting(Played):
    """Loads a pair until it is told to go on."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = threading.Event()

    def lines(
        self, key: str, request: Request, stop: threading.Event, progress: Any = None, *, visitor: str = ""
    ) -> Iterator[str]:
        progress(0.5, "Reading weights")
        assert self.go_on.wait(120)
        yield from super().lines(key, request, stop, progress, visitor=visitor)


def test_what_waits_can_be_read(browser: Browser, serve: Callable[[gr.Blocks], str]) -> None:
    service = Waiting()
    page = browser.new_page(viewport=WIDE, reduced_motion="reduce")
    page.goto(f"{serve(build_page(service))}?tab=generate&__theme=dark")
    expect(page.locator("#run")).to_be_enabled(timeout=60_000)
    page.click("#run")
    try:
        expect(page.locator("#view").get_by_role("progressbar")).to_be_visible()
        expect(page.locator("#view")).to_contain_text("Reading weights")
        assert not violations(page)
    finally:
        service.go_on.set()
    expect(page.locator("#view [data-testid=token]").first).to_be_visible()
    expect(page.locator("#view").get_by_role("progressbar")).to_have_count(0)
    page.close()
