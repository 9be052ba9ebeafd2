"""The replay of a run in a real browser: every step against the trace, and every way in which a run can come to the stage."""

from __future__ import annotations

import json
import re
from itertools import groupby
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from specviz.analysis.recorded_runs import RecordedRuns, read_recorded_runs
from specviz.app.tabs.generate import OPENING
from specviz.app.traces import recorded_value
from specviz.schema.trace_file import VERSION
from tests.browser.bare import open_trace_view, update
from tests.support.traces import Trace, line, make_trace

PHASES = {
    "speed": "propose verify( accept)*( reject resample)?",
    "verifier_only": "write",
    "drafter_only": "propose keep",
}
"""The order of a round's steps."""
TEXTS = [" It", " was", " a", " bright", " cold", " day", " in", " April", ",", " and", " so", " on", "."]
# What a reader sees of a step, read from the page.
SEEN = """() => {
  const all = (selector, what) => Array.from(document.querySelectorAll(selector)).map(what);
  return {
    phase: document.querySelector(".sv-timeline").dataset.phase,
    tokens: all("[data-testid=token]:not([hidden])", (node) => node.textContent),
    drafts: all("[data-testid=draft]:not([hidden])", (node) => Number(node.dataset.for)),
    later: document.querySelectorAll(".sv-brick.is-later").length,
    pending: all("[data-testid=pending]", (node) => [node.className.replace("sv-chip", "").trim(), node.textContent]),
    clock: Number(document.querySelector(".sv-lanes").dataset.clock),
    calls: document.querySelector("[data-figure=calls]").textContent,
    narration: document.querySelector(".sv-narration").textContent,
  };
}"""


def visible(text: str) -> str:
    return text.replace(" ", "␣").replace("\n", "⏎")


METHODS = ("cascade_tokenV3", "speed", "verifier_only", "drafter_only")
FINISHED = {method: make_trace(TEXTS, method=method, seed=4, draft_length=4) for method in METHODS}


def as_once_written(trace: Trace) -> Trace:
    """The trace as versions before 4 have it, without K."""
    header, *rounds, end = (json.loads(each) for each in trace.lines)
    for entry in rounds:
        del entry["draft_length"]
    return Trace([line(each) for each in (header | {"version": 3}, *rounds, end)], trace.tokens, rounds)


FINISHED["before version 4"] = as_once_written(FINISHED["speed"])


def start(page: Page) -> None:
    """Go to the first step."""
    page.get_by_role("slider", name="Step of the run").press("Home")


def walk(page: Page, name: str) -> Any:
    """What is seen step by step, from here as far as the button leads."""
    return page.evaluate(
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


def seen(page: Page) -> Any:
    return page.evaluate(SEEN)


def check_tokens(found: dict[str, Any], trace: Trace, count: int) -> None:
    """So many tokens of the trace are shown, with their rejected drafts."""
    assert found["tokens"] == [token["text"] for token in trace.tokens[:count]]
    assert found["later"] == len(trace.tokens) - count
    rejected = [at for at, token in enumerate(trace.tokens[:count]) if token["draft"]]
    assert found["drafts"][: len(rejected)] == rejected


def round_of(step: dict[str, Any]) -> str:
    """The round that a step's sentence names; "" at the end of the run."""
    return step["narration"].partition(".")[0]


@pytest.mark.parametrize("method", [method for method in FINISHED if method != "speed"])
def test_every_step_shows_what_the_trace_says_forwards_and_back(page: Page, method: str) -> None:
    """Law 7: each round is proposed, verified and decided token by token; its last step shows the trace's numbers."""
    trace = FINISHED[method]
    open_trace_view(page, trace.value)
    check_tokens(seen(page), trace, len(trace.tokens))  # a whole run is shown whole
    start(page)
    forwards = walk(page, "next")
    assert "".join(forwards[-1]["tokens"]) == trace.text
    done, clock = 0, 0.0
    # The last step has no sentence: the run is whole then.
    last_round = f"Round {len(trace.rounds)} of {len(trace.rounds)}"
    for index, (name, group) in enumerate(groupby(forwards, lambda each: round_of(each) or last_round)):
        steps, entry = list(group), trace.rounds[index]
        assert name == f"Round {index + 1} of {len(trace.rounds)}"
        done, clock = done + len(entry["tokens"]), clock + entry["seconds"]
        check_tokens(steps[-1], trace, done)
        assert steps[-1]["clock"] == pytest.approx(clock)
        phases = " ".join(step["phase"] for step in steps)
        assert re.fullmatch(PHASES.get(method, PHASES["speed"]), phases), phases
        assert [step["clock"] for step in steps] == sorted(step["clock"] for step in steps)
        if steps[0]["phase"] == "propose":
            names = [visible(each["text"]) or f"#{each['id']}" for each in entry["proposals"]]
            unrecorded = ["…"] * (entry.get("draft_length", len(names)) - len(names))
            assert [text for _, text in steps[0]["pending"]] == names + unrecorded
        for step in steps:
            if step["phase"] == "reject":
                draft = trace.tokens[len(step["tokens"])]["draft"]
                assert step["pending"][0] == ["out", visible(draft["text"])]
    assert walk(page, "back")[::-1] == forwards
    if method == "cascade_tokenV3":  # the sentence and the figures go along
        drafted = trace.rounds[0]["draft_length"]
        assert forwards[0]["narration"].endswith(f"The drafter proposes {drafted} tokens.")
        said = " ".join(step["narration"] for step in forwards if step["narration"].startswith("Round 1 "))
        for token in trace.rounds[0]["tokens"]:
            name = visible((token["draft"] or token)["text"])
            assert f"{name} is {'accepted' if token['accepted'] else 'rejected'}" in said
        calls = [forwards[at]["calls"] for at in (0, -1)]
        assert calls == ["0 verifier calls", f"{len(trace.rounds)} verifier calls, not {len(trace.tokens)}"]


def test_the_scrubber_walks_by_key_and_jumps_by_pointer_and_play_walks_to_the_end(page: Page) -> None:
    trace = FINISHED["speed"]
    open_trace_view(page, trace.value)
    start(page)
    walked = walk(page, "next")[:8]
    start(page)
    slider = page.get_by_role("slider", name="Step of the run")
    for step in walked:
        assert seen(page) == step
        expect(slider).to_have_attribute("aria-valuetext", step["narration"])
        slider.press("ArrowRight")
    # A click on the chart where a round ends shows the round's last step.
    chart = page.get_by_test_id("chart").locator("svg").bounding_box()
    span = sum(entry["seconds"] for entry in trace.rounds)
    plot = page.locator(".sv-plot").bounding_box()
    clock, done = 0.0, 0
    for entry in trace.rounds[:-1]:
        clock, done = clock + entry["seconds"], done + len(entry["tokens"])
        page.mouse.click(plot["x"] + plot["width"] * clock / span + 1.5, chart["y"] + 3)
        check_tokens(seen(page), trace, done)
    start(page)
    play = page.locator("[data-go=play]")
    play.press("Enter")
    expect(play).to_have_attribute("aria-label", "Pause")
    page.get_by_label("Speed of the replay").select_option("25×")
    expect(page.locator("[data-go=next]")).to_have_attribute("aria-disabled", "true", timeout=30_000)
    check_tokens(seen(page), trace, len(trace.tokens))


def lane(page: Page, name: str) -> Locator:
    return page.locator(f"[data-lane={name}]")


def working(trace: Trace, name: str) -> list[Any]:
    """Begin and length of a model's work in each round, in percent: the drafter drafts, then the verifier runs."""
    found, clock = [], 0.0
    for entry in trace.rounds:
        begin = clock + (entry["drafter_seconds"] if name == "verifier" else 0.0)
        found.append((begin, entry[f"{name}_seconds"]))
        clock += entry["seconds"]
    return [
        pytest.approx([100 * at / clock, 100 * length / clock], rel=1e-4, abs=1e-4) for at, length in found
    ]


def test_lanes_are_drawn_to_the_measured_times(page: Page) -> None:
    trace = FINISHED["speed"]
    yardstick = line({"type": "yardstick", "seconds_per_token": 0.05, "machine": "2 CPU cores"})
    open_trace_view(page, trace.value + yardstick)
    total = sum(entry["seconds"] for entry in trace.rounds)
    look = "nodes => nodes.map(({ style }) => [parseFloat(style.left), parseFloat(style.width)])"
    for name in ("drafter", "verifier"):
        assert lane(page, name).locator(".sv-piece").evaluate_all(look) == working(trace, name)
    whole = f"{0.05 * len(trace.tokens):.2f} s"
    expect(lane(page, "plain").locator(".sv-lane-sum")).to_have_text(whole)
    expect(page.locator(".sv-lanes-note")).to_contain_text(f"50 ms = {whole}; measured: 2 CPU cores")
    expect(page.locator(".sv-clock")).to_have_text(f"{total:.2f} s of {total:.2f} s")

    # The verifier alone is never guessed, but remembered once measured.
    open_trace_view(page, FINISHED["speed"].value)
    expect(lane(page, "plain")).to_have_attribute("hidden", "")
    update(page, FINISHED["verifier_only"].value)
    expect(lane(page, "plain")).to_have_attribute("hidden", "")
    update(page, FINISHED["speed"].value)
    taken = FINISHED["verifier_only"].rounds[0]["seconds"] * len(FINISHED["speed"].tokens)
    expect(lane(page, "plain").locator(".sv-lane-sum")).to_have_text(f"{taken:.2f} s")


SHELF: RecordedRuns = read_recorded_runs()
STORY = {run.key: run.story for run in SHELF.runs}


def test_every_recorded_run_is_shown_whole_with_its_story(page: Page) -> None:
    open_trace_view(page, "")
    for recorded in SHELF.runs:
        run = SHELF.load(recorded.key)
        update(page, recorded_value(SHELF, recorded.key, run))
        assert seen(page)["tokens"] == [token.text for token in run.tokens]
        expect(page.get_by_test_id("told")).to_contain_text(recorded.story)


PLAYS = """new MutationObserver(() => {
  if (document.querySelector("#view [data-go=play][aria-label=Pause]")) window.played = true;
}).observe(document, { subtree: true, childList: true, attributes: true, attributeFilter: ["aria-label"] })"""
"""Notes that a run plays, however soon it ends."""


def open_trace(page: Page, name: str, content: bytes) -> None:
    with page.expect_file_chooser() as chooser:
        if not page.locator("#open-trace").is_visible():
            page.locator("#share").click()
        page.locator("#open-trace").click()
    chooser.value.set_files({"name": name, "mimeType": "application/jsonl", "buffer": content})


def test_a_recorded_run_plays_when_it_is_chosen_and_a_file_is_opened_or_refused_in_a_sentence(
    page: Page, address: str
) -> None:
    """A link to a recorded run plays it again. What is wrong with files: tests/hostile/test_traces.py."""
    page.goto(f"{address}?tab=replay")  # as an old link has it
    view = page.locator("#view")
    expect(view.get_by_test_id("told")).to_contain_text(STORY[OPENING], timeout=60_000)
    recorded = SHELF.runs[1]
    run = SHELF.load(recorded.key)
    page.evaluate(PLAYS)
    page.locator("#examples input").click()
    page.get_by_role("option", name=recorded.title).click()
    expect(view.get_by_test_id("told")).to_contain_text(recorded.story)
    expect(view.get_by_test_id("token")).to_have_count(len(run.tokens))
    page.wait_for_function("window.played")
    expect(page).to_have_url(re.compile(f"tab=generate&run={recorded.key}$"))
    page.evaluate("sessionStorage.clear()")
    page.reload(wait_until="commit")
    page.evaluate(PLAYS)
    expect(view.get_by_test_id("told")).to_contain_text(recorded.story, timeout=60_000)
    page.wait_for_function("window.played")

    failure, markup = view.get_by_test_id("failure"), "<img src=x onerror=window.pwned=1>"
    good = "".join(run.lines())
    open_trace(page, "bad.jsonl", good.replace(f'"version":{VERSION}', f'"version":"{markup}"', 1).encode())
    expect(failure).to_contain_text(markup)
    assert page.evaluate("window.pwned") is None
    open_trace(page, "good.jsonl", good.encode())
    expect(failure).to_be_hidden()
    expect(view.get_by_test_id("told")).to_have_text("From a file")
    expect(page.locator("#prompt textarea")).to_have_value(run.prompt)
    expect(view.get_by_test_id("token")).to_have_count(len(run.tokens))
