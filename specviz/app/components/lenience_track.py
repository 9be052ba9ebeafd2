"""The lenience as a track whose scale is even in the acceptance rate, with what is to be expected written beside it.

Its value is JSON text, so that an update says at once for which method a lenience is; for events on the server it is the
lenience alone, a number. Drawn in the browser by `static/lenience_track/`. Knows the recorded sweep's
scales and the methods' ranges; knows no run.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import cache
from operator import attrgetter
from types import MappingProxyType
from typing import Any

import gradio as gr

from specviz.analysis.sweep.scale import EVEN, FLAT, recorded_scales
from specviz.app.components.scripted_html import ScriptedHTML, style, template
from specviz.app.settings import CONTROLS
from specviz.core.methods import METHODS, get_method

UNFIT = "The lenience must be a number."
_DIGITS = 6


def lenience_value(method: str, lenience: float | None = None) -> str:
    """The value, or an update, that shows a lenience of a method: its default where it is None."""
    if lenience is None:
        lenience = get_method(method).default_lenience
    return json.dumps({"method": method, "lenience": lenience})


class LenienceTrack(ScriptedHTML):
    """A lenience to choose; its value is what `lenience_value` makes."""

    TEMPLATE = template("lenience_track/lenience_track")
    CSS = style(("shared/shared", "lenience_track/lenience_track"))
    MODULE = "lenience_track/lenience_track"

    def __init__(
        self,
        value: str = "",
        *,
        group: str = "",
        around: Mapping[str, Any] = MappingProxyType({}),
        **kwargs: Any,
    ) -> None:
        """Make one.

        Args:
            value: what it begins with.
            group: the tracks of a group hear together of another pair or temperature; see `static/page/tell_tracks.js`.
            around: the "pair" and the "temperature" that it begins with.
            **kwargs: as for `ScriptedHTML`.
        """
        super().__init__(
            value,
            title=CONTROLS["lenience"].title,
            methods=_method_words(),
            sweep=_sweep(),
            group=group,
            around=dict(around),
            **kwargs,
        )

    def preprocess(self, payload: Any) -> float | None:  # type: ignore[override]
        """The lenience; None is the method's default.

        Raises:
            gr.Error: the browser sent something else.
        """
        try:
            lenience = json.loads(payload)["lenience"]
            if lenience is None:
                return None
            if isinstance(lenience, int | float) and not isinstance(lenience, bool):
                number = float(lenience)
                if math.isfinite(number):
                    return number
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            pass
        raise gr.Error(UNFIT)


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


@cache
def _sweep() -> dict[str, Any] | None:
    """The recorded sweep's scales for the browser; see `scale.js`."""
    if (found := recorded_scales()) is None:
        return None
    measured = attrgetter("lenience", "acceptance", "quality")
    return {
        "pair": found.pair,
        "items": found.items,
        "quality": found.quality,
        "even": EVEN,
        "flat": FLAT,
        "verifier": sorted(found.verifier.items()),
        "scales": {
            name: [
                [heat, [[round(each, _DIGITS) for each in measured(knot)] for knot in scale.knots]]
                for heat, scale in sorted(scales.items())
            ]
            for name, scales in found.scales.items()
        },
    }
