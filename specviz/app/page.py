"""The page: one Gradio app of several tabs, and how it is served.

Puts the tabs together; knows what each is called and nothing of what goes on in it.
"""

from __future__ import annotations

import os
from typing import Any

import gradio as gr

from specviz.analysis.sweep.store import open_recorded
from specviz.app.api import offers_mcp, wire_api
from specviz.app.guard import GuardedBlocks, guarded
from specviz.app.health import health_routes
from specviz.app.opening import link_banner, wire_opening
from specviz.app.running import QUIET
from specviz.app.tabs.compare import compare_tab
from specviz.app.tabs.generate import generate_tab
from specviz.app.tabs.playground import method_words, playground_tab
from specviz.app.tabs.replay import replay_tab
from specviz.app.tabs.tour import tour_tab
from specviz.app.tabs.tradeoff import tradeoff_tab
from specviz.serving.service import Service

INTRODUCTION = """# SpecViz
A small **drafter** proposes, a large **verifier** checks several proposals at once, and a rule decides which to \
keep. Watch real text stream, and see who had the last word on every token."""

CSS = """
.specviz-controls { position: sticky; top: 12px; align-self: flex-start; }
@media (max-width: 768px) { .specviz-controls { position: static; } }
.specviz-intro h1 { margin: 0 0 2px; }
.specviz-method p { margin: 2px 0; }
#link-banner p { margin: 0; padding: 10px 14px; border: 1px solid #d55e00; border-left-width: 5px; border-radius: 8px; }
"""

# Outside `css`, which gradio confines to its container. Larger text is for a projector: gradio's own sizes are in
# pixels, the views' in rem; the browser remembers it. Gradio's frame around what is being made pulses, for which a browser
# draws the page sixty times a second: on a machine that also runs the models, text would come later.
_LARGE = 1.35
_SIZES = {
    name: float(size.removesuffix("px"))
    for name, size in vars(gr.themes.sizes.text_md).items()
    if name != "name"
}
HEAD = f"""<style>
.wrap.generating {{ animation: none !important; }}
:root body.dark {{ --color-accent: var(--primary-500); }}
@media (max-width: 768px) {{ .specviz-head {{ flex-direction: column !important; }} }}
@media (max-width: 640px) {{ footer > .divider {{ display: none; }} }}
html.specviz-large {{
  font-size: {_LARGE:.0%};
  {" ".join(f"--text-{name}: {_LARGE * size:.1f}px;" for name, size in _SIZES.items())}
}}
</style>
<script>
if (localStorage.getItem("specviz-large")) document.documentElement.classList.add("specviz-large");
</script>"""
_TOGGLE_LARGE = """() => {
  const large = document.documentElement.classList.toggle("specviz-large");
  if (large) localStorage.setItem("specviz-large", "1");
  else localStorage.removeItem("specviz-large");
}"""

# Only fonts the reader's machine has: the page asks nobody but its own server for anything.
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
"""Seconds; a trace is read and deleted at once, and what else somebody uploads is of no use here."""
_SESSIONS = 1000
"""Besides those that run or wait; gradio keeps something of each for as long as there is room."""
_THREADS = 40
"""For everything but runs; whoever runs or waits for a row keeps a thread of the server."""


def build_page(service: Service | None = None) -> gr.Blocks:
    """The whole page, ready to `launch`."""
    service = service or Service()
    methods = method_words()
    with GuardedBlocks(
        title="SpecViz: speculative cascades, token by token",
        analytics_enabled=False,
        delete_cache=(_UPLOADS_STAY, _UPLOADS_STAY),
    ) as page:
        with gr.Row(elem_classes="specviz-head"):
            gr.Markdown(INTRODUCTION, elem_classes="specviz-intro")
            large = gr.Button("Larger text", size="sm", scale=0, min_width=110, elem_id="large-type")
        large.click(None, None, None, js=_TOGGLE_LARGE, **QUIET)
        banner = link_banner()
        with gr.Tabs(selected="generate", elem_id="tabs") as tabs:
            with gr.Tab("Generate", id="generate"):
                generate = generate_tab(page, service, methods)
            with gr.Tab("Compare", id="compare"):
                compare = compare_tab(page, service, methods)
            with gr.Tab("Trade-off", id="tradeoff"):
                tradeoff_tab(page, service, compare, tabs, open_recorded())
            with gr.Tab("Replay", id="replay"):
                replay_tab(methods, service.limits.max_trace_bytes).take(generate.view, tabs)
            with gr.Tab("Playground", id="playground"):
                playground_tab()
            with gr.Tab("Tour", id="tour"):
                tour_tab()
        wire_opening(page, service.limits, banner, tabs, generate, compare)
        wire_api(service)
        # Off Spaces gradio would let everybody pass the queue by.
        page.queue(max_size=service.limits.rows + service.limits.queue, api_open=False)
    return page


def launch(page: gr.Blocks, service: Service | None = None, **more: Any) -> Any:
    """Serve the page, and how `service` is, on HOST and PORT.

    By default that is 127.0.0.1 and 7860; Gradio's own variables count too.
    """
    port = os.environ.get("PORT") or os.environ.get("GRADIO_SERVER_PORT") or "7860"
    routes = health_routes(service) if service else []
    busy = service.limits.rows + service.limits.queue if service else 0
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
        "max_file_size": "8mb",  # a little more than any upload may have: a larger one is cut off on its way
        "app_kwargs": guarded({"routes": routes}),  # before gradio's own, which take any path
    }
    return page.launch(**options | more)
