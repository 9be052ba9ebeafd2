"""The field for a rule of one's own: what is typed, how it reads, and where it goes wrong, as it is typed.

Drawn in the browser by `static/rule_field/`; its value is the text. Knows no run and judges nothing: the request does.
"""

from __future__ import annotations

from typing import Any

from specviz.app.components.scripted_html import ScriptedHTML, style
from specviz.app.rules import rule_words
from specviz.core.methods import METHODS, OWN_RULE


class RuleField(ScriptedHTML):
    """A rule to write; begins with the registry's example."""

    TEMPLATE = '<div class="specviz sr-host"></div>'
    CSS = style(("shared/shared",))
    MODULE = "rule_field/rule_field"

    def __init__(self, **kwargs: Any) -> None:
        """Make one; `kwargs` as for `ScriptedHTML`."""
        own = METHODS[OWN_RULE]
        super().__init__(own.expression, known=[rule_words(own)], **kwargs)
