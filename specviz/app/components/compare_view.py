"""The view of the tab Compare, and the panes that it shows.

There are two components because one gradio value cannot serve both purposes: `CompareView` shows the runs that the server sends, `Panes`
sends the settings that a visitor chooses in the heads of the panes. In the browser they share `static/compare_view/chosen.js`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import gradio as gr
from pydantic import Field, TypeAdapter, ValidationError

from specviz.app.components.lenience_track import recorded_scales
from specviz.app.components.scripted_html import ScriptedHTML, method_words
from specviz.app.link import PANES, Pane
from specviz.app.marks import method_menu
from specviz.models.registry import PAIRS
from specviz.serving.offer import default_pair, offered_pairs

_PANES = TypeAdapter(Annotated[list[Pane], Field(min_length=PANES[0], max_length=PANES[-1])])
UNFIT = f"There must be {PANES[0]} to {PANES[-1]} panes, each with a method, a lenience and a draft length."


class CompareView(ScriptedHTML):
    """Shows several runs side by side, live or recorded, each with a head in which its method is chosen.

    The value consists of lines that `specviz.serving.lines` makes. Whole lines are appended to it while runs stream. A recorded
    comparison begins with {"type": "recorded", "key", "machine", "note"}; its runs replay together, one verifier call per step.
    """

    MODULE = "compare_view/compare_view"
    STYLES = ("trace_view/trace_view", "trace_view/inspector", "compare_view/compare_view")

    def __init__(self, value: str = "", **kwargs: Any) -> None:
        """Make a view. The prop `group` names the form whose settings all panes share, see `static/page/tell_form.js`.

        In the form "<group>pairs", the setting "offered" lists the keys of the available pairs.
        """
        super().__init__(
            value,
            methods=method_words(),
            menu=list(method_menu().items()),
            pairs={key: spec.title for key, spec in (PAIRS | offered_pairs()).items()},
            sweep=recorded_scales(),
            counts=list(PANES),
            around={"pair": default_pair(), "offered": [default_pair()]},
            **kwargs,
        )


class Panes(ScriptedHTML):
    """The settings of the panes, and buttons for recorded comparisons. `panes_value` makes the value.

    An `input` event reports a changed setting. A `select` event requests the recorded comparison whose key is the event's `index`.
    """

    MODULE = "compare_view/presets"

    def preprocess(self, payload: Any) -> list[dict[str, Any]]:  # type: ignore[override]
        """Return the fields of each `Pane`. Raises gr.Error if the payload is not JSON text of a valid list of panes."""
        try:
            return [asdict(pane) for pane in _PANES.validate_json(payload, strict=True)]
        except ValidationError:
            raise gr.Error(UNFIT) from None


def panes_value(panes: Sequence[Pane]) -> str:
    """Convert panes to the value of `Panes`, which is JSON text."""
    return json.dumps([asdict(pane) for pane in panes])
