"""/agents.md: what the server offers to assistants, in Markdown, made from the same tables as its endpoints."""

from __future__ import annotations

import inspect
import json

import gradio as gr
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from specviz.app import api
from specviz.app.answers import FIGURES, METRICS, PARTING, SO_FAR, TRACE, WAITING
from specviz.app.components.scripted_html import TEMPLATES
from specviz.app.look import DESCRIPTION
from specviz.app.openai_routes import openai_refusal
from specviz.app.refusals import OPENAI_PATH
from specviz.compat.gradio import API_PREFIX, TOOLS_PATH, page_address
from specviz.compat.gradio_answers import UNREAD_SECONDS
from specviz.serving.limits import Limits

ADDRESS = "/agents.md"


def agents_route(page: gr.Blocks, limits: Limits) -> Route:
    """The route `/agents.md` of a page."""
    template = TEMPLATES.overlay(autoescape=False, trim_blocks=True).get_template("agents/agents.md")

    def answer(request: Request) -> Response:
        root = page_address(page, request, ADDRESS)
        endpoints = (api.generate, api.compare, api.methods, api.pairs)
        text = template.render(
            cell=_cell,
            description=DESCRIPTION,
            root=root,
            calls=f"{root}{API_PREFIX}",
            tools=f"{root}{TOOLS_PATH}/" if page.mcp_server else "",
            openai="" if openai_refusal() else f"{root}{OPENAI_PATH}".rstrip("/"),
            endpoints={each.__name__: inspect.getdoc(each) for each in endpoints},
            arguments={each.__name__: _arguments(each.__name__, limits) for each in endpoints},
            fields=SO_FAR | WAITING | METRICS | FIGURES | TRACE,
            parting=PARTING,
            pairs=api.pairs(),
            limits=limits,
            unread=UNREAD_SECONDS,
        )
        return PlainTextResponse(text, media_type="text/markdown", headers={"Cache-Control": "no-store"})

    return Route(ADDRESS, answer)


def _arguments(endpoint: str, limits: Limits) -> list[tuple[str, str, str, str]]:
    """Name, type, default and help of each argument."""
    return [
        (
            each.name,
            api.kind_in_words(each.annotation),
            "" if each.default is each.empty else json.dumps(each.default),
            api.help_of(each.name, limits),
        )
        for each in api.parameters_of(endpoint)
    ]


def _cell(text: str) -> str:
    """The text, made to fit into one cell of a table: a pair's title may be the name of a folder, which can have any characters."""
    return " ".join(text.replace("|", r"\|").split())[:300]
