"""What opening a link sets: the tab and its controls, and a banner about what could not be set. Runs nothing.

Knows the controls of Generate and Compare; how a link is read is the business of `specviz.app.link`.
"""

from __future__ import annotations

from html import escape
from typing import Any

import gradio as gr

from specviz.app.controls import describe_method, lenience_slider
from specviz.app.link import Link, parse_link
from specviz.app.running import QUIET
from specviz.app.tabs.compare import Compare, set_panes
from specviz.app.tabs.generate import Generate
from specviz.schema.settings import DEFAULT_METHOD
from specviz.serving.limits import Limits


def wire_opening(
    page: gr.Blocks, limits: Limits, banner: gr.HTML, tabs: gr.Tabs, generate: Generate, compare: Compare
) -> None:
    """When the page opens, set what its address asks for, as far as `limits` allow."""
    outputs = [
        banner,
        tabs,
        *generate.settings.values(),
        generate.about,
        *compare.settings.values(),
        *compare.pane_outputs,
    ]

    def restore(request: gr.Request) -> list[Any]:
        link = parse_link(request.query_params.multi_items(), limits.max_new_tokens)
        problems = escape(" ".join(link.problems))
        return [
            gr.HTML(f'<p role="alert">{problems}</p>', visible=True) if problems else gr.skip(),
            # Only where the link names it: a quick visitor may have chosen a tab before this arrives.
            gr.Tabs(selected=link.tab or "compare") if link.tab or link.panes else gr.skip(),
            *_generate(generate, link),
            *_compare(compare, link),
        ]

    page.load(restore, None, outputs, **QUIET)


def _generate(tab: Generate, link: Link) -> list[Any]:
    """Updates for the settings of Generate, and for the description of the method."""
    wanted = {} if link.compares else link.settings
    method = wanted.get("method", DEFAULT_METHOD)
    if "method" in wanted or "lenience" in wanted:
        wanted["lenience"] = lenience_slider(method, wanted.get("lenience"))
    about = describe_method(method) if "method" in wanted else gr.skip()
    return [*(wanted.get(name, gr.skip()) for name in tab.settings), about]


def _compare(tab: Compare, link: Link) -> list[Any]:
    """Updates for the settings of Compare and its panes."""
    wanted = link.settings if link.compares else {}
    panes = set_panes(link.panes) if link.panes else [gr.skip()] * len(tab.pane_outputs)
    return [*(wanted.get(name, gr.skip()) for name in tab.settings), *panes]
