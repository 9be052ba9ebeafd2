"""The field for a custom rule, which shows the rule's formula or its error while it is typed; drawn by `static/rule_field/`."""

from __future__ import annotations

from typing import Any

from specviz.app.components.scripted_html import ScriptedHTML
from specviz.app.rules import rule_words
from specviz.core.methods import METHODS, OWN_RULE


class RuleField(ScriptedHTML):
    """A text field for a rule; the value is the text, at first the registry's example."""

    MODULE = "rule_field/rule_field"
    STYLES = ()

    def __init__(self, **kwargs: Any) -> None:
        own = METHODS[OWN_RULE]
        super().__init__(own.expression, known=[rule_words(own)], **kwargs)
