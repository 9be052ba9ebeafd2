"""Forks on the stage, in a real browser: when a branch is asked for and with what, how it lies beside its run, and the way back."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from specviz.app.components.scripted_html import method_words
from specviz.app.components.trace_view import TraceView
from specviz.app.tabs.generate import INSPECT
from specviz.app.traces import asked_fork
from specviz.engine.engine import Engine
from specviz.models.registry import DEFAULT_PAIR
from specviz.schema.settings import Continuation
from specviz.schema.trace import parse_trace
from tests.browser.bare import open_bare
from tests.browser.driving import MINUTES, open_app, run, unfold_all, violations
from tests.browser.scripted import Recorder
from tests.support.traces import alternatives, end_entry, line, round_entry, run_entry, token_entry, what_if

METHOD, LENIENCE = "cascade_tokenV2", 0.2
WORDS = ["Once", " upon", " a", " time", " there", " was"]
HOSTILE = " <img src=x onerror='window.pwned = 1'>"


def entry_of(text: str, index: int, *flips: float) -> dict[str, Any]:
    top = [{"id": 900 + at, "text": f"{HOSTILE}{at}", "probability": 0.3 - at / 10} for at in range(2)]
    top.append({"id": 100 + index, "text": text, "probability": 0.05})
    found = {"what_if": what_if(METHOD, 0.9, list(flips)), "top": dict.fromkeys(("q", "p", "pi"), top)}
    return token_entry(text, id=100 + index, position=40 + index, coin=0.4, acceptance=0.9, **found)


def trace() -> str:
    """Six tokens in two rounds, of which the fourth would have been rejected from 0.5 on and the second below −0.3."""
    flips: dict[int, list[float]] = {3: [0.5], 1: [-0.3]}
    tokens = [entry_of(text, index, *flips.get(index, [])) for index, text in enumerate(WORDS)]
    head = run_entry(METHOD, lenience=LENIENCE, alternatives=alternatives(METHOD, LENIENCE), max_new_tokens=6)
    rounds = round_entry(tokens[:3]), round_entry(tokens[3:], index=1)
    return "".join(map(line, (head, *rounds, end_entry(2, METHOD, "length"))))


def branch(kept: int, texts: list[str], end: bool = True, **changes: Any) -> str:
    """A fork's trace: tokens of its own after some of the run's."""
    continues = {
        "prompt": "p",
        "text": "".join(WORDS[:kept]),
        "tokens": kept,
        "chosen": None,
        "chosen_text": "",
    }
    continues |= changes.pop("continues", {})
    settings = {"method": METHOD, "lenience": 0.6, "continues": continues} | changes
    tokens = [token_entry(text, id=500 + index) for index, text in enumerate(texts)]
    head = line(run_entry(**settings)) + line(round_entry(tokens))
    return head + (line(end_entry(1, METHOD, "length")) if end else "")


class Stage:
    """The bare view, with a server that is the test."""

    def __init__(self, page: Page) -> None:
        open_bare(page, TraceView, "trace_view/form")
        self.page = page

    def open(self, value: str, server: bool = True) -> None:
        self.page.evaluate(
            """([value, methods, server]) => {
                Object.assign(window, { asked: [], stops: 0, filled: null });
                const form = SpecViz.createForm((settings) => { window.filled = settings; });
                const more = server ? { form, ask: (wanted) => asked.push(wanted), stop: () => stops++ } : {};
                window.view = SpecViz.createTraceView(document.querySelector(".host"), { methods, ...more });
                view.update(value);
            }""",
            [value, method_words(), server],
        )

    @property
    def asked(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.page.evaluate("asked")
        return found

    def ask(self, lenience: float, method: str = METHOD, rests: bool = False) -> None:
        """Set the form, as the lenience slider tells it."""
        detail = {"group": "", "method": method, "lenience": lenience, "rests": rests, "chosen": True}
        self.page.evaluate(
            "detail => document.dispatchEvent(new CustomEvent('specviz-lenience', { detail }))", detail
        )

    def drag(self, lenience: float, count: int) -> dict[str, Any]:
        """Move to a lenience, and wait until so many forks were asked for in all; the last one."""
        self.ask(lenience)
        self.page.wait_for_function("count => asked.length === count", arg=count)
        return self.asked[-1]

    def answer(self, wanted: dict[str, Any], lines: str) -> None:
        self.page.evaluate("value => view.answer(value)", line({"type": "fork", "id": wanted["id"]}) + lines)

    @property
    def words(self) -> Locator:
        return self.page.locator(".sw-words")

    @property
    def branches(self) -> Locator:
        return self.page.get_by_test_id("branch")


@pytest.fixture
def stage(page: Page) -> Stage:
    return Stage(page)


def test_dragging_asks_once_the_hand_rests_and_shows_both_texts_from_where_they_part(
    page: Page, stage: Stage
) -> None:
    """The shared beginning is shown once; Escape brings the text back. The server reads what is asked as a fork of the run."""
    stage.open(trace())
    text = page.get_by_test_id("text")
    before = text.inner_text()
    stage.ask(0.28)  # the same text, so nothing is asked
    expect(stage.words).to_contain_text("nothing would change: the text is the same from α = −0.3 to 0.5")
    page.wait_for_timeout(250)
    assert stage.asked == []
    wanted = stage.drag(0.6, 1)
    assert (wanted["tokens"], wanted["chosen"]) == (3, None)
    assert wanted["changes"] == {"lenience": 0.6}
    pair, request = asked_fork(wanted, INSPECT)  # as the server reads it
    assert pair == "embedded"
    assert list(request.token_ids or ()) == [1, 2, 3, 100, 101, 102]
    assert (request.method, request.lenience, request.draft_length) == (METHOD, 0.6, 5)
    assert (request.max_new_tokens, request.inspect) == (3, INSPECT)
    assert request.continues == Continuation(run_entry()["prompt"], "Once upon a", 3)
    stage.answer(wanted, branch(3, [" night", HOSTILE], end=False))
    expect(stage.branches).to_have_count(1)
    expect(page.locator(".sv-shared")).to_have_text("Once upon a")
    expect(page.locator(".sv-rest")).to_have_text("time there was")
    expect(stage.branches.locator(".sb-text")).to_have_text(f"night{HOSTILE}")
    expect(stage.branches.locator("h4")).to_have_text("Token V2, α 0.6")
    expect(stage.words).to_have_text(
        "At α = 0.6 the text is the same for 3 tokens; then “␣time” becomes “␣night”."
    )
    assert page.evaluate("window.pwned") is None
    run_text, other = (page.locator(name).bounding_box() for name in (".sv-rest", ".sb-text"))
    assert run_text["x"] + run_text["width"] <= other["x"], "side by side"
    assert page.evaluate("stops") == 0
    page.get_by_test_id("token").first.press("Escape")
    expect(stage.branches).to_have_count(0)
    assert page.evaluate("stops") == 1  # it was not whole
    assert page.evaluate("filled") == {"method": METHOD, "lenience": LENIENCE}
    assert text.inner_text() == before


def test_a_later_branch_replaces_one_that_is_not_kept_and_three_can_be_kept(page: Page, stage: Stage) -> None:
    stage.open(trace())
    keep = page.get_by_role("button", name="Keep this branch").last
    for count, (lenience, shared) in enumerate(((0.6, 3), (0.7, 3), (-0.5, 1), (0.8, 3)), 1):
        wanted = stage.drag(lenience, count)
        if count == 2:
            stage.answer({"id": 1}, branch(3, [" late"]))  # to an earlier question
        stage.answer(wanted, branch(shared, [f" night{count}"], lenience=lenience))
        expect(stage.branches).to_have_count(max(1, count - 1))
        if count > 1:
            keep.click()
    expect(page.locator(".sv-shared")).to_have_text("Once")
    expect(stage.branches.first.locator(".sb-body")).to_have_text("upon a night2")
    stage.ask(0.9)
    expect(stage.words).to_have_text("3 branches are kept: close one to make another.")
    page.get_by_role("button", name="Close this branch").nth(1).click()
    expect(stage.branches).to_have_count(2)
    expect(page.locator(".sv-shared")).to_have_text("Once upon a")


def test_another_method_forks_and_a_fork_that_cannot_be_written_is_a_sentence(
    page: Page, stage: Stage
) -> None:
    stage.open(trace())
    stage.ask(0, "verifier_only", rests=True)
    page.wait_for_function("asked.length === 1")
    assert (stage.asked[0]["tokens"], stage.asked[0]["changes"]["method"]) == (0, "verifier_only")
    words = "You keep <b>SpecViz</b> busy."
    stage.answer(stage.asked[0], line({"type": "error", "message": words}))
    expect(stage.words).to_have_text(words)
    expect(stage.branches).to_have_count(0)


def test_any_token_of_a_list_can_be_chosen_instead(page: Page, stage: Stage) -> None:
    """By keyboard alone; the chosen token is nobody's decision, and every name stays text."""
    stage.open(trace())
    page.get_by_test_id("token").nth(2).click()
    unfold_all(page)
    rows = page.get_by_test_id("inspector").locator("button.sv-row")
    expect(rows).to_have_count(4)  # two of q's and two of p's; the written token is there already
    rows.last.focus()
    page.keyboard.press("Enter")
    wanted = stage.asked[0]
    assert (wanted["tokens"], wanted["chosen"], wanted["changes"]) == (2, 901, {})
    chosen = {"tokens": 3, "text": "Once upon", "chosen": 901, "chosen_text": HOSTILE}
    stage.answer(wanted, branch(2, [" far", " away"], continues=chosen, lenience=LENIENCE))
    expect(stage.branches.locator(".sv-chosen")).to_have_text(HOSTILE.strip())
    expect(stage.words).to_contain_text("was chosen by you in place of “␣a”")
    stage.branches.locator(".sv-token").nth(1).click()
    expect(page.get_by_test_id("inspector").locator(".sv-where")).to_contain_text("Token 5")
    assert page.evaluate("window.pwned") is None


def with_recorded() -> str:
    day = branch(3, [" day"], lenience=0.9)
    forks = [{"lenience": 0.6, "trace": branch(3, [" night"])}, {"lenience": 0.9, "trace": day}]
    return trace() + line({"type": "branches", "leniences": forks})


def test_recorded_branches_appear_at_once_and_the_slider_comes_to_rest_at_them(
    page: Page, stage: Stage
) -> None:
    """With nobody to ask, as in a saved page."""
    stage.open(with_recorded(), server=False)
    slider = page.get_by_label("What-if lenience α")
    for lenience, text, rest in ((0.56, "night", "0.6"), (0.8, "day", "0.9")):
        slider.fill(str(lenience))
        expect(stage.branches.locator(".sb-text")).to_have_text(text)
        expect(stage.branches.locator(".sb-recorded")).to_have_text("recorded")
        expect(slider).to_have_value(rest)


def test_with_a_server_what_was_recorded_shows_until_the_branch_asked_for_comes(
    page: Page, stage: Stage
) -> None:
    stage.open(with_recorded())
    wanted = stage.drag(0.55, 1)
    expect(stage.branches.locator(".sb-text")).to_have_text("night")
    stage.answer(wanted, branch(3, [" evening"], lenience=0.55))
    expect(stage.branches.locator(".sb-text")).to_have_text("evening")
    expect(stage.branches.locator(".sb-recorded")).to_have_count(0)
    # Nothing is asked for that was recorded.
    stage.ask(0.9)
    expect(stage.branches.locator(".sb-text")).to_have_text("day")
    page.wait_for_timeout(250)
    assert len(stage.asked) == 1


def test_a_finger_on_the_slider_writes_a_branch_that_a_whole_run_would_have_written(
    browser: Browser, real: tuple[str, Recorder]
) -> None:
    """The page, the queue and the models: by touch, then by keyboard; no serious fault in the page; Escape goes back."""
    context = browser.new_context(has_touch=True, viewport={"width": 1280, "height": 800})
    page, (address, service) = context.new_page(), real
    open_app(page, address, tokens=24, temperature=1, method="cascade_tokenV3", lenience=0.5)
    run(page)
    slider = page.locator("#lenience").get_by_role("slider")
    place = slider.bounding_box()
    page.touchscreen.tap(place["x"] + place["width"] * 0.8, place["y"] + place["height"] / 2)
    branches = page.locator("#view").get_by_test_id("branch")
    expect(branches.get_by_role("button", name="Keep this branch")).to_be_visible(timeout=MINUTES)
    slider.press("End")
    expect(branches.locator("h4")).to_have_text("Token V3, α 1", timeout=MINUTES)
    expect(branches.get_by_role("button", name="Keep this branch")).to_be_visible(timeout=MINUTES)
    assert slider.bounding_box()["y"] == place["y"]  # it does not move under the finger
    parts = "#view .sv-shared .sv-token", "#view .sb-before", "#view [data-testid=branch] .sv-token:visible"
    shown = "".join(text for part in parts for text in page.locator(part).all_text_contents())
    ran = next(found for found in map(parse_trace, service.runs[::-1]) if found.continues is None)
    with service.engine(DEFAULT_PAIR) as engine:
        [whole] = Engine(engine.pair).generate(ran.fork(0, lenience=1.0))
    assert shown == whole.text
    assert violations(page, "#view") == []
    page.locator("#view .sv-token").first.press("Escape")
    expect(branches).to_have_count(0)
    expect(page.locator("#lenience input[type=number]")).to_have_value("0.5")
    assert "".join(page.locator("#view .sv-token").all_text_contents()) == ran.text
    context.close()
