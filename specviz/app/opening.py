"""Opens a link: sets its tab and controls, and shows a banner about values that were left out. Starts no run."""

from __future__ import annotations

from html import escape
from typing import Any

import gradio as gr

from specviz.app.components.lenience_track import lenience_value
from specviz.app.controls import address_module, describe_method
from specviz.app.link import Link, parse_link
from specviz.app.recorded import recorded_value
from specviz.app.running import QUIET
from specviz.app.tabs.compare import Compare
from specviz.app.tabs.generate import Generate, fill, form_of
from specviz.lessons.shelf import shown_lessons
from specviz.schema.settings import DEFAULT_METHOD
from specviz.serving.limits import Limits


def wire_opening(
    page: gr.Blocks,
    limits: Limits,
    banner: gr.HTML,
    tabs: gr.Tabs,
    learn: gr.Tabs,
    generate: Generate,
    compare: Compare,
) -> None:
    """When the page opens, set what its address names, within `limits`."""
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

    def restore(request: gr.Request) -> list[Any]:
        link = parse_link(
            request.query_params.multi_items(), limits.max_new_tokens, tuple(shown_lessons().lessons)
        )
        problems = escape(" ".join(link.problems))
        return [
            gr.HTML(f'<p role="alert">{problems}</p>', visible=True) if problems else gr.skip(),
            # Only if the link names a tab, since a quick visitor may have chosen one before this update arrives.
            gr.Tabs(selected=_tab(link)) if _tab(link) else gr.skip(),
            gr.Tabs(selected=link.part) if link.part else gr.skip(),
            *_generate(generate, link, limits),
            *compare.opened(link),
        ]

    opened = page.load(restore, None, outputs, **QUIET)
    # For a link without a run, the next key press is Run.
    opened.then(None, None, None, js=f"async () => {address_module()}.opened()", **QUIET)


def _tab(link: Link) -> str | None:
    """The tab that a link opens; None for the first tab."""
    if link.tab or not (link.panes or link.settings):
        return link.tab
    return "compare" if link.panes else "generate"


def _generate(tab: Generate, link: Link, limits: Limits) -> list[Any]:
    """Updates for the settings of the tab One run, the method's description, the view and the recorded run."""
    wanted = {} if link.compares else link.settings
    method = wanted.get("method", DEFAULT_METHOD)
    if "method" in wanted or "lenience" in wanted:
        wanted["lenience"] = lenience_value(method, wanted.get("lenience"))
    about = describe_method(method) if "method" in wanted else gr.skip()
    key = wanted.get("run")
    run = [recorded_value(tab.recordings, key, plays=True), key] if key else [gr.skip()] * 2
    if key:
        wanted = form_of(tab.recordings.load(key), limits)
    return [*fill(tab.settings, wanted), about, *run]
