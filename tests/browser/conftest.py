"""Shared by the tests in a real browser: one Chromium, one page, and two servers of the whole app.

A test fails if its page logs an error, throws, or sends a request to another host.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import gradio as gr
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from specviz.app.page import build_page
from specviz.engine.pair import Pair
from specviz.serving.service import Service
from tests.browser.scripted import Recorder, Script
from tests.support.memory import memory_given_back  # noqa: F401  # a fixture of all tests here
from tests.support.serving import close, holding, start

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
expect.set_options(timeout=20_000)  # no test measures time, and the machine may be busy

LOOPBACK = {"127.0.0.1", "localhost", "::1"}


def _chromium() -> str | None:
    """The browser to drive: SPECVIZ_CHROMIUM, else the system's, else (None) Playwright's own."""
    candidates = (os.environ.get("SPECVIZ_CHROMIUM"), "/usr/bin/chromium", shutil.which("chromium"))
    return next((path for path in candidates if path and Path(path).exists()), None)


@contextlib.contextmanager
def chromium() -> Iterator[BrowserContext]:
    """The context of a Chromium that cannot resolve any host but this machine.

    Its profile is on disk and its tabs share a process, so that Chromium keeps compiled code: a page opens in two thirds of the time.
    """
    flags = [
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--no-first-run",
        "--disable-gpu",  # emulating one takes a twentieth of the time
        "--disable-software-rasterizer",
        "--disable-features=BackForwardCache",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
        "--process-per-site",
        "--js-flags=--no-opt",  # optimising code of pages that live for seconds takes a tenth of the time
    ]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        flags.append("--no-sandbox")
    with sync_playwright() as playwright, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        context = playwright.chromium.launch_persistent_context(
            profile, executable_path=_chromium(), args=flags
        )
        yield context
        context.close()


def _is_foreign(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme in {"http", "https", "ws", "wss"} and parts.hostname not in LOOPBACK


@pytest.fixture(scope="package")
def context() -> Iterator[BrowserContext]:
    """The one Chromium of all tests here, with its cache.

    Scope "package", because no other event loop can run in this thread while Playwright does.
    """
    with chromium() as context:
        context.set_default_timeout(120_000)
        # Whoever leaves breaks off gradio's streams, and it logs each that is under way. What is left no longer counts.
        context.add_init_script("addEventListener('beforeunload', () => { console.error = () => {}; });")
        yield context


@pytest.fixture(scope="package")
def browser(context: BrowserContext) -> Browser:
    """The same Chromium, for tests that need a context of their own: a phone, or storage of its own."""
    assert context.browser
    return context.browser


@pytest.fixture
def phone(browser: Browser) -> Iterator[Page]:
    """The blank page of a phone, with touch and without motion."""
    context = browser.new_context(
        viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True, reduced_motion="reduce"
    )
    yield context.new_page()
    context.close()


@pytest.fixture(scope="package")
def tab(context: BrowserContext) -> Page:
    """The one tab of all tests here: a new one takes as long as a page."""
    return context.new_page()


@pytest.fixture
def page(tab: Page) -> Iterator[Page]:
    """The tab, blank and 1280 wide; it must come through without errors and without foreign requests, and is blank again."""
    tab.set_viewport_size({"width": 1280, "height": 900})
    tab.emulate_media(reduced_motion="no-preference", color_scheme="light")
    problems: list[str] = []
    notes: dict[str, Callable[[Any], object]] = {
        "console": lambda said: said.type == "error" and problems.append(f"console: {said.text}"),
        "pageerror": lambda error: problems.append(f"error: {error}"),
        "request": lambda sent: _is_foreign(sent.url) and problems.append(f"request: {sent.url}"),
    }
    for event, note in notes.items():
        tab.on(event, note)  # type: ignore[call-overload]
    yield tab
    found = list(problems)
    for event, note in notes.items():
        tab.remove_listener(event, note)
    tab.unroute_all()
    # The page shows the last run of its tab again: the next test must not open on it.
    tab.evaluate("() => { try { localStorage.clear(); sessionStorage.clear(); } catch {} }")
    tab.goto("about:blank")
    tab.context.clear_permissions()
    assert not found, found


@pytest.fixture(scope="package")
def loaded(embedded: Pair) -> Iterator[Service]:
    """The one service that has the embedded pair."""
    service = Service()
    with holding(service, embedded):
        yield service


@pytest.fixture(scope="module")
def serve() -> Iterator[Callable[[gr.Blocks], str]]:
    """A function that serves an app of the module's own; returns its address."""
    apps: list[gr.Blocks] = []

    def keep(app: gr.Blocks) -> str:
        apps.append(app)
        return start(app, Service())

    yield keep
    for app in apps:
        close(app)


@pytest.fixture(scope="package")
def scripted() -> Iterator[tuple[str, Script]]:
    """The address of the whole page over a service without models, and that service; one for all tests here."""
    service = Script()
    page = build_page(service)
    yield start(page, service), service
    close(page)


@pytest.fixture
def script(scripted: tuple[str, Script]) -> Script:
    """The service of the scripted page, as new."""
    scripted[1].reset()
    return scripted[1]


@pytest.fixture
def address(scripted: tuple[str, Script], script: Script) -> str:
    """The address of the scripted page."""
    return scripted[0]


@pytest.fixture(scope="package")
def real(loaded: Service) -> Iterator[tuple[str, Recorder]]:
    """The address of the whole page over the embedded pair, and its service; one for all tests here."""
    service = Recorder(loaded)
    page = build_page(service)
    yield start(page, service), service
    close(page)
