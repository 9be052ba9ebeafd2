"""The page, when its pairs come from a hub that is slow, fails or refuses: progress that moves, sentences, and a page that goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError
from playwright.sync_api import Page, expect

from specviz.app.controls import NOT_NOW
from specviz.models.availability import GATED
from specviz.models.registry import PAIRS
from tests.browser.driving import choose, open_settings, run, wait_for_end
from tests.support.stand_in_hub import Answer, Slow, StandInHub
from tests.support.stand_in_hub.served import SECONDS, served

WAIT = SECONDS * 1000
SETTINGS: dict[str, Any] = {"method": "speed", "lenience": 0, "temperature": 0, "seed": 1}
NAMES = SETTINGS | {"tab": "generate", "prompt": "Why is the sky blue?"}


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandInHub]:
    with StandInHub(tmp_path_factory.mktemp("hub")) as hub:
        yield hub


@pytest.fixture(scope="module")
def address(hub: StandInHub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that logs in nowhere, with an empty cache, and has one pair in memory at a time."""
    home: Path = tmp_path_factory.mktemp("home")
    more = {"SPECVIZ_PAIRS": "1", "SPECVIZ_PAIRS_OFFERED": "gpt2,distilgpt2,opt,qwen2.5,gemma2"}
    with served(hub, home, **more) as address:
        write(address, "gpt2", 1)  # the first pair is being loaded: none other is meanwhile
        yield address


def write(address: str, pair: str, tokens: int) -> str:
    """A text by the API, with the page's prompt and settings."""
    client = Client(address, verbose=False, httpx_kwargs={"timeout": SECONDS})
    asked = SETTINGS | {"max_new_tokens": tokens}
    return str(client.predict(NAMES["prompt"], pair=pair, api_name="/generate", **asked)["text"])


def opened(page: Page, address: str, tokens: int) -> None:
    """Open the page with `NAMES`, ready to run; its first pair is gpt2."""
    page.goto(f"{address}?{urlencode(NAMES | {'tokens': tokens})}")
    expect(page.locator("#run")).to_be_enabled(timeout=WAIT)
    open_settings(page)


def told(page: Page) -> list[int]:
    """The shares of a download that the page has shown since `watch_download`, in percent."""
    return page.evaluate("window.shares")  # type: ignore[no-any-return]


def watch_download(page: Page) -> None:
    page.evaluate(
        """() => {
            window.shares = [];
            new MutationObserver(() => {
                const found = /Downloading .+ - ([\\d.]+)%/.exec(document.querySelector("#view").innerText);
                if (found && window.shares.at(-1) !== Number(found[1])) window.shares.push(Number(found[1]));
            }).observe(document.querySelector("#view"), { childList: true, subtree: true, characterData: true });
        }"""
    )


def text(page: Page) -> str:
    return "".join(page.locator("#view").get_by_test_id("token").all_text_contents())


def test_a_download_moves_while_it_is_slow(hub: StandInHub, address: str, page: Page) -> None:
    """What is shown increases, more than once, before anything is written: at the latest with each file, and here one comes after another."""
    opened(page, address, tokens=8)
    choose(page, "pair", PAIRS["qwen2.5"].title)
    watch_download(page)
    with ExitStack() as slow:
        for number, speed in enumerate((1_000_000, 500_000, 300_000, 200_000), 1):
            slow.enter_context(hub.plays(Slow(speed), files=f"model-{number:05d}-of-00004.safetensors"))
        run(page, minutes=SECONDS / 60)
    expect(page.get_by_test_id("failure")).to_be_hidden()
    shares = told(page)
    assert len(shares) > 2
    assert shares == sorted(shares)
    assert text(page)


def test_a_hub_that_is_out_of_order_is_one_sentence_and_the_next_run_works(
    hub: StandInHub, address: str, page: Page
) -> None:
    opened(page, address, tokens=8)
    choose(page, "pair", PAIRS["opt"].title)
    with hub.plays(Answer(503)):
        run(page, minutes=SECONDS / 60)
    expect(page.get_by_test_id("failure")).to_contain_text("is out of order")
    run(page, minutes=SECONDS / 60)
    expect(page.get_by_test_id("failure")).to_be_hidden()
    assert text(page)


def test_a_pair_that_cannot_be_had_is_grey_says_why_and_does_not_run(
    hub: StandInHub, address: str, page: Page
) -> None:
    """A gated one, where nobody is logged in: nothing is downloaded, and the run before stays."""
    opened(page, address, tokens=8)
    run(page, minutes=SECONDS / 60)
    before = text(page)
    title = PAIRS["gemma2"].title
    page.locator("#pair input").click()
    greyed = page.get_by_role("option", name=f"{title}{NOT_NOW}{GATED}")
    colours = [
        option.evaluate("it => getComputedStyle(it).color")
        for option in (greyed, page.get_by_role("option", name=PAIRS["opt"].title, exact=True))
    ]
    assert colours[0] != colours[1]
    greyed.click()
    refusal = f"{title} cannot be had now: {GATED}."
    expect(page.locator(".specviz-settings, #settings-drawer")).to_contain_text(refusal)
    asked = len(hub.asked)
    page.click("#run")
    expect(page.get_by_test_id("toast-body")).to_contain_text(refusal)
    wait_for_end(page)
    assert text(page) == before
    files = [path for _, path in hub.asked[asked:] if "/resolve/" in path and "google" in path]
    assert not files


def test_a_pair_is_not_unloaded_while_a_text_is_written_on_it(address: str, page: Page) -> None:
    """Who asks for another pair meanwhile hears so in a sentence; the text ends right, and then both pairs work."""
    expected = write(address, "gpt2", 512)
    opened(page, address, tokens=512)
    page.click("#run")
    expect(page.get_by_test_id("token").first).to_be_attached(timeout=WAIT)
    with pytest.raises(AppError, match=r"no other model pair can be loaded while GPT-2 .* in use"):
        write(address, "distilgpt2", 8)
    wait_for_end(page, SECONDS / 60)
    assert text(page) == expected
    assert write(address, "distilgpt2", 8)
    run(page, minutes=SECONDS / 60)
    assert text(page) == expected
