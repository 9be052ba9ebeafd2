"""The tab Replay: a run step by step, from the recorded ones, from the tab Generate, or from a file.

Knows traces and where they come from; needs no model, and draws nothing itself. An uploaded file is untrusted: it is
read up to a limit, checked, written anew from what was parsed, and not kept.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.data_classes import FileData, ListFiles

from specviz.analysis.recorded_runs import RecordedRuns, read_recorded_runs
from specviz.app.components.trace_view import TraceView
from specviz.app.guard import MAX_SENTENCE
from specviz.app.running import QUIET, error_line
from specviz.compat.gradio import UploadButton, is_uploaded
from specviz.errors import SpecvizError, TraceError
from specviz.schema.trace import Run, parse_trace
from specviz.serving.limits import Limits

_JUST_MADE = "The run that the tab Generate showed when you asked for its replay."

_UPLOADED = "The run in the file you uploaded."


class TraceUpload(UploadButton):
    """Gives the first `limit` + 1 bytes of the uploaded file; the file itself is gone by then."""

    def __init__(self, label: str, *, limit: int = Limits.max_trace_bytes, **kwargs: Any) -> None:
        """Take files of up to `limit` bytes."""
        super().__init__(label, **kwargs)
        self.limit = limit

    def preprocess(self, payload: ListFiles | FileData | None) -> bytes | None:
        """Read and delete the file; None where it cannot be read."""
        if isinstance(payload, ListFiles):
            payload = payload.root[0] if payload.root else None
        if payload is None:
            return None
        path = Path(payload.path)
        try:
            with path.open("rb") as file:
                return file.read(self.limit + 1)
        except OSError:
            return None
        finally:
            if is_uploaded(path):  # a page may also name a file that is served to it
                path.unlink(missing_ok=True)


def replay_tab(made: TraceView, tabs: gr.Tabs, limit: int = Limits.max_trace_bytes) -> None:
    """Build the tab's content, inside the caller's `gr.Tab`.

    Args:
        made: a view that may ask to have its run replayed here, which turns the page to this tab.
        tabs: those of the page.
        limit: the bytes that an upload may have.
    """
    shelf = read_recorded_runs()
    first = shelf.runs[0]
    stories = {run.key: run.story for run in shelf.runs}
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
    view = TraceView(recorded_value(shelf, first.key), replay=True, elem_id="replay-view")

    def choose(key: str) -> tuple[str, str]:
        return recorded_value(shelf, key), stories.get(key, "")

    def receive(content: bytes | None) -> tuple[str, None, str]:
        try:
            return "".join(uploaded_run(content, limit).lines()), None, _UPLOADED
        except SpecvizError as error:
            return error_line(str(error)[:MAX_SENTENCE]), None, ""

    # Not `change`: a choice that is taken back because another run came must not fetch anything.
    recorded.input(choose, recorded, [view, story], **QUIET)
    upload.upload(receive, upload, [view, recorded, story], **QUIET)
    js = f"(trace) => [trace, null, {json.dumps(_JUST_MADE)}]"
    copied = made.play(None, made, [view, recorded, story], js=js, **QUIET)
    copied.then(lambda: gr.Tabs(selected="replay"), None, tabs, **QUIET)


def recorded_value(shelf: RecordedRuns, key: str) -> str:
    """A recorded run for the view, with the verifier's own speed; or the line of an error."""
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
