"""The card of a chosen point: four figures and two texts, drawn by `static/point_card/`.

Its value is one JSON string, replaced whole; "" is no card. This module does not know what the figures are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from specviz.app.components.scripted_html import ScriptedHTML, style, template


def card_value(card: Mapping[str, Any]) -> str:
    """The value of a `PointCard`, from what `specviz.app.tabs.tradeoff_words.card` says."""
    return json.dumps(card, ensure_ascii=False)


class PointCard(ScriptedHTML):
    """Shows a card, goes through its texts, and closes.

    `select` events ask to open a text: `index` is the text's.
    """

    TEMPLATE = template("point_card/point_card")
    CSS = style(("shared/shared", "point_card/point_card"))
    MODULE = "point_card/point_card"

    def preprocess(self, payload: str | None) -> str:
        """Nothing: the server needs none of it."""
        return ""
