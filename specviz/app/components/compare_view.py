"""The view of the tab Compare, and the panes that it shows.

Two components, because a gradio component's value can go in one direction only: `Panes` sends the settings of the panes, which are set in
the view's heads, and `CompareView` shows runs. In the browser they share `static/compare_view/chosen.js`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import gradio as gr

from specviz.app.components.lenience_track import sweep_scales
from specviz.app.components.scripted_html import ScriptedHTML, method_words
from specviz.app.link import PANES, Pane
from specviz.app.menu import method_menu
from specviz.core.methods import METHODS
from specviz.models.registry import PAIRS
from specviz.serving.offer import default_pair, offered_pairs

UNFIT = f"There must be {PANES[0]} to {PANES[-1]} panes, each with a method, a lenience and a draft length."


class CompareView(ScriptedHTML):
    """Shows several runs side by side, live or recorded, each with a head in which its method is chosen.

    The value is lines of `specviz.serving.lines`. Whole lines are appended to it while runs stream. It may also have
    {"type": "recorded", "key", "machine"} before its first line: then the runs replay on one clock.
    """

    MODULE = "compare_view/compare_view"
    STYLES = ("trace_view/trace_view", "trace_view/inspector", "compare_view/compare_view")

    def __init__(self, value: str = "", *, group: str = "", **kwargs: Any) -> None:
        """Make a view.

        Args:
            value: the initial lines.
            group: the form with the settings that all panes share; in the form "<group>pairs", "offered" has the available pairs. See
                `static/page/tell_form.js`.
            **kwargs: as for `ScriptedHTML`.
        """
        super().__init__(
            value,
            methods=method_words(),
            menu=list(method_menu().items()),
            pairs={key: spec.title for key, spec in (PAIRS | offered_pairs()).items()},
            sweep=sweep_scales(),
            counts=list(PANES),
            group=group,
            around={"pair": default_pair(), "offered": [default_pair()]},
            **kwargs,
        )


class Panes(ScriptedHTML):
    """The settings of the panes, and buttons for recorded comparisons. `panes_value` makes the value.

    An `input` event tells that a visitor has changed them; a `select` event, with a key, requests a recorded comparison.
    """

    MODULE = "compare_view/presets"

    def preprocess(self, payload: Any) -> list[dict[str, Any]]:  # type: ignore[override]
        """The panes, each with method, lenience, draft length and pair, which is None for the pair of all; raises gr.Error for anything else."""
        try:
            panes = [Pane(**each) for each in json.loads(payload)]
        except (ValueError, TypeError, RecursionError):
            panes = []
        if len(panes) not in PANES or not all(_fits(pane) for pane in panes):
            raise gr.Error(UNFIT)
        return [asdict(pane) for pane in panes]


def _fits(pane: Pane) -> bool:
    """Whether the values have the right types. A request checks the rest."""
    numbers = isinstance(pane.lenience, int | float) and isinstance(pane.draft_length, int | str)
    return (
        numbers
        and isinstance(pane.method, str)
        and pane.method in METHODS
        and isinstance(pane.pair, str | None)
    )


def panes_value(panes: Sequence[Pane]) -> str:
    """The value of `Panes`."""
    return json.dumps([asdict(pane) for pane in panes])
