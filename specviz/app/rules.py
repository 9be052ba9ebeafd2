"""Rules as JSON trees, which the page's scripts evaluate. The route `/rule?text=…` parses a rule while it is typed."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from specviz.core.expression.syntax import parse
from specviz.core.method import Method
from specviz.core.methods import OWN_RULE, get_method
from specviz.errors import RuleError

ADDRESS = "rule"


def rule_words(method: Method) -> dict[str, Any]:
    """A method's rule: its text, its formula, its labels and its trees."""
    words = ("expression", "formula", "score_label", "threshold_label")
    return {name: getattr(method, name) for name in words} | {
        "tree": {name: tree.as_json() for name, tree in method.trees.items()}
    }


def read_rule(text: str) -> dict[str, Any]:
    """The `rule_words` of a typed rule, or, if it is invalid, the message and the position of the error."""
    try:
        parse(text)  # raises for an empty text, which `get_method` would take for the default rule
        return rule_words(get_method(OWN_RULE, text))
    except RuleError as error:
        return {"expression": text, "sentence": error.sentence, "position": error.position}


def rule_route() -> Route:
    """The route `/rule`."""

    def answer(request: Request) -> Response:
        return JSONResponse(read_rule(request.query_params.get("text", "")))

    return Route(f"/{ADDRESS}", answer)
