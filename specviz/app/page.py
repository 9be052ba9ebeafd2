"""The page: one Gradio app of several tabs, its look, and the options it is launched with.

Puts the tabs together; knows what each is called and nothing of what goes on in it.
"""

from __future__ import annotations

import os
from typing import Any

import gradio as gr

from specviz.analysis.sweep.folder import open_recorded
from specviz.app.api import offers_mcp, wire_api
from specviz.app.components.lessons import Playground, Tour
from specviz.app.components.scripted_html import style
from specviz.app.guard import GuardedBlocks, guarded
from specviz.app.health import health_routes
from specviz.app.opening import wire_opening
from specviz.app.running import QUIET, page_script
from specviz.app.tabs.compare import compare_tab
from specviz.app.tabs.generate import generate_tab
from specviz.app.tabs.idea import idea_tab
from specviz.app.tabs.tradeoff import tradeoff_tab
from specviz.compat import gradio as gradio_compat
from specviz.serving.service import Service

INTRODUCTION = """# SpecViz
A small **drafter** proposes, a large **verifier** checks several proposals at once, and a rule decides which to \
keep. Watch real text stream, and see who had the last word on every token."""

CSS = style(["page/page", "page/settings"])

# Larger text is for a projector: gradio's own sizes are in pixels, the views' in rem; the browser remembers it.
_LARGE = 1.35
_LARGE_SIZES = {name: _LARGE * size for name, size in gradio_compat.text_sizes().items()}
HEAD = f"""<style>{gradio_compat.STYLE}
@media (max-width: 768px) {{ .specviz-head {{ flex-direction: column !important; }} }}
html.specviz-large {{
  font-size: {_LARGE:.0%};
  {" ".join(f"--text-{name}: {size:.1f}px;" for name, size in _LARGE_SIZES.items())}
}}
</style>
<script>{gradio_compat.SCRIPT}
if (localStorage.getItem("specviz-large")) document.documentElement.classList.add("specviz-large");
</script>"""

# Only fonts that the reader's machine has: the page sends requests to its own server alone.
_FONT = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif")
_MONO = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace")
THEME = gr.themes.Default(primary_hue="blue", font=_FONT, font_mono=_MONO).set(
    # Gradio's own are too pale to read by WCAG's measure.
    body_text_color_subdued="*neutral_500",
    color_accent="*primary_600",
    button_primary_background_fill="*primary_600",
    button_primary_background_fill_hover="*primary_700",
)


_UPLOADS_STAY = 3600
"""Seconds that an upload is kept: a trace is read and deleted at once, and nothing else is of use here."""
_SESSIONS = 1000
"""Sessions kept, besides those that run or wait; gradio keeps something of each for as long as there is room."""
_THREADS = 40
"""Threads for everything but runs; each run, also one that waits for a slot, keeps a thread of the server."""


def build_page(service: Service | None = None) -> gr.Blocks:
    """The whole page, ready for `launch`; by default over a service of its own."""
    service = service or Service()
    with GuardedBlocks(
        title="SpecViz: speculative cascades, token by token",
        analytics_enabled=False,
        delete_cache=(_UPLOADS_STAY, _UPLOADS_STAY),
    ) as page:
        with gr.Row(elem_classes="specviz-head"):
            gr.Markdown(INTRODUCTION, elem_classes="specviz-intro")
            large = gr.Button("Larger text", size="sm", scale=0, min_width=110, elem_id="large-type")
        large.click(None, None, None, js=page_script("toggle_large"), **QUIET)
        banner = gr.HTML(visible=False, elem_id="link-banner")
        with gr.Tabs(selected="idea", elem_id="tabs") as tabs:
            with gr.Tab("The idea", id="idea"):
                idea_tab()
            with gr.Tab("One run", id="generate"):
                generate = generate_tab(page, service)
            with gr.Tab("Compare methods", id="compare"):
                compare = compare_tab(page, service)
            with gr.Tab("Speed or quality", id="tradeoff"):
                tradeoff_tab(page, service, compare, tabs, open_recorded())
            with gr.Tab("Learn", id="learn"), gr.Tabs():
                with gr.Tab("Tour"):
                    Tour(elem_id="tour")
                with gr.Tab("Playground"):
                    Playground(elem_id="playground")
        wire_opening(page, service.limits, banner, tabs, generate, compare)
        wire_api(service)
        # Off Spaces gradio would let everybody bypass the queue.
        page.queue(max_size=service.limits.max_sequences + service.limits.queue, api_open=False)
    return page


def launch(page: gr.Blocks, service: Service | None = None, **more: Any) -> Any:
    """Serve the page, and the health of `service`, on HOST and PORT.

    By default that is 127.0.0.1 and 7860; Gradio's own variables count too. `more` overrides options of gradio's `launch`.
    """
    port = os.environ.get("PORT") or os.environ.get("GRADIO_SERVER_PORT") or "7860"
    routes = health_routes(service) if service else []
    busy = service.limits.max_sequences + service.limits.queue if service else 0
    options: dict[str, Any] = {
        "server_name": os.environ.get("HOST") or os.environ.get("GRADIO_SERVER_NAME") or "127.0.0.1",
        "server_port": int(port),
        "theme": THEME,
        "css": CSS,
        "head": HEAD,
        "footer_links": ["api", "settings"],
        "ssr_mode": False,
        "run_history": False,
        "mcp_server": offers_mcp(),
        "enable_monitoring": False,
        "max_threads": _THREADS + busy,
        "state_session_capacity": _SESSIONS + busy,
        "max_file_size": "8mb",  # a little more than any upload may have: a larger one is cut off while it is received
        "app_kwargs": guarded(routes),
    }
    return page.launch(**options | more)
