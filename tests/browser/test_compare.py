"""The tab Compare in a real browser: panes, their table, the tokens at which texts diverge, and one real run of four."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gradio as gr
import pytest
from playwright.sync_api import Locator, Page, expect

from specviz.analysis.metrics import table
from specviz.app.page import build_page
from specviz.app.tabs.compare import PRESETS
from specviz.core.methods import METHODS
from specviz.errors import EngineError
from specviz.schema.settings import Request
from specviz.schema.trace import Run, parse_trace
from specviz.serving.comparison import doing, tagged
from specviz.serving.lines import record
from specviz.serving.service import Service
from tests.browser.driving import MINUTES, choose, open_app, run, set_number, unfold, watch
from tests.support.traces import line, make_trace, round_entry, run_entry, token_entry

EVIL = "<img src=x onerror=document.title='pwned'>${1+1}{{1+1}}"


def kept(text: str, number: int) -> dict[str, Any]:
    return token_entry(text, id=number)


def by_hand() -> list[list[str]]:
    """Three traces whose texts part at tokens that one can count: pane 2 at token 3, pane 3 never, in one pane."""
    draft = {"id": 30, "text": " was", "q": 0.5, "p": 0.1, "pi": 0.1}
    redone = token_entry(" is", id=31, accepted=False, draft=draft, acceptance=0.2, coin=0.6)
    start = [kept("It", 1), kept(EVIL, 2)]
    texts = [
        [*start, kept(" was", 30), kept(" late", 5)],
        [*start, redone, kept(" late", 5)],
        [*start, kept(" was", 30), kept(" late", 5)],
    ]
    end = {
        "type": "end", "stop_reason": "length", "seconds": 0.5, "prefill_seconds": 0.1, "verifier_calls": 1,
        "drafter_calls": 4,
    }  # fmt: skip
    settings = ({"lenience": 0.3}, {"lenience": 0.1}, {"lenience": 0.2, "draft_length": None})
    return [
        [line(entry) for entry in (run_entry("cascade_chow", **own), round_entry(text), end)]
        for own, text in zip(settings, texts, strict=True)
    ]


class Script(Service):
    """A service without models: plays back traces, one a pane, and tables made of them; keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, list[Request], bool]] = []
        self.traces = by_hand()
        self.pause = 0.0
        self.failure: Exception | None = None

    def compare_lines(
        self,
        key: str,
        requests: Sequence[Request],
        stop: threading.Event,
        progress: Any = None,
        *,
        measure_alone: bool = True,
        visitor: str = "",
    ) -> Iterator[str]:
        self.asked.append((key, list(requests), measure_alone))
        count = min(len(self.traces), len(requests))
        runs: list[Run] = [parse_trace(trace) for trace in self.traces[:count]]
        nothing = [None] * count
        yield record("compare", panes=count)
        for number in range(max(map(len, self.traces))):
            for pane, trace in enumerate(self.traces[:count]):
                if number < len(trace):
                    yield tagged(pane, trace[number])
            if number == 1 and self.failure:
                raise self.failure
            time.sleep(self.pause)
            if stop.is_set():
                return
        yield record("table", rows=table(runs, nothing, None, nothing))
        yield from doing("Measuring pane 1 alone")
        if self.pause:
            stop.wait(60)
        if not stop.is_set():
            yield record("table", rows=table(runs, runs, runs[0], [-0.5, -1.25, -2.0, -0.5][:count]))


class Recorder(Service):
    """The real service, which keeps the lines of the last comparison."""

    def __init__(self, loaded: Service) -> None:
        super().__init__()
        self.engine = loaded.engine  # type: ignore[method-assign]
        self.lines_sent: list[str] = []

    def compare_lines(self, *values: Any, **options: Any) -> Iterator[str]:
        self.lines_sent = []
        for each in super().compare_lines(*values, **options):
            self.lines_sent.append(each)
            yield each


@pytest.fixture(scope="module")
def scripted(serve: Callable[[gr.Blocks], str]) -> tuple[str, Script]:
    service = Script()
    return serve(build_page(service)), service


@pytest.fixture
def script(scripted: tuple[str, Script], page: Page) -> Script:
    """The scripted page, open at Compare and fresh."""
    service = scripted[1]
    service.asked.clear()
    service.failure, service.pause, service.traces = None, 0.0, by_hand()
    open_tab(page, scripted[0])
    return service


def open_tab(page: Page, address: str) -> None:
    open_app(page, address, "compare")


def pane(page: Page, number: int) -> Locator:
    return page.locator(f"[data-pane='{number - 1}']")


def tokens(page: Page, number: int) -> Locator:
    return pane(page, number).get_by_test_id("token")


def rows(page: Page) -> list[list[str]]:
    return [row.locator("th, td").all_inner_texts() for row in page.locator(".sc-table tbody tr").all()]


def test_panes_show_their_own_traces_and_where_they_part(page: Page, script: Script) -> None:
    """The case made by hand: marks, sentence, table; the mark is clicked and both sides are inspected."""
    run(page, prefix="compare-")
    assert [entry.count() for entry in (pane(page, 1), pane(page, 2), pane(page, 3), pane(page, 4))] == [
        1,
        1,
        1,
        0,
    ]
    for number, trace in enumerate(script.traces, 1):
        assert "".join(tokens(page, number).all_text_contents()) == parse_trace(trace).text
    assert page.title() != "pwned"
    expect(pane(page, 1).locator(".sc-title")).to_contain_text("1 · Chow α = 0.3 · K = 5")
    expect(pane(page, 3).locator(".sc-title")).to_contain_text("3 · Chow α = 0.2 · K = auto")

    marked = page.locator("[data-badge]")
    expect(marked).to_have_count(2)
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
    expect(pane(page, 1).locator(".sv-token.is-pinned")).to_have_attribute("data-index", "2")
    expect(pane(page, 2).locator(".sv-token.is-pinned")).to_have_attribute("data-index", "2")

    shown = rows(page)
    assert [row[0].replace("\u00a0", " ") for row in shown] == [
        "1 · Chow (α = 0.3)",
        "2 · Chow (α = 0.1)",
        "3 · Chow (α = 0.2)",
    ]
    assert [row[1:9] for row in shown] == [
        ["4", "100%", "4.00", "1", "8.0", "8.0", "1.00×", "−0.50"],
        ["4", "75%", "4.00", "1", "8.0", "8.0", "1.00×", "−1.25"],
        ["4", "100%", "4.00", "1", "8.0", "8.0", "1.00×", "−2.00"],
    ]
    assert [row[9] for row in shown] == ["–", "≠ token 3", "same text"]

    beside = page.locator("[data-pane] .sv-show-drafts")
    expect(beside).to_have_count(0)
    page.get_by_label("rejected drafts").check()
    expect(beside).to_have_count(3)
    expect(page.locator("[data-pane] .sv-text .sv-draft").last).to_be_visible()
    chart = pane(page, 1).get_by_test_id("chart")
    expect(chart).to_be_hidden()
    page.get_by_label("charts").check()
    expect(page.locator("[data-pane] .sv-brick").first).to_be_visible()
    run(page, prefix="compare-")
    expect(page.locator("[data-badge]")).to_have_count(2)
    expect(page.locator("[data-pane]")).to_have_count(3)


def test_a_stale_result_says_what_it_was_made_with(page: Page, script: Script) -> None:
    """The controls may have moved on; what is shown keeps the method and the settings it was made with."""
    long = "What is <b>long</b>? " * 20
    script.traces = [
        [
            line(run_entry("cascade_chow", lenience=0.3, temperature=0.5, top_k=40, seed=7, prompt=long)),
            *trace[1:],
        ]
        for trace in script.traces
    ]
    run(page, prefix="compare-")
    made = page.get_by_test_id("made")
    expected = "tiny drafter → SmolLM2-135M-Instruct · temperature 0.5 · top-k 40 · seed 7 · up to 256 tokens"
    expect(made).to_contain_text(expected)
    expect(made).to_contain_text("What is <b>long</b>?")
    expect(made).to_contain_text("…")
    unfold(page, "Sampling, seed")
    set_number(page, "compare-seed", 99)
    choose(page, "compare-1-method", METHODS["cascade_diff"].label)
    expect(made).to_contain_text(expected)
    expect(pane(page, 1).locator(".sc-title")).to_contain_text("Chow")


def test_the_mark_where_texts_part_covers_no_word(page: Page, script: Script) -> None:
    """It stands in the line: no box of another token lies under the marked one's, whose frame is within it."""
    run(page, prefix="compare-")
    marked = page.locator("[data-badge]")
    expect(marked).to_have_count(2)
    for node in marked.all():
        look = node.evaluate(
            "node => [getComputedStyle(node).outlineStyle, getComputedStyle(node, '::after').position]"
        )
        assert look == ["none", "static"]
        overlapping = node.evaluate(
            """node => {
              const boxes = (one) => [...one.getClientRects()];
              const meet = (a, b) => a.left < b.right - 0.5 && b.left < a.right - 0.5 && a.top < b.bottom - 6 && b.top < a.bottom - 6;
              return [...node.closest(".sv-text").querySelectorAll("[data-testid=token]")]
                .filter((other) => other !== node && boxes(other).some((a) => boxes(node).some((b) => meet(a, b))))
                .map((other) => other.textContent);
            }"""
        )
        assert overlapping == []


def test_on_a_phone_the_results_come_within_three_screens(page: Page, script: Script) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    run(page, prefix="compare-")
    top = page.evaluate(
        "document.querySelector('[data-testid=results]').getBoundingClientRect().top + scrollY"
    )
    assert top < 3 * 844


def test_what_is_set_is_what_is_asked(page: Page, script: Script) -> None:
    page.fill("#compare-prompt textarea", "two\nlines")
    page.get_by_label("3", exact=True).check()
    expect(page.locator("#compare-4-method")).to_be_hidden()
    page.locator("#compare-1-method input").click()
    page.get_by_role("option", name=METHODS["cascade_diff"].label, exact=True).click()
    expect(page.locator("#compare-1-lenience input[type=number]")).to_have_attribute("min", "-1")
    set_number(page, "compare-1-lenience", -0.3)
    choose(page, "compare-2-draft-length", "9")
    unfold(page, "Sampling, seed")
    for name, value in {"temperature": 0.5, "top-k": 40, "max-new-tokens": 32, "seed": 77}.items():
        set_number(page, f"compare-{name}", value)
    page.get_by_label("Measure each alone too").uncheck()
    run(page, prefix="compare-")
    key, asked, alone = script.asked[-1]
    common = {
        "prompt": "two\nlines",
        "temperature": 0.5,
        "top_k": 40,
        "max_new_tokens": 32,
        "seed": 77,
        "inspect": 10,
    }
    assert (key, alone) == ("embedded", False)
    assert asked == [
        Request(method="cascade_diff", lenience=-0.3, draft_length="auto", **common),
        Request(method="speed", lenience=0.5, draft_length=9, **common),
        Request(method="cascade_tokenV3", lenience=0, draft_length="auto", **common),
    ]


def test_presets_set_the_panes_and_run_nothing(page: Page, script: Script) -> None:
    for number, preset in enumerate(PRESETS[1:] + PRESETS[:1]):
        page.get_by_role("button", name=preset.title, exact=True).click()
        expect(page.get_by_label(str(len(preset.panes)), exact=True)).to_be_checked()
        last = preset.panes[-1]
        value = page.locator(f"#compare-{len(preset.panes)}-lenience input[type=number]")
        expect(value).to_have_value(f"{last.lenience:g}")
        if preset.prompt:
            expect(page.locator("#compare-prompt textarea")).to_have_value(preset.prompt)
        assert len(script.asked) == number
        run(page, prefix="compare-")
        asked = script.asked[-1][1]
        assert [(one.method, one.lenience, one.draft_length) for one in asked] == [
            (each.method, each.lenience, each.draft_length) for each in preset.panes
        ]
        assert {one.temperature for one in asked} == {preset.temperature}


def test_measuring_is_told_and_can_be_stopped(page: Page, script: Script) -> None:
    script.pause = 0.1
    page.click("#compare-run")
    expect(page.get_by_test_id("doing")).to_have_text("Measuring pane 1 alone …", timeout=MINUTES)
    page.click("#compare-stop")
    expect(page.locator("#compare-stop")).to_be_disabled(timeout=MINUTES)
    expect(page.locator("#compare-run")).to_be_enabled()
    assert [row[6] for row in rows(page)] == ["–"] * 3


def test_whatever_goes_wrong_is_one_sentence_and_the_next_run_works(page: Page, script: Script) -> None:
    said = page.get_by_test_id("compare-failure")
    broken = "Something broke inside SpecViz and this run has ended; the next one should work."
    for failure, sentence in (
        (EngineError("Memory ran out."), "Memory ran out."),
        (RuntimeError("secret /home/x.py"), broken),
    ):
        script.failure = failure
        run(page, prefix="compare-")
        expect(said).to_have_text(sentence)
        expect(pane(page, 1).get_by_test_id("status")).to_contain_text("did not work")
    assert "secret" not in page.content()
    script.failure = None
    asked = len(script.asked)
    prompt = page.locator("#compare-prompt textarea").input_value()
    page.fill("#compare-prompt textarea", "  ")
    run(page, prefix="compare-")
    expect(said).to_contain_text("The prompt is empty")
    expect(page.locator("[data-pane]")).to_have_count(0)
    assert len(script.asked) == asked
    page.fill("#compare-prompt textarea", prompt)
    run(page, prefix="compare-")
    expect(said).to_be_hidden()
    expect(page.get_by_test_id("results")).to_be_visible()


def test_panes_stand_side_by_side_on_a_desk_and_in_a_column_on_a_phone(page: Page, script: Script) -> None:
    script.traces = [make_trace(seed=seed).lines for seed in range(4)]
    run(page, prefix="compare-")
    expect(page.get_by_test_id("compare-failure")).to_be_hidden()
    tokens(page, 2).nth(4).click()
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 844})
        page.wait_for_timeout(300)  # the charts follow in a coming frame
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        lefts = {box["x"] for box in (pane(page, number).bounding_box() for number in (1, 2)) if box}
        assert len(lefts) == (1 if width == 390 else 2)


def test_four_real_panes_write_what_each_writes_alone(
    serve: Callable[[gr.Blocks], str], page: Page, loaded: Service
) -> None:
    """Law 3: one run of the embedded pair: four methods in one batch; each pane's text is that of the method run alone."""
    service = Recorder(loaded)
    open_tab(page, serve(build_page(service)))
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
