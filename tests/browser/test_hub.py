"""The page when its pairs come from a hub that is slow, fails or refuses: moving progress, sentences, a page that goes on."""

from __future__ import annotations

from contextlib import ExitStack
from urllib.parse import urlencode

from playwright.sync_api import Page, expect

from specviz.app.controls import NOT_NOW
from specviz.models.availability import GATED
from specviz.models.registry import PAIRS
from tests.browser.driving import choose, run, wait_for_end
from tests.support.hub_visitor import PROMPT, SETTINGS, Visitor
from tests.support.stand_in_hub import Answer, Slow
from tests.support.stand_in_hub.served import SECONDS

WAIT = SECONDS * 1000
RECORD_SHARES = """() => {
    window.shares = [];
    new MutationObserver(() => {
        const found = /Downloading .+ - ([\\d.]+)%/.exec(document.querySelector("#view").innerText);
        if (found && window.shares.at(-1) !== Number(found[1])) window.shares.push(Number(found[1]));
    }).observe(document.querySelector("#view"), { childList: true, subtree: true, characterData: true });
}"""


def opened(page: Page, visitor: Visitor, tokens: int) -> None:
    """Open the page, ready to run on the first pair."""
    query = SETTINGS | {"tab": "generate", "prompt": PROMPT, "tokens": tokens}
    page.goto(f"{visitor.address}?{urlencode(query)}")
    expect(page.locator("#run")).to_be_enabled(timeout=WAIT)


def text(page: Page) -> str:
    return "".join(page.locator("#view").get_by_test_id("token").all_text_contents())


def test_a_slow_download_moves_and_a_failure_is_a_sentence(visitor: Visitor, page: Page) -> None:
    """The share shown increases with each file; after a failure the next run works."""
    visitor.forget()
    opened(page, visitor, tokens=8)
    choose(page, "pair", PAIRS["qwen2.5"].title)
    page.evaluate(RECORD_SHARES)
    with ExitStack() as slow:
        for number, speed in enumerate((1_000_000, 500_000, 300_000, 200_000), 1):
            file = f"model-{number:05d}-of-00004.safetensors"
            slow.enter_context(visitor.hub.plays(Slow(speed), files=file))
        run(page, minutes=SECONDS / 60)
    expect(page.get_by_test_id("failure")).to_be_hidden()
    shares = page.evaluate("window.shares")
    assert len(shares) > 2
    assert shares == sorted(shares)
    assert text(page)

    choose(page, "pair", PAIRS["opt"].title)
    with visitor.hub.plays(Answer(404), "facebook/*"):  # which is not asked for again
        run(page, minutes=SECONDS / 60)
    expect(page.get_by_test_id("failure")).to_contain_text("opt-125m")
    run(page, minutes=SECONDS / 60)
    expect(page.get_by_test_id("failure")).to_be_hidden()
    assert text(page)


def test_a_pair_that_cannot_be_had_is_grey_says_why_and_does_not_run(visitor: Visitor, page: Page) -> None:
    """A gated pair, where nobody is logged in: nothing is downloaded, and the run before stays."""
    opened(page, visitor, tokens=8)
    run(page, minutes=SECONDS / 60)
    before = text(page)
    title = PAIRS["gemma2"].title
    page.locator("#pair input").click()
    greyed = page.get_by_role("option", name=f"{title}{NOT_NOW}{GATED}")
    other = page.get_by_role("option", name=PAIRS["opt"].title, exact=True)
    colours = {option.evaluate("it => getComputedStyle(it).color") for option in (greyed, other)}
    assert len(colours) == 2
    greyed.click()
    refusal = f"{title} cannot be had now: {GATED}."
    expect(page.locator("#pair input")).to_have_value(f"{title}{NOT_NOW}{GATED}")
    asked = len(visitor.hub.asked)
    page.click("#run")
    expect(page.get_by_test_id("failure")).to_contain_text(refusal)
    wait_for_end(page)
    assert text(page) == before
    assert not [path for _, path in visitor.hub.asked[asked:] if "/resolve/" in path and "google" in path]
