"""The replay of a run in a real browser: every step against the trace, and every way in which a run can come to the stage."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable
from itertools import groupby, zip_longest
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from specviz.analysis.recorded_runs import RecordedRuns, read_recorded_runs
from specviz.app.recorded import recorded_value
from specviz.schema.trace import Run
from specviz.schema.trace_file import VERSION
from specviz.serving.limits import Limits
from tests.browser.bare import open_trace_view, update
from tests.support.traces import Trace, line, make_trace

PHASES = {
    "speed": "propose verify( accept)*( reject resample| extend accept| extend reject resample)?",
    "verifier_only": "write",
    "drafter_only": "propose keep",
}
"""The order of a round's steps."""
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


def visible(text: str) -> str:
    return text.replace(" ", "␣").replace("\n", "⏎")


def round_of_cards(entry: dict[str, Any]) -> list[list[Any]]:
    """The cards that a round ends with: state, name, chance and coin in percent."""
    tokens, cards = entry["tokens"], []
    if not entry["examined"]:
        if not entry["proposals"]:
            return [["written", visible(token["label"]), None, None] for token in tokens]
        return [["kept", visible(it["text"]) or f"#{it['id']}", None, None] for it in entry["proposals"]]
    for token, proposal in zip_longest(tokens, entry["proposals"]):
        name = visible(proposal["text"]) or f"#{proposal['id']}"
        if token is None:
            cards.append(["unseen", name, None, None])
            continue
        fate = "accepted" if token["accepted"] else "rejected"
        shares = [pytest.approx(100 * token[key], abs=1e-3) for key in ("acceptance", "coin")]
        cards.append([fate, name, *shares])
        if token["draft"]:
            cards.append(["drawn", visible(token["label"]), None, None])
    return cards


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
    """A function that shows the bare view a trace."""
    return lambda value: open_trace_view(page, value)


def press(page: Page, name: str) -> None:
    page.locator(f"[data-go={name}]").evaluate("node => node.click()")  # also where it leads nowhere


def walk(page: Page, name: str) -> list[dict[str, Any]]:
    """What is seen step by step, from here as far as the button leads."""
    found: list[dict[str, Any]] = page.evaluate(
        f"""name => {{
            const see = {SEEN}, button = document.querySelector(`[data-go=${{name}}]`), found = [see()];
            while (button.getAttribute("aria-disabled") !== "true") {{
                button.click();
                found.push(see());
            }}
            return found;
        }}""",
        name,
    )
    return found


def seen(page: Page) -> dict[str, Any]:
    found: dict[str, Any] = page.evaluate(SEEN)
    return found


def check_round(found: dict[str, Any], trace: Trace, index: int) -> None:
    """What is shown is what the trace says at the end of round `index`."""
    done = trace.rounds[: index + 1]
    texts = [token["text"] for entry in done for token in entry["tokens"]]
    assert found["round"] == f"Round {index + 1} of {len(trace.rounds)}"
    assert found["tokens"] == texts
    assert found["later"] == len(trace.tokens) - len(texts)
    assert found["drafts"] == [at for at, token in enumerate(trace.tokens[: len(texts)]) if token["draft"]]
    assert found["clock"] == pytest.approx(sum(entry["seconds"] for entry in done))
    assert [[state, name, *shares] for state, name, _, *shares in found["cards"]] == round_of_cards(done[-1])


@pytest.mark.parametrize("method", FINISHED)
def test_every_step_shows_what_the_trace_says_forwards_and_back(
    page: Page, alone: Callable[..., None], method: str
) -> None:
    """Law 7: each round is proposed, verified and decided token by token; its last step shows the trace's numbers."""
    trace = FINISHED[method]
    alone(trace.value)
    check_round(seen(page), trace, len(trace.rounds) - 1)  # a whole run is shown whole
    press(page, "first")
    forwards = walk(page, "next")
    press(page, "next")
    assert seen(page) == forwards[-1]  # there is nothing beyond the last step
    assert "".join(forwards[-1]["tokens"]) == trace.text
    for index, (_, steps) in enumerate(groupby(forwards, lambda each: each["round"])):
        steps = list(steps)
        check_round(steps[-1], trace, index)
        phases = " ".join(step["phase"] for step in steps)
        assert re.fullmatch(PHASES.get(method, PHASES["speed"]), phases), phases
        assert [step["clock"] for step in steps] == sorted(step["clock"] for step in steps)
    assert walk(page, "back")[::-1] == forwards
    expect(page.locator("[data-go=back]")).to_have_attribute("aria-disabled", "true")


def test_sentence_and_figures_go_along(page: Page, alone: Callable[..., None]) -> None:
    trace = FINISHED["cascade_tokenV3"]
    alone(trace.value)
    press(page, "first")
    steps = walk(page, "next")
    first, last = trace.rounds[0], steps[-1]
    drafted = len(first["proposals"])
    assert steps[0]["narration"] == f"The drafter proposes {drafted - 1} tokens, one after the other."
    assert set(steps[0]["figures"]) == {"–"}
    said = " ".join(step["narration"] for step in steps if step["round"].startswith("Round 1 "))
    for token in first["tokens"]:
        name = visible((token["draft"] or token)["text"])
        assert f"{name} is {'kept' if token['accepted'] else 'rejected'}" in said
        assert token["accepted"] or f"{visible(token['text'])} is drawn, from what" in said
    examined, accepted = (sum(entry[name] for entry in trace.rounds) for name in ("examined", "accepted"))
    assert last["figures"][0] == f"{100 * accepted / examined:.0f} %"
    assert last["figures"][3:5] == [str(len(trace.rounds)), str(len(trace.tokens))]


def test_the_scrubber_walks_by_key_and_jumps_by_pointer_and_play_walks_to_the_end(
    page: Page, alone: Callable[..., None]
) -> None:
    trace = FINISHED["speed"]
    alone(trace.value)
    press(page, "first")
    walked = walk(page, "next")[:8]
    slider = page.get_by_role("slider", name="Step of the run")
    slider.focus()
    page.keyboard.press("Home")
    for step in walked:
        assert seen(page) == step
        expect(slider).to_have_attribute("aria-valuetext", re.compile(f"^{step['round']}\\. "))
        slider.press("ArrowRight")
    # A click on the chart where a round ends shows the round's last step.
    chart = page.get_by_test_id("chart").locator("svg").bounding_box()
    span = sum(entry["seconds"] for entry in trace.rounds)
    plot = page.locator(".sv-plot").bounding_box()
    clock = 0.0
    for index, entry in enumerate(trace.rounds[:-1]):
        clock += entry["seconds"]
        page.mouse.click(plot["x"] + plot["width"] * clock / span + 1.5, chart["y"] + 3)
        check_round(seen(page), trace, index)
    press(page, "first")
    expect(page.locator("[data-figure=stop]")).to_have_text("paused in round 1")
    page.locator(".sv-speed select").select_option("25×")
    play = page.locator("[data-go=play]")
    play.press("Enter")
    expect(play).to_have_attribute("aria-label", "Pause")
    expect(page.locator("[data-figure=stop]")).to_contain_text("replaying round")
    expect(page.locator("[data-go=last]")).to_have_attribute("aria-disabled", "true", timeout=30_000)
    expect(play).to_have_attribute("aria-label", "Play")
    check_round(seen(page), trace, len(trace.rounds) - 1)


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
    # Tokens of later steps cannot be reached by keyboard.
    press(page, "first")
    while len(seen(page)["tokens"]) < 2:
        press(page, "next")
    page.get_by_test_id("token").first.focus()
    page.keyboard.press("End")
    assert int(page.evaluate("document.activeElement.dataset.index")) == len(seen(page)["tokens"]) - 1


def lane(page: Page, name: str) -> Locator:
    return page.locator(f"[data-lane={name}]")


def working(trace: Trace, name: str) -> list[Any]:
    """Begin and length of a model's work, in percent: the drafter works twice where all but the last were accepted."""
    found, clock = [], 0.0
    for entry in trace.rounds:
        drafting, verifying = entry["drafter_seconds"], entry["verifier_seconds"]
        drafted = len(entry["proposals"])
        last = drafting / drafted if 1 < drafted == entry["draft_length"] else 0.0
        pieces = [(clock, drafting - last), (clock + drafting - last + verifying, last)]
        found += [(clock + drafting - last, verifying)] if name == "verifier" else pieces[: 1 + (last > 0)]
        clock += entry["seconds"]
    return [
        pytest.approx([100 * at / clock, 100 * length / clock], rel=1e-4, abs=1e-4) for at, length in found
    ]


def test_lanes_are_drawn_to_the_measured_times(page: Page, alone: Callable[..., None]) -> None:
    trace = FINISHED["speed"]
    alone(trace.value + line({"type": "yardstick", "seconds_per_token": SECONDS, "machine": "2 CPU cores"}))
    total = sum(entry["seconds"] for entry in trace.rounds)
    look = "nodes => nodes.map(({ style }) => [parseFloat(style.left), parseFloat(style.width)])"
    for name in ("drafter", "verifier"):
        assert lane(page, name).locator(".sv-piece").evaluate_all(look) == working(trace, name)
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
    update(page, FINISHED["verifier_only"].value)
    expect(lane(page, "plain")).to_have_attribute("hidden", "")
    expect(page.locator(".sv-lanes-note")).to_contain_text("It is the yardstick itself")
    update(page, FINISHED["speed"].value)
    taken = FINISHED["verifier_only"].rounds[0]["seconds"] * len(FINISHED["speed"].tokens)
    expect(lane(page, "plain").locator(".sv-lane-sum")).to_have_text(f"{taken:.2f} s")


SHELF: RecordedRuns = read_recorded_runs()


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
        update(page, recorded_value(SHELF, recorded.key))
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
    """Files that must be refused, and a piece of the sentence; tests/hostile/test_traces.py has more."""
    lines = SHELF.load(SHELF.runs[0].key).lines()
    markup = "<img src=x onerror=window.pwned=1>"
    marked_up = "".join(lines).replace(f'"version":{VERSION}', f'"version":"{markup}"', 1)
    return {
        "garbage": (b"\x00\xff\xfe garbage", "must be a text file of JSON lines"),
        "markup": (marked_up.encode(), markup),
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
