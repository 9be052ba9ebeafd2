"""Links in a real browser: what one copies restores every control, nothing runs, and a hostile query is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import gradio as gr
import pytest
from playwright.sync_api import Browser, Page, expect

from specviz.app.page import build_page
from specviz.core.methods import METHODS
from specviz.serving.service import Service
from tests.browser.driving import MINUTES, choose, open_settings, set_number, unfold

PROMPT = "Why <b>so</b>?\n100% & más + “more” 🌈"


class Untouched(Service):
    """A service that nobody may ask for anything."""

    asked = 0

    def engine(self, *_: Any, **__: Any) -> Any:
        self.asked += 1
        raise AssertionError("something ran")


@pytest.fixture(scope="module")
def served(serve: Callable[[gr.Blocks], str]) -> tuple[str, Untouched]:
    service = Untouched()
    return serve(build_page(service)), service


def opened(page: Page, address: str, prefix: str = "") -> None:
    page.goto(address if "?" in address else f"{address}?tab=generate")
    expect(page.locator(f"#{prefix}run")).to_be_enabled(timeout=MINUTES)


def numbers(page: Page, *names: str) -> list[str]:
    return [page.locator(f"#{name} input[type=number]").input_value() for name in names]


def copied(page: Page, prefix: str = "") -> str:
    """Press Copy link; the address that stands in the field."""
    page.click(f"#{prefix}copy-link")
    field = page.locator(f"#{prefix}link textarea")
    expect(field).to_be_visible()
    return field.input_value()


SAMPLING = {"temperature": 0.35, "top-k": 40, "top-p": 0.9, "max-new-tokens": 72, "seed": 123456}


def test_a_link_restores_every_control_of_generate(
    page: Page, served: tuple[str, Untouched], browser: Browser
) -> None:
    opened(page, served[0])
    page.fill("#prompt textarea", PROMPT)
    choose(page, "method", METHODS["cascade_opt"].label)
    set_number(page, "lenience", -2.5)
    open_settings(page)
    choose(page, "pair", "GPT-2 small → XL")
    expect(page.locator("#draft-length input")).to_have_value("automatic")
    choose(page, "draft-length", "7")
    assert "repetition_penalty" not in parse_qs(urlsplit(copied(page)).query), (
        "an empty box is the pair's own"
    )
    page.get_by_label("Repetition penalty").first.fill("1.15")
    for name, value in SAMPLING.items():
        set_number(page, name, value)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    link = copied(page)
    expect(page.locator("#link")).to_contain_text("Link, copied")
    assert page.evaluate("navigator.clipboard.readText()") == link
    query = parse_qs(urlsplit(link).query)
    assert query["prompt"] == [PROMPT]
    assert (query["tab"], query["pair"], query["seed"]) == (["generate"], ["gpt2"], ["123456"])

    context = browser.new_context(viewport={"width": 1280, "height": 900})
    other = context.new_page()
    opened(other, link)
    expect(other.locator("#prompt textarea")).to_have_value(PROMPT)
    expect(other.locator("#run")).to_be_focused()
    expect(other.locator("#method input")).to_have_value(METHODS["cascade_opt"].label)
    expect(other.locator("#about-method")).to_contain_text("allowance")
    expect(other.locator("#lenience input[type=number]")).to_have_attribute("min", "-5")
    expect(other.locator("#pair input")).to_have_value(re.compile("^GPT-2 small → XL"))
    open_settings(other)
    names = ["lenience", *SAMPLING]
    expect(other.locator("#seed input")).to_have_value("123456")
    other.wait_for_timeout(500)  # time for a late event to spoil it
    assert numbers(other, *names) == [str(value) for value in (-2.5, *SAMPLING.values())]
    expect(other.locator("#draft-length input")).to_have_value("7")
    penalty = other.get_by_label("Repetition penalty").first
    expect(penalty).to_have_value("1.15")
    expect(other.locator("#repetition-penalty")).to_contain_text("1 is off. Empty is this pair’s own, 1.")
    choose(other, "pair", "Qwen2.5 0.5B → 7B")
    expect(other.locator("#repetition-penalty")).to_contain_text("Empty is this pair’s own, 1.05.")
    expect(penalty).to_have_value("1.15")
    choose(other, "pair", "GPT-2 small → XL")
    expect(other.locator("#link-banner")).to_have_count(0)
    # From here on the method's own default counts again, and without leave for the clipboard the link is shown.
    choose(other, "method", METHODS["cascade_chow"].label)
    expect(other.locator("#lenience input[type=number]")).to_have_value("0.5")
    other.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('denied')); }")
    assert "method=cascade_chow&lenience=0.5" in copied(other)
    expect(other.locator("#link")).to_contain_text("copy it from here")
    context.close()
    assert served[1].asked == 0


def test_a_link_restores_every_control_of_compare(
    page: Page, served: tuple[str, Untouched], browser: Browser
) -> None:
    opened(page, f"{served[0]}?tab=compare", "compare-")
    page.get_by_label("3", exact=True).check()
    expect(page.locator("#compare-4-method")).to_be_hidden()
    page.fill("#compare-prompt textarea", PROMPT)
    choose(page, "compare-1-method", METHODS["cascade_diff"].label)
    set_number(page, "compare-1-lenience", -0.3)
    choose(page, "compare-2-draft-length", "9")
    choose(page, "compare-pair", "GPT-2 small → XL")
    unfold(page, "Sampling, seed")
    for name in ("temperature", "seed"):
        set_number(page, f"compare-{name}", SAMPLING[name])
    link = copied(page, "compare-")
    assert parse_qs(urlsplit(link).query)["temperature"] == ["0.35"]
    assert parse_qs(urlsplit(link).query)["pane"] == [
        "cascade_diff:-0.3:auto",
        "speed:0.5:9",
        "cascade_tokenV3:0:auto",
    ]

    context = browser.new_context(viewport={"width": 1280, "height": 900})
    other = context.new_page()
    opened(other, link, "compare-")
    expect(other.get_by_role("tab", name="Compare")).to_have_attribute("aria-selected", "true")
    expect(other.get_by_label("3", exact=True)).to_be_checked()
    expect(other.locator("#compare-4-method")).to_be_hidden()
    expect(other.locator("#compare-prompt textarea")).to_have_value(PROMPT)
    expect(other.locator("#compare-1-method input")).to_have_value(METHODS["cascade_diff"].label)
    expect(other.locator("#compare-2-method input")).to_have_value(METHODS["speed"].label)
    expect(other.locator("#compare-pair input")).to_have_value(re.compile("^GPT-2 small → XL"))
    unfold(other, "Sampling, seed")
    expect(other.locator("#compare-seed input")).to_have_value("123456")
    other.wait_for_timeout(500)
    for number, shown in enumerate(("automatic", "9", "automatic"), 1):
        expect(other.locator(f"#compare-{number}-draft-length input")).to_have_value(shown)
    names = ["1-lenience", "2-lenience", "3-lenience", "temperature", "seed"]
    assert numbers(other, *(f"compare-{name}" for name in names)) == [
        str(value) for value in (-0.3, 0.5, 0, 0.35, 123456)
    ]
    context.close()
    assert served[1].asked == 0


def test_hostile_values_are_refused_with_a_sentence_and_the_controls_stay(
    page: Page, served: tuple[str, Untouched]
) -> None:
    evil = quote("<img src=x onerror=alert(1)>")
    query = f"pair={evil}&method={evil}&temperature=NaN&seed=1&seed=2&tokens=1e99&prompt={'x' * 4001}&k=3&pane={evil}"
    opened(page, f"{served[0]}?tab={evil}&{query}")
    banner = page.locator("#link-banner")
    expect(banner.get_by_role("alert")).to_be_visible()
    for name in ("tab", "pair", "method", "temperature", "seed", "tokens", "prompt", "pane"):
        expect(banner).to_contain_text(f"The link’s “{name}” was left out: ")
    assert "onerror" not in banner.inner_text()
    expect(page.locator("img[src=x]")).to_have_count(0)
    expect(page.locator("#method input")).to_have_value(METHODS["cascade_tokenV3"].label)
    open_settings(page)
    expect(page.locator("#draft-length input")).to_have_value("3")
    assert numbers(page, "temperature", "seed", "max-new-tokens") == ["0.7", "0", "128"]
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    assert served[1].asked == 0
