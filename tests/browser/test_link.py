"""Links in a real browser: a copied link restores every control, and nothing runs."""

from __future__ import annotations

import re
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import Page, expect

from specviz.core.methods import METHODS
from tests.browser.driving import MINUTES, choose, open_app, open_settings, set_number, unfold
from tests.browser.scripted import Script

PROMPT = "Why <b>so</b>?\n100% & más + “more” 🌈"
SAMPLING = {"temperature": 0.35, "top-k": 40, "top-p": 0.9, "max-new-tokens": 72, "seed": 123456}


def numbers(page: Page, *names: str) -> list[str]:
    return [page.locator(f"#{name} input[type=number]").input_value() for name in names]


def copied(page: Page, prefix: str = "") -> str:
    """Press Copy link; the address in the field."""
    page.click(f"#{prefix}copy-link")
    field = page.locator(f"#{prefix}link textarea")
    expect(field).to_be_visible()
    return field.input_value()


def follow(page: Page, link: str, prefix: str = "") -> None:
    page.goto("about:blank")
    page.goto(link)
    expect(page.locator(f"#{prefix}run")).to_be_enabled(timeout=MINUTES)
    page.wait_for_timeout(500)  # time for a late event to spoil a control


def test_a_link_restores_every_control_of_one_run(page: Page, address: str, script: Script) -> None:
    open_app(page, address)
    page.fill("#prompt textarea", PROMPT)
    choose(page, "method", METHODS["cascade_opt"].label)
    set_number(page, "lenience", -2.5)
    open_settings(page)
    choose(page, "pair", "GPT-2 small → XL")
    expect(page.locator("#draft-length input")).to_have_value("automatic")
    choose(page, "draft-length", "7")
    assert "repetition_penalty" not in copied(page), "an empty box means the pair's own"
    penalty = page.get_by_label("Repetition penalty").first
    penalty.fill("1.15")
    for name, value in SAMPLING.items():
        set_number(page, name, value)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    link = copied(page)
    expect(page.locator("#link")).to_contain_text("Link, copied")
    assert page.evaluate("navigator.clipboard.readText()") == link

    follow(page, link)
    expect(page.locator("#prompt textarea")).to_have_value(PROMPT)
    expect(page.locator("#run")).to_be_focused()
    expect(page.locator("#method input")).to_have_value(METHODS["cascade_opt"].label)
    expect(page.locator("#lenience input[type=number]")).to_have_attribute("min", "-5")
    expect(page.locator("#pair input")).to_have_value(re.compile("^GPT-2 small → XL"))
    open_settings(page)
    expect(page.locator("#seed input")).to_have_value("123456")
    assert numbers(page, "lenience", *SAMPLING) == [str(value) for value in (-2.5, *SAMPLING.values())]
    expect(page.locator("#draft-length input")).to_have_value("7")
    expect(penalty).to_have_value("1.15")
    expect(page.locator("#repetition-penalty")).to_contain_text(
        "1 is off. Leave empty for this pair’s own, 1."
    )
    choose(page, "pair", "Qwen2.5 0.5B → 7B")
    expect(page.locator("#repetition-penalty")).to_contain_text("Leave empty for this pair’s own, 1.05.")
    expect(page.locator("#link-banner")).to_have_count(0)
    # From here on the method's own default is used again; without access to the clipboard the link is shown.
    choose(page, "method", METHODS["cascade_chow"].label)
    expect(page.locator("#lenience input[type=number]")).to_have_value("0.5")
    page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('denied')); }")
    assert "method=cascade_chow&lenience=0.5" in copied(page)
    expect(page.locator("#link")).to_contain_text("copy it from here")
    assert not script.asked


def test_a_link_restores_every_control_of_compare(page: Page, address: str, script: Script) -> None:
    open_app(page, address, "compare")
    page.get_by_label("3", exact=True).check()
    expect(page.locator("#compare-4-method")).to_be_hidden()
    page.fill("#compare-prompt textarea", PROMPT)
    choose(page, "compare-1-method", METHODS["cascade_diff"].label)
    set_number(page, "compare-1-lenience", -0.3)
    choose(page, "compare-2-draft-length", "9")
    unfold(page, "Sampling, seed")
    for name in ("temperature", "seed"):
        set_number(page, f"compare-{name}", SAMPLING[name])
    link = copied(page, "compare-")
    panes = ["cascade_diff:-0.3:auto", "speed:0.5:9", "cascade_tokenV3:0:auto"]
    assert parse_qs(urlsplit(link).query)["pane"] == panes

    follow(page, link, "compare-")
    expect(page.get_by_role("tab", name="Compare")).to_have_attribute("aria-selected", "true")
    expect(page.get_by_label("3", exact=True)).to_be_checked()
    expect(page.locator("#compare-4-method")).to_be_hidden()
    expect(page.locator("#compare-prompt textarea")).to_have_value(PROMPT)
    for number, pane in enumerate(panes, 1):
        method, lenience, length = pane.split(":")
        expect(page.locator(f"#compare-{number}-method input")).to_have_value(METHODS[method].label)
        expect(page.locator(f"#compare-{number}-lenience input[type=number]")).to_have_value(lenience)
        shown = "automatic" if length == "auto" else length
        expect(page.locator(f"#compare-{number}-draft-length input")).to_have_value(shown)
    unfold(page, "Sampling, seed")
    expect(page.locator("#compare-seed input")).to_have_value("123456")
    assert numbers(page, "compare-temperature") == ["0.35"]
    assert not script.compared
