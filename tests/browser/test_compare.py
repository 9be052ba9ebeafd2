"""The tab Compare in a real browser: recorded comparisons, heads of panes, where texts differ and why, and the room that texts have."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Locator, Page, ViewportSize, expect

from specviz.analysis.metrics import headline
from specviz.analysis.recorded_runs import Comparison, read_recorded_runs
from specviz.errors import EngineError
from specviz.schema.settings import Request
from specviz.schema.trace import Run, parse_trace
from tests.browser.driving import MINUTES, open_app, run, set_number, wait_for_end
from tests.browser.first_screen import Place, faults
from tests.browser.scripted import Script
from tests.support.traces import make_trace

SHELF = read_recorded_runs()
COMPARE = Place(
    place="#compare-place",
    texts="#compare-view [data-testid=text]",
    parts="#compare-bar, .sc-says, .sc-tabs, .sc-panes, .sc-foot",
    words=".sc-says, .sc-head, .sc-calls, .sc-foot, .sc-made, .sc-legend",
    controls=12,
    prefix="compare-",
)
STOPPED = "!document.querySelector('.specviz-compare').hasAttribute('data-replays')"


@pytest.fixture
def opened(script: Script, page: Page, address: str) -> Script:
    """The service of the scripted page, which is open at Compare."""
    open_app(page, address, "compare")
    expect(tokens(page, 1).first).to_be_visible(timeout=MINUTES)
    return script


def pane(page: Page, number: int) -> Locator:
    return page.locator(f"[data-pane='{number - 1}']")


def tokens(page: Page, number: int) -> Locator:
    return pane(page, number).get_by_test_id("token")


def head(page: Page, number: int) -> Locator:
    return pane(page, number).locator(".sc-name")


def menu(page: Page, number: int) -> Locator:
    """The open settings of a pane."""
    found = pane(page, number).locator(".sc-settings")
    if not found.is_visible():
        head(page, number).click()
        expect(found).to_be_visible()
    return found


def set_lenience(page: Page, number: int, position: float) -> None:
    js = "(node, at) => { node.value = at; node.dispatchEvent(new Event('input', { bubbles: true })); }"
    menu(page, number).get_by_label("Lenience").evaluate(js, str(position))


def preset(page: Page, told: Comparison) -> Locator:
    return page.get_by_role("group", name="Recorded comparisons").get_by_role("button", name=told.title)


def runs_of(told: Comparison) -> list[Run]:
    return [SHELF.load(each.run) for each in told.panes]


ON_TWO_PAIRS = next(each for each in SHELF.comparisons if len({run.pair for run in runs_of(each)}) > 1)


def sentence(runs: list[Run]) -> str:
    """The headline of runs as the page writes it."""
    parts = [each if isinstance(each, str) else each["label"].strip() for each in headline(runs)]
    return "".join(parts).strip()


def asked_again(asked: Run | Request) -> dict[str, Any]:
    """The settings that make a text."""
    names = ("method", "lenience", "draft_length", "temperature", "seed", "max_new_tokens", "prompt")
    return {name: getattr(asked, name) for name in names}


def expect_shown(page: Page, told: Comparison) -> None:
    """A recorded comparison is shown to its end."""
    expect(preset(page, told)).to_have_attribute("aria-pressed", "true")
    runs = runs_of(told)
    for number, each in enumerate(runs, 1):
        expect(tokens(page, number)).to_have_count(len(each.tokens), timeout=MINUTES)
        assert "".join(tokens(page, number).all_text_contents()) == each.text
    expect(page.get_by_test_id("says")).to_have_text(f"{sentence(runs)} {told.note}".strip())
    expect(page.locator(".sc-stale:visible")).to_have_count(0)


def test_it_opens_on_a_recorded_comparison_that_replays_on_one_clock(
    page: Page, script: Script, address: str
) -> None:
    """At every moment each pane has made as many calls of the verifier as the others, or all of its own."""
    open_app(page, address, "compare", moves=True)
    page.evaluate(
        """() => {
          window.seen = [];
          const note = () => window.seen.push([...document.querySelectorAll('.sc-head .sc-calls b')].map((node) => Number(node.textContent)));
          new MutationObserver(note).observe(document.querySelector('.sc-panes'), { subtree: true, childList: true });
        }"""
    )
    expect_shown(page, SHELF.comparisons[0])
    page.wait_for_function(STOPPED)
    totals = [each.verifier_calls for each in runs_of(SHELF.comparisons[0])]
    seen = [calls for calls in page.evaluate("window.seen") if len(calls) == len(totals)]
    # The nodes of one step are written one after another.
    settled = [
        calls for calls, after in zip(seen, [*seen[1:], totals], strict=True) if max(after) > max(calls)
    ]
    assert len(settled) > 10
    assert all(calls == [min(max(calls), total) for total in totals] for calls in settled)
    assert seen[-1] == totals
    assert not script.compared
    check_the_first_screen(page, script)


def check_the_first_screen(page: Page, script: Script) -> None:
    """Texts have at least 45 % of it on a desktop and 40 % on a phone; nothing is cut or overlaps; at most 12 controls."""
    wrong = faults(page, COMPARE, "on arrival")
    hold(script)
    page.click("#compare-run")
    try:
        expect(page.locator("#compare-stop")).to_be_enabled(timeout=MINUTES)
        wrong += faults(page, COMPARE, "during a run")
        assert page.locator("#compare-stop").is_enabled(), "the run was over too early"
    finally:
        script.goes_on.set()
    expect(page.locator("#compare-run")).to_be_enabled(timeout=MINUTES)
    assert not wrong, "\n".join(map(str, wrong))


def test_a_preset_shows_its_panes_at_once_and_run_writes_them_live(page: Page, opened: Script) -> None:
    preset(page, ON_TWO_PAIRS).click()
    expect_shown(page, ON_TWO_PAIRS)
    assert not opened.compared
    run(page, prefix="compare-")
    [(pairs, requests)] = opened.compared
    runs = runs_of(ON_TWO_PAIRS)
    assert pairs == [each.pair for each in runs]
    assert list(map(asked_again, requests)) == list(map(asked_again, runs))


def test_the_way_back_leads_through_presets_and_live_runs(page: Page, opened: Script) -> None:
    """Each has an address, and is shown again without a run; a live one also after a reload."""
    first, second = (each for each in SHELF.comparisons if each.key in ("token-rules", "drafters"))
    for told, named in ((first, "V2"), (second, "skip")):
        preset(page, told).click()
        expect_shown(page, told)
        page.wait_for_function("pane => location.search.includes(pane)", arg=named)
    page.fill("#compare-prompt textarea", "A prompt of my own")
    run(page, prefix="compare-")
    live = page.get_by_test_id("says").inner_text()
    assert "Chow" in live
    preset(page, first).click()
    expect_shown(page, first)
    page.wait_for_function("!location.search.includes('of+my+own')")
    page.go_back()
    expect(page.get_by_test_id("says")).to_have_text(live, timeout=MINUTES)
    page.reload()
    expect(page.get_by_test_id("says")).to_have_text(live, timeout=MINUTES)
    expect(page.locator("#compare-prompt textarea")).to_have_value("A prompt of my own")
    for told in (second, first, SHELF.comparisons[0]):
        page.go_back()
        expect_shown(page, told)
    assert len(opened.compared) == 1


def test_a_link_sets_everything_and_runs_nothing(page: Page, script: Script, address: str) -> None:
    panes = ["cascade_diff:-0.3:9", "speed:0.5:9:embedded-skip", "own_rule:0:9"]
    query = {"prompt": "two\nlines", "temperature": 0.35, "seed": 123456, "rule": "p(v) > 0.5", "pane": panes}
    page.goto(f"{address}?{urlencode({'tab': 'compare', **query}, doseq=True)}")
    expect(page.locator("#compare-run")).to_be_focused(timeout=MINUTES)
    for number, words in enumerate(("Diff α -0.3", "Lenient α 0.5", "Your own rule α 0"), 1):
        expect(head(page, number)).to_contain_text(words)
        expect(tokens(page, number)).to_have_count(0)
    expect(page.get_by_test_id("says")).to_contain_text("Not run yet")
    assert not script.compared
    run(page, prefix="compare-")
    pairs, asked = script.compared[-1]
    assert pairs == ["embedded", "embedded-skip", "embedded"]
    written = [f"{each.method}:{each.lenience:g}:{each.draft_length}{each.rule}" for each in asked]
    assert written == ["cascade_diff:-0.3:9", "speed:0.5:9", "own_rule:0:9p(v) > 0.5"]
    assert {(each.prompt, each.temperature, each.seed) for each in asked} == {("two\nlines", 0.35, 123456)}


def test_panes_show_their_traces_where_they_part_and_both_reasons(page: Page, opened: Script) -> None:
    run(page, prefix="compare-")
    runs = [parse_trace(trace) for trace in opened.panes]
    for number, each in enumerate(runs, 1):
        assert "".join(tokens(page, number).all_text_contents()) == each.text
    assert page.evaluate("window.pwned") is None
    assert page.get_by_test_id("says").inner_text() == (
        "Chow (α 0.3) and Chow (α 0.2) write the same text, in 1 and 1 calls of the verifier. "
        "Chow (α 0.1) is the same until token 3; then it puts is, not was."
    )
    expect(page.locator("[data-badge]")).to_have_count(2)
    expect(tokens(page, 1).nth(2)).to_have_attribute("data-badge", "≠2")
    expect(tokens(page, 2).nth(2)).to_have_attribute("data-badge", "≠1")

    why = page.get_by_test_id("verdicts")
    verdicts = why.locator(".sc-verdict")
    tokens(page, 2).nth(2).click()
    expect(verdicts.nth(0)).to_contain_text("␣was accepted")
    expect(verdicts.nth(1)).to_contain_text("␣was → ␣is")
    expect(verdicts.nth(2)).to_contain_text("␣was accepted")
    for number in (1, 2, 3):
        expect(pane(page, number).locator(".is-pinned")).to_have_attribute("data-index", "2")
    page.keyboard.press("Escape")
    expect(why).to_be_hidden()
    tokens(page, 1).nth(2).press("Enter")
    expect(verdicts.nth(1)).to_contain_text("␣was → ␣is")
    why.get_by_role("button", name="Close").press("Enter")
    expect(why).to_be_hidden()
    expect(tokens(page, 1).nth(2)).to_be_focused()

    page.get_by_test_id("more").locator("> summary").click()
    row = page.locator(".sc-more > .sc-scroll .sc-table tbody tr").nth(1)
    cells = [cell.replace("\u00a0", " ") for cell in row.locator("td").all_inner_texts()]
    assert cells[:7] == ["1", "4", "4.00", "75 %", "75 %", "4.00", "−1.25"]
    page.set_viewport_size(ViewportSize(width=390, height=844))
    widths = page.locator(".sc-more .sc-scroll").evaluate_all("all => all.map((node) => node.clientWidth)")
    assert max(widths) <= 390, "a table scrolls in its frame"


def test_what_the_heads_say_is_what_is_asked(page: Page, opened: Script) -> None:
    """Methods, lenience, pairs, one K for all; and a pane that is not run yet says so."""
    page.fill("#compare-prompt textarea", "Something else")
    expect(page.locator(".sc-stale:visible")).to_have_count(3)
    menu(page, 1).get_by_label("Method").select_option("cascade_diff")
    set_lenience(page, 1, 0.5)
    lenience = float(menu(page, 1).locator(".sc-number").inner_text())
    expect(head(page, 1)).to_contain_text(f"Diff α {lenience:g}")
    menu(page, 2).get_by_label("Model pair").select_option("SmolLM2 135M, layer skip")
    expect(head(page, 2)).to_contain_text("layer skip")
    menu(page, 3).get_by_role("button", name="Add a pane").click()
    expect(head(page, 4)).to_be_focused()
    menu(page, 4).get_by_label("Method").select_option("speed")
    menu(page, 3).get_by_role("button", name="Remove").click()
    expect(page.locator("[data-pane]")).to_have_count(3)
    page.click("#compare-more")
    set_number(page, "compare-seed", 77)
    page.locator("#compare-draft-length input").click()
    page.get_by_role("option", name="9", exact=True).click()
    page.keyboard.press("Escape")
    run(page, prefix="compare-")
    pairs, asked = opened.compared[-1]
    assert pairs == ["embedded", "embedded-skip", "embedded"]
    methods = [("cascade_diff", lenience), ("cascade_tokenV3", 0.5), ("speed", 0)]
    assert [(each.method, each.lenience) for each in asked] == methods
    assert {(each.prompt, each.seed, each.draft_length) for each in asked} == {("Something else", 77, 9)}


def test_an_error_keeps_the_comparison_and_the_next_run_works(page: Page, opened: Script) -> None:
    said = page.get_by_test_id("compare-failure")
    page.fill("#compare-prompt textarea", "  ")
    run(page, prefix="compare-")
    expect(said).to_contain_text("The prompt is empty")
    expect(tokens(page, 1)).to_have_count(len(runs_of(SHELF.comparisons[0])[0].tokens))
    page.fill("#compare-prompt textarea", "not empty")
    opened.failure = EngineError("Memory ran out.")
    run(page, prefix="compare-")
    expect(said).to_have_text("Memory ran out.")
    expect(tokens(page, 1)).to_have_count(4)  # what was written by then
    opened.failure = None
    run(page, prefix="compare-")
    expect(said).to_be_hidden()


def hold(script: Script) -> None:
    """Panes of more than a hundred tokens, which go on after their first lines when `goes_on` is set."""
    script.panes = [make_trace(seed=seed).lines for seed in range(3)]
    script.goes_on.clear()


def test_enter_twice_and_a_stop_end_the_one_run_and_so_do_a_preset_and_the_way_back(
    page: Page, opened: Script
) -> None:
    hold(opened)
    prompt = page.locator("#compare-prompt textarea")
    prompt.press("Enter")
    expect(page.locator("#compare-stop")).to_be_enabled(timeout=MINUTES)
    prompt.press("Enter")
    prompt.press("Enter")
    page.click("#compare-stop")
    expect(page.locator("#compare-run")).to_be_enabled(timeout=MINUTES)
    assert (len(opened.compared), opened.finished) == (1, 0)
    written = tokens(page, 1).count()
    opened.goes_on.set()
    page.wait_for_timeout(300)
    assert tokens(page, 1).count() == written

    opened.goes_on.clear()
    told = SHELF.comparisons[1]
    for end in (preset(page, told).click, page.go_back):
        page.fill("#compare-prompt textarea", "A run to be ended")
        page.click("#compare-run")
        expect(page.locator("#compare-stop")).to_be_enabled(timeout=MINUTES)
        # The way back leads from this address to the one before, so a run has its own before it is ended.
        page.wait_for_function("location.search.includes('to+be+ended')")
        end()
        page.wait_for_function("location.search.includes('strawberry')")
        expect_shown(page, told)
        expect(page.locator("#compare-run")).to_be_enabled()
    page.wait_for_timeout(300)
    expect_shown(page, told)
    assert (len(opened.compared), opened.finished) == (3, 0)


def test_a_pane_that_is_removed_takes_its_lines_with_it(page: Page, opened: Script) -> None:
    """While a run is written, and while a recorded one replays; the others keep their own texts."""
    hold(opened)
    texts = [parse_trace(trace).text for trace in opened.panes]
    page.click("#compare-run")
    expect(page.get_by_test_id("says")).to_contain_text("All panes share the prompt", timeout=MINUTES)
    menu(page, 1).get_by_role("button", name="Remove").click()
    opened.goes_on.set()
    wait_for_end(page, prefix="compare-")
    for number, text in enumerate(texts[1:], 1):
        assert "".join(tokens(page, number).all_text_contents()) == text
    expect(page.get_by_test_id("says")).to_have_text("Press Run to compare these panes.")

    page.emulate_media(reduced_motion="no-preference")
    told = next(each for each in SHELF.comparisons if len(each.panes) == 3)
    preset(page, told).click()
    expect(tokens(page, 3)).not_to_have_count(0, timeout=MINUTES)
    menu(page, 1).get_by_role("button", name="Remove").click()
    page.wait_for_function(STOPPED, timeout=MINUTES)
    for number, recorded in enumerate(runs_of(told)[1:], 1):
        assert "".join(tokens(page, number).all_text_contents()) == recorded.text


def test_the_way_back_empties_what_an_address_leaves_out(page: Page, opened: Script) -> None:
    penalty = page.locator("#compare-drawer").get_by_label("Repetition penalty")
    for value in ("", "1.7"):
        page.click("#compare-more")
        penalty.fill(value)
        page.keyboard.press("Escape")
        run(page, prefix="compare-")
    page.go_back()
    page.wait_for_function("!location.search.includes('penalty')")
    page.click("#compare-more")
    expect(penalty).to_have_value("")


def test_a_phone_shows_one_pane_at_a_time(phone: Page, address: str, script: Script) -> None:
    """By its tabs, by a swipe, and by the mark where its text differs; both reasons are one tap away."""
    page = phone
    open_app(page, address, "compare")
    tabs = page.locator(".sc-tab")
    page.locator(".sp-menu").select_option("drafters")
    expect(tabs.locator("> b")).to_have_text(["embedded", "layer skip", "Verifier only"])
    page.locator(".sp-menu").select_option("lossless")
    page.wait_for_function(STOPPED)
    tabs.nth(1).tap()
    expect(tabs.nth(1)).to_have_attribute("aria-pressed", "true")
    page.wait_for_function(
        "Math.abs(document.querySelector('[data-pane=\"1\"]').getBoundingClientRect().left) < 20"
    )
    page.locator(".sc-panes").evaluate("(node) => node.scrollTo({ left: 2 * node.clientWidth })")
    expect(tabs.nth(2)).to_have_attribute("aria-pressed", "true")
    tabs.nth(1).tap()
    expect(tabs.nth(1)).to_have_attribute("aria-pressed", "true")
    pane(page, 2).locator(".sc-jump").tap()
    why = page.get_by_test_id("verdicts")
    expect(why.locator(".sc-verdict")).to_have_count(3)
    why.get_by_role("button", name="Close").tap()
    expect(why).to_be_hidden()
    head(page, 1).tap()
    expect(pane(page, 1).locator(".sc-settings")).to_be_in_viewport(ratio=1)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
