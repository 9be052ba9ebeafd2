"""Every pair of the registry that comes from the hub, each way that SpecViz can be used and on both runners, from a stand-in hub.

Laws 2 and 5: what Python, the shell, the API and the page write at temperature 0 is what transformers' `generate` writes with the same
files; at temperature 1 all four write the same by the same coins. They are processes of their own, which download what they need.

The pairs that need no hub are not here: tests/e2e/test_embedded.py and most tests of this folder run on them.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import pytest
from gradio_client import Client
from playwright.sync_api import Browser, Page, expect

from specviz.models.registry import PAIRS
from tests.browser.driving import choose, open_settings, run, set_number
from tests.support.stand_in_hub import StandInHub
from tests.support.stand_in_hub.every_pair import GREEDY, HUB_PAIRS, PROMPT, SAMPLED, TOKENS
from tests.support.stand_in_hub.served import ROOT, SECONDS, environment, served
from tests.support.stand_in_hub.server import GOOD_TOKEN

RUNNERS = ("fused", "torch")
FUSED = {"smollm2", "smollm2-360m", "qwen2.5", "qwen2.5-1.5b"}
"""Pairs of an architecture that has fused passes."""
STRANGERS = {"opt"}
"""Pairs whose models are built otherwise: random weights of theirs agree on no most probable token."""


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandInHub]:
    with StandInHub(tmp_path_factory.mktemp("hub")) as hub:
        yield hub


def variables(runner: str) -> dict[str, str]:
    """Of the environment, beside the hub's: everything is offered to who has accepted all licences."""
    more = {"HF_TOKEN": GOOD_TOKEN, "SPECVIZ_PAIRS_OFFERED": ",".join(HUB_PAIRS)}
    return more | ({"SPECVIZ_CPU_RUNNER": "torch"} if runner == "torch" else {})


@pytest.fixture(scope="module", params=RUNNERS)
def runner(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def written(
    hub: StandInHub, runner: str, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    """What Python, the shell and transformers write, by pair."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.stand_in_hub.every_pair"],
        env=environment(hub, tmp_path_factory.mktemp("home"), **variables(runner)),
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def address(hub: StandInHub, runner: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where `specviz serve` serves, with an empty cache."""
    with served(hub, tmp_path_factory.mktemp("home"), **variables(runner)) as address:
        yield address


@pytest.fixture(scope="module")
def client(address: str) -> Client:
    return Client(address, verbose=False, httpx_kwargs={"timeout": SECONDS})


@dataclass
class Watched:
    """A page, and the errors of its scripts."""

    page: Page
    problems: list[str]


@pytest.fixture(scope="module")
def watched(address: str, browser: Browser) -> Iterator[Watched]:
    """One session of a browser for all pairs, set to greedy lossless decoding."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(SECONDS * 1000)
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    names = {
        "tab": "generate",
        "prompt": PROMPT,
        "method": "speed",
        "lenience": 0,
        "temperature": 0,
        "tokens": TOKENS,
        "seed": SAMPLED["seed"],
    }
    page.goto(f"{address}?{urlencode(names)}")
    expect(page.locator("#run")).to_be_enabled(timeout=SECONDS * 1000)
    open_settings(page)
    yield Watched(page, problems)
    context.close()


def write_on_page(page: Page, temperature: float) -> str:
    """Run, and read the text."""
    set_number(page, "temperature", temperature)
    run(page, minutes=SECONDS / 60)
    expect(page.get_by_test_id("failure")).to_be_hidden()
    return "".join(page.locator("#view").get_by_test_id("token").all_text_contents())


@pytest.mark.parametrize("key", HUB_PAIRS)
def test_python_and_shell_write_what_generate_writes(written: dict[str, Any], runner: str, key: str) -> None:
    """Law 5, on the runner that is meant; at temperature 1 a text is as long as it was asked to be, or ends by itself."""
    ways = written[key]
    python, expected = ways["python"], ways["generate"]
    assert "error" not in python, python
    assert python["runner"] == ("FusedModel" if runner == "fused" and key in FUSED else "TorchModel")
    assert python["ids"] == expected["ids"]
    assert python["text"] == expected["text"]
    assert ways["shell"] == expected["text"]
    assert ways["shell_sampled"] == python["sampled"]
    assert python["sampled_ended"]
    assert key in STRANGERS or 0 < python["accepted"] < 1, (
        "accepted and resampled tokens are both meant to occur"
    )
    assert 0 < python["sampled_accepted"] < 1


@pytest.mark.parametrize("key", HUB_PAIRS)
def test_loading_says_how_far_it_is(written: dict[str, Any], key: str) -> None:
    """The download of each model moves, and never goes back."""
    told = written[key]["python"]["told"]
    fractions = [fraction for fraction, _ in told]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0
    downloads = {fraction for fraction, text in told if re.fullmatch(r"Downloading .+: \d+ of \d+ MB", text)}
    assert len(downloads) > 1


@pytest.mark.parametrize("key", HUB_PAIRS)
def test_the_api_writes_what_generate_writes(client: Client, written: dict[str, Any], key: str) -> None:
    """Law 5; and at temperature 1 what Python writes by the same coins."""
    texts = [
        client.predict(PROMPT, pair=key, api_name="/generate", **each)["text"] for each in (GREEDY, SAMPLED)
    ]
    assert texts == [written[key]["generate"]["text"], written[key]["python"]["sampled"]]


@pytest.mark.parametrize("key", [*HUB_PAIRS, HUB_PAIRS[0]])
def test_the_page_writes_what_generate_writes(watched: Watched, written: dict[str, Any], key: str) -> None:
    """Law 5, in one session: one pair after the other, which makes room for the next, and the first one again.

    At temperature 1 it is what Python writes by the same coins.
    """
    choose(watched.page, "pair", PAIRS[key].title)
    assert write_on_page(watched.page, 0) == written[key]["generate"]["text"]
    assert write_on_page(watched.page, 1) == written[key]["python"]["sampled"]
    assert not watched.problems
