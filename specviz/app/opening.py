"""Opens a link, or the address that Back or Forward leads to: sets the tab and the controls, and shows a banner about values that were
ignored. Does not start a run."""

from __future__ import annotations

import json
from collections.abc import Iterable
from html import escape
from typing import Any
from urllib.parse import parse_qsl

import gradio as gr

from specviz.app.components.frame import Address
from specviz.app.components.lenience_track import lenience_value
from specviz.app.controls import address_module, describe_method
from specviz.app.link import Link, parse_link
from specviz.app.running import QUIET, sent_with
from specviz.app.tabs.compare import Compare
from specviz.app.tabs.generate import OPENING, Generate, fill, fresh, show_recorded
from specviz.compat.gradio import then_always
from specviz.lessons.lesson import shown_lessons
from specviz.schema.settings import DEFAULT_METHOD
from specviz.serving.limits import Limits


def wire_opening(
    page: gr.Blocks,
    limits: Limits,
    address: Address,
    banner: gr.HTML,
    tabs: gr.Tabs,
    learn: gr.Tabs,
    generate: Generate,
    compare: Compare,
) -> None:
    """When the page opens or its address changes, set the tab and the controls that the address names, within `limits`."""
    for name, group in (("tabs", tabs), ("learn", learn)):
        # A visitor's choice fires `Tabs.select`, then `Tab.select`. A selection by the server fires only `Tab.select`.
        group.select(None, None, None, js=f"async () => {address_module()}.tabChosen()", **QUIET)
        for tab in group.children:
            assert isinstance(tab, gr.Tab)
            js = f"async () => {address_module()}.tabSelected({json.dumps(name)}, {json.dumps(tab.id)})"
            tab.select(None, None, None, js=js, **QUIET)
    outputs = [
        banner,
        tabs,
        learn,
        *generate.settings.values(),
        generate.about,
        generate.view,
        generate.examples,
        *compare.outputs,
    ]

    def restore(
        request: gr.Request,
        query: Iterable[tuple[str, str]],
        *,
        is_first: bool = False,
        is_held: bool = False,
    ) -> list[Any]:
        """Updates for a query. Settings that the query omits are reset, unless `is_first`. If `is_held`, only the tab is selected."""
        link = parse_link(query, limits.max_new_tokens, tuple(shown_lessons()))
        problems = escape(" ".join(link.problems))
        # When the page first opens, select a tab only if the link names it: a quick visitor may already have chosen another.
        tab = link.tab or (None if is_first else "idea")
        if is_held:
            link = Link(link.tab, part=link.part)
        renews = None if is_first or is_held else tab
        if drop := {"generate": generate.drop, "compare": compare.drop}.get(renews or ""):
            drop(request)  # the run's further output belongs to the view that the visitor has left
        return [
            gr.HTML(f'<p role="alert">{problems}</p>', visible=bool(problems)),
            gr.Tabs(selected=tab) if tab else gr.skip(),
            gr.Tabs(selected=link.part) if link.part else gr.skip(),
            *_generate(generate, link, limits, renews=renews == "generate"),
            *compare.opened(link, renews=renews == "compare"),
        ]

    def open_(request: gr.Request) -> list[Any]:
        return restore(request, request.query_params.multi_items(), is_first=True)

    def visit(request: gr.Request, event: gr.EventData) -> list[Any]:
        sent = sent_with(event)
        query = str(sent.get("query", "")).removeprefix("?")
        return restore(request, parse_qsl(query, keep_blank_values=True), is_held=bool(sent.get("held")))

    visited = address.visit(visit, None, outputs, trigger_mode="multiple", **QUIET)
    opened = page.load(open_, None, outputs, **QUIET)
    for event in (visited, opened):
        then_always(event, None, None, None, js=f"async () => {address_module()}.opened()", **QUIET)


def _generate(tab: Generate, link: Link, limits: Limits, *, renews: bool) -> list[Any]:
    """Updates for the tab One run: its settings, the method's description, the view, and the dropdown of recorded runs.

    With `renews`, settings that the link does not name are set as on a fresh page.
    """
    wanted = {} if link.tab == "compare" else link.settings
    key, token = wanted.get("run"), wanted.get("token")
    if renews and not wanted:
        key = OPENING
    run: list[Any] = [gr.skip(), "" if wanted else gr.skip()]
    if key:
        value, wanted = show_recorded(key, limits, plays=token is None, show=token)
        run = [value, key]
    elif "method" in wanted or "lenience" in wanted:
        method = wanted.setdefault("method", DEFAULT_METHOD)
        wanted["lenience"] = lenience_value(method, wanted.get("lenience"))
    if renews:
        wanted = fresh(tab.settings, wanted)
    about = describe_method(wanted["method"]) if "method" in wanted else gr.skip()
    return [*fill(tab.settings, wanted), about, *run]
