"""A run's share card: a PNG of the size of a link preview, drawn in the browser, whose text is only ever text."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page

from specviz.app.components.scripted_html import method_words
from specviz.app.components.trace_view import TraceView
from tests.browser.bare import open_bare
from tests.support.traces import make_trace, round_entry, run_entry, token_entry

EVIL = "<img src=x onerror=document.title='pwned'>${1+1}{{1+1}}"
FIGURES = [["85 %", "accepted"], ["3.7", "tokens per call"], ["47", "verifier calls"], ["1.7×", "as fast"]]

DRAW = """async ({ run, rounds, figures, dark, methods }) => {
  const drawn = [];
  const write = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
    drawn.push([text, x, y, x + this.measureText(text).width]);
    return write.apply(this, arguments);
  };
  const blob = await SpecViz.shareCard(run, rounds, figures, { dark, methods });
  CanvasRenderingContext2D.prototype.fillText = write;
  const picture = await createImageBitmap(blob);
  const canvas = new OffscreenCanvas(picture.width, picture.height);
  canvas.getContext("2d").drawImage(picture, 0, 0);
  const corner = [...canvas.getContext("2d").getImageData(2, 2, 1, 1).data];
  return { type: blob.type, size: [picture.width, picture.height], drawn, corner };
}"""


@pytest.fixture
def draw(page: Page) -> Callable[..., dict[str, Any]]:
    """A function that draws a card; what was drawn, and where."""
    open_bare(page, TraceView, "share_card/share_card")
    given = {"figures": FIGURES, "methods": method_words()}
    return lambda run, rounds, dark=False: page.evaluate(
        DRAW, given | {"run": run, "rounds": rounds, "dark": dark}
    )


def said(found: dict[str, Any]) -> str:
    return "".join(text for text, *_ in found["drawn"])


def test_it_is_a_png_of_a_previews_size_in_either_theme(draw: Callable[..., dict[str, Any]]) -> None:
    run, *rounds, _ = [json.loads(each) for each in make_trace(stop_reason="eos").lines]
    for dark in (False, True):
        found = draw(run, rounds, dark)
        assert (found["type"], found["size"]) == ("image/png", [1200, 630])
        assert (max(found["corner"][:3]) < 40) == dark
        for words in ("Chow", "SmolLM2-135M-Instruct", *FIGURES[0], *FIGURES[3]):
            assert words in said(found)


def test_hostile_text_is_drawn_as_text(page: Page, draw: Callable[..., dict[str, Any]]) -> None:
    run = run_entry("cascade_chow", prompt=EVIL, verifier=EVIL)
    found = draw(run, [round_entry([token_entry(EVIL), token_entry("\u202e\u0000")])])
    assert said(found).replace(" ", "").count(EVIL.replace(" ", "")) >= 2
    assert page.locator("img").count() == 0
    assert page.title() != "pwned"


def test_a_long_text_is_cut_with_an_ellipsis_within_the_card(draw: Callable[..., dict[str, Any]]) -> None:
    for texts in ([" word"] * 400, ["x" * 2000], [" many", "\n\n"] * 20, ["字" * 900]):
        found = draw(
            run_entry("speed", prompt="p " * 300), [round_entry([token_entry(each) for each in texts])]
        )
        body = [(text, left, y, right) for text, left, y, right in found["drawn"] if 170 < y < 506]
        assert "…" in "".join(text for text, *_ in body)
        assert all(84 <= left <= right <= 1200 - 83 for _, left, _, right in body)
        assert len({y for _, _, y, _ in body}) <= 9
