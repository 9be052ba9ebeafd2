"""Every pair of the registry that comes from the hub, on the page and in Python, from a stand-in hub.

Laws 2 and 5: at temperature 0 the page, the API, the shell and Python write what transformers' `generate` writes with the
same files; at temperature 1 they all write the same text from the same uniforms. Pairs that need no hub are tested in
tests/e2e/test_embedded.py.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
from gradio_client import Client
from playwright.sync_api import Browser, Page, expect

from specviz.models.registry import PAIRS
from tests.browser.driving import choose, close_settings, open_settings, run, set_number
from tests.support.stand_in_hub import StandInHub
from tests.support.stand_in_hub.every_pair import BY_SHELL, FUSED, GREEDY, HUB_PAIRS, PROMPT, SAMPLED, TOKENS
from tests.support.stand_in_hub.served import ROOT, SECONDS, environment, served
from tests.support.stand_in_hub.server import GOOD_TOKEN

UNRELATED = {"opt"}
"""Pairs of two architectures: with random weights they agree on no most probable token."""
VARIABLES = {"HF_TOKEN": GOOD_TOKEN, "SPECVIZ_PAIRS_OFFERED": ",".join(HUB_PAIRS)}


@pytest.fixture(scope="module")
def written(hub: StandInHub, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What transformers, Python and the shell write, by pair."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.stand_in_hub.every_pair"],
        env=environment(hub, tmp_path_factory.mktemp("home"), **VARIABLES),
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def address(hub: StandInHub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where `specviz serve` serves, with an empty cache."""
    with served(hub, tmp_path_factory.mktemp("home"), **VARIABLES) as address:
        yield address


@pytest.fixture(scope="module")
def client(address: str) -> Client:
    return Client(address, verbose=False, httpx_kwargs={"timeout": SECONDS})


@pytest.fixture(scope="module")
def session(address: str, browser: Browser) -> Iterator[Page]:
    """One page for all pairs, set to greedy lossless decoding."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(SECONDS * 1000)
    page = context.new_page()
    query = {
        "tab": "generate",
        "prompt": PROMPT,
        "method": "speed",
        "lenience": 0,
        "temperature": 0,
        "tokens": TOKENS,
        "seed": SAMPLED["seed"],
    }
    page.goto(f"{address}?{urlencode(query)}")
    expect(page.locator("#run")).to_be_enabled(timeout=SECONDS * 1000)
    yield page
    context.close()


def write_on_page(page: Page, temperature: float) -> str:
    """Run, and read the text."""
    open_settings(page)
    set_number(page, "temperature", temperature)
    close_settings(page)
    run(page, minutes=SECONDS / 60)
    expect(page.get_by_test_id("failure")).to_be_hidden()
    return "".join(page.locator("#view").get_by_test_id("token").all_text_contents())


@pytest.mark.parametrize("key", HUB_PAIRS)
def test_python_writes_what_generate_writes_while_loading_reports_progress(
    written: dict[str, Any], key: str
) -> None:
    """Law 5, on torch and, where the architecture has them, on fused passes."""
    expected = written[key]["generate"]
    for way, runner in (("python", "FusedModel" if key in FUSED else "TorchModel"), ("torch", "TorchModel")):
        if way == "torch" and key not in FUSED:
            continue
        python = written[key][way]
        assert python.get("runner") == runner, python
        assert (python["ids"], python["text"]) == (expected["ids"], expected["text"])
        assert python["sampled_ended"]
        assert key in UNRELATED or 0 < python["accepted"] < 1
        assert 0 < python["sampled_accepted"] < 1
    told = written[key]["python"]["told"]
    fractions = [fraction for fraction, _ in told]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0
    assert len({at for at, text in told if re.fullmatch(r"Downloading .+: \d+ of \d+ MB", text)}) > 1


@pytest.mark.parametrize("key", BY_SHELL)
def test_the_shell_writes_what_python_writes(written: dict[str, Any], key: str) -> None:
    ways = written[key]
    assert ways["shell"] == ways["generate"]["text"]
    assert ways["shell_sampled"] == ways["python"]["sampled"]


@pytest.mark.parametrize("key", [*HUB_PAIRS, HUB_PAIRS[0]])
def test_page_and_api_write_what_generate_and_python_write(
    session: Page, client: Client, written: dict[str, Any], key: str
) -> None:
    """In one session: one pair after the other, each replaced by the next, and the first one again."""
    expected = [written[key]["generate"]["text"], written[key]["python"]["sampled"]]
    choose(session, "pair", PAIRS[key].title)
    assert [write_on_page(session, temperature) for temperature in (0, 1)] == expected
    if key in BY_SHELL:
        texts = [
            client.predict(PROMPT, pair=key, api_name="/generate", **each)["text"]
            for each in (GREEDY, SAMPLED)
        ]
        assert texts == expected
