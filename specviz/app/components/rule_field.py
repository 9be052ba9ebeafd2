"""The field for a custom rule. While a visitor types, it shows the rule's formula or error. `static/rule_field/` draws the field.

The route `/rule?text=…` parses the rule for the browser.
"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from specviz.app.components.scripted_html import ScriptedHTML, rule_words
from specviz.core.expression.syntax import parse
from specviz.core.methods import METHODS, OWN_RULE, get_method
from specviz.errors import RuleError


class RuleField(ScriptedHTML):
    """A text field for a rule. The value is the text; the initial value is the registry's example."""

    MODULE = "rule_field/rule_field"
    STYLES = ()

    def __init__(self, **kwargs: Any) -> None:
        own = METHODS[OWN_RULE]
        super().__init__(own.expression, known=[rule_words(own)], **kwargs)


def read_rule(text: str) -> dict[str, Any]:
    """Return the `rule_words` of a typed rule; for an invalid rule, its text and the message and position of the error."""
    try:
        parse(text)  # raises for an empty text, which `get_method` would take for the default rule
        return rule_words(get_method(OWN_RULE, text))
    except RuleError as error:
        return {"expression": text, "sentence": error.sentence, "position": error.position}


def rule_route() -> Route:
    """The route `/rule`, which answers with the result of `read_rule`."""

    def answer(request: Request) -> Response:
        return JSONResponse(read_rule(request.query_params.get("text", "")))

    return Route("/rule", answer)
