"""The place Speed or quality in a real browser: its first screen, its points and texts, Compare, and a sweep that streams."""

from __future__ import annotations

import html
import math
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

from specviz.analysis.sweep.claim import CURVES, claim, reading
from specviz.analysis.sweep.folder import shown_sweeps
from specviz.analysis.sweep.grid import Setting, SweepGrid
from specviz.analysis.sweep.items import Item
from specviz.analysis.sweep.results import Estimate, Point, Results, Sample
from specviz.app.tabs.compare import compare_tab
from specviz.app.tabs.tradeoff import TOKENS, YOURS, tradeoff_tab
from specviz.core.methods import METHODS
from specviz.errors import EngineError
from specviz.schema.settings import Request
from tests.browser import scripted
from tests.browser.driving import MINUTES, run, set_number, violations, wait_for_end
from tests.browser.first_screen import Place, faults

EVIL = "<img src=x onerror=document.title='pwned'>${1+1}{{1+1}}"
PLAN = SweepGrid(temperatures=(0.0, 0.5), limit=32, trials=2, seed=7, timed=0)


def interval(value: float, by: float = 0.03) -> Estimate:
    return Estimate(round(value, 4), round(value - by, 4), round(value + by, 4))


def made_point(setting: Setting, samples: int) -> Point:
    """A plausible point: from verifier_only's numbers to drafter_only's as the lenience grows, some of them better."""
    index = list(METHODS).index(setting.method)
    low, high = METHODS[setting.method].offered_range
    trust = (setting.lenience - low) / (high - low) if METHODS[setting.method].has_lenience else 0.0
    rejected = interval(0.62 * (1 - trust) ** (0.5 + index / 6))
    if setting.method in ("drafter_only", "verifier_only"):
        trust = float(setting.method == "drafter_only")
        rejected = interval(1 - trust, 0)
    accuracy = 0.44 - 0.22 * trust ** (1 + index / 4) + 0.05 * math.sin(math.pi * trust) * (index - 3) / 4
    figures = {
        "accuracy": interval(accuracy, 0.05),
        "distance": interval(0.4 * trust, 0.01),
        "rejection_rate": rejected,
        "relative_latency": interval(0.2 + rejected.value),
    }
    against = Estimate(accuracy - 0.44, accuracy - 0.5, accuracy - 0.4)
    ratios = {"accuracy": interval(accuracy / 0.44), "rejection_rate": interval(rejected.value / 0.62)}
    return Point(
        setting, samples, 24 * samples, figures, against_verifier={"accuracy": against}, ratios=ratios
    )


def made(plan: SweepGrid, points: int | None = None) -> Results:
    """A sweep of a plan, or its first points, with texts that say where they come from."""
    items = tuple(Item(f"item{at}", "fact", f"Question {at}? {EVIL}") for at in range(plan.limit))
    found, samples = [], []
    for number, setting in enumerate(plan.settings[:points]):
        for trial, item in product(range(plan.trials_at(setting.temperature)), range(plan.limit)):
            text, seed = f"{number}: {items[item].key} {trial} {EVIL}", plan.seed_of(item, trial)
            numbers = (24, 20, 12, 24, 10, float(item == 0), 1.0, -20.0, 12, "length")
            samples.append(Sample(number, item, trial, seed, text, *numbers))
        found.append(made_point(setting, plan.limit * plan.trials_at(setting.temperature)))
    complete = len(found) == len(plan.settings)
    names = "drafter", "verifier", "float32"
    return Results(plan, *names, items, tuple(found), complete=complete, given=samples)


class Script(scripted.Script):
    """A service without models: a sweep comes forward by a point at a time; keeps what it was asked."""

    def reset(self) -> None:
        super().reset()
        self.plans: list[tuple[str, SweepGrid]] = []
        self.failure_after: tuple[int, Exception] | None = None
        self.steps: threading.Semaphore | None = None  # each lets it come forward by a point

    def sweep(
        self, key: str, plan: SweepGrid, stop: threading.Event, progress: Any = None, *, visitor: str = ""
    ) -> Iterator[Results]:
        self.plans.append((key, plan))
        for points in range(1, len(plan.settings) + 1):
            if self.failure_after and points > self.failure_after[0]:
                raise self.failure_after[1]
            while self.steps and not self.steps.acquire(timeout=0.05):
                if stop.is_set():
                    return
            progress(points / len(plan.settings), "Sweeping")
            yield made(plan, points)


RECORDED, OTHER = made(PLAN), made(replace(PLAN, methods=("speed",), temperatures=(1.0,)))


@pytest.fixture(scope="module")
def served(serve: Callable[[gr.Blocks], str]) -> tuple[str, Script]:
    service = Script()
    with gr.Blocks() as page, gr.Tabs(selected="tradeoff") as tabs:
        with gr.Tab("Compare", id="compare"):
            compare = compare_tab(page, service)
        with gr.Tab("Trade-off", id="tradeoff"):
            tradeoff_tab(page, service, compare, tabs, {"The usual": RECORDED, "Another": OTHER})
    return serve(page.queue()), service


@pytest.fixture
def script(served: tuple[str, Script], page: Page) -> Script:
    """The tab with recorded sweeps, fresh."""
    service = served[1]
    service.reset()
    page.emulate_media(reduced_motion="reduce")
    page.goto(served[0])
    expect(page.get_by_test_id("point-title")).not_to_be_empty(timeout=MINUTES)
    return service


def menu(page: Page, name: str) -> Any:
    """Open a menu below the chart; its content."""
    found = page.get_by_test_id(f"sweep-{name}")
    if found.get_attribute("open") is None:
        found.locator("summary").click()
    return found.locator(".st-list")


def show_temperature(page: Page, temperature: float) -> None:
    page.get_by_test_id("sweep-temperature").get_by_label(f"{temperature:g}", exact=True).check()


def drawn(page: Page) -> list[int]:
    """The indexes of the points in the chart."""
    js = "all => all.map(each => Number(each.dataset.index))"
    return sorted(page.locator(".st-point").evaluate_all(js))


TRADEOFF = Place(
    place="#tradeoff-view",
    texts="#tradeoff-view .st-view",
    parts="#tradeoff-view :is(.st-words, .st-which, .st-heat, .st-name, .st-axis)",
    words="#tradeoff-view :is(h2, h3, p, dt, dd, figcaption)",
    controls=14,
    prefix=None,
)


def test_the_first_screen_is_whole_and_nothing_on_it_is_cut_or_covered(page: Page, address: str) -> None:
    """In every size and size of type, with each of the page's sweeps: few controls, and a card that is not empty."""
    page.emulate_media(reduced_motion="reduce")
    page.goto(f"{address}?tab=tradeoff")
    which, found = page.get_by_test_id("sweep-which"), []
    expect(which).to_be_visible(timeout=MINUTES)
    for index, shown in enumerate(shown_sweeps().values()):
        which.select_option(str(index))
        # Once it has arrived, a sweep shows a temperature of its own.
        headlines = [claim(shown, each).headline for each in shown.temperatures]
        arrived = re.compile("|".join(map(re.escape, headlines)))
        expect(page.get_by_test_id("sweep-headline")).to_have_text(arrived, timeout=MINUTES)
        expect(page.get_by_test_id("point-texts").locator("blockquote")).to_have_count(2, timeout=MINUTES)
        assert len(set(page.locator(".st-name").all_text_contents())) == CURVES
        found += faults(page, TRADEOFF, shown.name)
        page.set_viewport_size({"width": 1280, "height": 800})
    assert not found, "\n".join(map(str, found))


def test_temperature_axes_and_curves_are_the_readers(page: Page, script: Script) -> None:
    """Without the server: the sentence and its four curves first, other methods and axes on demand, then another sweep."""

    def points_of(temperature: float, *methods: str) -> list[int]:
        wanted = [(temperature, method) for method in methods]
        settings = (each.setting for each in RECORDED.points)
        return [at for at, each in enumerate(settings) if (each.temperature, each.method) in wanted]

    for temperature in (0.5, 0.0):
        show_temperature(page, temperature)
        said = claim(RECORDED, temperature)
        expect(page.get_by_test_id("sweep-headline")).to_have_text(said.headline)
        expect(page.get_by_test_id("sweep-doubt")).to_have_text(said.doubt)
        expect(page.get_by_test_id("point-title")).to_have_text(said.shown.setting.title)
        assert drawn(page) == points_of(temperature, *said.curves)
    other = next(name for name in PLAN.methods if METHODS[name].has_lenience and name not in said.curves)
    menu(page, "others").get_by_label(METHODS[other].title, exact=True).check()
    expect(page.locator(".st-name", has_text=METHODS[other].title)).to_be_visible()
    assert drawn(page) == points_of(0.0, *said.curves, other)
    menu(page, "axes").get_by_label("Distance from the verifier").check()
    expect(page.locator(".st-axis").first).to_have_text("↑ Distance from the verifier (less is better)")
    menu(page, "more").get_by_text("Table of these points").click()
    expect(page.get_by_test_id("sweep-dialog").locator("tbody tr")).to_have_count(len(RECORDED.at(0.0)))
    page.keyboard.press("Escape")
    page.get_by_test_id("sweep-which").select_option("Another")
    expect(page.get_by_test_id("sweep-headline")).to_have_text(claim(OTHER, 1.0).headline)


def test_a_point_shows_its_sentence_and_texts_and_one_of_them_runs_again_in_compare(
    page: Page, script: Script
) -> None:
    """By pointer and by arrow keys; what a model wrote stays text; Compare gets the same seed and settings and starts.

    The sentence of the starred point is the headline's, by one rule, and the headline keeps its star.
    """
    said, chosen = claim(RECORDED, 0.5), RECORDED.point(0.5, "speed", 0.4)
    assert chosen
    assert reading(RECORDED, said.shown) == said.headline
    page.locator(".st-point[aria-label^='Speculative decoding, α\u00a0=\u00a00.4:']").click()
    title = page.get_by_test_id("point-title")
    expect(title).to_have_text("Speculative decoding, α\u00a0=\u00a00.4")
    expect(page.get_by_test_id("point-reading")).to_have_text(reading(RECORDED, chosen))
    expect(page.get_by_test_id("sweep-headline")).to_have_text(said.headline)
    star = page.locator(".st-point:has(.st-star)")
    expect(star).to_have_attribute("data-index", str(RECORDED.points.index(said.shown)))
    page.keyboard.press("ArrowLeft")
    expect(title).to_have_text("Speculative decoding, α\u00a0=\u00a00.6")
    expect(page.locator(".st-point:focus")).to_have_attribute("aria-checked", "true")
    figures = page.get_by_test_id("point-figures").locator("dd")
    expect(figures.first).to_contain_text("verifier 44, drafter 22")

    setting, alone = (
        PLAN.settings.index(Setting(0.5, *each)) for each in (("speed", 0.6), ("verifier_only", 0.0))
    )
    for _ in range(5):
        page.get_by_test_id("point-after").click()
    expect(page.get_by_test_id("point-prompt")).to_have_text(f"Question 5? {EVIL}")
    shown = page.get_by_test_id("point-texts")
    expect(shown.locator("blockquote")).to_have_text([f"{each}: item5 0 {EVIL}" for each in (setting, alone)])
    assert page.locator("#tradeoff-view img").count() == 0

    page.get_by_test_id("point-open").click()
    expect(page.get_by_role("tab", name="Compare")).to_have_attribute("aria-selected", "true")
    expect(page.locator("#compare-view [data-pane]").first).to_be_visible(timeout=MINUTES)
    wait_for_end(page, prefix="compare-")
    [(pairs, asked)] = script.compared
    common = {
        "prompt": RECORDED.items[5].prompt, "temperature": 0.5, "seed": PLAN.seed_of(5, 0),
        "max_new_tokens": PLAN.max_new_tokens, "draft_length": PLAN.draft_length,
    }  # fmt: skip
    panes = [("speed", 0.6), ("verifier_only", 0), ("drafter_only", 0), ("speed", 0)]
    assert pairs == ["embedded"] * 4
    assert asked == [Request(method=method, lenience=lenience, **common) for method, lenience in panes]
    assert page.title() != "pwned"


def test_an_address_names_sweep_temperature_and_point(page: Page, address: str) -> None:
    """Back shows the same; the choice of a sweep works by keyboard."""
    first, second = shown_sweeps().values()
    curves = claim(first, 1.0).curves
    offered = (each for each in first.at(1.0) if each.setting.method in curves)
    point = next(each for each in offered if each.setting.lenience > 0)
    chosen, setting = point.setting.title, point.setting
    query = f"?tab=tradeoff&sweep={first.name}&heat=1&point={setting.method}%3A{setting.lenience:g}"
    page.goto(f"{address}?tab=tradeoff")
    title, finding = page.get_by_test_id("point-title"), page.get_by_test_id("sweep-finding")
    which = page.get_by_test_id("sweep-which")
    expect(title).not_to_be_empty(timeout=MINUTES)
    show_temperature(page, 1)
    # A press on the keyboard, because another point may lie on it.
    page.locator(f".st-point[data-index='{first.points.index(point)}']").press("Enter")
    expect(title).to_have_text(chosen)
    assert page.evaluate("location.search") == query
    which.focus()
    page.keyboard.press("ArrowDown")
    expect(finding).to_contain_text("½", timeout=MINUTES)
    page.wait_for_function("name => location.search.includes(`sweep=${name}&heat=0.5`)", arg=second.name)
    page.go_back()
    expect(which).to_have_value("0", timeout=MINUTES)
    expect(finding).to_contain_text("temperature 1", timeout=MINUTES)
    expect(title).to_have_text(chosen, timeout=MINUTES)
    assert page.evaluate("location.search") == query
    page.goto(f"{address}?tab=tradeoff&sweep=nothing&heat=x&point=<b>")
    expect(finding).to_contain_text("temperature 0", timeout=MINUTES)
    expect(which).to_have_value("0")


def test_what_is_saved_is_what_is_shown(page: Page, script: Script, tmp_path: Path) -> None:
    """The table is the results’ own CSV to the byte, and the picture has the sentence."""
    saved = {}
    for kind in ("csv", "png", "svg"):
        menu(page, "more")
        with page.expect_download() as download:
            page.get_by_test_id(f"save-{kind}").click()
        download.value.save_as(tmp_path / kind)
        saved[kind] = (tmp_path / kind).read_bytes()
    assert saved["csv"].decode() == RECORDED.to_csv()
    assert saved["png"].startswith(b"\x89PNG")
    words = " ".join(html.unescape(re.sub("<[^>]*>", " ", saved["svg"].decode())).split())
    assert " ".join(claim(RECORDED, 0.5).headline.split()) in words


def test_a_text_opens_in_compare_while_another_comparison_runs(page: Page, script: Script) -> None:
    """That one ends; the text's own begins."""
    page.get_by_role("tab", name="Compare").click()
    script.goes_on.clear()
    page.click("#compare-run")
    expect(page.locator("#compare-stop")).to_be_enabled(timeout=MINUTES)
    page.get_by_role("tab", name="Trade-off").click()
    page.get_by_test_id("point-open").click()
    expect(page.get_by_role("tab", name="Compare")).to_have_attribute("aria-selected", "true")
    expect(page.locator("#compare-prompt textarea")).to_have_value(re.compile("Question"))
    script.goes_on.set()
    page.wait_for_function(
        "document.querySelectorAll('#compare-view [data-pane=\"2\"] [data-testid=token]').length",
        timeout=MINUTES,
    )
    wait_for_end(page, prefix="compare-")
    assert [asked[0].prompt for _, asked in script.compared][-1] == RECORDED.items[0].prompt
    assert (len(script.compared), script.finished) == (2, 1)


def test_a_sweep_streams_stops_fails_in_a_sentence_and_gives_way_to_the_recorded_ones(
    page: Page, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Points come while it runs, axes chosen meanwhile stay, and every end leaves a page that can sweep again."""
    page.click("#tradeoff-own")
    for number, value in {"tradeoff-points": 2, "tradeoff-heat": 1, "tradeoff-limit": 12}.items():
        set_number(page, number, value)
    page.locator("#tradeoff-methods").get_by_label("Chow", exact=True).check()
    monkeypatch.setattr("specviz.app.tabs.tradeoff.UPDATE_SECONDS", 0.0)
    script.steps = threading.Semaphore(4)
    page.click("#tradeoff-run")
    said = page.get_by_test_id("sweep-said")
    expect(said).to_contain_text("Sweeping: 48 of 96 texts", timeout=MINUTES)
    expect(page.get_by_test_id("sweep-headline")).to_contain_text("not finished")
    page.evaluate("document.querySelectorAll('[name=sweep-y]')[2].click()")  # the drawer stays open
    title = page.locator(".st-axis").first.text_content()
    script.steps.release()
    expect(said).to_contain_text("Sweeping: 60 of 96 texts", timeout=MINUTES)
    assert page.locator(".st-axis").first.text_content() == title, "what was chosen meanwhile stays"
    which = page.get_by_test_id("sweep-which")
    which.select_option("The usual")
    expect(page.get_by_test_id("sweep-headline")).to_have_text(claim(RECORDED, 0.5).headline)
    script.steps.release()
    page.wait_for_timeout(1000)
    expect(page.get_by_test_id("sweep-headline")).to_have_text(claim(RECORDED, 0.5).headline)
    which.select_option(YOURS)
    expect(page.get_by_test_id("sweep-headline")).to_contain_text("not finished")
    page.click("#tradeoff-stop")
    wait_for_end(page, prefix="tradeoff-")
    expect(said).to_contain_text("Stopped: ")
    key, plan = script.plans[-1]
    assert set(plan.methods) == {"speed", "cascade_chow", "cascade_tokenV3"}
    limits = {"points": 2, "temperatures": (1.0,), "limit": 12, "max_new_tokens": TOKENS, "timed": 0}
    assert (key, plan) == ("embedded", SweepGrid(methods=plan.methods, **limits))

    script.steps, script.failure_after = None, (3, EngineError("Memory ran out."))
    run(page, prefix="tradeoff-")
    expect(page.get_by_test_id("sweep-failure")).to_have_text("Memory ran out.")
    script.failure_after = None
    run(page, prefix="tradeoff-")
    expect(page.get_by_test_id("sweep-failure")).to_be_hidden()
    expect(said).to_have_text("Done: 96 of 96 texts.")
    checked = page.locator("#tradeoff-methods input:checked")
    while checked.count():
        checked.first.click()
    run(page, prefix="tradeoff-")
    expect(page.get_by_test_id("sweep-failure")).to_contain_text("Choose one to")
    expect(said).to_have_text("Done: 96 of 96 texts.")  # it is still there
    expect(which.locator("option")).to_have_text(["The usual", "Another", YOURS])
    which.select_option("The usual")
    expect(page.get_by_test_id("sweep-headline")).to_have_text(claim(RECORDED, 0.5).headline)
    expect(said).to_be_hidden()


def test_on_a_phone_a_point_opens_as_a_sheet_and_nothing_bars_the_way(page: Page, script: Script) -> None:
    """By touch or keyboard; no serious violation in either theme, with the sheet and with a menu open."""
    menu(page, "axes")
    found = violations(page)
    page.keyboard.press("Escape")
    page.set_viewport_size({"width": 390, "height": 844})
    page.evaluate("document.body.classList.add('dark')")
    for name in ("others", "axes", "more"):
        menu(page, name)
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        page.keyboard.press("Escape")
        expect(page.get_by_test_id(f"sweep-{name}").locator(".st-list")).to_be_hidden()
    card = page.get_by_test_id("point-card")
    expect(card).to_be_hidden()
    page.locator(".st-point").nth(2).click()
    expect(card).to_be_visible()
    expect(page.get_by_test_id("point-title")).not_to_be_empty()
    found += violations(page)
    card.get_by_label("Close").click()
    expect(card).to_be_hidden()
    assert not found, "\n".join(map(str, found))
