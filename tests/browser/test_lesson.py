"""Lessons in a real browser: walked by keyboard alone, in both languages, without scrolling; every number recomputed here."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gradio as gr
import pytest
import torch
from playwright.sync_api import Browser, Page, expect
from torch import Tensor

from specviz.analysis.recorded_runs import read_recorded_runs
from specviz.analysis.sweep.folder import open_recorded
from specviz.app.components.lessons import LessonPlayer
from specviz.app.components.scripted_html import method_words
from specviz.app.page import build_page
from specviz.core.backend import TORCH
from specviz.core.distributions import Distributions
from specviz.core.methods import get_method
from specviz.core.target import Target
from specviz.lessons.lesson import Lesson, Step
from specviz.lessons.pictures import CASES, FIGURES
from specviz.lessons.places import ROUNDS, TOKENS
from specviz.lessons.shelf import VARIABLE, read_lessons, shown_lessons
from specviz.schema.trace import Run
from specviz.serving.service import Service
from tests.browser.bare import open_bare, scripts
from tests.browser.driving import violations
from tests.support.lessons import STEP, TEXT, write_lesson

SHELF = read_recorded_runs()
LESSONS = read_lessons()
MINUTE = 60_000
HOSTILE = "<img src=x onerror=window.__pwned=1>"


def own() -> Lesson:
    lesson = LESSONS.lessons["cascades"]
    assert isinstance(lesson, Lesson), lesson
    return lesson


def places() -> list[str]:
    """The steps' places in a link, in order."""
    found: list[str] = []
    main = below = 0
    for step in own().steps:
        main, below = (main, below + 1) if step.deeper else (main + 1, 0)
        found.append(f"{main}.{below}" if step.deeper else str(main))
    return found


PLACES = places()


@pytest.fixture(scope="module")
def address(serve: Callable[[gr.Blocks], str]) -> str:
    with gr.Blocks() as app, gr.Tab("Lessons"):
        LessonPlayer(LESSONS, elem_id="lessons")
    return serve(app)


def open_step(page: Page, address: str, place: str, language: str = "en", more: str = "") -> None:
    page.goto(f"{address}?lesson=cascades&step={place}&language={language}{more}")
    expect(page.locator(f".sl-stage[data-place='{place}']")).to_be_visible(timeout=MINUTE)


def at(page: Page) -> str:
    return page.locator(".sl-stage").get_attribute("data-place") or ""


# ---- walking


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


@pytest.mark.parametrize(
    ("language", "theme", "width", "height"), [("en", "light", 1280, 720), ("de", "dark", 1280, 720)]
)
def test_a_lesson_is_walked_to_its_end_by_keyboard_and_no_step_scrolls(
    browser: Browser, address: str, language: str, theme: str, width: int, height: int
) -> None:
    context = browser.new_context(
        reduced_motion="reduce", viewport={"width": width, "height": height}, locale=language
    )
    page = context.new_page()
    page.goto(f"{address}?__theme={theme}")
    page.locator("[data-lesson=cascades] .sl-start").first.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("player")).to_be_visible(timeout=MINUTE)
    assert page.get_by_test_id("player").get_attribute("lang") == language
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    walked, faults = [], []

    def look(state: str) -> None:
        faults.extend((place, state, each) for each in page.evaluate(NEEDS_SCROLLING))
        if state == "shown":
            faults.extend((place, *each) for each in violations(page))

    for index, step in enumerate(own().steps):
        place = PLACES[index]
        walked.append(at(page))
        expect(page.get_by_test_id("title")).to_be_focused()
        expect(page.get_by_test_id("answer")).to_have_count(0)
        look("asked")
        page.keyboard.press("Enter" if index % 2 else "ArrowRight")
        expect(page.get_by_test_id("answer")).to_be_visible()
        assert page.get_by_test_id("verdict").get_attribute("data-right") == step.right
        look("shown")
        deeper = index + 1 < len(PLACES) and "." in PLACES[index + 1]
        page.keyboard.press("ArrowDown" if deeper else "PageDown")
    assert walked == PLACES
    assert at(page) == "end"
    expect(page.get_by_test_id("tally")).to_be_visible()
    page.keyboard.press("ArrowLeft")
    assert at(page) == "12"
    page.keyboard.press("Escape")
    expect(page.get_by_test_id("player")).to_have_count(0)
    assert "lesson=" not in page.url
    context.close()
    assert not faults, "\n".join(map(str, faults))
    assert not [url for url in requests if "heartbeat" not in url and "/static/" not in url], requests


@pytest.mark.parametrize(("language", "theme"), [("de", "light"), ("en", "dark")])
def test_on_a_phone_nothing_is_wider_than_the_screen(
    browser: Browser, address: str, language: str, theme: str
) -> None:
    context = browser.new_context(reduced_motion="reduce", viewport={"width": 390, "height": 844})
    page, faults = context.new_page(), []
    open_step(page, address, "1", language, f"&__theme={theme}")
    for place in PLACES:
        while at(page) != place:
            page.keyboard.press("ArrowDown" if "." in place else "ArrowRight")
        page.keyboard.press("Enter")
        wide = page.evaluate(
            "[...document.querySelectorAll('.sl-player *')].filter(n => n.getBoundingClientRect().right > innerWidth + 1).map(n => n.className)"
        )
        faults += [(place, each) for each in wide]
        if place in ("1", "4", "5", "5.1", "8", "11"):
            faults += [(place, *each) for each in violations(page)]
    context.close()
    assert not faults, "\n".join(map(str, faults))


def test_guesses_are_counted(page: Page, address: str) -> None:
    open_step(page, address, "1")
    main = [step for step in own().steps if not step.deeper]
    for number, step in enumerate(main):
        right = step.choices.index(step.right)
        choice = right if number < 5 else (right + 1) % len(step.choices)
        if number < 7:
            page.keyboard.press(str(choice + 1))
            says = page.get_by_test_id("verdict").locator("b").first
            expect(says).to_have_text("That is right." if number < 5 else "Not this time.")
        else:
            page.keyboard.press("Enter")
        page.keyboard.press("ArrowRight")
    tally = page.get_by_test_id("tally")
    expect(tally).to_have_text("5 of 7 guesses were right")
    page.locator("[data-language=de]").last.click()
    expect(tally).to_have_text("5 von 7 Tipps waren richtig")
    page.get_by_role("button", name="Von vorn").click()
    assert at(page) == "1"
    expect(page.get_by_test_id("answer")).to_have_count(0)


def test_each_step_is_a_link_and_deeper_ones_lie_below(page: Page, address: str) -> None:
    open_step(page, address, "5.2", "de")
    expect(page.get_by_test_id("title")).to_have_text("Was bleibt der Toleranz bei Temperatur 0 zu tun?")
    page.keyboard.press("ArrowUp")
    assert at(page) == "5"
    assert "step=5&language=de" in page.url
    page.keyboard.press("ArrowDown")
    assert at(page) == "5.1"
    page.locator(".sl-dots a[aria-label^='9:']").click()
    assert at(page) == "9"
    page.keyboard.press("ArrowRight")  # the answer
    page.keyboard.press("ArrowRight")  # past what lies below
    assert at(page) == "10"
    page.reload()
    expect(page.locator(".sl-stage[data-place='10']")).to_be_visible(timeout=MINUTE)
    page.goto(f"{address}?lesson=cascades&step=99&language=xx")
    expect(page.locator(".sl-stage[data-place='1']")).to_be_visible(timeout=MINUTE)


def test_the_notes_are_in_a_window_of_their_own_whose_keys_lead(page: Page, address: str) -> None:
    open_step(page, address, "4")
    with page.expect_popup() as opened:
        page.keyboard.press("n")
    notes = opened.value
    step = next(step for step in own().steps if step.name.startswith("04"))
    expect(notes.get_by_test_id("notes")).to_have_text(step.texts["en"]["notes"])
    notes.keyboard.press("ArrowRight")
    expect(page.get_by_test_id("answer")).to_be_visible()
    notes.keyboard.press("ArrowRight")
    assert at(page) == "5"
    expect(notes.locator("h1")).to_have_text("Nothing is lost")
    page.bring_to_front()
    page.keyboard.press("Escape")
    expect(page.get_by_test_id("player")).to_have_count(0)
    assert notes.is_closed() or notes.wait_for_event("close") is not None


def test_the_handle_shows_the_recorded_texts(page: Page, address: str) -> None:
    runs = [SHELF.load(key) for key in SHELF.lessons if key.startswith("lesson-lenience")]
    page.emulate_media(reduced_motion="reduce")
    open_step(page, address, "10")
    text, handle = page.get_by_test_id("text"), page.get_by_test_id("handle")
    shown = "node => [...node.querySelectorAll('.sr-token')].map(n => n.textContent.replace('↵\\n', '\\n')).join('')"
    assert text.evaluate(shown) == runs[0].text
    expect(handle).to_be_disabled()
    page.keyboard.press("Enter")
    handle.focus()
    for stop in range(len(runs) - 1, -1, -1):
        assert text.evaluate(shown) == runs[stop].text
        expect(page.locator(".sl-figures")).to_contain_text(
            f"{int(100 * (runs[stop].acceptance_rate or 0) + 0.5)}\xa0%"
        )
        page.keyboard.press("ArrowLeft")
    assert at(page) == "10", "arrows on the handle move the handle"
    page.emulate_media(reduced_motion="no-preference")


# ---- numbers


def asked(case: str) -> tuple[Tensor, Tensor]:
    drafter, verifier = CASE[case]
    return tuple(torch.tensor(one, dtype=torch.float64).log() for one in (drafter, verifier))  # type: ignore[return-value]


CASE = {
    "confident and wrong": ([0.16, 0.66, 0.1, 0.04, 0.02, 0.02], [0.8, 0.1, 0.04, 0.02, 0.02, 0.02]),
    "both unsure": ([0.22, 0.3, 0.18, 0.12, 0.1, 0.08], [0.28, 0.2, 0.16, 0.12, 0.1, 0.14]),
    "they agree": ([0.5, 0.25, 0.12, 0.06, 0.04, 0.03], [0.52, 0.24, 0.12, 0.06, 0.03, 0.03]),
    "verifier sure": ([0.3, 0.35, 0.15, 0.1, 0.04, 0.06], [0.95, 0.02, 0.01, 0.01, 0.005, 0.005]),
}
WORDS = ("Canberra", "Sydney", "Melbourne", "Perth", "a", "the")


def ruled(state: dict[str, Any]) -> Target:
    """What core/methods.py makes of a case."""
    drafter, verifier = asked(state["case"])
    return Target.of(
        get_method(state["method"]), Distributions(drafter, verifier, state["temperature"]), state["lenience"]
    )


def six_words(state: dict[str, Any], coins: Tensor) -> dict[str, Any]:
    """The figures of a state, from the project's own rules on tensors."""
    ruling = ruled(state)
    b = ruling.distributions
    pi = ruling.pi()
    rate = float((b.q * torch.stack([ruling.acceptance(word) for word in torch.arange(6)])).sum())
    drafted, wanted = int(b.q1.argmax()), int(b.p1.argmax())
    gap, apart = float(b.p1.max() - b.q1.max()), float(TORCH.excess(b.q, b.p))
    found = {
        "lenience": state["lenience"],
        "acceptance_rate": rate,
        "rejection_rate": 1 - rate,
        "distance": float(TORCH.excess(pi, b.p)),
        "drafter_distance": float(TORCH.excess(pi, b.q)),
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
        "pi_of_drafter_word": float(pi[drafted]),
        "changed": int(
            (throw(ruling, coins) != throw(ruled({**state, "method": "speed", "lenience": 0}), coins)).sum()
        ),
    }
    if ruling.score is not None and ruling.threshold is not None:
        trusted = (ruling.score >= ruling.threshold - 1e-12).expand(6)
        found |= {
            "threshold": float(ruling.threshold),
            "trusted": ", ".join(word for word, yes in zip(WORDS, trusted, strict=True) if yes),
        }
        if ruling.score.shape[-1] == 1:
            found["score"] = float(ruling.score)
    return found


def throw(ruling: Target, coins: Tensor) -> Tensor:
    """A thousand tokens at the same coins, from decisions made in Python (law 4)."""

    def draws(distribution: Tensor, uniforms: Tensor) -> Tensor:
        return torch.searchsorted(distribution.cumsum(-1), uniforms.contiguous(), right=True).clamp_max(5)

    drafted = draws(ruling.distributions.q, coins[:, 0])
    accepted = coins[:, 1] < torch.stack([ruling.acceptance(word) for word in drafted])
    return torch.where(accepted, drafted, draws(ruling.residual(), coins[:, 2]))


def of_run(run: Run) -> dict[str, Any]:
    """What can be said of a run, counted from its rounds."""
    tokens = [token for each in run.rounds for token in each.tokens]
    examined, kept = (sum(getattr(each, name) for each in run.rounds) for name in ("examined", "accepted"))
    return {
        "prompt": run.prompt,
        "drafter": run.drafter,
        "verifier": run.verifier,
        "tokens": len(tokens),
        "calls": run.verifier_calls,
        "rejected": sum(not token.accepted for token in tokens) if examined else 0,
        "acceptance_rate": kept / examined if examined else None,
        "tokens_per_call": len(tokens) / run.verifier_calls if run.verifier_calls else None,
        "lenience": run.lenience,
        "temperature": run.temperature,
        "draft_length": run.draft_length,
        "seconds": run.prefill_seconds + sum(each.seconds for each in run.rounds),
    }


def of_token(run: Run, index: int) -> dict[str, Any]:
    token = run.tokens[index]
    draft = token.draft or token
    assert token.top
    assert token.top.q
    assert token.top.p
    best_q, best_p = token.top.q[0], token.top.p[0]
    assert token.acceptance is not None
    if run.method == "speed":
        assert draft.q is not None
        assert draft.p is not None
        assert token.acceptance == pytest.approx(min(1.0, draft.p / draft.q), rel=1e-4)
    return {
        "draft": draft.text,
        "replacement": token.label,
        "q": draft.q,
        "p": draft.p,
        "pi": draft.pi,
        "chance": token.acceptance,
        "coin": token.coin,
        "drafter_word": best_q.text,
        "verifier_word": best_p.text,
        "max_q": best_q.probability,
        "max_p": best_p.probability,
        "beside_favourite": (draft.p or 0) / best_p.probability,
    }


def expected(step: Step, page: Page) -> dict[str, Any]:
    """Every value that the words of a step may name, from the traces, the sweep and the rules; not by what computed them for the page."""
    data = step.picture.data
    if step.kind == "race":
        runs = {lane["name"]: SHELF.load(_raced(step)[lane["name"]]) for lane in data["lanes"]}
        found = {f"{name}.{key}": value for name, run in runs.items() for key, value in of_run(run).items()}
        return found | {"machine": SHELF.machine, "prompt": next(iter(runs.values())).prompt}
    if step.kind in ("round", "coin", "losslessness", "rejections", "rule"):
        return _of_place(step)
    if step.kind == "lenience":
        runs = sorted(
            (SHELF.load(key) for key in SHELF.lessons if "lenience" in key), key=lambda run: run.lenience
        )
        ends = {"strict": runs[0], "lenient": runs[-1]}
        return {f"{name}.{key}": value for name, run in ends.items() for key, value in of_run(run).items()}
    if step.kind == "tradeoff":
        return _of_sweep()
    if step.kind == "block":
        rate, length = 0.7, 5
        limit = 1 / (1 - rate)
        return {
            "rate": rate,
            "draft_length": length,
            "yield": (1 - rate**length) / (1 - rate),
            "limit": limit,
        }
    coins = torch.tensor(page.evaluate("() => SpecViz.coinsOf(1, 1000)"), dtype=torch.float64)
    return {
        f"{name}.{key}" if name else key: value
        for name, state in data["states"].items()
        for key, value in six_words(state, coins).items()
    }


def _raced(step: Step) -> dict[str, str]:
    if len(step.picture.data["lanes"]) == 1:
        return {"alone": "race-verifier-only"}
    return {name: f"lesson-story-{name}" for name in ("alone", "five", "sixteen")}


def _of_place(step: Step) -> dict[str, Any]:
    if step.kind == "rule":
        return _of_rule(step)
    run = SHELF.load("lesson-strict" if step.kind == "rejections" else "lossless")
    found = of_run(run)
    if step.kind == "round":
        index = ROUNDS["longest accepted block" if step.name.startswith("02") else "some kept, one rejected"](
            run
        )
        assert index is not None
        each = run.rounds[index]
        check = statistics.median(one.verifier_seconds for one in run.rounds)
        alone = SHELF.verifier_only_seconds_per_token
        return found | {
            **{"drafted": len(each.proposals), "kept": each.accepted, "written": len(each.tokens)},
            **{"check": check, "alone": alone, "ratio": check / alone},
        }
    if step.kind == "rejections":
        shares = []
        for token in run.tokens:
            if token.draft:
                assert token.top
                assert token.top.p
                shares.append((token.draft.p / token.top.p[0].probability, token))
        good = sum(share >= 0.5 for share, _ in shares)
        _, best = max(shares, key=lambda one: one[0])
        assert best.draft
        assert best.top
        assert best.top.p
        return found | {
            **{"good": good, "good_enough": 0.5, "share": good / len(shares)},
            **{"best": best.draft.text, "best_p": best.draft.p, "favourite_p": best.top.p[0].probability},
        }
    index = TOKENS["most doubtful coin" if step.kind == "coin" else "most shared"](run)
    assert index is not None
    if step.kind == "coin":
        return found | of_token(run, index)
    top = run.tokens[index].top
    assert top
    assert top.q
    assert top.p
    p = {one.id: one.probability for one in top.p}
    one = max((each for each in top.q if each.id in p), key=lambda each: each.probability - p[each.id])
    chance = min(1.0, p[one.id] / one.probability)
    return found | {"token": one.text, "q": one.probability, "p": p[one.id], "chance": chance}


def _of_rule(step: Step) -> dict[str, Any]:
    """At temperature 1 the tests are arithmetic on q, p and their largest values; TV is what OPT's own threshold says."""
    run = SHELF.load("lesson-rules")
    assert (run.method, run.temperature) == ("cascade_opt", 1)
    wanted = step.picture.data["draft"]
    [index] = [
        at
        for at, token in enumerate(run.tokens)
        if (token.draft or token).q == wanted["q"] and (token.draft or token).p == wanted["p"]
    ]
    found = of_run(run) | of_token(run, index)
    rule = run.tokens[index].rule
    assert rule
    q, p, max_q, max_p = (found[name] for name in ("q", "p", "max_q", "max_p"))
    apart = (max_p - rule.threshold) / run.lenience
    for one in step.picture.data["rulings"]:
        a, method = one["lenience"], one["method"]
        score, threshold = {
            "cascade_chow": (max_q, 1 - a),
            "cascade_diff": (max_q, max_p - a),
            "cascade_opt": (max_q, max_p - a * apart),
            "cascade_tokenV1": (q, max_p - a),
            "cascade_tokenV2": (p, max_p - a),
            "cascade_tokenV3": (p, (1 - a) * max_p),
        }[method]
        assert one["trusted"] == (score >= threshold)
        found |= {f"{method}.score": score, f"{method}.threshold": threshold, f"{method}.lenience": a}
    return found


def _of_sweep() -> dict[str, Any]:
    recorded = open_recorded()
    assert recorded
    points = {
        (each.setting.method, each.setting.lenience): each
        for each in recorded.results.points
        if each.setting.temperature == 0.5
    }
    v3 = [each for (method, _), each in points.items() if method == "cascade_tokenV3"]
    harmless = [each for each in v3 if each.against_verifier["accuracy"].high >= 0]
    edge = min(harmless, key=lambda each: each.figures["rejection_rate"].value)
    right, strict = edge.figures["accuracy"], points["speed", 0.0].figures["rejection_rate"].value
    return {
        "items": 200,
        "temperature": 0.5,
        "method": "Token V3",
        "verifier_accuracy": points["verifier_only", 0.0].figures["accuracy"].value,
        "drafter_accuracy": points["drafter_only", 0.0].figures["accuracy"].value,
        "lossless_rejected": strict,
        "edge_lenience": edge.setting.lenience,
        "edge_rejected": edge.figures["rejection_rate"].value,
        "edge_accuracy": right.value,
        "edge_low": right.low,
        "edge_high": right.high,
        "saved": 1 - edge.figures["rejection_rate"].value / strict,
    }


def shown_numbers(page: Page) -> list[dict[str, str]]:
    """The filled placeholders that are on the page: their names, values, and how they are written."""
    return page.locator(".sl-words [data-name]").evaluate_all(
        "nodes => nodes.map(n => ({ name: n.dataset.name, value: n.dataset.value, text: n.textContent.replaceAll('\\u00a0', ' ') }))"
    )


def read_number(text: str, language: str) -> float:
    text = text.replace("−", "-")
    text = text.replace(",", ".") if language == "de" else text
    number = float(re.sub(r"[^0-9.e+-]", "", text))
    return number / 100 if "%" in text else number / 1000 if "ms" in text else number


@pytest.mark.parametrize("language", ["en", "de"])
def test_every_number_is_recomputed(page: Page, address: str, language: str) -> None:
    open_bare(page, None, "playground/methods")
    wanted = [expected(step, page) for step in own().steps]
    open_step(page, address, "1", language)
    checked, named = 0, set()
    for index, (place, step) in enumerate(zip(PLACES, own().steps, strict=True)):
        while at(page) != place:
            page.keyboard.press("ArrowDown" if "." in place else "ArrowRight")
        found = shown_numbers(page)
        page.keyboard.press("Enter")
        found += shown_numbers(page)
        texts = step.texts[language]
        told = [texts[name] for name in ("title", "before", "question", "answer")] + list(
            texts["choices"].values()
        )
        used = set(re.findall(r"\{([^{}]+)\}", " ".join(told)))
        assert used <= {each["name"] for each in found}, (place, "is not all shown")
        for each in found:
            value = wanted[index][each["name"]]
            if isinstance(value, str):
                assert each["value"] == value, (place, each)
            else:
                assert float(each["value"]) == pytest.approx(value, rel=1e-5, abs=1e-9), (place, each)
                written = read_number(each["text"].removeprefix("under ").removeprefix("unter "), language)
                assert written == pytest.approx(value, rel=0.051, abs=0.006), (place, each)
            checked += 1
            named.add((place, each["name"]))
    assert checked > 6 * len(PLACES)
    assert len(named) > 100


def test_the_six_words_and_their_figures_are_those_that_files_may_name(page: Page) -> None:
    open_bare(page, None, "lesson/figures", "playground/cases")
    page.evaluate("words => SpecViz.setRows(words)", method_words())
    states = "{ '': { case: 'they agree', method: 'cascade_diff', lenience: 0 } }"
    step = f"{{ kind: 'distributions', data: {{ states: {states} }} }}"
    assert set(page.evaluate(f"() => Object.keys(SpecViz.computedOf({step}))")) == set(FIGURES)
    presets = page.evaluate("() => SpecViz.PRESETS")
    assert set(presets) == set(CASES)
    for name, (q, p) in CASE.items():
        assert (presets[name]["q1"], presets[name]["p1"]) == (q, p)


def test_pictures_draw_what_was_recorded(page: Page, address: str) -> None:
    """The bars of “nothing is lost”, the coin, and the points of the sweep."""
    open_step(page, address, "5")
    rows = (
        page.get_by_test_id("balance")
        .locator("li")
        .evaluate_all("nodes => nodes.map(n => [Number(n.dataset.q), Number(n.dataset.p)])")
    )
    step = next(step for step in own().steps if step.kind == "losslessness")
    assert rows == [[row["q"], row["p"]] for row in step.picture.data["rows"]]
    open_step(page, address, "4")
    assert page.locator(".sv-picture").get_attribute("data-coin") is None, (
        "the coin is not told before it is thrown"
    )
    assert "coin" not in (page.locator(".sv-picture").get_attribute("aria-label") or "")
    page.keyboard.press("Enter")
    coin = next(step for step in own().steps if step.kind == "coin").picture.values["coin"][1]
    assert float(page.locator(".sv-picture").get_attribute("data-coin") or "nan") == coin


# ---- lessons of others


@pytest.fixture
def others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serve: Callable[[gr.Blocks], str]
) -> Iterator[str]:
    """The whole page of a server whose owner named a folder with a good lesson, a hostile one, and broken ones."""
    hostile = (
        TEXT.replace("The drafter gave it {q}.", f"'{HOSTILE} gave it {{q}}.'")
        .replace("A step about", f"'{HOSTILE}")
        .replace("{draft}", "{draft}'")
    )
    write_lesson(tmp_path / "hostile", **{"en/01-step.yaml": hostile})
    write_lesson(tmp_path / "broken", **{"01-step.yaml": STEP.replace("kind: coin", "kind: film")})
    write_lesson(tmp_path / "marked", **{"en/01-step.yaml": TEXT.replace("{q}", "{<b>}")})
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    shown_lessons.cache_clear()
    yield serve(build_page(Service()))
    shown_lessons.cache_clear()


def test_what_is_wrong_with_a_lesson_is_said_where_it_would_be(page: Page, others: str) -> None:
    page.goto(f"{others}?tab=tour")
    broken = page.locator("[data-lesson=broken]")
    expect(broken).to_contain_text(
        "broken/01-step.yaml, line 1: 'film' is not a kind of step", timeout=MINUTE
    )
    expect(page.locator("[data-lesson=marked]")).to_contain_text(
        "marked/en/01-step.yaml, line 2: there is no {<b>} here"
    )
    page.goto(f"{others}?lesson=broken")
    expect(page.get_by_test_id("lesson-message")).to_contain_text("is not a kind of step", timeout=MINUTE)
    page.goto(f"{others}?lesson=cascades&step=2")
    expect(page.locator(".sl-stage[data-place='2']")).to_be_visible(timeout=MINUTE)
    page.goto(f"{others}?lesson=hostile")
    title = page.get_by_test_id("title")
    expect(title).to_contain_text(HOSTILE, timeout=MINUTE)
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("answer")).to_be_visible()
    assert page.evaluate("window.__pwned") is None
    page.goto(f"{others}?lesson=../../etc/passwd")
    expect(page.locator("#link-banner")).to_contain_text("it must be one of cascades, broken", timeout=MINUTE)


def test_scripts_and_styles_keep_to_the_house_rules() -> None:
    for text in (LessonPlayer.TEMPLATE, LessonPlayer.CSS):
        assert not re.search(r"\{\{|\$\{|`|\\", text)
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function",
        scripts(LessonPlayer.MODULE),
    )


def test_every_word_of_the_files_is_used_and_every_one_used_is_there() -> None:
    text = scripts(LessonPlayer.MODULE)
    for name in LESSONS.words["en"]:
        parts = {name, name.removesuffix("_only"), name.removeprefix("title_")}
        assert any(f'"{part}"' in text or f".{part}" in text for part in parts), name
    for name in re.findall(r'say\("([a-z_]+)"', text):
        assert name in LESSONS.words["en"], name
