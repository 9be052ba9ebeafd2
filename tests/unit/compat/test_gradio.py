"""What SpecViz takes from gradio beyond its documentation is still there; each test says in a sentence what has changed."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gradio as gr
import gradio.state_holder
import pytest
from fastapi.testclient import TestClient
from gradio.routes import App, templates
from gradio.utils import get_upload_folder

from specviz.compat import gradio as compat
from specviz.compat.gradio import LastingBlocks


@pytest.fixture(scope="module")
def page() -> LastingBlocks:
    with LastingBlocks() as page:
        box = gr.Textbox("")
        choice = gr.Dropdown(["a"])
        button = gr.Button()
        table = gr.Dataframe()
        button.click(lambda: None, None, None)
        button.click(None, None, box, js="() => 'x'")
        table.select(lambda: None, None, None)
        compat.then_always(box.submit(lambda text: text, box, box), lambda: "", None, choice)
    page.queue()
    return page


# ---- addresses and files


def test_a_file_is_served_under_the_address_that_is_given(page: LastingBlocks) -> None:
    address = compat.served_address(Path(__file__))
    with TestClient(App.create_app(page, app_kwargs={}, mcp_server=False)) as client:
        assert client.get(f"/{address}").text == Path(__file__).read_text(encoding="utf-8")


def test_uploads_are_told_from_other_files(tmp_path: Path) -> None:
    """Only what lies in gradio's folder of uploads counts as uploaded."""
    assert compat.is_uploaded(Path(get_upload_folder()) / "x" / "run.jsonl")
    assert not compat.is_uploaded(Path(get_upload_folder()) / ".." / "run.jsonl")
    assert not compat.is_uploaded(tmp_path / "run.jsonl")


def test_every_file_among_the_values_is_checked() -> None:
    """Files are found wherever gradio would look for them."""
    seen: list[Any] = []
    compat.check_files(
        [1, {"path": "a"}, [{"x": {"path": "b"}}], "path"], lambda file: seen.append(file["path"])
    )
    assert sorted(seen) == ["a", "b"], "Gradio looks for files in values in another way: see `check_files`."


def test_an_upload_button_of_our_own_is_gradios_to_the_browser() -> None:
    """Name and settings are those of gradio's button, whatever the constructor of ours takes."""

    class Own(compat.UploadButton):
        def __init__(self, label: str, *, limit: int) -> None:
            super().__init__(label)
            self.limit = limit

    own = Own("Upload", limit=3)
    assert own.get_block_name() == "uploadbutton", (
        "Gradio names components in another way: see `is_template`."
    )
    assert own.get_config().keys() == gr.UploadButton("Upload").get_config().keys(), (
        "Gradio collects the settings of a component in another way: see `UploadButton.get_config`."
    )


# ---- events


def events(page: gr.Blocks, name: str) -> list[Any]:
    return [each for each in page.fns.values() if any(target == name for _, target in each.targets)]


def test_events_say_what_they_are(page: LastingBlocks) -> None:
    """An event of the browser's own and a selection can be told from others."""
    plain, in_browser = events(page, "click")
    [chosen] = events(page, "select")
    assert not compat.runs_in_browser(plain), "`fn` of gradio's events means something else."
    assert compat.runs_in_browser(in_browser), "`fn` of gradio's events means something else."
    assert compat.is_selection(chosen), "`targets` of gradio's events means something else."
    assert not compat.is_selection(plain), "`targets` of gradio's events means something else."
    data = {"index": 1, "value": "a"}
    assert compat.selection(gr.SelectData(None, data)) == data, "SelectData holds what was sent elsewhere."
    assert compat.selection(gr.EventData(None, "x")) is None
    assert compat.selection(None) is None


def test_what_must_always_follow_follows_success_and_failure(page: LastingBlocks) -> None:
    """Buttons are set right after a run however it ended: one event for each way."""
    [run] = events(page, "submit")
    after = [each for each in page.fns.values() if each.trigger_after == run._id]
    assert [each.trigger_only_on_failure for each in after] == [False, True], (
        "Gradio chains events in another way: Run might stay disabled after a failure."
    )


# ---- a server that stays up


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


def test_a_session_keeps_no_values_of_components(
    page: LastingBlocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of what a visitor wrote or read stays in a session, while its `gr.State` does; none is gathered for it."""
    asked: list[int] = []
    for each in page.blocks.values():
        monkeypatch.setattr(each, "get_config", lambda *_: asked.append(1) or {})
    state = gradio.state_holder.SessionState(page)
    assert not asked, (
        "Gradio gathers the values of components in another way: see `_SessionWithoutValues.__init__`."
    )
    assert state.blocks_config.blocks == page.default_config.blocks
    block = next(iter(page.blocks))
    state._update_value_in_config(block, "a secret")
    state._update_config(block)
    state[block] = page.blocks[block]
    assert state.config_values == {}
    assert "a secret" not in repr(vars(state))
    holder = gradio.state_holder.StateHolder()
    holder.set_blocks(page)
    assert type(holder["new"]) is type(state)


def test_a_message_for_a_gone_session_stops_no_queue(page: LastingBlocks) -> None:
    """The event of a session that is gone is dropped; the queue goes on."""
    event = SimpleNamespace(alive=True, _id="1", session_hash="gone")
    page._queue.pending_messages_per_session.pop("gone", None)
    message: Any = SimpleNamespace(event_id=None)
    page._queue.send_message(event, message)
    assert event.alive is False, (
        "Gradio's queue sends messages in another way: `survive_gone_sessions` may be needless, or without effect."
    )


# ---- the page in the browser


def test_a_head_is_served_with_the_page_in_place_of_gradios_previews(page: LastingBlocks) -> None:
    """What `serve_head` is given is in the page's first bytes, once, and only in its own page."""
    compat.serve_head(page, '<meta property="og:title" content="ours">')
    index = templates.env.get_template("frontend/index.html")
    mine, theirs = (
        index.render(config={"app_id": app, "body_css": {}}, gradio_api_info={}) for app in (page.app_id, -1)
    )
    html, _, _ = mine.partition("window.gradio_config")
    assert re.findall(r'property="og:title"\s+content="([^"]*)"', html) == ["ours"], (
        "Gradio's page has another place for previews: theirs come before ours, or ours are missing."
    )
    assert html.index("<base") < html.index("ours"), (
        "Addresses before <base> are relative to another address."
    )
    assert "ours" not in theirs
