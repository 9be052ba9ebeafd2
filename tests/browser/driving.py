"""Driving the page as a person does: press Run, set a control, wait until a run is over."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlencode

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Page, expect

from specviz.app.controls import NOT_NOW

MINUTES = 60_000
LONG_RUN = 1.0
"""Seconds between the rounds of a run that a test interrupts: on a busy machine too it does not end by itself first."""


def wait_for_end(page: Page, minutes: float = 1, prefix: str = "") -> None:
    """Wait until the run is over and the buttons say so."""
    expect(page.locator(f"#{prefix}stop")).to_be_disabled(timeout=minutes * MINUTES)
    expect(page.locator(f"#{prefix}run")).to_be_enabled(timeout=MINUTES)


def run(page: Page, minutes: float = 1, prefix: str = "") -> None:
    """Press Run and wait until the run has begun and ended, however short it is."""
    page.evaluate(
        "() => { window.ended = false; document.addEventListener('specviz-run-ended', () => window.ended = true, { once: true }); }"
    )
    page.click(f"#{prefix}run")
    page.wait_for_function("window.ended", polling=100, timeout=minutes * MINUTES)
    wait_for_end(page, minutes, prefix)


def unfold_all(page: Page) -> None:
    """Open the inspector's folds; they stay open from token to token."""
    closed = page.get_by_test_id("inspector").locator("[data-fold]:not([open]) > summary")
    while closed.count():
        closed.first.click()


def open_app(page: Page, address: str, tab: str = "generate", moves: bool = False, **query: Any) -> None:
    """Open the page on One run ("generate") or Compare methods ("compare"), ready to run; nothing is animated unless it `moves`."""
    page.emulate_media(reduced_motion="no-preference" if moves else "reduce")
    page.goto(f"{address}?{urlencode({'tab': tab, **query})}")
    expect(page.locator("#run" if tab == "generate" else "#compare-run")).to_be_enabled(timeout=MINUTES)


def open_settings(page: Page) -> None:
    """Show the settings of One run, in their panel over the page."""
    if not page.locator("#seed input").is_visible():
        page.locator("#more-settings").click()
    expect(page.locator("#seed input")).to_be_visible()


def close_settings(page: Page) -> None:
    """Close the panel."""
    page.keyboard.press("Escape")
    expect(page.locator("#settings-drawer")).to_be_hidden()


def let_draw(page: Page) -> None:
    """Wait until the browser has drawn what has changed, also what follows in a coming frame."""
    page.evaluate(
        "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => requestAnimationFrame(done))))"
    )


def violations(page: Page, within: str | None = None, *rules: str) -> list[tuple[Any, ...]]:
    """Serious violations that axe finds, by all rules or these: the rule, the element, and what is wrong with it."""
    options: dict[str, Any] = {"resultTypes": ["violations"], "preload": False}
    if rules:
        options["runOnly"] = list(rules)
    if not page.evaluate("typeof axe === 'object'"):
        page.evaluate(AXE_SCRIPT)
    found = page.evaluate(
        "([within, options]) => axe.run(within ?? document, options).then((all) => all.violations)",
        [within, options],
    )
    return [
        (one["id"], node["target"], node["failureSummary"])
        for one in found
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]


def choose(page: Page, name: str, title: str) -> None:
    """Choose from a dropdown; the title of a pair that is not available now is followed by the reason."""
    page.locator(f"#{name} input").click()
    named = re.compile(f"^{re.escape(title)}({re.escape(NOT_NOW)}.*)?$")
    page.get_by_role("option", name=named).click()


def set_number(page: Page, name: str, value: float) -> None:
    """Set a slider or number by its number field; repeat, because a field just mounted may lose a value set too early."""
    field = page.locator(f"#{name} input[type=number]")
    for _ in range(5):
        field.fill(str(value))
        field.press("Enter")
        page.wait_for_timeout(200)
        if field.input_value() == str(value):
            return
    raise AssertionError(f"{name} does not take {value}")
