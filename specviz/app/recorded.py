"""Makes values of the view from recorded runs and uploaded traces.

An uploaded file is untrusted: it is read up to a limit and parsed, and the view gets the lines of the parsed run.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gradio.data_classes import FileData, ListFiles

from specviz.analysis.recorded_runs import RecordedRuns
from specviz.compat.gradio import UploadButton
from specviz.errors import TraceError
from specviz.schema.trace import Run, parse_trace
from specviz.serving.limits import Limits


class TraceUpload(UploadButton):
    """An upload button whose value is the first `limit` + 1 bytes of the file.

    The file is not deleted at once but with old uploads: gradio stores equal files once, and a whole class may open the same trace.
    """

    def __init__(self, label: str, *, limit: int = Limits.max_trace_bytes, **kwargs: Any) -> None:
        """Make a button for files of up to `limit` bytes; `kwargs` as for gradio's button."""
        super().__init__(label, **kwargs)
        self.limit = limit

    def preprocess(self, payload: ListFiles | FileData | None) -> bytes | None:
        """The file's first bytes, or None if it cannot be read."""
        if isinstance(payload, ListFiles):
            payload = payload.root[0] if payload.root else None
        if payload is None:
            return None
        try:
            with Path(payload.path).open("rb") as file:
                return file.read(self.limit + 1)
        except OSError:
            return None


def recorded_value(
    runs: RecordedRuns, key: str, run: Run, *, plays: bool = False, show: int | None = None
) -> str:
    """The recorded run of that key for the view, with its description, the verifier's speed and its forks.

    If `plays`, the view plays the run at once. `show` is the index of the token to select.

    Raises:
        TraceError: one of its forks cannot be read.
    """
    branches = runs.branches(key)
    told = next(run for run in runs.runs if run.key == key)
    more: list[dict[str, Any]] = [
        {"type": "recorded", "title": told.title, "story": told.story, "plays": plays},
        {
            "type": "yardstick",
            "seconds_per_token": runs.verifier_only_seconds_per_token,
            "machine": runs.machine,
        },
    ]
    if branches:
        found = [
            {"lenience": each, "trace": "".join(run.lines()) if run else ""} for each, run in branches.items()
        ]
        more.append({"type": "branches", "leniences": found})
    if show is not None:
        more.append({"type": "show", "index": show})
    return "".join(run.lines()) + "".join(json.dumps(line) + "\n" for line in more)


def uploaded_value(run: Run) -> str:
    """The run of an uploaded file for the view."""
    line = {"type": "recorded", "title": "From a file", "story": ""}
    return "".join(run.lines()) + json.dumps(line) + "\n"


def uploaded_run(content: bytes | None, limit: int = Limits.max_trace_bytes) -> Run:
    """The run of an uploaded file; raises TraceError if it is larger than `limit` bytes, not text, or not a valid trace."""
    if content is None:
        raise TraceError("The file did not arrive: upload it again.")
    if len(content) > limit:
        raise TraceError(f"This file is too large: here a trace may have at most {limit / 1e6:g} MB.")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TraceError("This is not a SpecViz trace: it must be a text file of JSON lines.") from error
    return parse_trace(text.split("\n"))
