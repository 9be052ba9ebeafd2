"""The tab Compare in a real browser: panes, their table, the tokens at which texts diverge, and one real run of four."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, Page, expect

from specviz.app.tabs.compare import PRESETS
from specviz.core.methods import METHODS
from specviz.errors import EngineError
from specviz.schema.settings import Request
from specviz.schema.trace import parse_trace
from tests.browser.driving import MINUTES, choose, open_app, run, set_number, unfold, watch
from tests.browser.scripted import Recorder, Script
from tests.support.traces import line, make_trace, run_entry


@pytest.fixture
def opened(script: Script, page: Page, address: str) -> Script:
    """The service of the scripted page, which is open at Compare."""
    open_app(page, address, "compare")
    return script


def pane(page: Page, number: int) -> Locator:
    return page.locator(f"[data-pane='{number - 1}']")


def tokens(page: Page, number: int) -> Locator:
    return pane(page, number).get_by_test_id("token")


def rows(page: Page) -> list[list[str]]:
    found = [row.locator("th, td").all_inner_texts() for row in page.locator(".sc-table tbody tr").all()]
    return [[cell.replace("\u00a0", " ") for cell in row] for row in found]


def test_panes_show_their_own_traces_and_where_they_diverge(page: Page, opened: Script) -> None:
    """Marks, sentence and table of the scripted panes; the mark is clicked and both sides are inspected."""
    run(page, prefix="compare-")
    expect(page.locator("[data-pane]")).to_have_count(3)
    for number, trace in enumerate(opened.panes, 1):
        assert "".join(tokens(page, number).all_text_contents()) == parse_trace(trace).text
    assert page.evaluate("window.pwned") is None
    expect(pane(page, 1).locator(".sc-title")).to_contain_text("1 · Chow α = 0.3 · K = 5")
    expect(pane(page, 3).locator(".sc-title")).to_contain_text("3 · Chow α = 0.2 · K = auto")

    expect(page.locator("[data-badge]")).to_have_count(2)
    expect(tokens(page, 1).nth(2)).to_have_attribute("data-badge", "≠2")
    expect(tokens(page, 2).nth(2)).to_have_attribute("data-badge", "≠1")
    note = pane(page, 2).locator(".sc-note")
    said = "Chow (α = 0.3) kept the draft ␣was; Chow (α = 0.1) rejected it and the verifier put ␣is."
    assert said in note.inner_text().replace("\u00a0", " ")
    assert pane(page, 3).locator(".sc-note").inner_text() == ""

    tokens(page, 2).nth(2).click()
    expect(pane(page, 1).get_by_test_id("inspector")).to_contain_text("drafted and kept")
    expect(pane(page, 2).get_by_test_id("inspector")).to_contain_text("␣was made way for ␣is")
    expect(pane(page, 3).get_by_test_id("inspector")).to_be_hidden()
    page.keyboard.press("Escape")
    note.get_by_role("button").press("Enter")
    for number in (1, 2):
        expect(pane(page, number).locator(".sv-token.is-pinned")).to_have_attribute("data-index", "2")

    assert [[row[0], *row[1:10]] for row in rows(page)] == [
        ["1 · Chow (α = 0.3)", "4", "100%", "4.00", "1", "8.0", "8.0", "1.00×", "−0.50", "–"],
        ["2 · Chow (α = 0.1)", "4", "75%", "4.00", "1", "8.0", "8.0", "1.00×", "−1.25", "≠ token 3"],
        ["3 · Chow (α = 0.2)", "4", "100%", "4.00", "1", "8.0", "8.0", "1.00×", "−2.00", "same text"],
    ]
    page.get_by_label("rejected drafts").check()
    expect(page.locator("[data-pane] .sv-text .sv-draft").last).to_be_visible()
    expect(pane(page, 1).get_by_test_id("chart")).to_be_hidden()
    page.get_by_label("charts").check()
    expect(page.locator("[data-pane] .sv-brick").first).to_be_visible()


def test_a_result_keeps_the_settings_it_was_made_with(page: Page, opened: Script) -> None:
    head = run_entry(
        "cascade_chow", lenience=0.3, temperature=0.5, top_k=40, seed=7, prompt="What is <b>long</b>? " * 20
    )
    opened.panes = [[line(head), *trace[1:]] for trace in opened.panes]
    run(page, prefix="compare-")
    made = page.get_by_test_id("made")
    expected = "tiny drafter → SmolLM2-135M-Instruct · temperature 0.5 · top-k 40 · seed 7 · up to 256 tokens"
    expect(made).to_contain_text(expected)
    expect(made).to_contain_text("What is <b>long</b>?")
    unfold(page, "Sampling, seed")
    set_number(page, "compare-seed", 99)
    choose(page, "compare-1-method", METHODS["cascade_diff"].label)
    expect(made).to_contain_text(expected)
    expect(pane(page, 1).locator(".sc-title")).to_contain_text("Chow")


def test_what_is_set_is_what_is_asked(page: Page, opened: Script) -> None:
    page.fill("#compare-prompt textarea", "two\nlines")
    page.get_by_label("3", exact=True).check()
    expect(page.locator("#compare-4-method")).to_be_hidden()
    choose(page, "compare-1-method", METHODS["cascade_diff"].label)
    expect(page.locator("#compare-1-lenience input[type=number]")).to_have_attribute("min", "-1")
    set_number(page, "compare-1-lenience", -0.3)
    choose(page, "compare-2-draft-length", "9")
    unfold(page, "Sampling, seed")
    for name, value in {"temperature": 0.5, "top-k": 40, "max-new-tokens": 32, "seed": 77}.items():
        set_number(page, f"compare-{name}", value)
    page.get_by_label("Measure each alone too").uncheck()
    run(page, prefix="compare-")
    common = {
        "prompt": "two\nlines",
        "temperature": 0.5,
        "top_k": 40,
        "max_new_tokens": 32,
        "seed": 77,
        "inspect": 10,
    }
    asked = [
        Request(method="cascade_diff", lenience=-0.3, draft_length="auto", **common),
        Request(method="speed", lenience=0.5, draft_length=9, **common),
        Request(method="cascade_tokenV3", lenience=0, draft_length="auto", **common),
    ]
    assert opened.compared[-1] == ("embedded", asked, False)


def test_presets_set_the_panes_and_run_nothing(page: Page, opened: Script) -> None:
    for preset in PRESETS[1:] + PRESETS[:1]:
        page.get_by_role("button", name=preset.title, exact=True).click()
        expect(page.get_by_label(str(len(preset.panes)), exact=True)).to_be_checked()
        for number, chosen in enumerate(preset.panes, 1):
            expect(page.locator(f"#compare-{number}-method input")).to_have_value(
                METHODS[chosen.method].label
            )
            if METHODS[chosen.method].has_lenience:
                value = page.locator(f"#compare-{number}-lenience input[type=number]")
                expect(value).to_have_value(f"{chosen.lenience:g}")
        if preset.prompt:
            expect(page.locator("#compare-prompt textarea")).to_have_value(preset.prompt)
    assert not opened.compared
    run(page, prefix="compare-")
    asked = opened.compared[-1][1]
    assert [(each.method, each.lenience, each.draft_length) for each in asked] == [
        (each.method, each.lenience, each.draft_length) for each in PRESETS[0].panes
    ]
    assert {each.temperature for each in asked} == {PRESETS[0].temperature}


def test_measuring_is_told_and_can_be_stopped(page: Page, opened: Script) -> None:
    opened.pause = 0.1
    page.click("#compare-run")
    expect(page.get_by_test_id("doing")).to_have_text("Measuring pane 1 alone …", timeout=MINUTES)
    page.click("#compare-stop")
    expect(page.locator("#compare-stop")).to_be_disabled(timeout=MINUTES)
    expect(page.locator("#compare-run")).to_be_enabled()
    assert [row[6] for row in rows(page)] == ["–"] * 3


def test_a_failure_is_one_sentence_and_the_next_run_works(page: Page, opened: Script) -> None:
    said = page.get_by_test_id("compare-failure")
    broken = "Something broke inside SpecViz and this run has ended; the next one should work."
    for failure, sentence in (
        (EngineError("Memory ran out."), "Memory ran out."),
        (RuntimeError("secret /home/x.py"), broken),
    ):
        opened.failure = failure
        run(page, prefix="compare-")
        expect(said).to_have_text(sentence)
        expect(pane(page, 1).get_by_test_id("status")).to_contain_text("did not work")
    assert "secret" not in page.content()
    opened.failure = None
    asked = len(opened.compared)
    page.fill("#compare-prompt textarea", "  ")
    run(page, prefix="compare-")
    expect(said).to_contain_text("The prompt is empty")
    expect(page.locator("[data-pane]")).to_have_count(0)
    assert len(opened.compared) == asked
    page.fill("#compare-prompt textarea", "not empty")
    run(page, prefix="compare-")
    expect(said).to_be_hidden()
    expect(page.get_by_test_id("results")).to_be_visible()


def test_panes_are_side_by_side_on_a_desk_and_in_a_column_on_a_phone(page: Page, opened: Script) -> None:
    """On a phone the results begin within three screens."""
    opened.panes = [make_trace(seed=seed).lines for seed in range(4)]
    run(page, prefix="compare-")
    expect(page.get_by_test_id("compare-failure")).to_be_hidden()
    tokens(page, 2).nth(4).click()
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 844})
        page.wait_for_timeout(300)  # the charts follow in a coming frame
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        lefts = {box["x"] for box in (pane(page, number).bounding_box() for number in (1, 2)) if box}
        assert len(lefts) == (1 if width == 390 else 2)
    top = "document.querySelector('[data-testid=results]').getBoundingClientRect().top + scrollY"
    assert page.evaluate(top) < 3 * 844


def test_four_real_panes_write_what_each_writes_alone(real: tuple[str, Recorder], page: Page) -> None:
    """Law 3: four methods of the embedded pair in one batch; each pane's text is that of the method run alone."""
    address, service = real
    open_app(page, address, "compare")
    unfold(page, "Sampling, seed")
    set_number(page, "compare-max-new-tokens", 24)
    page.get_by_label("Measure each alone too").uncheck()
    watch(page, "#compare-run")
    page.click("#compare-run")
    expect(tokens(page, 4).nth(2)).to_be_visible(timeout=3 * MINUTES)
    expect(page.locator("#compare-run")).to_be_enabled(timeout=3 * MINUTES)
    assert page.evaluate("window.early.runs"), "the first tokens came only when the run was over"
    prompt = page.locator("#compare-prompt textarea").input_value()
    for number, chosen in enumerate(PRESETS[0].panes, 1):
        request = Request(
            prompt=prompt,
            method=chosen.method,
            lenience=chosen.lenience,
            draft_length=chosen.draft_length,
            max_new_tokens=24,
        )
        with service.engine("embedded") as engine:
            alone = engine.generate(request)[0]
        expect(tokens(page, number)).to_have_count(24)
        assert "".join(tokens(page, number).all_text_contents()) == alone.text
    qualities = [float(row[8].replace("−", "-")) for row in rows(page)]
    assert all(-10 < quality < 0 for quality in qualities)
