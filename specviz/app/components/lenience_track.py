"""The lenience slider. Equal distances change the recorded acceptance rate equally; the expected rates are shown beside it.

Its value is JSON text with the method and the lenience, so that one update sets both. Event handlers on the server get the lenience as
a number. `static/lenience_track/` draws the slider.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import gradio as gr
from pydantic import FiniteFloat, TypeAdapter, ValidationError

from specviz.analysis.sweep.scale import recorded_scales
from specviz.app.components.scripted_html import ScriptedHTML
from specviz.app.settings import CONTROLS
from specviz.core.methods import METHODS, get_method
from specviz.serving.offer import default_pair

UNFIT = "The lenience must be a number."


@dataclass
class _Sent:
    lenience: FiniteFloat | None


_SENT = TypeAdapter(_Sent)


def lenience_value(method: str, lenience: float | None = None) -> str:
    """The value for a lenience of a method; None is the method's default."""
    if lenience is None:
        lenience = get_method(method).default_lenience
    return json.dumps({"method": method, "lenience": lenience})


class LenienceTrack(ScriptedHTML):
    """A slider for the lenience. `lenience_value` makes its value."""

    MODULE = "lenience_track/lenience_track"

    def __init__(self, value: str = "", **kwargs: Any) -> None:
        """Make one; it follows the pair and the temperature of the form "", see `static/page/tell_form.js`."""
        super().__init__(
            value,
            title=CONTROLS["lenience"].title,
            methods=_method_words(),
            sweep=recorded_scales(),
            group="",
            around={"pair": default_pair(), "temperature": CONTROLS["temperature"].default},
            **kwargs,
        )

    def preprocess(self, payload: Any) -> float | None:  # type: ignore[override]
        """The lenience, None for the method's default; raises gr.Error for anything else."""
        try:
            return _SENT.validate_json(payload, strict=True).lenience
        except ValidationError:
            raise gr.Error(UNFIT) from None


def _method_words() -> dict[str, dict[str, Any]]:
    return {
        name: {
            "range": list(method.offered_range),
            "default_lenience": method.default_lenience,
            "ends": [method.strict_end, method.drafter_end],
            "none": "" if method.has_lenience else f"{method.title}: no lenience to choose.",
        }
        for name, method in METHODS.items()
    }
