"""What tests in a real browser share: one Chromium, a page that must stay clean, and a way to serve an app.

A page fails its test if it logs an error, throws, or asks any host but this machine for anything. Tests share one
page, because opening one takes longer than most tests do; each finds it blank, wide and as good as new.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import gradio as gr
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright
from playwright.sync_api import TimeoutError as PlaywrightTimeout

from specviz.app.page import launch
from specviz.engine.pair import Pair
from specviz.models.registry import DEFAULT_PAIR
from specviz.serving.service import Service
from tests.support.memory import memory_given_back  # noqa: F401  # a fixture of all tests here
from tests.support.serving import close

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
expect.set_options(
    timeout=20_000
)  # nothing is timed here: whoever shares the processor with other tests may be late

LOOPBACK = {"127.0.0.1", "localhost", "::1"}


def _chromium() -> str | None:
    """The browser to drive: SPECVIZ_CHROMIUM, else the system's, else (None) Playwright's own."""
    candidates = (os.environ.get("SPECVIZ_CHROMIUM"), "/usr/bin/chromium", shutil.which("chromium"))
    return next((path for path in candidates if path and Path(path).exists()), None)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests here; it cannot resolve any host but this machine.

    It ends with them: as long as Playwright is there, nobody else can run an event loop in this thread.
    """
    flags = [
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--no-first-run",
        "--disable-gpu",  # nothing here needs one, and pretending one takes a twentieth of the time
        "--disable-software-rasterizer",
        "--disable-features=BackForwardCache",  # a page that is left is gone
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
    ]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        flags.append("--no-sandbox")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_chromium(), args=flags)
        yield browser
        browser.close()


def _answers(page: Page, polling: Literal["raf"] | float) -> bool:
    try:
        page.wait_for_function("true", polling=polling, timeout=5_000)
    except PlaywrightTimeout:
        return False
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test tells whether its page still answered: a browser that hangs looks like one that is late."""
    report = yield
    page = getattr(item, "funcargs", {}).get("page")
    if report.when == "call" and report.failed and isinstance(page, Page):
        report.sections.append(
            (
                "the page afterwards",
                f"answers: {_answers(page, 100)}, draws: {_answers(page, 'raf')}, load of the machine: {os.getloadavg()}",
            )
        )
    return report


def _is_foreign(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme in {"http", "https", "ws", "wss"} and parts.hostname not in LOOPBACK


@pytest.fixture(scope="package")
def watched(browser: Browser) -> Iterator[tuple[Page, list[str]]]:
    """The page that tests share, and what went wrong on it."""
    context = browser.new_context()
    context.set_default_timeout(120_000)  # a click too may be late: 30 s were not enough once
    page = context.new_page()
    problems: list[str] = []
    page.on(
        "console", lambda message: message.type == "error" and problems.append(f"console: {message.text}")
    )
    page.on("pageerror", lambda error: problems.append(f"error: {error}"))
    page.on(
        "request", lambda request: _is_foreign(request.url) and problems.append(f"request: {request.url}")
    )
    yield page, problems
    context.close()


@pytest.fixture
def page(watched: tuple[Page, list[str]]) -> Iterator[Page]:
    """A blank page, 1280 wide, that must come through its test without errors and without foreign requests."""
    page, problems = watched
    page.set_viewport_size({"width": 1280, "height": 900})
    problems.clear()
    yield page
    found = list(problems)
    page.goto("about:blank")
    page.mouse.move(0, 0)
    page.context.clear_permissions()
    assert not found, found


@pytest.fixture(scope="package")
def loaded(embedded: Pair) -> Iterator[Service]:
    """The one service that has the embedded pair."""
    service = Service()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("specviz.models.loading.load_pair", lambda *_, **__: embedded)
        service.warm_up(DEFAULT_PAIR).join()
    yield service
    service.close()


@pytest.fixture(scope="module")
def serve() -> Iterator[Callable[[gr.Blocks], str]]:
    """A function that serves an app in a thread, as the real one is served, on a free port; returns its address.

    The apps of a module are closed with it: each takes tens of megabytes.
    """
    apps: list[gr.Blocks] = []

    def start(app: gr.Blocks) -> str:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        _, url, _ = launch(
            app, server_name="127.0.0.1", server_port=port, prevent_thread_lock=True, quiet=True
        )
        apps.append(app)
        return url

    yield start
    for app in apps:
        close(app)
