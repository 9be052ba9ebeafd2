"""One component on a page without gradio: its markup and style, and its modules as the app serves them."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import Page, Route

from specviz.app.components.scripted_html import STATIC, ScriptedHTML, method_words
from specviz.app.components.trace_view import TraceView

ADDRESS = "http://127.0.0.1:9"  # Playwright answers in place of a server


def open_bare(page: Page, component: type[ScriptedHTML] | None = None, *modules: str) -> None:
    """Open a page with the component's markup in an element of the class "host".

    Its module's exports, and those of further `modules` of `static/`, are on the page as `SpecViz`.
    """
    page.unroute(f"{ADDRESS}/**")
    page.route(f"{ADDRESS}/**", _answer)
    page.goto(f"{ADDRESS}/")
    if component is not None:
        page.set_content(
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<style>.host {{ {component.CSS} }}</style><div class='host'>{component.TEMPLATE}</div>"
        )
        modules = (component.MODULE, *modules)
    page.evaluate(
        "async names => { window.SpecViz = Object.assign({}, ...await Promise.all(names.map(name => import(`/${name}.js`)))); }",
        list(modules),
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


def _answer(route: Route) -> None:
    path = Path(f"{STATIC}{urlsplit(route.request.url).path}")
    if path.is_file():
        route.fulfill(path=path)
    else:
        route.fulfill(body="", content_type="text/html")
