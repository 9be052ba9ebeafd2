"""The tab Speed or quality in a real browser: the recorded sweep, its points and texts, Compare, and a sweep that streams."""

from __future__ import annotations

import html
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import gradio as gr
import pytest
from playwright.sync_api import Page, expect

from specviz.analysis.sweep.claim import CURVES
from specviz.analysis.sweep.folder import Recorded
from specviz.analysis.sweep.grid import SweepGrid
from specviz.analysis.sweep.items import Item
from specviz.analysis.sweep.results import Results, Sample
from specviz.app.tabs.compare import compare_tab
from specviz.app.tabs.tradeoff import tradeoff_tab
from specviz.app.tabs.tradeoff_controls import TOKENS
from specviz.app.tabs.tradeoff_events import NOTHING_RECORDED
from specviz.app.tabs.tradeoff_words import finding, source
from specviz.errors import EngineError
from specviz.schema.settings import Request
from tests.browser import test_compare
from tests.browser.driving import MINUTES, choose, run, set_number, unfold, violations, wait_for_end
from tests.unit.app.test_tradeoff_figure import made_point

EVIL = "<img src=x onerror=document.title='pwned'>${1+1}{{1+1}}"
PLAN = SweepGrid(temperatures=(0.0, 0.5), limit=3, trials=2, seed=7, timed=0)


def made(plan: SweepGrid, points: int | None = None) -> Recorded:
    """A sweep of a plan, or its first points, with texts that say where they come from."""
    items = tuple(Item(f"item{at}", "fact", f"Question {at}? {EVIL}") for at in range(plan.limit))
    found, samples = [], []
    for number, setting in enumerate(plan.settings[:points]):
        for trial, item in product(range(plan.trials_at(setting.temperature)), range(plan.limit)):
            text, seed = f"{number}: {items[item].key} {trial} {EVIL}", plan.seed_of(item, trial)
            numbers = (24, 20, 12, 24, 10, float(item == 0), 1.0, -20.0, 12, "length")
            samples.append(Sample(number, item, trial, seed, text, *numbers))
        found.append(replace(made_point(setting), samples=plan.limit * plan.trials_at(setting.temperature)))
    complete = points is None
    results = Results(plan, "drafter", "verifier", "float32", plan.limit, tuple(found), complete=complete)
    return Recorded(results, items, samples)


class Script(test_compare.Script):
    """A service without models: a sweep comes forward by a point at a time; keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.plans: list[tuple[str, SweepGrid]] = []
        self.failure_after: tuple[int, Exception] | None = None
        self.steps: threading.Semaphore | None = None  # each lets it come forward by a point

    def sweep(
        self, key: str, plan: SweepGrid, stop: threading.Event, progress: Any = None, *, visitor: str = ""
    ) -> Iterator[Recorded]:
        self.plans.append((key, plan))
        for points in range(1, len(plan.settings) + 1):
            if self.failure_after and points > self.failure_after[0]:
                raise self.failure_after[1]
            while self.steps and not self.steps.acquire(timeout=0.05):
                if stop.is_set():
                    return
            progress(points / len(plan.settings), "Sweeping")
            yield made(plan, points)


def app(service: Script, recorded: Recorded | None) -> gr.Blocks:
    with gr.Blocks() as page:
        with gr.Tabs(selected="tradeoff") as tabs:
            with gr.Tab("Compare", id="compare"):
                compare = compare_tab(page, service)
            with gr.Tab("Trade-off", id="tradeoff"):
                tradeoff_tab(page, service, compare, tabs, recorded)
        page.queue()
    return page


RECORDED = made(PLAN)


@pytest.fixture(scope="module")
def served(serve: Callable[[gr.Blocks], str]) -> tuple[str, Script]:
    service = Script()
    return serve(app(service, RECORDED)), service


@pytest.fixture
def script(served: tuple[str, Script], page: Page) -> Script:
    """The tab with a recorded sweep, fresh."""
    service = served[1]
    service.asked.clear()
    service.plans.clear()
    service.failure_after, service.steps = None, None
    page.goto(served[0])
    drawn(page, len(RECORDED.results.at(0.5)))
    return service


INDEXES = "document.querySelector('.sf-chart').data.flatMap((trace) => trace.customdata ?? [])"


def drawn(page: Page, count: int) -> None:
    """Wait until so many points are drawn."""
    page.wait_for_function(
        f"(count) => document.querySelector('.sf-chart')?.data && {INDEXES}.length === count", arg=count,
        timeout=MINUTES,
    )  # fmt: skip


def test_the_legend_stays_above_the_chart_and_lights_curves(page: Page, script: Script) -> None:
    """However narrow the window; an entry lights its curve while it is pointed at, and for good when clicked."""
    legend, chart = page.get_by_test_id("figure-legend"), page.get_by_test_id("figure")
    for width in (390, 1280):
        page.set_viewport_size({"width": width, "height": 844})
        page.wait_for_timeout(400)  # the chart follows in a coming frame
        above, below = legend.bounding_box(), chart.bounding_box()
        assert above
        assert below
        assert above["y"] + above["height"] <= below["y"] + 0.5
    faint, pressed = legend.get_by_role("button", pressed=False), legend.get_by_role("button", pressed=True)
    assert pressed.count() <= CURVES + 2, "more than the claim's curves and both models stand out"
    name = faint.first.evaluate("(each) => each.lastChild.textContent")
    opacity = "(name) => document.querySelector('.sf-chart').data.find((trace) => trace.customdata && trace.name === name).opacity"
    assert page.evaluate(opacity, name) < 0.5
    entry = legend.get_by_role("button", name=name, exact=True)
    entry.hover()
    page.wait_for_function(f"(name) => ({opacity})(name) === 1", arg=name)
    page.mouse.move(0, 0)
    page.wait_for_function(f"(name) => ({opacity})(name) < 0.5", arg=name)
    entry.click()
    expect(entry).to_have_attribute("aria-pressed", "true")
    page.wait_for_function(
        """(name) => document.querySelector('.sf-chart').layout.annotations.find((each) => each.text.includes(name))?.visible
          && document.querySelector('.sf-chart').data.find((trace) => trace.customdata && trace.name === name).opacity === 1""",
        arg=name,
    )


def test_the_headline_is_the_claim_and_what_was_asked_is_folded_below(page: Page, script: Script) -> None:
    headline, details = finding(RECORDED.results, 0.5)[0], finding(RECORDED.results, 0.5)[1:]
    expect(page.get_by_test_id("figure-headline")).to_have_text(headline)
    expect(page.get_by_test_id("figure-details")).to_have_text(" ".join(details))
    about = page.get_by_test_id("figure-about")
    expect(about.locator("dd").first).to_be_hidden()
    about.locator("summary").click()
    expect(about).to_contain_text(f"{PLAN.limit} questions")


def axis(page: Page, name: str) -> str:
    return page.evaluate(f"document.querySelector('.sf-chart').layout.{name}axis.title.text")


def pick(page: Page, title: str) -> None:
    """Choose a point from the list."""
    page.get_by_test_id("figure-points").select_option(title.replace(" α = ", " α\u00a0=\u00a0"))


def turn_to(page: Page, text: int) -> None:
    """Go to a text of the card, counted from 1."""
    number = page.get_by_test_id("point-number")
    while not number.inner_text().startswith(f"question {text} "):
        now = int(number.inner_text().split()[1])
        page.get_by_test_id("point-after" if now < text else "point-before").click()


def test_the_recorded_sweep_is_there_at_once_and_its_axes_move(page: Page, script: Script) -> None:
    """As many points as the results have at a temperature; other costs, other qualities."""
    results = RECORDED.results
    indexes = page.evaluate(INDEXES)
    assert sorted(indexes) == [at for at, p in enumerate(results.points) if p.setting.temperature == 0.5]
    page.locator("#tradeoff-temperature").get_by_label("0", exact=True).check()
    page.wait_for_function(f"{INDEXES}.includes(0)")
    drawn(page, len(results.at(0.0)))

    expect(page.get_by_test_id("figure-headline")).to_have_text(finding(results, 0.0)[0])
    choose(page, "tradeoff-y", "TV(π, p)")
    page.wait_for_function("document.querySelector('.sf-chart').layout.yaxis.title.text.startsWith('TV')")
    assert axis(page, "y") == "TV(π, p) (lower is better)"
    choose(page, "tradeoff-x", "Relative latency")
    page.wait_for_function("document.querySelector('.sf-chart').layout.xaxis.title.text.includes('latency')")


def test_a_point_shows_its_texts_and_one_of_them_runs_again_in_compare(page: Page, script: Script) -> None:
    """By pointer and from the list; what a model wrote stays text; Compare gets the same seed and settings and starts."""
    box = page.evaluate("""() => {
      const node = document.querySelector('.sf-chart');
      const trace = node.data.find((each) => each.name === 'Verifier only');
      const frame = node.getBoundingClientRect(), { xaxis, yaxis } = node._fullLayout;
      return [frame.x + xaxis._offset + xaxis.l2p(trace.x[0]), frame.y + yaxis._offset + yaxis.l2p(trace.y[0])];
    }""")
    page.mouse.move(*box)
    expect(page.locator(".sf-chart .hovertext")).to_contain_text("Verifier only")
    page.mouse.click(*box)
    expect(page.get_by_test_id("point-title")).to_have_text("Verifier only")
    figures = page.get_by_test_id("point-figures")
    expect(figures.locator("dt")).to_have_count(4)
    expect(figures.locator("dd").first).to_contain_text("44.0%")
    expect(page.get_by_test_id("figure-points")).to_have_value("Verifier only")
    page.wait_for_function("document.querySelector('.sf-chart').data.at(-1).name === 'chosen'")

    title = "Token V3, α = 0.999"
    pick(page, title)
    expect(page.get_by_test_id("point-title")).to_have_text(title.replace(" = ", "\u00a0=\u00a0"))
    settings = [setting.title.replace("\u00a0", " ") for setting in PLAN.settings]
    index, alone = (len(settings) - 1 - settings[::-1].index(name) for name in (title, "Verifier only"))
    turn_to(page, 6)
    expect(page.get_by_test_id("point-prompt")).to_have_text(f"Question 2? {EVIL}")
    shown = page.get_by_test_id("point-texts")
    expect(shown.locator("blockquote")).to_have_text(
        [f"{setting}: item2 1 {EVIL}" for setting in (index, alone)]
    )
    expect(shown.locator("figcaption")).to_contain_text(["✗ wrong", "✗ wrong"])
    expect(page.get_by_test_id("point-after")).to_be_disabled()
    assert page.locator("#tradeoff-card img").count() == 0

    page.get_by_test_id("point-open").click()
    expect(page.get_by_role("tab", name="Compare")).to_have_attribute("aria-selected", "true")
    expect(page.locator("#compare-view [data-pane]").first).to_be_visible(timeout=MINUTES)
    wait_for_end(page, prefix="compare-")
    key, asked, _ = script.compared[-1]
    common = {
        "prompt": RECORDED.items[2].prompt, "temperature": 0.5, "seed": PLAN.seed_of(2, 1), "inspect": 10,
        "max_new_tokens": PLAN.max_new_tokens, "draft_length": PLAN.draft_length,
    }  # fmt: skip
    panes = [("cascade_tokenV3", 0.999), ("verifier_only", 0), ("drafter_only", 0), ("speed", 0)]
    assert len(script.compared) == 1
    assert key == "embedded"
    assert asked == [Request(method=method, lenience=lenience, **common) for method, lenience in panes]
    assert page.title() != "pwned"


def test_the_card_is_reached_and_closed_by_keyboard(page: Page, script: Script) -> None:
    """From the list of points on by Tab alone; Escape closes it, takes the ring away and goes back to the list."""
    listed = page.get_by_test_id("figure-points")
    pick(page, "Verifier only")
    card = page.get_by_test_id("point-card")
    expect(card).to_be_visible()
    listed.focus()
    for _ in range(8):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.dataset.testid") == "point-close":
            break
    expect(page.get_by_test_id("point-close")).to_be_focused()
    page.keyboard.press("Escape")
    expect(card).to_be_hidden()
    expect(listed).to_be_focused()
    expect(listed).to_have_value("")
    page.wait_for_function("document.querySelector('.sf-chart').data.at(-1).name !== 'chosen'")


def test_both_downloads_are_what_is_shown(page: Page, script: Script, tmp_path: Path) -> None:
    """The table is the results’ own CSV to the byte, and the figure is a picture."""
    with page.expect_download() as download:
        page.get_by_test_id("save-csv").click()
    assert download.value.suggested_filename == "specviz-sweep.csv"
    download.value.save_as(tmp_path / "table.csv")
    assert (tmp_path / "table.csv").read_bytes().decode() == RECORDED.results.to_csv()
    saved = {}
    for kind in ("png", "svg"):
        with page.expect_download() as download:
            page.get_by_test_id(f"save-{kind}").click()
        assert download.value.suggested_filename == f"specviz-sweep.{kind}"
        download.value.save_as(tmp_path / kind)
        saved[kind] = (tmp_path / kind).read_bytes()
    assert saved["png"].startswith(b"\x89PNG")
    drawn_text = " ".join(html.unescape(re.sub("<[^>]*>", " ", saved["svg"].decode())).split())
    for words in (finding(RECORDED.results, 0.5)[0], source(RECORDED.results, 0.5)):
        assert " ".join(words.split()) in drawn_text


def test_a_sweep_streams_stops_fails_in_a_sentence_and_gives_way_to_the_recorded_one(
    page: Page, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Points come while it runs, axes moved meanwhile stay, and every end leaves a page that can sweep again."""
    unfold(page, "Sweep it yourself")
    for number, value in {"tradeoff-points": 2, "tradeoff-heat": 1, "tradeoff-limit": 12}.items():
        set_number(page, number, value)
    page.get_by_label("Chow", exact=True).check()
    monkeypatch.setattr("specviz.app.tabs.tradeoff_events.UPDATE_SECONDS", 0.0)
    script.steps = threading.Semaphore(2)
    page.click("#tradeoff-run")
    said = page.get_by_test_id("figure-said")
    expect(said).to_contain_text("Sweeping: 24 of 96 texts", timeout=MINUTES)
    drawn(page, 2)
    pick(page, "Drafter only")
    expect(page.get_by_test_id("point-number")).to_contain_text("of 12")
    choose(page, "tradeoff-y", "TV(π, p)")
    title = page.locator("#tradeoff-figure .ytitle")
    expect(title).to_contain_text("TV(π, p)", timeout=MINUTES)
    script.steps.release()
    expect(said).to_contain_text("Sweeping: 36 of 96 texts", timeout=MINUTES)
    assert axis(page, "y").startswith("TV"), "the next point undid what was chosen meanwhile"
    page.click("#tradeoff-stop")
    wait_for_end(page, prefix="tradeoff-")
    expect(said).to_contain_text("Stopped: ")
    key, plan = script.plans[-1]
    assert set(plan.methods) == {"speed", "cascade_chow", "cascade_tokenV3"}
    limits = {"points": 2, "temperatures": (1.0,), "limit": 12, "max_new_tokens": TOKENS, "timed": 0}
    assert (key, plan) == ("embedded", SweepGrid(methods=plan.methods, **limits))

    script.steps, script.failure_after = None, (3, EngineError("Memory ran out."))
    run(page, prefix="tradeoff-")
    expect(page.get_by_test_id("figure-failure")).to_have_text("Memory ran out.")
    drawn(page, 3)
    script.failure_after = None
    run(page, prefix="tradeoff-")
    expect(page.get_by_test_id("figure-failure")).to_be_hidden()
    expect(said).to_have_text("Done: 96 of 96 texts.")
    page.click("#tradeoff-recorded")
    drawn(page, len(RECORDED.results.at(0.5)))
    expect(page.locator("#tradeoff-recorded")).to_be_hidden()
    expect(said).to_be_hidden()


def test_without_a_recording_a_sentence_says_so_and_one_can_sweep(
    page: Page, serve: Callable[[gr.Blocks], str]
) -> None:
    """A copy without the recorded sweep still has a tab that works."""
    page.goto(serve(app(Script(), None)))
    expect(page.get_by_test_id("figure-failure")).to_have_text(NOTHING_RECORDED, timeout=MINUTES)
    unfold(page, "Sweep it yourself")
    run(page, prefix="tradeoff-")
    drawn(page, 8)
    expect(page.get_by_test_id("figure-failure")).to_be_hidden()
    expect(page.locator("#tradeoff-recorded")).to_be_hidden()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_serious_violation_and_nothing_wider_than_the_screen(
    page: Page, served: tuple[str, Script], theme: str
) -> None:
    """With a point chosen and the sweep unfolded."""
    page.goto(f"{served[0]}?__theme={theme}")
    drawn(page, len(RECORDED.results.at(0.5)))
    pick(page, "Speculative decoding, α = 0.2")
    expect(page.get_by_test_id("point-card")).to_be_visible()
    unfold(page, "Sweep it yourself")
    found = []
    for width, height in ((1280, 900), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_timeout(300)  # the figure follows in a coming frame
        found += [(width, *each) for each in violations(page)]
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert not found, "\n".join(map(str, found))
    ink = page.evaluate("document.querySelector('.sf-chart').layout.font.color")
    assert (ink == "#14161b") == (theme == "light")


def test_without_plotly_the_page_says_so_and_the_table_is_still_there(
    page: Page, served: tuple[str, Script]
) -> None:
    """Points can be chosen from the list though nothing can be drawn."""
    page.route("**/plotly.min.js", lambda route: route.fulfill(status=200, body=""))
    page.goto(served[0])
    expect(page.get_by_test_id("figure-failure")).to_contain_text("could not be loaded", timeout=MINUTES)
    pick(page, "Verifier only")
    expect(page.get_by_test_id("point-card")).to_be_visible()
    page.unroute("**/plotly.min.js")
