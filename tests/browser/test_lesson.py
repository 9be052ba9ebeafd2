"""Lessons in a real browser: walked by keyboard alone, in both languages, without scrolling; every number is recomputed here."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest
import torch
from playwright.sync_api import Browser, Page, Route, expect

from specviz import environment
from specviz.analysis.recorded_runs import read_recorded_runs
from specviz.app.components.lessons import LessonPlayer
from specviz.app.components.scripted_html import method_words
from specviz.app.link import parse_link
from specviz.core.backend import TORCH
from specviz.lessons.lesson import Lesson, Step, shown_lessons
from specviz.lessons.pictures import CASES, COMPUTED
from tests.browser.bare import mount, open_bare
from tests.browser.driving import violations
from tests.browser.test_playground import WORDS, ruled
from tests.support.lessons import PICTURES, TEXT, write_lesson

SHELF = read_recorded_runs()
MINUTE = 60_000
HOSTILE = "<img src=x onerror=window.__pwned=1>"


def own() -> Lesson:
    lesson = shown_lessons()["cascades"]
    assert isinstance(lesson, Lesson), lesson
    return lesson


PLACES: list[str] = []
"""The steps' places in a link, in order."""
main = below = 0
for one in own().steps:
    main, below = (main, below + 1) if one.texts["en"].deeper else (main + 1, 0)
    PLACES.append(f"{main}.{below}" if below else str(main))


def open_lessons(page: Page, query: str = "") -> None:
    mount(page, LessonPlayer(shown_lessons()), "playground/methods", "playground/cases", query=query)


def open_step(page: Page, place: str, language: str = "en") -> None:
    open_lessons(page, f"?lesson=cascades&step={place}&language={language}")
    expect(page.locator(f".sl-stage[data-place='{place}']")).to_be_visible(timeout=MINUTE)


def at(page: Page) -> str:
    return page.locator(".sl-stage").get_attribute("data-place") or ""


NEEDS_SCROLLING = """() => {
  const stage = document.querySelector(".sl-stage").getBoundingClientRect();
  const over = [...document.querySelectorAll(".sl-player, .sl-stage, .sl-figure, .sl-words")]
    .filter(node => node.scrollHeight > node.clientHeight + 1 || node.scrollWidth > node.clientWidth + 1)
    .map(node => node.className);
  const out = [...document.querySelectorAll(".sl-words, .sl-picture")]
    .filter(node => node.getBoundingClientRect().bottom > stage.bottom + 1).map(node => node.className + " is cut off");
  const whole = document.documentElement.scrollHeight <= innerHeight || getComputedStyle(document.querySelector(".sl-player")).position === "fixed";
  return [...over, ...out, ...(whole ? [] : ["the page scrolls"])];
}"""


TOO_WIDE = """() => [...document.querySelectorAll(".sl-player *")].map((node) => [node.getBoundingClientRect().right, node.className])
    .filter(([right]) => right > innerWidth + 1)"""


def test_a_lesson_is_walked_to_its_end_by_keyboard_in_both_languages_and_no_step_scrolls(page: Page) -> None:
    """Every number on the way is what Python computes; nothing is wider than a phone; no picture has a serious violation."""
    page.emulate_media(reduced_motion="reduce", color_scheme="dark")
    page.set_viewport_size({"width": 1280, "height": 720})
    open_lessons(page)
    wanted = [expected(step, page) for step in own().steps]
    page.locator("[data-lesson=cascades] .sl-start[data-language=de]").focus()
    page.keyboard.press("Enter")
    player = page.get_by_test_id("player")
    expect(player).to_be_visible(timeout=MINUTE)
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    faults, kinds, languages = [], set(), ["de", "en"]
    for index, (place, step) in enumerate(zip(PLACES, own().steps, strict=True)):
        assert (at(page), player.get_attribute("lang")) == (place, languages[0])
        expect(page.get_by_test_id("title")).to_be_focused()
        expect(page.get_by_test_id("answer")).to_have_count(0)
        faults += [(place, "asked", each) for each in page.evaluate(NEEDS_SCROLLING)]
        check_numbers(page, step, languages[0], wanted[index], is_asked=True)
        page.keyboard.press("Enter" if index % 2 else "ArrowRight")
        expect(page.locator(".sl-question")).to_be_visible()
        for language in languages:
            page.locator(f".sl-languages [data-language={language}]").click()
            expect(page.get_by_test_id("answer")).to_be_visible()
            faults += [(place, language, each) for each in page.evaluate(NEEDS_SCROLLING)]
            check_numbers(page, step, language, wanted[index], is_asked=False)
        right = page.get_by_test_id("verdict").get_attribute("data-right")
        assert right == str(step.texts["en"].right)
        live = page.locator("a.sl-way").get_attribute("href") or ""
        assert not parse_link(parse_qsl(live[1:])).problems, live
        if step.kind not in kinds:
            faults += [(place, *each) for each in violations(page)]
        kinds.add(step.kind)
        page.set_viewport_size({"width": 390, "height": 844})
        faults += [(place, "phone", each) for each in page.evaluate(TOO_WIDE)]
        page.set_viewport_size({"width": 1280, "height": 720})
        languages.reverse()
        deeper = index + 1 < len(PLACES) and "." in PLACES[index + 1]
        page.keyboard.press("ArrowDown" if deeper else "PageDown")
    assert at(page) == "end"
    expect(page.get_by_test_id("tally")).to_be_visible()
    expect(page.locator("a.sl-way")).to_have_count(3)  # the end leads on
    page.keyboard.press("Escape")
    expect(player).to_have_count(0)
    assert "lesson=" not in page.url
    assert not faults, "\n".join(map(str, faults))
    assert not [url for url in requests if not url.endswith((".js", ".woff2"))]


def test_guesses_are_counted(page: Page) -> None:
    open_step(page, "1")
    for number, right in enumerate((True, False)):
        wanted = own().steps[number].texts["en"]
        choice = (wanted.right + (not right)) % len(wanted.choices)
        page.keyboard.press(str(choice + 1))
        says = page.get_by_test_id("verdict")
        expect(says).to_have_text(re.compile("^That is right: " if right else "^Not this time. Right: "))
        page.keyboard.press("ArrowRight")
    page.keyboard.press("End")
    expect(page.get_by_test_id("tally")).to_have_text("1 of 2 guesses were right")
    page.get_by_role("button", name="From the beginning").click()
    assert at(page) == "1"
    expect(page.get_by_test_id("answer")).to_have_count(0)


def test_each_step_is_a_link_and_deeper_ones_lie_below(page: Page) -> None:
    open_step(page, "5.2", "de")
    page.keyboard.press("ArrowUp")
    assert at(page) == "5"
    assert "step=5&language=de" in page.url
    page.locator(".sl-dots a[aria-label^='9:']").click()
    assert at(page) == "9"
    page.keyboard.press("ArrowRight")  # the answer
    page.keyboard.press("ArrowRight")  # past what lies below
    assert at(page) == "10"
    open_lessons(page, "?lesson=cascades&step=99&language=xx")
    expect(page.locator(".sl-stage[data-place='1']")).to_be_visible(timeout=MINUTE)


def test_try_it_live_opens_what_the_step_shows_and_back_leads_to_the_step(page: Page, address: str) -> None:
    """Case and method as they stand when the link is chosen; the answer is still shown afterwards."""
    page.goto(f"{address}?lesson=cascades&step=8.1&language=en")
    expect(page.locator(".sl-stage[data-place='8.1']")).to_be_visible(timeout=MINUTE)
    page.keyboard.press("Enter")
    page.locator(".sl-player [data-control=method] [data-value=cascade_diff]").click()
    page.locator("a.sl-way").last.click()
    method = page.locator(".sp-play select[data-control=method]")
    expect(method).to_have_value("cascade_diff", timeout=MINUTE)
    expect(page.locator(".sp-play [data-control=presets] [aria-pressed=true]")).to_have_text("both unsure")
    page.go_back()
    expect(page.locator(".sl-stage[data-place='8.1']")).to_be_visible(timeout=MINUTE)
    expect(page.get_by_test_id("answer")).to_be_visible()


def test_a_lesson_that_loads_slowly_does_not_open_over_another_tab(page: Page, address: str) -> None:
    page.goto(f"{address}?tab=lessons")
    start = page.locator(".sl-start").first
    expect(start).to_be_visible(timeout=MINUTE)
    held = list[Route]()
    page.route("**/lessons?*", lambda route: held.append(route))
    start.click()
    page.wait_for_timeout(300)
    page.get_by_role("tab", name="One run").click()
    [route] = held
    with page.expect_response("**/lessons?*"):
        route.continue_()
    page.wait_for_timeout(300)
    assert "lesson=" not in page.url
    expect(page.get_by_test_id("player")).to_have_count(0)
    page.click("#more-settings")
    expect(page.locator("#seed input")).to_be_visible()


def test_the_notes_are_in_a_window_of_their_own_whose_keys_lead(page: Page) -> None:
    open_step(page, "4")
    with page.expect_popup() as opened:
        page.keyboard.press("n")
    notes = opened.value
    step = next(step for step in own().steps if step.kind == "coin")
    expect(notes.get_by_test_id("notes")).to_have_text(step.texts["en"].notes)
    notes.keyboard.press("ArrowRight")
    expect(page.get_by_test_id("answer")).to_be_visible()
    notes.keyboard.press("ArrowRight")
    assert at(page) == "5"
    page.bring_to_front()
    page.keyboard.press("Escape")
    expect(page.get_by_test_id("player")).to_have_count(0)
    assert notes.is_closed() or notes.wait_for_event("close") is not None


def test_the_handout_has_every_step_with_its_answer_and_prints_itself(browser: Browser) -> None:
    """In the reader's own language, in which a lesson begins."""
    context = browser.new_context(locale="de")
    context.add_init_script("window.print = () => { window.printed = true; }")
    page = context.new_page()
    open_lessons(page)
    page.locator("[data-lesson=cascades] .sl-start").first.click()
    with page.expect_popup() as opened:
        page.get_by_role("button", name="Handzettel").click()
    handout = opened.value
    handout.wait_for_function("window.printed", timeout=MINUTE)
    assert not handout.locator("text=/\\{[a-z_.]+\\}/").count(), "a number is missing"
    sections = handout.locator("main > section").all_inner_texts()
    for place, step, text in zip(PLACES, own().steps, sections, strict=True):
        assert place in text
        assert text.count("☑") == 1, place
        assert step.texts["de"].notes not in text
    context.close()


def test_the_handle_shows_the_recorded_texts(page: Page) -> None:
    runs = [SHELF.load(key) for key in SHELF.lessons if key.startswith("lesson-lenience")]
    page.emulate_media(reduced_motion="reduce")
    open_step(page, "11")
    text, handle = page.get_by_test_id("text"), page.get_by_test_id("handle")
    shown = "node => [...node.querySelectorAll('.sr-token')].map(n => n.textContent.replace('↵\\n', '\\n')).join('')"
    assert text.evaluate(shown) == runs[0].text
    expect(handle).to_be_disabled()
    page.keyboard.press("Enter")
    handle.focus()
    for run in reversed(runs):
        assert text.evaluate(shown) == run.text
        page.keyboard.press("ArrowLeft")
    assert at(page) == "11", "arrows on the handle move the handle"


def six_words(state: dict[str, Any]) -> dict[str, Any]:
    """The figures of a state, from the project's own rules on tensors, but for how many of a thousand tokens change: see test_playground.py."""
    logits = (torch.tensor(state[name], dtype=torch.float64).log() for name in ("q1", "p1"))
    ruling, numbers = ruled(state["method"], *logits, state["lenience"], state["temperature"])
    b = ruling.distributions
    drafted, wanted = int(b.q1.argmax()), int(b.p1.argmax())
    gap, apart = float(b.p1.max() - b.q1.max()), float(TORCH.excess(b.q, b.p))
    found = {
        "lenience": state["lenience"],
        "acceptance_rate": numbers["rate"][0],
        "distance": numbers["tv_p"][0],
        "models_distance": apart,
        "max_q": float(b.q1.max()),
        "max_p": float(b.p1.max()),
        "gap": gap,
        "chow_turns": 1 - float(b.q1.max()),
        "opt_turns": gap / apart if apart else None,
        "drafter_word": WORDS[drafted],
        "verifier_word": WORDS[wanted],
        "q_of_verifier_word": float(b.q[wanted]),
        "p_of_verifier_word": float(b.p[wanted]),
        "pi_of_drafter_word": numbers["target"][drafted],
    }
    if ruling.deferral is not None:
        score, threshold, _ = ruling.deferral
        trusted = (score >= threshold - 1e-12).expand(6)
        found["threshold"] = float(threshold)
        found["trusted"] = ", ".join(word for word, yes in zip(WORDS, trusted, strict=True) if yes)
        if score.shape[-1] == 1:
            found["score"] = float(score)
    return found


def expected(step: Step, page: Page) -> dict[str, Any]:
    """Every value that a step's text may name; those that the browser computes, from the rules in Python."""
    found = {name: value for name, (_, value) in step.picture.values.items()}
    if step.kind == "rule":
        return found | _of_rules(step, found)
    if step.kind == "block":
        rate, length = found["rate"], found["draft_length"]
        return found | {"yield": (1 - rate**length) / (1 - rate), "limit": 1 / (1 - rate)}
    if step.kind == "distributions":
        presets = page.evaluate("() => SpecViz.PRESETS")
        for name, state in step.picture.data["states"].items():
            prefix = f"{name}." if name else ""
            figures = six_words(state | presets[state["case"]])
            found |= {prefix + key: value for key, value in figures.items()}
    return found


def _of_rules(step: Step, found: dict[str, Any]) -> dict[str, Any]:
    """At temperature 1 the rules are arithmetic on q, p and their largest values; those of OPT were recorded."""
    q, p, max_q, max_p = (found[name] for name in ("q", "p", "max_q", "max_p"))
    computed: dict[str, Any] = {}
    for one in step.picture.data["asked"]:
        a, method = one["lenience"], one["method"]
        score, threshold = {
            "cascade_chow": (max_q, 1 - a),
            "cascade_diff": (max_q, max_p - a),
            "cascade_opt": (max_q, (one["recorded"] or {}).get("threshold")),
            "cascade_tokenV1": (q, max_p - a),
            "cascade_tokenV3": (p, (1 - a) * max_p),
        }[method]
        computed |= {f"{method}.score": score, f"{method}.threshold": threshold, f"{method}.lenience": a}
    return computed


def read_number(text: str, language: str) -> float:
    text = text.replace("−", "-")
    text = text.replace(",", ".") if language == "de" else text
    number = float(re.sub(r"[^0-9.e+-]", "", text))
    return number / 100 if "%" in text else number / 1000 if "ms" in text else number


def check_numbers(page: Page, step: Step, language: str, wanted: dict[str, Any], is_asked: bool) -> None:
    """Every placeholder of the step is filled with its value, and written as that value."""
    shown: list[dict[str, str]] = page.locator(".sl-words [data-name]").evaluate_all(
        "nodes => nodes.map(n => ({ name: n.dataset.name, value: n.dataset.value, text: n.textContent.replaceAll('\\u00a0', ' ') }))"
    )
    texts = step.texts[language]
    told = [texts.title, texts.before, texts.question, *(texts.choices if is_asked else [texts.answer])]
    assert set(re.findall(r"\{([^{}]+)\}", " ".join(told))) <= {each["name"] for each in shown}, texts.title
    for each in shown:
        value = wanted.get(each["name"], float(each["value"]) if each["name"].endswith("changed") else None)
        if isinstance(value, str):
            assert each["value"] == value, each
        else:
            assert float(each["value"]) == pytest.approx(value, rel=1e-5, abs=1e-9), each
            written = read_number(each["text"].removeprefix("under ").removeprefix("unter "), language)
            assert written == pytest.approx(value, rel=0.051, abs=0.006), each


def test_the_six_words_and_their_figures_are_those_that_files_may_name(page: Page) -> None:
    open_bare(page, None, "lesson/figures", "playground/cases")
    page.evaluate("words => SpecViz.setRows(words)", method_words())
    states = "{ '': { case: 'they agree', method: 'cascade_diff', lenience: 0 } }"
    step = f"{{ kind: 'distributions', data: {{ states: {states} }} }}"
    assert set(page.evaluate(f"() => Object.keys(SpecViz.computedOf({step}))")) == set(COMPUTED)
    assert set(page.evaluate("() => SpecViz.PRESETS")) == set(CASES)


def test_what_is_wrong_with_a_lesson_is_said_where_it_would_be(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder that the server's owner named: a hostile lesson, and a broken one."""
    hostile = TEXT.replace("The drafter gave", HOSTILE).replace("A step about", HOSTILE)
    write_lesson(tmp_path / "hostile", **{"en.md": hostile})
    write_lesson(tmp_path / "broken", **{"pictures.yaml": PICTURES.replace("coin", "film")})
    monkeypatch.setenv(environment.LESSONS.name, str(tmp_path))
    shown_lessons.cache_clear()
    try:
        open_lessons(page, "?lesson=hostile")
        expect(page.get_by_test_id("title")).to_contain_text(HOSTILE, timeout=MINUTE)
        page.keyboard.press("Enter")
        expect(page.get_by_test_id("answer")).to_be_visible()
        page.keyboard.press("Escape")
        assert page.evaluate("window.__pwned") is None
        broken = page.locator("[data-lesson=broken]")
        expect(broken).to_contain_text("broken/pictures.yaml, step 1: “film” is not a kind of picture")
    finally:
        shown_lessons.cache_clear()
