"""Components on a page without gradio: their markup, style and modules, from a server of static files."""

from __future__ import annotations

import threading
from functools import cache
from pathlib import Path
from typing import Any

import uvicorn
from playwright.sync_api import Page
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from specviz.app.components.lessons import lesson_route
from specviz.app.components.rule_field import rule_route
from specviz.app.components.scripted_html import STATIC, ScriptedHTML, method_words
from specviz.app.components.trace_view import TraceView
from specviz.app.look import font_faces

EMPTY = (
    '<!doctype html><html lang="en"><title>Bare</title><link rel="icon" href="data:,">'
    f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{font_faces()}</style><body>'
)


KEPT = {"Cache-Control": "max-age=86400"}


class _Files(StaticFiles):
    """Files that the browser keeps from page to page."""

    def file_response(self, *args: Any, **more: Any) -> Any:
        response = super().file_response(*args, **more)
        response.headers.update(KEPT)
        return response


def _font(request: Request) -> FileResponse:
    return FileResponse(STATIC / "fonts" / Path(request.path_params["path"]).name, headers=KEPT)


@cache
def _address() -> str:
    """Serve an empty page, `static/`, and the routes that modules ask, until the process ends."""
    page = Route("/", lambda _: HTMLResponse(EMPTY))
    routes = [page, lesson_route(), rule_route(), Route("/gradio_api/{path:path}", _font)]
    app = Starlette(routes=[*routes, Mount("/", _Files(directory=STATIC))])
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="critical")
    socket = config.bind_socket()
    socket.listen()  # whoever comes before the thread has started waits
    threading.Thread(target=uvicorn.Server(config).run, args=([socket],), daemon=True).start()
    return f"http://127.0.0.1:{socket.getsockname()[1]}"


def open_bare(
    page: Page, component: type[ScriptedHTML] | None = None, *modules: str, query: str = ""
) -> None:
    """Open a page with the component's markup in an element of the class "host".

    Its module's exports, and those of further `modules` of `static/`, are on the page as `SpecViz`.
    """
    page.goto(f"{_address()}/{query}")
    if component is not None:
        modules = (component.MODULE, *modules)
    page.evaluate(
        """async ([style, markup, names]) => {
            sessionStorage.clear();
            localStorage.clear();
            document.body.innerHTML = `<style>.host { ${style} }</style><div class="host">${markup}</div>`;
            window.SpecViz = Object.assign({}, ...await Promise.all(names.map((name) => import(`/${name}.js`))));
        }""",
        [component.CSS if component else "", component.TEMPLATE if component else "", list(modules)],
    )


def mount(page: Page, component: ScriptedHTML, *modules: str, query: str = "") -> None:
    """Open a page with a component as gradio mounts it; `triggered` lists its events, `props` are its
    properties, and `change(name, value)` sets one."""
    open_bare(page, type(component), *modules, query=query)
    page.evaluate(
        """async (props) => {
            const watched = {};
            Object.assign(window, { props, triggered: [] });
            window.change = (name, value) => { props[name] = value; watched[name]?.(); };
            SpecViz.mount(document.querySelector(".host"), { props,
                trigger: (...event) => triggered.push(event), watch: (name, callback) => { watched[name] = callback; } });
            await document.fonts.ready;
        }""",
        component.props | {"value": component.value, "label": component.label},
    )


def open_trace_view(page: Page, value: str = "") -> None:
    """Open the view of a run as `window.view` and show it a trace; `window.selected` lists the tokens selected."""
    open_bare(page, TraceView)
    page.evaluate(
        """([methods, value]) => {
            window.selected = [];
            window.view = SpecViz.createTraceView(document.querySelector(".host"), {
                methods, onSelect: (...what) => window.selected.push(what) });
            view.update(value);
        }""",
        [method_words(), value],
    )


def update(page: Page, value: str) -> None:
    """Show the bare view another trace."""
    page.evaluate("value => view.update(value)", value)
