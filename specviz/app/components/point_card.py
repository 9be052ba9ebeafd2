"""The card of a chosen point: four figures and two texts, drawn by `static/point_card/`.

Its value is one JSON string, which is replaced as a whole; "" is no card. This module does not depend on what the figures are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from specviz.app.components.scripted_html import ScriptedHTML, style, template


def card_value(card: Mapping[str, Any]) -> str:
    """The value of a `PointCard`, made from `specviz.app.tabs.tradeoff_words.card`."""
    return json.dumps(card, ensure_ascii=False)


class PointCard(ScriptedHTML):
    """Shows a card. The visitor can page through its texts and close it.

    A `select` event asks to open a text; its `index` is that of the text.
    """

    TEMPLATE = template("point_card/point_card")
    CSS = style(("shared/shared", "point_card/point_card"))
    MODULE = "point_card/point_card"

    def preprocess(self, payload: str | None) -> str:
        """Discard the value, which the server does not need."""
        return ""
