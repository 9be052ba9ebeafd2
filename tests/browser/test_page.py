"""The page in a real browser: real runs of the embedded pair, and every way in which a run can end."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gradio as gr
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from specviz.app.controls import EXAMPLES
from specviz.app.page import build_page
from specviz.core.methods import METHODS, OWN_RULE
from specviz.engine.batch import Batch
from specviz.errors import EngineError, PairError
from specviz.schema.settings import Request
from specviz.schema.trace import Run, parse_trace
from specviz.serving.limits import Limits
from specviz.serving.service import Service
from specviz.serving.shared_engine import SharedEngine
from tests.browser.driving import (
    MINUTES,
    choose,
    open_app,
    open_settings,
    run,
    set_number,
    unfold_all,
    wait_for_end,
    watch,
)
from tests.support.tiny import tiny_pair
from tests.support.traces import make_trace


class Recorder(Service):
    """The real service, which keeps the lines of every run it served."""

    def __init__(self, loaded: Service) -> None:
        super().__init__()
        self.engine = loaded.engine  # type: ignore[method-assign]
        self.runs: list[list[str]] = []
        self.rounds_after_stop = -1  # until a run is stopped

    def lines(
        self, key: str, request: Request, stop: threading.Event, progress: Any = None, *, visitor: str = ""
    ) -> Iterator[str]:
        self.runs.append([])
        with self.engine(key) as engine:
            told = stop.set
            made_by_then: list[int] = []  # lines may lie ready to be sent: what counts is what is made

            def note() -> None:
                made_by_then.append(engine.statistics.rounds)
                told()

            stop.set = note  # type: ignore[method-assign]
            for line in super().lines(key, request, stop, progress, visitor=visitor):
                # Where a round takes more than a second, it says that it waits.
                if line and json.loads(line)["type"] != "waiting":
                    self.runs[-1].append(line)
                yield line
            if made_by_then:
                self.rounds_after_stop = engine.statistics.rounds - made_by_then[0]


class Script(Service):
    """A service without models: plays back lines, or fails; keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, Request]] = []
        self.failure: Exception | None = None
        self.trace = make_trace(stop_reason="eos").lines
        self.pause = 0.0
        self.active = 0

    def lines(
        self, key: str, request: Request, stop: threading.Event, progress: Any = None, *, visitor: str = ""
    ) -> Iterator[str]:
        self.asked.append((key, request))
        self.active += 1
        try:
            for number, line in enumerate(self.trace):
                if stop.is_set():
                    return
                if self.failure and number == 3:
                    raise self.failure
                time.sleep(self.pause)
                yield line
        finally:
            self.active -= 1


class Slow(Service):
    """A real engine with one row on a tiny pair, whose verifier takes a set time."""

    def __init__(self, directory: Path) -> None:
        super().__init__(Limits(max_sequences=1, queue=1))
        self.pause = 0.0
        self._pair = tiny_pair("llama", directory)
        forward = self._pair.verifier.forward

        def slow(*args: Any, **more: Any) -> Any:
            time.sleep(self.pause)
            return forward(*args, **more)

        self._pair.verifier.forward = slow

    def _load(self, *_: Any) -> SharedEngine:
        return SharedEngine(self._pair, max_sequences=1, queue=1)


@pytest.fixture(scope="module")
def real(serve: Callable[[gr.Blocks], str], loaded: Service) -> tuple[str, Recorder]:
    service = Recorder(loaded)
    return serve(build_page(service)), service


@pytest.fixture(scope="module")
def scripted(serve: Callable[[gr.Blocks], str]) -> tuple[str, Script]:
    service = Script()
    return serve(build_page(service)), service


@pytest.fixture
def script(scripted: tuple[str, Script], page: Page) -> Script:
    """The scripted page, open and fresh."""
    service = scripted[1]
    service.asked.clear()
    service.failure, service.pause = None, 0.0
    service.trace = make_trace(stop_reason="eos").lines
    open_app(page, scripted[0])
    return service


def tokens(page: Page) -> Locator:
    return page.get_by_test_id("token")


def figure(page: Page, name: str) -> Locator:
    return page.locator(f"[data-figure={name}] dd")


def check_inspector(page: Page, run_: Run, index: int) -> None:
    """The inspector shows the numbers of the trace for token `index`."""
    token, inspector = run_.tokens[index], page.get_by_test_id("inspector")
    unfold_all(page)
    expect(inspector).to_contain_text(f"Token {index + 1} ")
    expect(inspector).to_contain_text(f"position {token.position}")
    expect(inspector).to_contain_text(f"id {token.id}")
    expect(inspector).to_contain_text("drafted and kept" if token.accepted else "made way for")
    picture = inspector.locator(".sv-picture")
    expect(picture).to_have_attribute("data-coin", str(token.coin))
    assert float(picture.get_attribute("data-acceptance") or "nan") == token.acceptance


def test_a_real_run_streams_and_shows_its_trace(real: tuple[str, Recorder], page: Page) -> None:
    """Law 7: at least 80 tokens of the embedded pair: nodes, colours, chart points and numbers are the trace's."""
    address, service = real
    open_app(page, address)
    open_settings(page)
    choose(page, "draft-length", "3")
    set_number(page, "max-new-tokens", 96)
    watch(page, "#run")
    run(page, minutes=3)
    early = page.evaluate("window.early")
    assert early["runs"], "the first tokens came only when the run was over"
    # What moves for ever keeps the browser drawing, on a machine that has a model to run.
    assert early["moves"] == []
    trace = parse_trace(service.runs[-1])
    assert len(trace.tokens) >= 80
    assert trace.inspect == 10
    expect(tokens(page)).to_have_count(len(trace.tokens))
    expect(page.locator("[data-testid=token].accepted")).to_have_count(sum(trace.accepted))
    expect(page.locator("[data-testid=token].resampled")).to_have_count(
        len(trace.tokens) - sum(trace.accepted)
    )
    assert 0 < sum(trace.accepted) < len(trace.tokens)
    assert "".join(tokens(page).all_text_contents()) == trace.text
    expect(page.get_by_test_id("chart").locator(".sv-brick")).to_have_count(len(trace.tokens))
    assert trace.acceptance_rate is not None
    expect(figure(page, "acceptance")).to_contain_text(f"{100 * trace.acceptance_rate:.0f} %")
    expect(figure(page, "calls")).to_contain_text(str(trace.verifier_calls))
    # By mouse, then on by keyboard.
    tokens(page).nth(7).click()
    check_inspector(page, trace, 7)
    tokens(page).nth(7).focus()
    page.keyboard.press("ArrowRight")
    check_inspector(page, trace, 8)
    page.keyboard.press("End")
    check_inspector(page, trace, len(trace.tokens) - 1)


def test_stop_ends_a_real_run_within_a_round_and_the_next_run_works(
    real: tuple[str, Recorder], page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law 6: nothing past the end."""
    address, service = real
    step = Batch.step

    def slow(self: Batch, **more: Any) -> Any:
        time.sleep(0.4)
        return step(self, **more)

    # The browser must not come too late, however busy the machine is: 512 tokens take more than a minute.
    monkeypatch.setattr(Batch, "step", slow)
    open_app(page, address)
    open_settings(page)
    set_number(page, "max-new-tokens", 512)
    page.click("#run")
    # The run that the page opens with is gone then.
    expect(page.locator("#stop")).to_be_enabled(timeout=2 * MINUTES)
    expect(tokens(page).nth(3)).to_be_visible()
    page.click("#stop")
    wait_for_end(page)
    stopped = parse_trace(service.runs[-1])
    assert stopped.stop_reason == "cancelled"
    assert 0 <= service.rounds_after_stop <= 1
    assert len(stopped.tokens) < 512
    expect(tokens(page)).to_have_count(len(stopped.tokens))
    expect(page.get_by_test_id("status")).to_contain_text("stopped")
    set_number(page, "max-new-tokens", 8)
    run(page, minutes=2)
    again = parse_trace(service.runs[-1])
    assert again.stop_reason == "length"
    assert again.token_ids == stopped.token_ids[:8] or len(stopped.tokens) < 8
    expect(tokens(page)).to_have_count(8)


def test_nothing_comes_after_a_stop(page: Page, script: Script) -> None:
    """Law 6: nothing past the end."""
    script.pause = 0.3
    page.click("#run")
    expect(page.locator("#stop")).to_be_enabled()  # the page opens on the tokens of another run
    expect(tokens(page).nth(2)).to_be_visible()
    page.click("#stop")
    wait_for_end(page)
    assert script.active == 0
    seen = tokens(page).count()
    page.wait_for_timeout(700)
    assert tokens(page).count() == seen < len(parse_trace(script.trace).tokens)


def test_what_is_set_is_what_is_asked(page: Page, script: Script) -> None:
    page.fill("#prompt textarea", "  a prompt\nof two lines ")
    page.locator("#method input").click()
    page.get_by_role("option", name=METHODS["cascade_diff"].label, exact=True).click()
    expect(page.locator("#about-method")).to_contain_text("max q₁ ≥ max p₁ − α")
    set_number(page, "lenience", -0.3)
    open_settings(page)
    choose(page, "draft-length", "7")
    for name, value in {"temperature": 0.5, "top-k": 40, "top-p": 0.9}.items():
        set_number(page, name, value)
    set_number(page, "max-new-tokens", 64)
    set_number(page, "seed", 12345)
    run(page)
    key, request = script.asked[-1]
    assert key == "embedded"
    assert request == Request(
        prompt="  a prompt\nof two lines ",
        method="cascade_diff",
        lenience=-0.3,
        draft_length=7,
        temperature=0.5,
        top_k=40,
        top_p=0.9,
        max_new_tokens=64,
        seed=12345,
        inspect=10,
    )


def test_every_method_brings_its_own_words_and_lenience(page: Page, script: Script) -> None:
    script.trace = make_trace([" short"]).lines
    number = page.locator("#lenience input[type=number]")
    groups = {method.group: method for method in METHODS.values()}.values()
    for method in METHODS.values():
        page.locator("#method input").click()
        page.get_by_role("option", name=method.label, exact=True).click()
        expect(page.locator("#about-method")).to_contain_text(method.sentence)
        expect(page.locator("#about-method")).to_contain_text(method.formula)
        if method.has_lenience:
            expect(number).to_have_attribute("min", f"{method.offered_range[0]:g}")
            expect(number).to_have_attribute("max", f"{method.offered_range[1]:g}")
            expect(number).to_have_value(f"{method.default_lenience:g}")
            expect(page.locator("#lenience").get_by_title(method.strict_end, exact=True)).to_have_text(
                "strict"
            )
            expect(page.locator("#lenience").get_by_title(method.drafter_end, exact=True)).to_have_text(
                "lenient"
            )
        else:
            expect(number).to_be_disabled()
            expect(page.locator("#lenience")).to_contain_text("no lenience")
        if method in groups:
            run(page)
            asked = script.asked[-1][1]
            assert (asked.method, asked.lenience) == (method.name, method.default_lenience)


def test_examples_fill_the_prompt_and_new_seed_changes_the_seed(page: Page, script: Script) -> None:
    for name, text in EXAMPLES.items():
        page.get_by_role("button", name=name, exact=True).click()
        expect(page.locator("#prompt textarea")).to_have_value(text)
    open_settings(page)
    seeds = set()
    for _ in range(3):
        page.click("#new-seed")
        page.wait_for_timeout(200)
        seeds.add(page.locator("#seed input").input_value())
    assert len(seeds) == 3
    run(page)
    assert str(script.asked[-1][1].seed) in seeds


FAILURES = (
    (PairError("The model hub cannot be reached from here."), "The model hub cannot be reached from here."),
    (EngineError("Memory ran out with 1 request(s)."), "Memory ran out with 1 request(s)."),
    (RuntimeError("secret /home/someone/file.py"), "Something broke inside SpecViz and this run has ended"),
)


def test_a_failure_is_one_sentence_and_the_next_run_works(page: Page, script: Script) -> None:
    for failure, sentence in FAILURES:
        script.failure = failure
        run(page)
        expect(page.get_by_test_id("failure")).to_contain_text(sentence)
        expect(page.get_by_test_id("status")).to_contain_text("did not work")
        assert "Traceback" not in page.content()
        assert "secret" not in page.content()
        script.failure = None
        run(page)
        expect(tokens(page)).to_have_count(len(parse_trace(script.trace).tokens))


def test_bad_input_is_one_sentence_and_asks_nothing(page: Page, script: Script) -> None:
    script.trace = make_trace([" short"]).lines
    open_settings(page)
    for number, (name, value, good, sentence) in enumerate(
        (
            ("prompt textarea", "  \n ", "hello", "The prompt is empty"),
            ("seed input", "", "5", "it must be a whole number of at least 0"),
            ("top-k input", "", "5", "a whole number of at least 0"),
            ("top-k input", "-1", "5", "a whole number of at least 0"),
        )
    ):
        field = page.locator(f"#{name}")
        field.fill(value)
        field.blur()
        page.wait_for_timeout(300)
        assert field.input_value() == value
        run(page)
        expect(page.get_by_test_id("failure")).to_contain_text(sentence)
        assert len(script.asked) == number
        field.fill(good)
        run(page)
        expect(page.get_by_test_id("failure")).to_be_hidden()
        assert len(script.asked) == number + 1


def test_who_comes_second_waits_and_whom_a_full_queue_turns_away_can_try_again(
    page: Page, browser: Browser, serve: Callable[[gr.Blocks], str], tmp_path: Path
) -> None:
    """One row, and room for one in the queue: the first runs, the second sees its position, the third is turned away."""
    service = Slow(tmp_path)
    address = serve(build_page(service))
    context = browser.new_context()
    waiting, late = context.new_page(), context.new_page()
    for each in (page, waiting, late):
        open_app(each, address)

    def queue_up() -> None:
        service.pause = 0.3
        page.click("#run")
        expect(page.locator("#stop")).to_be_enabled()
        expect(tokens(page).nth(0)).to_be_visible()
        waiting.click("#run")
        expect(waiting.locator("#view")).to_contain_text("waiting, number 1 in the queue")

    queue_up()
    late.click("#run")
    expect(late.locator("#view")).to_contain_text("its queue is full")
    page.click("#stop")
    expect(tokens(waiting).nth(0)).to_be_visible()
    service.pause = 0.0
    for each in (page, waiting, late):
        wait_for_end(each)
    run(late)
    assert tokens(late).all_text_contents() == tokens(waiting).all_text_contents()
    # A stop is heard in the queue too.
    queue_up()
    waiting.click("#stop")
    wait_for_end(waiting)
    expect(tokens(waiting)).to_have_count(0)
    service.pause = 0.0
    wait_for_end(page)
    assert tokens(page).all_text_contents() == tokens(late).all_text_contents()
    context.close()
    service.close()


def test_a_closed_tab_ends_its_run(script: Script, browser: Browser, scripted: tuple[str, Script]) -> None:
    script.pause = 0.5
    other = browser.new_context().new_page()
    open_app(other, scripted[0])

    def wait_for_runs(count: int) -> None:
        deadline = time.monotonic() + 15
        while script.active != count and time.monotonic() < deadline:
            time.sleep(0.1)
        assert script.active == count

    other.click("#run")
    wait_for_runs(1)
    other.context.close()
    wait_for_runs(0)


def test_loading_shows_how_far_it_is(page: Page, script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = threading.Event()

    def slow(
        key: str, request: Request, stop: threading.Event, progress: Any = None, **_: Any
    ) -> Iterator[str]:
        for percent in range(10, 100):
            progress(percent / 100, "Downloading the models")
            if seen.wait(0.2):
                break
        yield from script.trace

    monkeypatch.setattr(script, "lines", slow)
    page.click("#run")
    expect(page.locator("#view")).to_contain_text("Downloading the models", timeout=15_000)
    seen.set()
    wait_for_end(page)


def test_on_a_phone_a_run_scrolls_its_text_into_sight(
    page: Page, script: Script, scripted: tuple[str, Script]
) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    open_app(page, scripted[0])
    run(page)
    expect(page.locator("#view").get_by_test_id("text")).to_be_in_viewport()
    tokens(page).nth(4).click()
    expect(page.get_by_test_id("inspector")).to_be_in_viewport()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_stop_is_in_view_during_a_run_on_a_phone(
    page: Page, script: Script, scripted: tuple[str, Script]
) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    open_app(page, scripted[0])
    script.pause = 0.3
    page.click("#run")
    expect(tokens(page).nth(2)).to_be_visible()
    expect(page.locator("#stop")).to_be_in_viewport()
    page.click("#stop")
    wait_for_end(page)


def test_nothing_moves_while_a_run_starts_streams_and_ends(page: Page, script: Script) -> None:
    """Cumulative layout shift, as the browser counts it. And all that happens at once stays in the window."""
    page.set_viewport_size({"width": 1280, "height": 800})
    page.evaluate(
        """() => { window.shift = 0; new PerformanceObserver((list) => {
            for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shift += entry.value;
        }).observe({ type: "layout-shift" }); }"""
    )
    script.pause = 0.05
    run(page)
    page.wait_for_timeout(500)
    assert page.evaluate("window.shift") <= 0.02


def test_a_rule_of_ones_own_runs_and_a_bad_one_leaves_the_run_before(page: Page, script: Script) -> None:
    field, shown = page.locator("#rule textarea"), page.locator("#rule").get_by_test_id("rule-shown")
    expect(field).to_be_hidden()
    choose(page, "method", METHODS[OWN_RULE].label)
    field.fill("p1(v) >= a * max p1 and H(q) > 0.1")
    expect(shown).to_contain_text("p₁(v) ≥ α·max p₁ and H(q) > 0.1")
    run(page)
    request = script.asked[-1][1]
    assert (request.method, request.rule) == (OWN_RULE, "p1(v) >= a * max p1 and H(q) > 0.1")
    seen = tokens(page).count()
    assert seen
    field.fill("p1(v) >= <b>a</b>")
    expect(page.locator("#rule").get_by_test_id("rule-pointed")).to_have_text("p1(v) >= <b>a</b>\n         ^")
    page.click("#run")
    expect(page.locator(".toast-wrap")).to_contain_text("Character 10 of the rule.")
    expect(page.locator("#run")).to_be_enabled()
    assert tokens(page).count() == seen
    assert len(script.asked) == 1
    choose(page, "method", METHODS["speed"].label)
    expect(field).to_be_hidden()
    run(page)
    assert script.asked[-1][1].rule == ""
