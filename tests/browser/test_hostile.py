"""Markup in every text that strangers can put on the page: none of it runs, all of it is shown as text."""

from __future__ import annotations

from urllib.parse import quote

from playwright.sync_api import Page, expect

from specviz.core.methods import METHODS
from specviz.schema.settings import DEFAULT_METHOD
from tests.browser.driving import MINUTES, close_settings, open_settings, run
from tests.browser.scripted import Script
from tests.browser.test_replay import open_trace
from tests.hostile.test_traces import run as trace

MARKUP = "<script>window.__pwned=1</script><img src=x onerror=window.__pwned=1><svg onload=window.__pwned=1>{{window.__pwned=1}}${window.__pwned=1}"
BAD = {"temperature": "NaN", "tokens": "1e99"} | dict.fromkeys(
    ("tab", "method", "seed", "pane", "pair"), MARKUP
)


def test_no_markup_in_link_prompt_or_trace_runs(page: Page, address: str, script: Script) -> None:
    """Bad values of a link are ignored in a sentence each, the good ones are used, and nothing runs."""
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    query = "&".join(f"{name}={quote(value)}" for name, value in (BAD | {"__theme": MARKUP}).items())
    page.goto(f"{address}?prompt={quote(MARKUP)}&k=3&{query}")
    banner = page.locator("#link-banner")
    expect(banner.get_by_role("alert")).to_be_visible(timeout=MINUTES)
    for name in BAD:
        expect(banner).to_contain_text(f"The link’s “{name}” was ignored: ")
    expect(page.locator("#prompt textarea")).to_have_value(MARKUP)
    expect(page.locator("#method input")).to_have_value(METHODS[DEFAULT_METHOD].label)
    page.get_by_role("tab", name="One run", exact=True).click()
    open_settings(page)
    expect(page.locator("#draft-length input")).to_have_value("3")
    expect(page.locator("#temperature input[type=number]")).to_have_value("0.7")
    assert not script.asked
    close_settings(page)
    run(page)
    expect(page.get_by_test_id("token").first).to_be_visible()
    assert script.asked[-1][1].prompt == MARKUP

    named = dict.fromkeys(("prompt", "drafter", "verifier", "device", "dtype", "pair", "method"), MARKUP)
    texts = {"text": MARKUP, "label": MARKUP, "what_if": None}
    content = trace(header=named | {"alternatives": []}, token=texts)
    open_trace(page, "<img src=x onerror=window.__pwned=1>.jsonl", content)
    view = page.locator("#view")
    expect(view.get_by_test_id("told")).to_contain_text("From a file", timeout=MINUTES)
    view.get_by_test_id("token").first.click()
    assert MARKUP in view.get_by_test_id("token").all_text_contents()
    assert page.evaluate("window.__pwned") is None
    assert not dialogs
    assert page.locator(":is(#view, #link-banner) :is(script, img, svg[onload])").count() == 0
