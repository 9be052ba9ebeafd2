"""The page when a pair of the hub is not available. tests/e2e/test_hub_faults.py has a hub that fails, test_every_pair.py the progress of
downloads, and test_accessibility.py progress on the page."""

from __future__ import annotations

from urllib.parse import urlencode

from playwright.sync_api import Page, expect

from specviz.app.controls import NOT_NOW
from specviz.models.availability import GATED
from specviz.models.registry import PAIRS
from tests.browser.driving import run, wait_for_end
from tests.support.hub_visitor import PROMPT, SETTINGS, Visitor
from tests.support.stand_in_hub.served import SECONDS


def text(page: Page) -> str:
    return "".join(page.locator("#view").get_by_test_id("token").all_text_contents())


def test_a_pair_that_cannot_be_had_is_grey_says_why_and_does_not_run(visitor: Visitor, page: Page) -> None:
    """A gated pair, where nobody is logged in: nothing is downloaded, and the run before stays."""
    query = SETTINGS | {"tab": "generate", "prompt": PROMPT, "tokens": 8}
    page.goto(f"{visitor.address}?{urlencode(query)}")
    expect(page.locator("#run")).to_be_enabled(timeout=1000 * SECONDS)
    run(page, minutes=SECONDS / 60)
    before = text(page)
    title = PAIRS["gemma2"].title
    page.locator("#pair input").click()
    greyed = page.get_by_role("option", name=f"{title}{NOT_NOW}{GATED}")
    other = page.get_by_role("option", name=PAIRS["opt"].title, exact=True)
    colours = {option.evaluate("it => getComputedStyle(it).color") for option in (greyed, other)}
    assert len(colours) == 2
    greyed.click()
    refusal = f"{title} is not available now: {GATED}."
    expect(page.locator("#pair input")).to_have_value(f"{title}{NOT_NOW}{GATED}")
    asked = len(visitor.hub.asked)
    page.click("#run")
    expect(page.get_by_test_id("failure")).to_contain_text(refusal)
    wait_for_end(page)
    assert text(page) == before
    assert not [path for _, path in visitor.hub.asked[asked:] if "/resolve/" in path and "google" in path]
