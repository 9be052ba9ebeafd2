"""One run on the page in a real browser: real runs of the embedded pair, and every way in which a run can end."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from specviz.analysis.recorded_runs import read_recorded_runs
from specviz.app.controls import EXAMPLES, NOT_NOW
from specviz.app.marks import method_menu
from specviz.core.methods import METHODS, OWN_RULE
from specviz.errors import PairError
from specviz.models.availability import GATED
from specviz.models.registry import PAIRS
from specviz.schema.trace import Run, parse_trace
from tests.browser.driving import (
    LONG_RUN,
    MINUTES,
    choose,
    close_settings,
    let_draw,
    open_app,
    open_settings,
    run,
    set_number,
    unfold_all,
    wait_for_end,
)
from tests.browser.first_screen import Place, faults
from tests.browser.scripted import Recorder, Script
from tests.support.traces import make_trace
from tests.support.waiting import wait_until

ONE_RUN = Place(
    place="#one-run",
    texts="#view [data-testid=page]",
    parts="#one-run .specviz-ask, #one-run .specviz-choice, #view .sv-status, #view .sv-page, #view .sv-timeline",
    words="#view .sv-figures, #view .sv-verdict, #lenience .sl-keeps",
    controls=16,
)


@pytest.fixture
def opened(script: Script, page: Page, address: str) -> Script:
    """The service of the scripted page, which is open at One run."""
    open_app(page, address)
    return script


def tokens(page: Page) -> Locator:
    return page.get_by_test_id("token")


def check_inspector(page: Page, run_: Run, index: int) -> None:
    """The inspector shows the numbers of the trace for token `index`."""
    token, inspector = run_.tokens[index], page.get_by_test_id("inspector")
    unfold_all(page)
    expect(inspector).to_contain_text(f"Token {index + 1} ")
    expect(inspector).to_contain_text(f"Position {token.position}, id {token.id}.")
    expect(inspector.locator("h3")).to_contain_text("accepted" if token.accepted else "→")
    picture = inspector.locator(".sv-picture")
    expect(picture).to_have_attribute("data-coin", str(token.coin))
    assert float(picture.get_attribute("data-acceptance") or "nan") == token.acceptance


def test_a_real_run_streams_and_shows_its_trace(real: tuple[str, Recorder], page: Page) -> None:
    """Law 7: some forty tokens of the embedded pair: nodes, colours, chart points and numbers are the trace's."""
    address, service = real
    open_app(page, address, moves=True)
    open_settings(page)
    choose(page, "draft-length", "3")
    set_number(page, "max-new-tokens", 48)
    close_settings(page)
    run(page, minutes=3)
    trace = parse_trace(service.runs[-1])
    assert len(trace.tokens) >= 40
    expect(tokens(page)).to_have_count(len(trace.tokens))
    expect(page.locator("[data-testid=token].accepted")).to_have_count(sum(trace.accepted))
    assert "".join(tokens(page).all_text_contents()) == trace.text
    expect(page.get_by_test_id("chart").locator(".sv-brick")).to_have_count(len(trace.tokens))
    expect(page.locator("#view [data-figure=calls]")).to_contain_text(str(trace.verifier_calls))
    # By mouse, then by keyboard.
    tokens(page).nth(7).click()
    check_inspector(page, trace, 7)
    tokens(page).nth(7).press("ArrowRight")
    check_inspector(page, trace, 8)


def hold(page: Page, script: Script) -> None:
    """Begin a run that goes on from its middle when `goes_on` is set; wait until three of its tokens are on the page."""
    script.goes_on.clear()
    page.click("#run")
    expect(page.locator("#stop")).to_be_enabled()
    expect(tokens(page).nth(2)).to_have_text(parse_trace(script.trace).tokens[2].text)


def test_enter_and_run_during_a_run_change_nothing_and_nothing_comes_after_a_stop(
    page: Page, opened: Script
) -> None:
    """On a phone, where the text and Stop are in view, and a token's inspector."""
    page.set_viewport_size({"width": 390, "height": 844})
    hold(page, opened)
    expect(page.locator("#view").get_by_test_id("text")).to_be_in_viewport()
    expect(page.locator("#stop")).to_be_in_viewport()
    page.locator("#prompt textarea").press("Enter")
    page.locator("#run").dispatch_event("click")
    page.click("#stop")
    wait_for_end(page)
    assert (len(opened.asked), opened.active) == (1, 0)
    written = tokens(page).count()
    opened.goes_on.set()
    page.wait_for_timeout(500)
    assert tokens(page).count() == written < len(parse_trace(opened.trace).tokens)
    tokens(page).nth(2).click()
    expect(page.get_by_test_id("inspector")).to_be_in_viewport()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_recorded_run_or_back_during_a_run_ends_it_and_what_is_chosen_stays(
    page: Page, opened: Script
) -> None:
    """Back leads to a run of one's own, and to a recorded one, which fills the form."""
    hold(page, opened)
    told = next(run for run in read_recorded_runs().runs if run.key == "confident")
    choose(page, "examples", f"Recorded: {told.title}")
    expect(page.locator("#view").get_by_test_id("told")).to_contain_text(told.story)
    expect(page.locator("#method input")).to_have_value(METHODS["cascade_chow"].label)
    expect(page.locator("#lenience input[type=number]")).to_have_value("0.5")
    wait_for_end(page)
    assert opened.active == 0
    page.wait_for_function("location.search.includes('run=confident')")
    first = make_trace([" short", " text"]).lines
    written = [each.text for each in parse_trace(first).tokens]
    opened.goes_on.set()
    opened.trace = first
    page.fill("#prompt textarea", "The first prompt")
    expect(page.get_by_test_id("title")).to_have_text("Not run yet with these settings")
    run(page)
    expect(tokens(page)).to_have_text(written)

    def run_and_go_back(has_begun: bool) -> None:
        opened.trace, opened.pause = make_trace().lines, 0.0 if has_begun else LONG_RUN
        opened.goes_on.clear()
        page.fill("#prompt textarea", "The second prompt")
        page.click("#run")
        expect(page.locator("#stop")).to_be_enabled()
        page.wait_for_function("location.search.includes('second')")
        if has_begun:
            expect(tokens(page).first).to_have_text(parse_trace(opened.trace).tokens[0].text)
        page.go_back()
        wait_for_end(page)
        assert opened.active == 0

    run_and_go_back(has_begun=False)
    for _ in range(8):
        expect(tokens(page)).to_have_text(written)
        page.wait_for_timeout(100)
    expect(page.locator("#prompt textarea")).to_have_value("The first prompt")
    page.go_back()
    expect(page.locator("#view").get_by_test_id("told")).to_contain_text(told.story)
    run_and_go_back(has_begun=True)
    page.wait_for_timeout(500)
    expect(page.locator("#view").get_by_test_id("told")).to_contain_text(told.story)


def test_a_run_goes_on_while_another_place_is_in_sight_and_keeps_its_address(
    page: Page, opened: Script
) -> None:
    page.fill("#prompt textarea", "A prompt of my own")
    hold(page, opened)
    page.get_by_role("tab", name="Compare methods").click()
    page.wait_for_function("location.search === '?tab=compare'")
    opened.goes_on.set()
    expect(page.locator("#stop")).to_be_disabled(timeout=MINUTES)
    page.go_back()
    shown, count = page.locator("#view").get_by_test_id("token"), len(parse_trace(opened.trace).tokens)
    expect(shown).to_have_count(count)
    page.reload()
    expect(shown).to_have_count(count, timeout=MINUTES)
    assert len(opened.asked) == 1


def test_the_menus_of_pairs_and_methods_tell_what_can_be_chosen(
    page: Page, script: Script, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pair that cannot be had is grey and says why. Methods are in groups; to press on a heading chooses nothing."""
    monkeypatch.setattr(script, "obstacles", lambda: {"gemma2": GATED})
    open_app(page, address)
    page.locator("#pair input").click()
    named = f"{PAIRS['gemma2'].title}{NOT_NOW}{GATED}", PAIRS["opt"].title
    pairs = [page.get_by_role("option", name=each, exact=True) for each in named]
    assert len({each.evaluate("it => getComputedStyle(it).color") for each in pairs}) == 2
    page.keyboard.press("Escape")
    options = page.locator("#method").get_by_role("option")
    page.set_viewport_size({"width": 390, "height": 844})
    page.locator("#method input").click()
    box = options.nth(sum(map(len, list(method_menu().values())[:2]))).bounding_box()
    assert box
    assert 0 <= box["x"] <= box["x"] + box["width"] <= 390
    expect(options).to_have_text(
        [re.compile(METHODS[each].label) for keys in method_menu().values() for each in keys]
    )
    heading = "node => { const words = getComputedStyle(node, '::before').content; return words === 'none' ? '' : words; }"
    found = [each.evaluate(heading).strip('"') for each in options.all()]
    assert list(filter(None, found)) == list(method_menu())
    page.mouse.click(box["x"] + 30, box["y"] - 12)
    expect(page.locator("#method input")).to_have_value(METHODS["cascade_tokenV3"].label)


def test_a_failure_or_bad_input_is_one_sentence_and_the_next_run_works(page: Page, opened: Script) -> None:
    """Bad input asks nothing of the service."""
    said = page.get_by_test_id("failure")
    for failure, sentence in (
        (PairError("The model hub cannot be reached."), "The model hub cannot be reached."),
        (RuntimeError("secret /home/someone/file.py"), "Something broke inside SpecViz"),
    ):
        opened.failure = failure
        run(page)
        expect(said).to_contain_text(sentence)
        assert "someone" not in page.content()
    opened.failure = None
    asked = len(opened.asked)
    page.fill("#prompt textarea", "  \n ")
    run(page)
    expect(said).to_contain_text("The prompt is empty")
    page.fill("#prompt textarea", "hello")
    open_settings(page)
    page.fill("#seed input", "")
    close_settings(page)
    run(page)
    expect(said).to_contain_text("it must be a whole number of at least 0")
    open_settings(page)
    page.fill("#seed input", "5")
    close_settings(page)
    assert len(opened.asked) == asked
    run(page)
    expect(said).to_be_hidden()
    expect(tokens(page)).to_have_count(len(parse_trace(opened.trace).tokens))


def test_who_leaves_the_page_ends_the_run(script: Script, page: Page, address: str) -> None:
    script.pause = 0.5
    open_app(page, address)
    page.click("#run")
    wait_until(lambda: script.active == 1)
    page.goto(f"{address}/theme.css")  # of the same origin, whose storage the fixture clears
    wait_until(lambda: script.active == 0)


def test_the_text_has_the_first_screen_and_nothing_moves_before_during_and_after_a_run(
    page: Page, script: Script, address: str
) -> None:
    """At least 45 % of it on a desktop and 40 % on a phone; nothing is cut or overlaps; at most 16 controls; no layout shift."""
    open_app(page, address, moves=True)
    wrong = faults(page, ONE_RUN, "on arrival")
    page.set_viewport_size({"width": 1280, "height": 800})
    let_draw(page)
    page.evaluate(
        """() => { window.shift = 0; new PerformanceObserver((list) => {
            for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shift += entry.value;
        }).observe({ type: "layout-shift" }); }"""
    )
    script.pause = 0.01
    run(page)
    page.wait_for_timeout(300)
    assert page.evaluate("window.shift") <= 0.02

    script.trace = make_trace([" word", " another", "."] * 43, seed=3).lines
    script.goes_on.clear()
    page.click("#run")
    try:
        expect(tokens(page).nth(5)).to_be_visible()
        expect(page.locator("#stop")).to_be_enabled()
        wrong += faults(page, ONE_RUN, "during a run")
    finally:
        script.goes_on.set()
    wait_for_end(page)
    wrong += faults(page, ONE_RUN, "after a run")
    assert wrong == []


def test_an_own_rule_runs_and_a_bad_one_leaves_the_run_before(page: Page, opened: Script) -> None:
    """The next run asks with an example’s prompt; test_link.py sets every other control."""
    field = page.locator("#rule textarea")
    expect(field).to_be_hidden()
    choose(page, "method", METHODS[OWN_RULE].label)
    field.fill("p1(v) >= a * max p1 and H(q) > 0.1")
    run(page)
    request = opened.asked[-1][1]
    assert (request.method, request.rule) == (OWN_RULE, "p1(v) >= a * max p1 and H(q) > 0.1")
    seen = tokens(page).count()
    assert seen
    field.fill("p1(v) >= <b>a</b>")
    expect(page.locator("#rule").get_by_test_id("rule-pointed")).to_have_text("p1(v) >= <b>a</b>\n         ^")
    run(page)
    expect(page.get_by_test_id("failure")).to_contain_text("Character 10 of the rule.")
    assert (tokens(page).count(), len(opened.asked)) == (seen, 1)
    choose(page, "method", METHODS["speed"].label)
    expect(field).to_be_hidden()
    name, text = list(EXAMPLES.items())[1]
    choose(page, "examples", name)
    run(page)
    assert (opened.asked[-1][1].rule, opened.asked[-1][1].prompt) == ("", text)
