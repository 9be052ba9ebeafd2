"""The page: one Gradio app with several tabs, and the options of its server."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any

import gradio as gr
from starlette.routing import BaseRoute

from specviz import environment
from specviz.analysis.recorded_runs import read_recorded_runs
from specviz.analysis.sweep.folder import shown_sweeps
from specviz.app.api import wire_api
from specviz.app.classroom import POLL_SECONDS, Classroom, class_routes
from specviz.app.clients import client_address, network_of
from specviz.app.components.frame import Address, Bar, InvitationLine
from specviz.app.components.lessons import LessonPlayer, PayoffView, Playground, lesson_route
from specviz.app.components.race import Race, race_value
from specviz.app.components.rule_field import rule_route
from specviz.app.components.wrong_engines_view import WrongEnginesView
from specviz.app.controls import wire_pairs
from specviz.app.guard import GuardedBlocks, guarded
from specviz.app.health import health_routes
from specviz.app.hosts import allowed_hosts
from specviz.app.look import ICON, TITLE, css, head, theme
from specviz.app.openai_routes import openai_routes
from specviz.app.opening import wire_opening
from specviz.app.tabs.compare import compare_tab
from specviz.app.tabs.generate import generate_tab
from specviz.app.tabs.tradeoff import tradeoff_tab
from specviz.compat.gradio import serve_head
from specviz.compat.gradio_answers import Answers
from specviz.compat.uvicorn import bound_connections
from specviz.lessons.lesson import shown_lessons
from specviz.serving.service import Service

_SESSIONS = 1000
"""Number of sessions whose state gradio stores, in addition to sessions with a running or waiting text."""
_MOST_CONNECTIONS = 4096
"""Maximum number of concurrent connections, even if there are more file descriptors. One address may have half of the connections."""
_THREADS = 40
"""Number of threads for everything except runs. Each run, even a queued run, occupies an additional thread."""


def build_page(service: Service, classroom: Classroom | None = None) -> gr.Blocks:
    """The whole page, ready for `launch`."""
    with GuardedBlocks(title=TITLE, analytics_enabled=False) as page:
        Bar(elem_id="bar")
        address = Address(elem_id="address")
        if classroom:
            InvitationLine(seconds=POLL_SECONDS, elem_id="invitation")
        banner = gr.HTML(visible=False, elem_id="link-banner")
        with gr.Tabs(selected="idea", elem_id="tabs") as tabs:
            with gr.Tab("The idea", id="idea"):
                Race(race_value(read_recorded_runs()), elem_id="race")
            with gr.Tab("One run", id="generate"), gr.Column(elem_id="one-run"):
                generate = generate_tab(page, service)
            with gr.Tab("Compare methods", id="compare"):
                compare = compare_tab(page, service)
            with gr.Tab("Speed or quality", id="tradeoff"):
                swept_pair = tradeoff_tab(page, service, compare, tabs, shown_sweeps())
            with gr.Tab("Learn", id="learn"), gr.Tabs(elem_id="learn-tabs") as learn:
                with gr.Tab("Lessons", id="lessons"):
                    LessonPlayer(shown_lessons(), elem_id="lessons")
                with gr.Tab("Playground", id="playground"):
                    Playground(elem_id="playground")
                with gr.Tab("Will it pay?", id="pay"):
                    PayoffView(elem_id="payoff")
                with gr.Tab("Wrong engines", id="wrong"):
                    WrongEnginesView(elem_id="wrong-engines")
        wire_pairs(page, service, [generate.settings["pair"], compare.settings["pair"], swept_pair])
        wire_opening(page, service.limits, address, banner, tabs, learn, generate, compare)
        wire_api(service)
    page.queue(
        max_size=service.limits.max_sequences + service.limits.queue,
        api_open=False,  # otherwise gradio lets everybody bypass the queue
        answers=lambda queue: Answers(queue, service.limits.per_address, client_address),
    )
    return page


def host(for_class: bool) -> str:
    """The address to listen on: HOST if it is set; otherwise every interface for a class, loopback without a class."""
    return environment.HOST.value() or ("0.0.0.0" if for_class else "127.0.0.1")


def launch(page: gr.Blocks, service: Service, classroom: Classroom | None = None, **more: Any) -> Any:
    """Serve the page, its health, the OpenAI-compatible API and a classroom's routes, on `host()` and PORT.

    Returns when the server ends, or immediately with `prevent_thread_lock`. `more` overrides options of gradio's `launch`.
    """
    routes: list[BaseRoute] = [lesson_route(), rule_route(), *health_routes(service), *openai_routes(service)]
    if classroom:
        routes += class_routes(classroom, service)
    busy = service.limits.max_sequences + service.limits.queue
    options: dict[str, Any] = {
        "server_name": host(classroom is not None),
        "server_port": environment.PORT.value(),
        "theme": theme(),
        "css": css(),
        "favicon_path": ICON,
        "footer_links": ["api", "settings"],
        "ssr_mode": False,
        "run_history": False,
        "mcp_server": environment.MCP.value() and find_spec("mcp") is not None,
        "enable_monitoring": False,
        "max_threads": _THREADS + busy,
        "state_session_capacity": _SESSIONS + busy,
    } | more
    addresses = (classroom.address if classroom else "", os.environ.get("GRADIO_ROOT_PATH", ""))
    hosts = allowed_hosts(options["server_name"], *addresses)
    serve_head(page, head())
    blocks = not options.pop("prevent_thread_lock", False)
    served = page.launch(app_kwargs=guarded(routes, hosts), prevent_thread_lock=True, **options)
    most = _most_connections()
    bound_connections(page.server.config, most, most // 2, network_of)
    if blocks:
        page.block_thread()
    return served


def _most_connections() -> int:
    """Maximum number of concurrent connections. Leaves a quarter of the process's file descriptors to everything else."""
    try:
        import resource
    except ImportError:  # not on Windows
        return _MOST_CONNECTIONS
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(descriptors * 3 // 4, _MOST_CONNECTIONS) if descriptors > 0 else _MOST_CONNECTIONS
