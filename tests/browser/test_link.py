"""Addresses in a real browser: a copied link restores every control; Back and Forward show each view again; nothing runs."""

from __future__ import annotations

import re
from typing import Any

from playwright.sync_api import Browser, Page, expect

from specviz.core.methods import METHODS
from specviz.schema.settings import Request
from tests.browser.driving import MINUTES, choose, open_app, open_settings, run, set_number
from tests.browser.scripted import Script

PROMPT = "Why <b>so</b>?\n100% & más + “more” 🌈"
SAMPLING = {"temperature": 0.35, "top-k": 40, "top-p": 0.9, "max-new-tokens": 72, "seed": 123456}


def test_a_link_restores_every_control_of_one_run_and_what_is_set_is_asked(
    page: Page, address: str, script: Script
) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    open_app(page, address)
    page.fill("#prompt textarea", PROMPT)
    choose(page, "method", METHODS["cascade_opt"].label)
    set_number(page, "lenience", -2.5)
    choose(page, "pair", "GPT-2 small → XL")
    open_settings(page)
    choose(page, "draft-length", "7")
    penalty = page.get_by_label("Repetition penalty").first
    penalty.fill("1.15")
    for name, value in SAMPLING.items():
        set_number(page, name, value)
    page.keyboard.press("Escape")
    page.click("#share")
    page.click("#copy-link")
    expect(page.get_by_test_id("address-message")).to_have_text("Link copied")

    link = str(page.evaluate("navigator.clipboard.readText()"))
    page.goto("about:blank")
    page.goto(link)
    expect(page.locator("#run")).to_be_focused(timeout=MINUTES)
    page.wait_for_timeout(500)  # time for a late event to spoil a control
    expect(page.locator("#prompt textarea")).to_have_value(PROMPT)
    expect(page.locator("#method input")).to_have_value(METHODS["cascade_opt"].label)
    expect(page.locator("#pair input")).to_have_value(re.compile("^GPT-2 small → XL"))
    open_settings(page)
    for name, value in {"lenience": -2.5, **SAMPLING}.items():
        expect(page.locator(f"#{name} input[type=number]")).to_have_value(str(value))
    expect(page.locator("#draft-length input")).to_have_value("7")
    expect(penalty).to_have_value("1.15")
    expect(page.locator("#link-banner")).to_have_count(0)
    page.keyboard.press("Escape")
    assert not script.asked, "a link runs nothing"
    choose(page, "pair", "SmolLM2 135M, embedded")
    run(page)
    settings: dict[str, Any] = {name.replace("-", "_"): value for name, value in SAMPLING.items()}
    settings |= {"lenience": -2.5, "draft_length": 7, "repetition_penalty": 1.15, "inspect": 10}
    assert script.asked == [("embedded", Request(PROMPT, method="cascade_opt", **settings))]


def shows(page: Page, query: str, *tabs: str) -> None:
    """Wait until the address has this query and these tabs are selected, outermost first."""
    page.wait_for_function("query => location.search === query", arg=query)
    for tab in tabs:
        expect(page.locator(f"[data-tab-id={tab}]")).to_have_attribute("aria-selected", "true")


def test_back_and_forward_lead_through_all_views_without_a_reload(
    page: Page, address: str, script: Script
) -> None:
    """A place, a recorded run, a run of one's own, settings of a comparison, a lesson's step: each is as it was."""
    views = []

    def view(*tabs: str) -> None:
        expect(page.locator(f"[data-tab-id={tabs[0]}]")).to_have_attribute("aria-selected", "true")
        page.wait_for_timeout(200)
        views.append((str(page.evaluate("location.search")), tabs))

    page.emulate_media(reduced_motion="reduce")
    page.goto(address)
    expect(page.locator(".sr-race")).to_be_visible(timeout=MINUTES)
    view("idea")
    page.evaluate("window.stays = true")
    page.get_by_test_id("cascade").get_by_role("link").click()
    expect(page.locator("#examples input")).to_have_value(re.compile("token rule"))
    view("generate")
    page.fill("#prompt textarea", PROMPT)
    run(page)
    view("generate")
    page.get_by_role("tab", name="Compare methods").click()
    view("compare")
    page.locator(".sp-preset").nth(1).click()
    page.wait_for_function("new URLSearchParams(location.search).has('pane')")
    view("compare")
    page.get_by_role("tab", name="Speed or quality").click()
    view("tradeoff")
    page.get_by_role("tab", name="Learn").click()
    view("learn", "lessons")
    page.locator(".sl-start").first.click()
    expect(page.locator(".sl-stage[data-place='1']")).to_be_visible(timeout=MINUTES)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".sl-stage[data-place='2']")).to_be_visible()

    page.go_back()
    expect(page.locator(".sl-stage[data-place='1']")).to_be_visible()
    page.go_back()
    expect(page.get_by_test_id("player")).to_have_count(0)
    for query, tabs in reversed(views[:-1]):
        page.go_back()
        shows(page, query, *tabs)
        if query == views[2][0]:
            expect(page.locator("#prompt textarea")).to_have_value(PROMPT)
        if query == views[1][0]:
            expect(page.locator("#examples input")).to_have_value(re.compile("token rule"))
    for query, tabs in views[1:3]:
        page.go_forward()
        shows(page, query, *tabs)
    assert page.evaluate("window.stays"), "the page was loaded again"
    assert len(script.asked) == 1, "going back runs nothing"


def test_a_prompt_too_long_for_an_address_is_left_out_of_it_and_runs(
    page: Page, address: str, script: Script
) -> None:
    """Servers refuse long addresses, which gradio sends with every request."""
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    open_app(page, address)
    page.fill("#prompt textarea", "почему " * 500)
    run(page)
    assert len(script.asked) == 1
    assert len(page.url) < 2000
    page.click("#share")
    page.click("#copy-link")
    expect(page.get_by_test_id("address-message")).to_contain_text("without the prompt")
    open_settings(page)
    set_number(page, "seed", 5)
    page.keyboard.press("Escape")
    run(page)
    page.go_back()
    page.wait_for_function("!location.search.includes('seed=5')")
    expect(page.locator("#seed input[type=number]")).not_to_have_value("5")
    expect(page.locator("#prompt textarea")).to_have_value(re.compile("почему"))


def test_a_link_opens_a_place_within_a_tab_and_a_token(page: Page, address: str, script: Script) -> None:
    """Lessons: test_lesson.py; comparisons: test_compare.py; sweeps: test_tradeoff.py; the playground: its own test."""
    page.goto(f"{address}?tab=wrong")
    shows(page, "?tab=wrong", "learn", "wrong")
    page.goto(f"{address}?tab=generate&run=lossless&token=3")
    shows(page, "?tab=generate&run=lossless&token=3", "generate")
    expect(page.get_by_test_id("token").nth(3)).to_have_attribute("aria-selected", "true")
    assert not script.asked


def test_where_storage_is_denied_every_place_works(browser: Browser, address: str, script: Script) -> None:
    """As in a frame of another site."""
    context = browser.new_context()
    context.add_init_script(
        "for (const name of ['localStorage', 'sessionStorage'])"
        " Object.defineProperty(window, name, { get() { throw new DOMException('denied', 'SecurityError'); } });"
    )
    page, errors = context.new_page(), []
    page.on("pageerror", lambda error: errors.append(str(error)))
    open_app(page, address)
    run(page)
    expect(page.get_by_test_id("token").first).to_be_visible()
    for name in ("The idea", "Compare methods", "Speed or quality", "Learn"):
        page.get_by_role("tab", name=name).click()
        expect(page.get_by_role("tab", name=name)).to_have_attribute("aria-selected", "true")
    assert not errors
    context.close()
