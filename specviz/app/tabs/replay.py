"""The tab Replay: a run step by step, from the recorded ones, from the tab Generate, or from a file.

Knows traces and where they come from; needs no model, and draws nothing itself. An uploaded file is untrusted: it is
read up to a limit, checked, written anew from what was understood, and not kept.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.blocks import Block
from gradio.data_classes import FileData, ListFiles
from gradio.utils import get_upload_folder, is_in_or_equal

from specviz.app.components.run_view import TraceView
from specviz.app.running import QUIET, error_line
from specviz.errors import SpecvizError, TraceError
from specviz.schema.trace import Run, parse_trace
from specviz.serving.limits import Limits
from specviz.tools.record import Shelf, open_shelf

MAX_SENTENCE = 300
"""Characters of an error sentence; some of it may come from the file."""

_JUST_MADE = "The run that the tab Generate showed when you asked for its replay."

_UPLOADED = "The run in the file you uploaded."


class TraceUpload(gr.UploadButton):
    """A button that takes one file and gives its first `limit` + 1 bytes; the file itself is gone by then."""

    is_template = True

    def __init__(self, label: str, *, limit: int = Limits.max_trace_bytes, **kwargs: Any) -> None:
        """Take files of up to `limit` bytes."""
        super().__init__(label, **kwargs)
        self.limit = limit

    def get_config(self, cls: type[Block] | None = None) -> dict[str, Any]:
        """Gradio's own settings, which it finds by the names of a constructor's parameters: those of the class above."""
        return super().get_config(cls or gr.UploadButton)

    def preprocess(self, payload: ListFiles | FileData | None) -> bytes | None:
        """Read and delete the file; None where it cannot be read."""
        if isinstance(payload, ListFiles):
            payload = payload.root[0] if payload.root else None
        if payload is None:
            return None
        path = Path(payload.path)  # gradio has made sure that it lies among its uploads
        try:
            with path.open("rb") as file:
                return file.read(self.limit + 1)
        except OSError:
            return None
        finally:
            if is_in_or_equal(path, get_upload_folder()):  # a page may also name a file that is served to it
                path.unlink(missing_ok=True)


@dataclass(frozen=True)
class Replay:
    """The tab's parts that others may speak to."""

    view: TraceView
    recorded: gr.Dropdown
    story: gr.Markdown

    def take(self, view: TraceView, tabs: gr.Tabs) -> None:
        """Let the run of another view be replayed here when it asks for it; the page then turns to this tab."""
        js = f"(trace) => [trace, null, {json.dumps(_JUST_MADE)}]"
        handed = view.play(None, view, [self.view, self.recorded, self.story], js=js, **QUIET)
        handed.then(lambda: gr.Tabs(selected="replay"), None, tabs, **QUIET)


def replay_tab(methods: dict[str, dict[str, Any]], limit: int = Limits.max_trace_bytes) -> Replay:
    """Build the tab's content; `methods` is what the view says of each method, `limit` the bytes of an upload."""
    shelf = open_shelf()
    first = shelf.runs[0]
    with gr.Row():
        with gr.Column(scale=3, min_width=320):
            recorded = gr.Dropdown(
                [(run.title, run.key) for run in shelf.runs],
                value=first.key,
                label="Recorded run",
                info="Or press “Replay this run” under a run you made on the tab Generate.",
                elem_id="recorded",
            )
            upload = TraceUpload("Upload a saved trace", limit=limit, size="sm", elem_id="upload")
        with gr.Column(scale=4, min_width=320):
            story = gr.Markdown(first.story, elem_id="story")
    view = TraceView(recorded_value(shelf, first.key), methods=methods, replay=True, elem_id="replay-view")

    def choose(key: str) -> tuple[str, str]:
        stories = {run.key: run.story for run in shelf.runs}
        return recorded_value(shelf, key), stories.get(key, "")

    def receive(content: bytes | None) -> tuple[str, None, str]:
        try:
            return "".join(uploaded_run(content, limit).lines()), None, _UPLOADED
        except SpecvizError as error:
            return error_line(str(error)[:MAX_SENTENCE]), None, ""

    # Not `change`: a choice that is taken back because another run came must not fetch anything.
    recorded.input(choose, recorded, [view, story], **QUIET)
    upload.upload(receive, upload, [view, recorded, story], **QUIET)
    return Replay(view, recorded, story)


def recorded_value(shelf: Shelf, key: str) -> str:
    """A recorded run for the view, with what the verifier alone takes; or the error's line."""
    try:
        trace = "".join(shelf.load(key).lines())
    except SpecvizError as error:
        return error_line(str(error))
    yardstick = {
        "type": "yardstick",
        "seconds_per_token": shelf.verifier_only_seconds_per_token,
        "machine": shelf.machine,
    }
    return trace + json.dumps(yardstick) + "\n"


def uploaded_run(content: bytes | None, limit: int = Limits.max_trace_bytes) -> Run:
    """The run in an uploaded file of at most `limit` bytes.

    Raises:
        TraceError: too large, not text, or not a sound trace.
    """
    if content is None:
        raise TraceError("The file did not arrive whole: upload it again.")
    if len(content) > limit:
        raise TraceError(f"This file is larger than a trace may be here: at most {limit / 1e6:g} MB.")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TraceError("This is not a SpecViz trace: it must be a text file of JSON lines.") from error
    return parse_trace(text.split("\n"))
