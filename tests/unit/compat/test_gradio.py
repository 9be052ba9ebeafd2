"""What SpecViz takes from gradio beyond its documentation is still there."""

from __future__ import annotations

import asyncio
import re

import gradio as gr
import pytest
from gradio.routes import templates

from specviz.compat import gradio as compat
from specviz.compat.gradio import LastingBlocks  # type: ignore[attr-defined]  # where gradio wrote a stub


@pytest.fixture(scope="module")
def page() -> LastingBlocks:
    with LastingBlocks() as page:
        box = gr.Textbox("")
        box.submit(lambda text: text, box, box)
    page.queue()
    return page


def test_an_update_that_says_nothing_takes_no_props_away(page: LastingBlocks) -> None:
    """`gr.skip()` for a `gr.HTML`; an update of its props arrives, and of other components everything."""
    with page:
        html, text = gr.HTML("", own=1), gr.Textbox()
        text.change(lambda: None, None, [html, html, html, text])
    block_fn = page.fns[max(page.fns)]
    given = [gr.skip(), gr.HTML("x"), gr.HTML(own=2), gr.skip()]
    found = asyncio.run(page.postprocess_data(block_fn, given, None))
    update = {"__type__": "update"}
    assert found == [update, update | {"value": "x"}, update | {"props": {"own": 2}}, update]


def test_a_head_is_served_with_the_page_in_place_of_gradios_previews(page: LastingBlocks) -> None:
    """What `serve_head` is given is in the page's first bytes, once, and only in its own page."""
    compat.serve_head(page, '<meta property="og:title" content="ours">')
    index = templates.env.get_template("frontend/index.html")
    mine, theirs = (
        index.render(config={"app_id": app, "body_css": {}}, gradio_api_info={}) for app in (page.app_id, -1)
    )
    html, _, _ = mine.partition("window.gradio_config")
    assert re.findall(r'property="og:title"\s+content="([^"]*)"', html) == ["ours"]
    assert html.index("<base") < html.index("ours")  # addresses before it are relative to another one
    assert "ours" not in theirs
