"""The lenience slider. Equal distances change the recorded acceptance rate about equally. It also shows expected acceptance and accuracy.

Its value is JSON text with the method and the lenience, so that one update sets both. Event handlers on the server get the lenience as
a number. `static/lenience_track/` draws the slider.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any

import gradio as gr
from pydantic import FiniteFloat, TypeAdapter, ValidationError

from specviz.analysis.sweep.folder import SHELF, shown_sweeps
from specviz.analysis.sweep.results import Results
from specviz.app.components.scripted_html import ScriptedHTML, method_words
from specviz.app.settings import CONTROLS
from specviz.core.methods import METHODS, get_method
from specviz.serving.offer import default_pair

UNFIT = "The lenience must be a number."
_DIGITS = 6


@dataclass
class _Sent:
    lenience: FiniteFloat | None


_SENT = TypeAdapter(_Sent)


def lenience_value(method: str, lenience: float | None = None) -> str:
    """The value of `LenienceTrack`. A `lenience` of None stands for the method's default."""
    if lenience is None:
        lenience = get_method(method).default_lenience
    return json.dumps({"method": method, "lenience": lenience})


class LenienceTrack(ScriptedHTML):
    """A slider for the lenience. `lenience_value` makes its value."""

    MODULE = "lenience_track/lenience_track"

    def __init__(self, value: str = "", **kwargs: Any) -> None:
        """Make a slider. Its scale follows the pair and the temperature of the form named "", see `static/page/tell_form.js`."""
        super().__init__(
            value,
            title=CONTROLS["lenience"].title,
            methods=method_words(),
            sweep=recorded_scales(),
            group="",
            around={"pair": default_pair(), "temperature": CONTROLS["temperature"].default},
            **kwargs,
        )

    def preprocess(self, payload: Any) -> float | None:  # type: ignore[override]
        """Return the lenience, or None for the method's default. Raises gr.Error if the payload is invalid."""
        try:
            return _SENT.validate_json(payload, strict=True).lenience
        except ValidationError:
            raise gr.Error(UNFIT) from None


@cache
def recorded_scales() -> dict[str, Any]:
    """Curves of the recorded sweep, from which `static/lenience_track/scale.js` derives the slider's scale.

    "scales" maps each method whose lenience raises the acceptance rate to a list of [temperature, rows]. A row is [lenience, acceptance
    rate, accuracy]; leniences ascend, acceptance rates never fall. "verifier" is a list of [temperature, accuracy of the verifier alone].
    """
    (results,) = (sweep for sweep in shown_sweeps().values() if sweep.folder == SHELF)
    # A method that truncates (min-p) accepts no more drafts at a higher lenience.
    swept = [
        name
        for name, method in METHODS.items()
        if name in results.plan.methods and method.has_lenience and not method.truncates
    ]
    alone = [point for point in results.points if point.setting.method == "verifier_only"]
    return {
        "pair": results.plan.pair,
        "items": len(results.items),
        "verifier": [[point.setting.temperature, point.value("accuracy")] for point in alone],
        "scales": {
            name: [[heat, _curve(results, name, heat)] for heat in results.temperatures] for name in swept
        },
    }


def _curve(results: Results, method: str, temperature: float) -> list[list[float]]:
    curve: list[list[float]] = []
    for point in results.at(temperature):  # the strict end first
        if point.setting.method == method:
            acceptance = max(1 - point.value("rejection_rate"), curve[-1][1] if curve else 0.0)
            row = (point.setting.lenience, acceptance, point.value("accuracy"))
            curve.append([round(each, _DIGITS) for each in row])
    return curve
