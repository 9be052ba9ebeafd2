"""The opening race in a real browser: it plays without a model, and shows what its two traces recorded."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Locator, Page, expect

from specviz.analysis.recorded_runs import CASCADE, INSPECTED, RACERS, read_recorded_runs
from specviz.app.components.race import Race, race_value
from tests.browser.bare import mount, open_bare
from tests.browser.driving import let_draw, violations

HOSTILE = "<img src=x onerror=window.__pwned=1>"
SHELF = read_recorded_runs()
ALONE, DRAFTED = map(SHELF.load, RACERS)
KEPT = [token for token in DRAFTED.tokens if token.accepted]

VALUE = race_value(SHELF)


def over(page: Page) -> Locator:
    return page.locator(".sr-race.over")


def open_still(page: Page, value: str = "") -> None:
    """Open the race alone, by default the recorded one, for somebody who wants no motion: it stands at the end at once."""
    page.emulate_media(reduced_motion="reduce")
    mount(page, Race(value or VALUE))
    expect(over(page)).to_be_attached()


CLAIM = (
    f"Same {len(ALONE.tokens)} tokens: {DRAFTED.verifier_calls} calls of the large model instead of "
    f"{ALONE.verifier_calls}, {ALONE.seconds / DRAFTED.seconds:.1f}× as fast"
)


@pytest.fixture
def plan(page: Page) -> Callable[[str, str], Any]:
    """Evaluates an expression over the plan `plan` of a race's value, with the modules' exports as `SpecViz`."""
    open_bare(page, None, "race/schedule", "race/words")
    js = "value => { const plan = SpecViz.planRace(JSON.parse(value)); return %s; }"
    return lambda value, expression: page.evaluate(js % expression, value)


def test_lanes_keep_the_times_of_their_traces_and_one_clock_shows_all_of_them(
    plan: Callable[[str, str], Any],
) -> None:
    """And every draft token meets its fate."""
    told = json.loads(VALUE)
    at_each_percent = "Array.from({ length: 101 }, (_, i) => SpecViz.momentAt(plan, (plan.length * i) / 100))"
    moments = plan(VALUE, at_each_percent)
    for name in ("alone", "drafted"):
        lane = plan(VALUE, f"plan.{name}")
        at = told[name]["prefill_seconds"]
        for seen, recorded in zip(lane["rounds"], told[name]["rounds"], strict=True):
            assert seen["start"] == pytest.approx(at)
            at += recorded["seconds"]
            assert seen["end"] == pytest.approx(at)
            begin, end = seen["check"]
            assert end - begin == pytest.approx(recorded["verifier_seconds"], rel=0.02)
            assert seen["start"] <= begin <= end <= seen["end"] + 1e-9
        assert lane["end"] == pytest.approx(at)
        texts = [one["text"] for each in told[name]["rounds"] for one in each["tokens"]]
        assert [one["text"] for one in lane["tokens"]] == texts
        for what, total in (("calls", lane["calls"]), ("written", len(texts))):
            counts = [moment[name][what] for moment in moments]
            assert counts == sorted(counts)
            assert (counts[0], counts[-1]) == (0, total)
    assert [moment["over"] for moment in moments].index(True) == 100
    fates = plan(VALUE, "plan.drafted.rounds.map((round) => round.slots.map((slot) => slot.fate))")
    for found, each in zip(fates, DRAFTED.rounds, strict=True):
        kept = sum(token.accepted for token in each.tokens)
        rejected = len(each.tokens) - kept
        unseen = len(each.proposals) - kept - rejected
        assert found == ["kept"] * kept + ["rejected"] * rejected + ["unseen"] * unseen


def test_the_claim_is_honest_where_drafting_does_not_pay(plan: Callable[[str, str], Any]) -> None:
    for ratio, words in ((2.5, "2.5× as fast"), (1.0, "yet no faster here"), (0.8, "yet 0.8× as fast here")):
        value = json.loads(VALUE)
        slower = ALONE.seconds / DRAFTED.seconds / ratio
        for each in (value["drafted"], *value["drafted"]["rounds"]):
            each |= {name: slower * each[name] for name in each if name.endswith("seconds")}
        said = plan(json.dumps(value), "SpecViz.claim(plan).map(([text]) => text).join('')")
        assert said.startswith(f"Same {len(ALONE.tokens)} tokens: {DRAFTED.verifier_calls} calls of")
        assert words in said


def test_it_plays_by_itself_and_its_buttons_lead_to_the_rejected_token_to_a_cascade_and_to_a_prompt(
    page: Page, address: str
) -> None:
    """Before any pair is loaded. It tells its result once."""
    page.goto(address)
    expect(page.locator(".sr-layer .sr-chip").first).to_be_attached(timeout=30_000)
    announced = page.get_by_test_id("announced")
    expect(announced).to_be_empty()
    assert page.locator(".sr-race [aria-live], .sr-race [role=status]").count() == 1
    expect(over(page)).to_be_attached(timeout=12_000)
    expect(announced).to_have_text(re.compile(re.escape(CLAIM)))
    page.get_by_test_id("why").click()
    page.wait_for_url(re.compile(f"run={INSPECTED}&token="))
    index = int(parse_qs(urlsplit(page.url).query)["token"][0])
    draft = DRAFTED.tokens[index].draft
    assert draft is not None
    expect(page.get_by_test_id("inspector")).to_contain_text(draft.text.strip())
    page.go_back()
    expect(page.get_by_test_id("why")).to_contain_text(draft.text.strip())
    cascade = page.get_by_test_id("cascade")
    expect(cascade).to_contain_text(f"{SHELF.load(CASCADE[1]).verifier_calls} calls")
    cascade.get_by_role("link").click()  # the way back: test_link.py
    page.wait_for_url(re.compile(f"run={CASCADE[1]}"))
    page.go_back()
    page.get_by_test_id("own").click()
    expect(page.locator("#prompt textarea")).to_be_focused()


def test_everything_it_says_is_in_the_two_traces(page: Page) -> None:
    open_still(page)
    expect(page.get_by_test_id("claim")).to_contain_text(CLAIM)
    for name, run_ in (("alone", ALONE), ("drafted", DRAFTED)):
        lane = page.get_by_test_id(name)
        expect(lane.get_by_test_id("calls")).to_have_text(str(run_.verifier_calls))
        expect(lane.get_by_test_id("time")).to_have_text(
            f"{run_.seconds:.2f} s for {len(run_.tokens)} tokens"
        )
        written = lane.locator(".sr-token.on > span").all_text_contents()
        assert [text.replace("↵", "") for text in written] == [token.text for token in run_.tokens]
    drafted = page.get_by_test_id("drafted")
    expect(drafted.locator(".sr-token.kept")).to_have_count(len(KEPT))
    expect(drafted.locator(".sr-token.own")).to_have_count(len(DRAFTED.tokens) - len(KEPT))
    conditions = page.get_by_test_id("conditions")
    for words in (DRAFTED.drafter, DRAFTED.verifier, SHELF.machine):
        expect(conditions).to_contain_text(words)
    expect(page.locator(".sr-claim.asked q")).to_have_text(ALONE.prompt)


def test_without_motion_it_stands_at_the_end_and_plays_and_pauses_on_demand(page: Page) -> None:
    open_still(page)
    page.get_by_test_id("again").click()
    expect(over(page)).to_have_count(0)
    chip = page.locator(".sr-layer .sr-chip").first
    expect(chip).to_be_attached()
    assert chip.evaluate("chip => chip.style.transform") in ("none", "")
    clock = page.get_by_test_id("clock")
    expect(clock).not_to_have_text(clock.text_content() or "")
    page.get_by_test_id("again").click()
    paused = clock.text_content()
    page.wait_for_timeout(200)
    assert clock.text_content() == paused


def test_text_of_a_trace_stays_text(page: Page) -> None:
    value, texts = json.loads(VALUE), [HOSTILE, "</span><b>x</b>", "\n", "${value}", " "]
    value["machine"] = value["method"] = value["drafted"]["drafter"] = value["drafted"]["prompt"] = HOSTILE
    written = [texts[at % len(texts)] for at in range(len(DRAFTED.tokens))]
    for name in ("alone", "drafted"):
        tokens = [one for each in value[name]["rounds"] for one in each["tokens"]]
        for one, text in zip(tokens, written, strict=True):
            one |= {"text": text, "label": text}
            one |= {"draft": one["draft"] | {"text": HOSTILE}} if one.get("draft") else {}
    open_still(page, json.dumps(value))
    assert page.evaluate("window.__pwned") is None
    assert page.locator(".sr-race img, .sr-token b").count() == 0
    expect(page.get_by_test_id("why")).to_contain_text(HOSTILE)
    assert page.get_by_test_id("drafted").locator(".sr-token > span").all_text_contents() == written


SHOWN = """() => {
  const box = (selector) => document.querySelector(selector).getBoundingClientRect();
  const [own, text, buttons] = [".drafted .sr-token.own", ".drafted .sr-text", ".sr-actions"].map(box);
  return { hides: Math.max(text.top - own.top, own.bottom - text.bottom), bottom: own.bottom, buttons: buttons.bottom,
    wide: document.documentElement.scrollWidth - innerWidth };
}"""


def test_the_first_screen_shows_the_one_token_of_the_verifiers_own(page: Page, address: str) -> None:
    """And the buttons, on a desktop; with normal and with larger text; it is accessible in both themes."""
    page.emulate_media(reduced_motion="reduce")
    page.goto(f"{address}?__theme=dark")
    expect(over(page)).to_be_attached(timeout=30_000)
    assert violations(page) == []
    page.evaluate("document.body.classList.remove('dark')")
    let_draw(page)
    assert violations(page, "#race", "color-contrast") == []
    for large in (False, True):
        page.evaluate("(large) => document.documentElement.classList.toggle('specviz-large', large)", large)
        for width, height, part in ((1280, 800, "buttons"), (390, 844, "bottom")):
            page.set_viewport_size({"width": width, "height": height})
            let_draw(page)
            found = page.evaluate(SHOWN)
            assert found["hides"] <= 4, (width, found)
            assert found[part] <= height, (width, found)
            assert found["wide"] <= 0, (width, found)
