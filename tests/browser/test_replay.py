"""The replay of a run in a real browser: every step against the trace, and every way in which a run can come to the stage."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gradio as gr
import pytest
from playwright.sync_api import Locator, Page, expect

from specviz.analysis.recorded_runs import RecordedRuns, read_recorded_runs
from specviz.app.components.trace_view import TraceView
from specviz.app.page import build_page
from specviz.app.recorded import recorded_value
from specviz.core.methods import METHODS
from specviz.schema.trace import Run
from specviz.schema.trace_file import VERSION
from specviz.serving.limits import Limits
from tests.browser.bare import open_bare
from tests.hostile.conftest import FakeService
from tests.support.traces import Trace, line, make_trace

WORDS = {
    name: {
        word: getattr(method, word)
        for word in ("title", "formula", "sentence", "score_label", "threshold_label")
    }
    for name, method in METHODS.items()
}
TEXTS = [" It", " was", " a", " bright", " cold", " day", " in", " April", ",", " and", " so", " on", "."]
SECONDS = 0.05

# What a reader sees of a step, read from the page.
SEEN = """() => {
  const all = (selector, what) => Array.from(document.querySelectorAll(selector)).map(what);
  const part = (node, selector, name) => {
    const found = node.querySelector(selector);
    return found && parseFloat(found.style[name]);
  };
  return {
    phase: document.querySelector(".sv-timeline").dataset.phase,
    tokens: all("[data-testid=token]:not([hidden])", (node) => node.textContent),
    drafts: all("[data-testid=draft]:not([hidden])", (node) => Number(node.dataset.for)),
    later: document.querySelectorAll(".sv-brick.is-later").length,
    cards: all("[data-testid=card]", (node) => [node.dataset.state, node.querySelector(".sv-chip").textContent,
      node.querySelector(".sv-card-state").textContent, part(node, ".sv-chance-fill", "width"), part(node, ".sv-chance-coin", "left")]),
    round: document.querySelector(".sv-round-words").textContent,
    clock: Number(document.querySelector(".sv-lanes").dataset.clock),
    figures: all(".sv-figures dd", (node) => node.firstChild.textContent),
    narration: document.querySelector(".sv-narration").textContent,
  };
}"""


def percent(value: float) -> str:
    """A probability as the page writes it, written here a second time."""
    size = 100 * value
    if size == 0:
        return "0 %"
    if size < 0.1:
        return "under 0.1 %"
    if size >= 99.95:
        return "100 %" if size >= 100 else "nearly 100 %"
    return f"{round(size, 1):g} %" if size < 10 or size > 99 else f"{size:.0f} %"


def visible(text: str) -> str:
    return text.replace(" ", "␣").replace("\n", "⏎")


SAID = {"unseen": "not reached", "kept": "kept unchecked"}


def proposal_card(state: str, proposal: dict[str, Any], token: dict[str, Any] | None) -> list[Any]:
    """A draft token's card: its chance and coin only where the trace has them and the step has come to them."""
    name = visible(proposal["text"]) or f"#{proposal['id']}"
    if state in ("scored", "accepted", "rejected"):
        assert token is not None
        chance, coin = token["acceptance"], token["coin"]
        lead = {"scored": "chance ", "accepted": "kept, ", "rejected": "rejected, "}[state]
        fallen = None if state == "scored" else pytest.approx(100 * coin, abs=1e-3)
        return [state, name, lead + percent(chance), pytest.approx(100 * chance, abs=1e-3), fallen]
    return [state, name, SAID.get(state, "drafter: " + percent(proposal["q"])), None, None]


def scored_cards(
    states: list[str], proposals: list[dict[str, Any]], tokens: list[dict[str, Any] | None]
) -> list[list[Any]]:
    """The cards of proposals whose verification is over."""
    every = zip(states, proposals, tokens, strict=True)
    return [proposal_card(state, proposal, token) for state, proposal, token in every]


def expected_steps(trace: Trace) -> list[dict[str, Any]]:
    """The steps that a trace must unfold into, and what each must show; independent of the page's own code."""
    steps: list[dict[str, Any]] = []
    shown: list[str] = []
    drafts: list[int] = []
    clock = 0.0
    for entry in trace.rounds:
        tokens, proposals = entry["tokens"], entry["proposals"]
        base = {"round": f"Round {entry['index'] + 1} of {len(trace.rounds)}"}

        def add(
            phase: str,
            cards: list[Any],
            when: float,
            base: dict[str, Any] = base,
            entry: dict[str, Any] = entry,
        ) -> None:
            seen = {"tokens": list(shown), "drafts": list(drafts), "cards": cards, "clock": when}
            seen["later"] = len(trace.tokens) - len(shown)
            steps.append(base | {"phase": phase} | seen)

        start, clock = clock, clock + entry["seconds"]
        examined = entry["examined"]
        every, goes_on = proposals, examined > 0 and 1 < len(proposals) == entry.get("draft_length")
        if goes_on:
            proposals = every[:-1]
        drafted = start + entry["drafter_seconds"] * len(proposals) / max(1, len(every))
        verified = drafted + entry["verifier_seconds"]
        if proposals:
            add("propose", [proposal_card("proposed", each, None) for each in proposals], drafted)
        if examined:
            states = (["scored"] * examined + ["proposed"] * len(proposals))[: len(proposals)]
            padded = (tokens + [None] * len(proposals))[: len(proposals)]
            add("verify", scored_cards(states, proposals, padded), verified)
        for offset, token in enumerate(tokens if examined else []):
            closing = offset == len(tokens) - 1
            if offset == len(proposals):
                proposals, padded = every, tokens
                cards = scored_cards(["accepted"] * offset + ["scored"], proposals, padded)
                add("extend", cards, start + entry["drafter_seconds"] + entry["verifier_seconds"])
            states = ["accepted"] * offset + ["accepted" if token["accepted"] else "rejected"]
            states += ["scored"] * (min(examined, len(proposals)) - offset - 1)
            states += ["unseen" if closing else "proposed"] * (len(proposals) - len(states))
            cards = scored_cards(states, proposals, padded)
            if token["accepted"]:
                shown.append(token["text"])
                add("accept", cards, verified if goes_on and offset < len(every) - 1 else clock)
                continue
            drafts.append(len(shown))
            add("reject", cards, clock)
            shown.append(token["text"])
            drawn = ["drawn", visible(token["label"]), "drawn instead", None, None]
            add("resample", [*cards[: offset + 1], drawn, *cards[offset + 1 :]], clock)
        if not examined and proposals:
            shown.extend(token["text"] for token in tokens)
            add("keep", [proposal_card("kept", each, None) for each in proposals], clock)
        elif not examined:
            for token in tokens:
                shown.append(token["text"])
                add("write", [["written", visible(token["label"]), "written", None, None]], clock)
    return steps


FINISHED = {
    method: make_trace(TEXTS, method=method, seed=4, draft_length=4)
    for method in ("cascade_tokenV3", "speed", "verifier_only", "drafter_only")
}


def as_once_written(trace: Trace) -> Trace:
    """The trace as versions before 4 have it, which do not tell K: all that was drafted was drafted first."""
    header, *rounds, end = (json.loads(each) for each in trace.lines)
    for entry in rounds:
        del entry["draft_length"]
    return Trace([line(each) for each in (header | {"version": 3}, *rounds, end)], trace.tokens, rounds)


FINISHED["before version 4"] = as_once_written(FINISHED["speed"])


@pytest.fixture
def alone(page: Page) -> Callable[..., None]:
    """A function that puts the bare view in replay on an empty page, and shows it a value."""

    def show(value: str, width: int = 1280) -> None:
        page.set_viewport_size({"width": width, "height": 900})
        open_bare(page, TraceView)
        page.evaluate(
            """([methods, value]) => {
                window.view = SpecViz.createTraceView(document.querySelector(".host"), { methods });
                window.view.update(value);
            }""",
            [WORDS, value],
        )

    return show


def press(page: Page, name: str) -> None:
    page.locator(f"[data-go={name}]").evaluate("node => node.click()")  # also where it leads nowhere


def seen(page: Page) -> dict[str, Any]:
    found: dict[str, Any] = page.evaluate(SEEN)
    return found


def check(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert found["clock"] == pytest.approx(wanted["clock"])
    rest = {key: value for key, value in wanted.items() if key != "clock"}
    assert {key: found[key] for key in rest} == rest


# ---- every step


@pytest.mark.parametrize("method", FINISHED)
def test_every_step_shows_what_the_trace_says_forwards_and_back(
    page: Page, alone: Callable[..., None], method: str
) -> None:
    """Law 7: what is shown is what ran."""
    trace = FINISHED[method]
    wanted = expected_steps(trace)
    alone(trace.value)
    check(seen(page), wanted[-1])  # a whole run is shown whole
    press(page, "first")
    forwards = []
    for step in wanted:
        forwards.append(seen(page))
        check(forwards[-1], step)
        press(page, "next")
    assert seen(page) == forwards[-1]  # there is nothing beyond the last step
    assert "".join(forwards[-1]["tokens"]) == trace.text
    expect(page.locator("[data-go=next]")).to_have_attribute("aria-disabled", "true")
    backwards = []
    for _ in wanted:
        backwards.append(seen(page))
        press(page, "back")
    assert backwards[::-1] == forwards
    expect(page.locator("[data-go=back]")).to_have_attribute("aria-disabled", "true")


def test_sentence_and_figures_go_along(page: Page, alone: Callable[..., None]) -> None:
    trace = FINISHED["cascade_tokenV3"]
    alone(trace.value)
    press(page, "first")
    first = trace.rounds[0]
    drafted = len(first["proposals"])
    expect(page.get_by_test_id("narration")).to_have_text(
        f"The drafter proposes {drafted - 1} tokens, one after the other."
    )
    assert set(seen(page)["figures"]) == {"–"}
    press(page, "next")
    expect(page.get_by_test_id("narration")).to_have_text(
        f"The verifier scores all {drafted - 1} in one call, and the place after them."
    )
    assert len(first["tokens"]) == drafted == first["draft_length"] > 2
    for offset, token in enumerate(first["tokens"]):
        press(page, "next")
        if offset == drafted - 1:
            assert seen(page)["narration"] == (
                "All are kept, so the drafter proposes one more, in the place that has been scored already."
            )
            press(page, "next")
        found = seen(page)["narration"]
        name = visible((token["draft"] or token)["text"])
        assert f"{name} is {'kept' if token['accepted'] else 'rejected'}" in found
        if not token["accepted"]:
            press(page, "next")
            assert f"{visible(token['text'])} is drawn, from what" in seen(page)["narration"]
    press(page, "last")
    examined = sum(entry["examined"] for entry in trace.rounds)
    accepted = sum(entry["accepted"] for entry in trace.rounds)
    figures = seen(page)["figures"]
    assert figures[0] == f"{100 * accepted / examined:.0f} %"
    assert figures[3:5] == [str(len(trace.rounds)), str(len(trace.tokens))]


def test_the_scrubber_walks_by_key_and_jumps_by_pointer_and_play_walks_to_the_end(
    page: Page, alone: Callable[..., None]
) -> None:
    trace = FINISHED["speed"]
    wanted = expected_steps(trace)
    alone(trace.value)
    slider = page.get_by_role("slider", name="Step of the run")
    slider.focus()
    page.keyboard.press("Home")
    check(seen(page), wanted[0])
    for step in wanted[1:9]:
        slider.press("ArrowRight")
        check(seen(page), step)
        expect(slider).to_have_attribute("aria-valuetext", re.compile(f"^{step['round']}\\. "))
    # Where a round ends on the clock, its last step is shown.
    chart = page.get_by_test_id("chart").locator("svg").bounding_box()
    span = sum(entry["seconds"] for entry in trace.rounds)
    plot = page.locator(".sv-plot").bounding_box()
    clock = 0.0
    for entry in trace.rounds[:-1]:
        clock += entry["seconds"]
        page.mouse.click(plot["x"] + plot["width"] * clock / span + 1.5, chart["y"] + 3)
        words = f"Round {entry['index'] + 1} of {len(trace.rounds)}"
        check(seen(page), [step for step in wanted if step["round"] == words][-1])
    press(page, "first")
    page.locator(".sv-speed select").select_option("25×")
    play = page.locator("[data-go=play]")
    play.press("Enter")
    expect(play).to_have_attribute("aria-label", "Pause")
    expect(page.locator("[data-figure=stop]")).to_contain_text("replaying round")
    expect(page.locator("[data-go=last]")).to_have_attribute("aria-disabled", "true", timeout=30_000)
    expect(play).to_have_attribute("aria-label", "Play")
    check(seen(page), wanted[-1])


def test_a_paused_replay_says_so(page: Page, alone: Callable[..., None]) -> None:
    alone(FINISHED["speed"].value)
    said = page.locator("[data-figure=stop]")
    expect(said).not_to_contain_text("round")
    press(page, "back")
    expect(said).to_have_text(f"paused in round {len(FINISHED['speed'].rounds)}")
    press(page, "play")
    press(page, "play")
    press(page, "last")
    expect(said).not_to_contain_text("round")


def test_while_a_run_goes_on_its_latest_round_is_shown(page: Page, alone: Callable[..., None]) -> None:
    trace = FINISHED["speed"]
    alone(trace.prefixes()[2])
    found = seen(page)
    assert found["round"] == "Round 2"
    assert (
        f"{trace.rounds[1]['accepted']} of {len(trace.rounds[1]['proposals'])} draft tokens kept"
        in found["narration"]
    )
    assert [card[0] for card in found["cards"]].count("accepted") == trace.rounds[1]["accepted"]
    expect(page.locator("[data-go=play]")).to_have_attribute("aria-disabled", "true")


def test_a_pinned_token_brings_its_round_and_an_unpinned_one_takes_it_back(
    page: Page, alone: Callable[..., None]
) -> None:
    trace = FINISHED["cascade_tokenV3"]
    alone(trace.value)
    rest = seen(page)
    page.get_by_test_id("token").first.click()
    assert seen(page)["round"] == f"Round 1 of {len(trace.rounds)}"
    assert len(seen(page)["tokens"]) == len(trace.tokens)
    expect(page.get_by_test_id("card").first).to_have_attribute("aria-current", "step")
    page.keyboard.press("Escape")
    assert seen(page)["round"] == rest["round"]


def test_tokens_of_later_steps_cannot_be_reached_by_keyboard(page: Page, alone: Callable[..., None]) -> None:
    alone(FINISHED["cascade_tokenV3"].value)
    press(page, "first")
    while len(seen(page)["tokens"]) < 2:
        press(page, "next")
    page.get_by_test_id("token").first.focus()
    page.keyboard.press("End")
    focused = page.evaluate("document.activeElement.dataset.index")
    assert int(focused) == len(seen(page)["tokens"]) - 1
    page.keyboard.press("Enter")
    expect(page.locator(".sv-token.is-pinned")).to_have_count(1)
    press(page, "first")
    expect(page.locator(".sv-token.is-pinned")).to_have_count(0)


# ---- the clock


def lane(page: Page, name: str) -> Locator:
    return page.locator(f"[data-lane={name}]")


def working(trace: Trace, name: str) -> list[tuple[float, float]]:
    """When a model began to work, and for how long: the drafter a second time where all but the last were accepted."""
    found, clock = [], 0.0
    for entry in trace.rounds:
        drafting, verifying = entry["drafter_seconds"], entry["verifier_seconds"]
        drafted = len(entry["proposals"])
        last = drafting / drafted if 1 < drafted == entry["draft_length"] else 0.0
        if name == "verifier":
            found.append((clock + drafting - last, verifying))
        else:
            found.append((clock, drafting - last))
            if last:
                found.append((clock + drafting - last + verifying, last))
        clock += entry["seconds"]
    assert name == "verifier" or len(found) > len(trace.rounds)
    return found


def test_lanes_are_drawn_to_the_measured_times(page: Page, alone: Callable[..., None]) -> None:
    trace = FINISHED["speed"]
    alone(trace.value + line({"type": "yardstick", "seconds_per_token": SECONDS, "machine": "2 CPU cores"}))
    total = sum(entry["seconds"] for entry in trace.rounds)
    assert total > SECONDS * len(trace.tokens)  # the clock ends with the run
    for name in ("drafter", "verifier"):
        pieces = (
            lane(page, name)
            .locator(".sv-piece")
            .evaluate_all(
                "nodes => nodes.map(({ style }) => [parseFloat(style.left), parseFloat(style.width)])"
            )
        )
        assert pieces == [
            pytest.approx([100 * start / total, 100 * length / total], rel=1e-4, abs=1e-4)
            for start, length in working(trace, name)
        ]
    press(page, "last")
    whole = f"{SECONDS * len(trace.tokens):.2f} s"
    expect(lane(page, "plain").locator(".sv-lane-sum")).to_have_text(whole)
    expect(page.locator(".sv-lanes-note")).to_contain_text(
        f"{len(trace.tokens)} tokens × 50 ms = {whole}; measured: 2 CPU cores"
    )
    expect(page.locator(".sv-clock")).to_have_text(f"{total:.2f} s of {total:.2f} s")


def test_the_verifier_alone_is_never_guessed_but_remembered_once_measured(
    page: Page, alone: Callable[..., None]
) -> None:
    alone(FINISHED["speed"].value)
    expect(lane(page, "plain")).to_have_attribute("hidden", "")
    expect(page.locator(".sv-lanes-note")).to_contain_text("run Verifier only with the same settings")
    page.evaluate("(value) => view.update(value)", FINISHED["verifier_only"].value)
    expect(lane(page, "plain")).to_have_attribute("hidden", "")
    expect(page.locator(".sv-lanes-note")).to_contain_text("It is the yardstick itself")
    page.evaluate("(value) => view.update(value)", FINISHED["speed"].value)
    taken = FINISHED["verifier_only"].rounds[0]["seconds"] * len(FINISHED["speed"].tokens)
    expect(lane(page, "plain").locator(".sv-lane-sum")).to_have_text(f"{taken:.2f} s")


def test_odd_rounds_break_nothing(page: Page, alone: Callable[..., None]) -> None:
    """What a file may hold although no engine writes it."""
    trace = make_trace(TEXTS[:4], seed=4)
    entries = [json.loads(each) for each in trace.lines]
    entries[1] |= {"proposals": [None], "seconds": None}
    entries.insert(2, {"type": "round", "tokens": [], "proposals": []})
    entries.insert(
        3, {"type": "round", "tokens": [{"text": "x", "accepted": False, "coin": 0.5, "acceptance": 0.1}]}
    )
    alone("".join(line(entry) for entry in entries))
    press(page, "last")
    expect(page.locator("[data-go=last]")).to_have_attribute("aria-disabled", "true")
    for _ in range(12):
        press(page, "back")
    assert "x" in "".join(page.get_by_test_id("token").all_text_contents())


# ---- the tab

SHELF: RecordedRuns = read_recorded_runs()


@pytest.fixture(scope="module")
def address(serve: Callable[[gr.Blocks], str]) -> str:
    """The real page."""
    return serve(build_page(FakeService()))


def open_tab(page: Page, address: str) -> Locator:
    page.goto(f"{address}?tab=replay")  # as an old link has it
    view = page.locator("#view")
    expect(view.get_by_test_id("token").first).to_be_visible(timeout=60_000)
    return view


def choose(page: Page, title: str) -> None:
    page.locator("#recorded input").click()
    page.get_by_role("option", name=title).click()


def test_every_recorded_run_plays_to_its_end(page: Page, alone: Callable[..., None]) -> None:
    alone("")
    for recorded in SHELF.runs:
        run = SHELF.load(recorded.key)
        page.evaluate("(value) => view.update(value)", recorded_value(SHELF, recorded.key))
        assert seen(page)["tokens"] == [token.text for token in run.tokens]
        expect(page.get_by_test_id("told")).to_contain_text(recorded.story)
        press(page, "first")
        assert len(seen(page)["tokens"]) == (run.method == "verifier_only")  # whose first step is a token
        assert (lane(page, "plain").get_attribute("hidden") is None) == (run.method != "verifier_only")


def test_a_recorded_run_plays_when_it_is_chosen_and_a_link_to_it_plays_it_again(
    page: Page, address: str
) -> None:
    view = open_tab(page, address)
    expect(view.get_by_test_id("told")).to_contain_text(SHELF.runs[0].story)
    recorded = SHELF.runs[1]
    run = SHELF.load(recorded.key)
    choose(page, recorded.title)
    expect(view.get_by_test_id("told")).to_contain_text(recorded.story)
    expect(view.get_by_test_id("token")).to_have_count(len(run.tokens))
    expect(view.locator("[data-go=play]")).to_have_attribute("aria-label", "Pause")
    expect(page).to_have_url(re.compile(f"tab=generate&run={recorded.key}$"))
    page.evaluate("sessionStorage.clear()")
    page.reload()
    expect(view.get_by_test_id("told")).to_contain_text(recorded.story, timeout=60_000)
    expect(view.locator("[data-go=play]")).to_have_attribute("aria-label", "Pause")
    page.go_back()
    expect(view.get_by_test_id("told")).to_contain_text(SHELF.runs[0].story, timeout=60_000)


def test_a_page_that_is_loaded_again_still_has_its_run(page: Page, address: str) -> None:
    view = open_tab(page, address)
    page.click("#run")
    expect(view.get_by_test_id("told")).to_be_hidden()
    expect(view.locator("[data-figure=stop]")).to_have_class(re.compile("is-done"), timeout=60_000)
    text = view.get_by_test_id("token").all_text_contents()
    assert len(text) > 0
    page.reload()
    expect(view.get_by_test_id("token")).to_have_text(text, timeout=60_000)
    expect(page).to_have_url(re.compile("tab=generate&pair=.*method="))


def refused() -> dict[str, tuple[bytes, str]]:
    """Files that must be refused, and a piece of the sentence."""
    lines = SHELF.load(SHELF.runs[0].key).lines()
    whole = "".join(lines)
    header, rest = whole.split("\n", 1)
    huge = re.sub(r'"temperature":[0-9.]+', f'"temperature":{"9" * 400}', header)
    assert huge != header
    return {
        "garbage": (b"\x00\xff\xfe garbage", "must be a text file of JSON lines"),
        "foreign": (b'{"type": "run"}\n', "its first line must be the run"),
        "truncated": (whole[: len(whole) // 2].encode(), "truncated"),
        "version": (whole.replace(f'"version":{VERSION}', '"version":99', 1).encode(), "schema version 99"),
        "marked up": (
            whole.replace(
                f'"version":{VERSION}', '"version":"<img src=x onerror=window.pwned=1>"', 1
            ).encode(),
            "<img src=x onerror=window.pwned=1>",
        ),
        "infinite": ((huge + "\n" + rest).encode(), "'temperature' is of the wrong kind"),
        "deep": (b"[" * 100_000, "is not JSON"),
        "oversize": (b"x" * (Limits.max_trace_bytes + 1), "at most 5 MB"),
    }


def upload(page: Page, name: str, content: bytes) -> None:
    file = {"name": name, "mimeType": "application/jsonl", "buffer": content}
    with page.expect_file_chooser() as chooser:
        page.locator("#upload").click()
    chooser.value.set_files(file)  # type: ignore[arg-type]


def stored() -> set[Path]:
    return set((Path(tempfile.gettempdir()) / "gradio").rglob("*.jsonl"))


def test_a_bad_file_is_refused_in_a_sentence_and_a_good_one_replayed(page: Page, address: str) -> None:
    before = stored()
    view = open_tab(page, address)
    failure = view.get_by_test_id("failure")
    for name, (content, sentence) in refused().items():
        upload(page, f"{name}.jsonl", content)
        expect(failure).to_contain_text(sentence)
        assert len(failure.text_content() or "") <= 300
    assert page.evaluate("window.pwned") is None
    run: Run = SHELF.load(SHELF.runs[1].key)
    upload(page, "good.jsonl", "".join(run.lines()).encode())
    expect(failure).to_be_hidden()
    expect(view.get_by_test_id("told")).to_have_text("From a file")
    expect(view.locator(".sv-round-words")).to_have_text(f"Round {len(run.rounds)} of {len(run.rounds)}")
    expect(view.get_by_test_id("token")).to_have_count(len(run.tokens))
    assert stored() <= before  # nothing that was uploaded is kept
