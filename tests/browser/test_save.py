"""Saving a run: the trace loads again, and the saved page opens from disk without any network and replays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import gradio as gr
import pytest
from playwright.sync_api import Browser, Page, expect

from specviz.app.components.scripted_html import method_words
from specviz.app.components.trace_view import TraceView
from specviz.schema.trace import Run
from tests.browser.driving import unfold_all
from tests.browser.scripted import HOSTILE, hostile_trace
from tests.support.traces import make_trace

WHOLE = make_trace(method="cascade_tokenV3", seed=3)


@pytest.fixture(scope="module")
def address(serve: Callable[[gr.Blocks], str]) -> str:
    with gr.Blocks() as app:
        TraceView(WHOLE.value, methods=method_words(), elem_id="whole")
        TraceView(hostile_trace().value, methods=method_words(), elem_id="hostile")
        TraceView(make_trace(stop_reason=None).value, methods=method_words(), elem_id="unfinished")
    return serve(app)


def save(page: Page, view: str, button: str, folder: Path) -> Path:
    """Press a button of a view's footer; returns the file that comes."""
    with page.expect_download() as download:
        page.locator(f"#{view}").get_by_test_id(button).click()
    expect(page.locator(f"#{view} .sv-saved")).to_have_text("Saved.")
    file = folder / download.value.suggested_filename
    download.value.save_as(file)
    return file


def test_a_run_is_saved_as_trace_and_as_a_page_that_replays_from_disk(
    page: Page, browser: Browser, address: str, tmp_path: Path
) -> None:
    page.goto(address)
    trace = save(page, "whole", "save-trace", tmp_path)
    assert trace.name == "specviz-cascade_tokenV3-seed0.jsonl"
    assert trace.read_text(encoding="utf-8") == WHOLE.value
    assert len(Run.load(trace).tokens) == len(WHOLE.tokens)
    expect(page.locator("#unfinished .sv-footer")).to_be_hidden()
    whole, hostile = (save(page, each, "save-page", tmp_path) for each in ("whole", "hostile"))

    context = browser.new_context(offline=True, color_scheme="dark")
    saved = context.new_page()
    problems: list[str] = []
    saved.on("console", lambda each: each.type in ("error", "warning") and problems.append(each.text))
    saved.on("pageerror", lambda error: problems.append(str(error)))
    saved.on("request", lambda each: each.url.startswith("file:") or problems.append(each.url))
    check_whole(saved, whole)
    check_hostile(saved, hostile)
    context.close()
    assert not problems, problems


def check_whole(saved: Page, file: Path) -> None:
    """The saved run replays, with chart, inspector and the words on its method, in dark and in light."""
    saved.goto(file.as_uri())
    expect(saved.locator(".specviz")).to_have_attribute("data-theme", "dark")
    saved.emulate_media(color_scheme="light")
    expect(saved.locator(".specviz")).to_have_attribute("data-theme", "light")
    expect(saved.locator("[data-figure=calls]")).to_contain_text(f"not {len(WHOLE.tokens)}")
    scrubber = saved.get_by_role("slider", name="Step of the run")
    scrubber.press("Home")
    expect(saved.get_by_test_id("narration")).to_contain_text(f"Round 1 of {len(WHOLE.rounds)}")
    expect(saved.get_by_test_id("save-page")).to_be_hidden()
    scrubber.press("End")
    expect(saved.get_by_test_id("text").locator(".sv-token:visible")).to_have_count(len(WHOLE.tokens))
    expect(saved.get_by_test_id("chart").locator(".sv-brick")).to_have_count(len(WHOLE.tokens))
    saved.get_by_test_id("token").nth(2).click()
    unfold_all(saved)
    expect(saved.get_by_test_id("inspector")).to_contain_text("p₁(v) ≥ (1 − α)·max p₁")


def check_hostile(saved: Page, file: Path) -> None:
    """Markup in a run stays text."""
    saved.goto(file.as_uri())
    assert saved.get_by_test_id("token").all_text_contents() == list(HOSTILE)
    assert saved.locator(".sv-prompt-full").text_content() == " ".join(HOSTILE)
    assert saved.evaluate("window.pwned") is None
    assert saved.locator(".specviz :is(img, script)").count() == 0
