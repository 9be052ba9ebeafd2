"""Scripts in every text that strangers can put on the page: none runs, all are shown as the text they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import gradio as gr
from playwright.sync_api import Page, expect

from specviz.app.page import build_page
from tests.browser.driving import MINUTES, run
from tests.hostile.conftest import FakeService
from tests.hostile.test_traces import run as trace

SCRIPT = "<script>window.__pwned=1</script><img src=x onerror=window.__pwned=1><svg onload=window.__pwned=1>{{window.__pwned=1}}${window.__pwned=1}"


def test_no_script_in_prompt_query_or_trace_runs(
    page: Page, serve: Callable[[gr.Blocks], str], tmp_path: Path
) -> None:
    """Neither a link, nor a prompt, nor a trace somebody else made runs anything in a reader's browser."""
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    address = serve(build_page(FakeService()))
    bad = "&".join(
        f"{name}={quote(SCRIPT)}" for name in ("tab", "method", "seed", "pane", "pair", "__theme", "x")
    )
    page.goto(f"{address}?prompt={quote(SCRIPT)}&{bad}")
    expect(page.locator("#link-banner")).to_contain_text("was left out", timeout=MINUTES)
    expect(page.locator("#prompt textarea")).to_have_value(SCRIPT)
    run(page)
    expect(page.get_by_test_id("token").first).to_be_visible()
    texts = dict.fromkeys(("text", "label"), SCRIPT)
    named = dict.fromkeys(("prompt", "drafter", "verifier", "device", "dtype", "pair", "method"), SCRIPT)
    file = tmp_path / "<img src=x onerror=window.__pwned=1>.jsonl"
    file.write_bytes(trace(header=named | {"alternatives": []}, token=texts | {"what_if": None}))
    page.locator("#upload, [id=upload]").first.wait_for(state="attached")
    page.locator("input[type=file]").last.set_input_files(file)
    view = page.locator("#view")
    expect(view.locator(".sv-round-words")).to_have_text("Round 1 of 1", timeout=MINUTES)
    view.get_by_test_id("token").first.click()
    assert SCRIPT in view.get_by_test_id("token").all_text_contents()
    assert page.evaluate("window.__pwned") is None
    assert not dialogs
    assert page.locator(":is(#view, #link-banner) :is(script, img, svg[onload])").count() == 0
