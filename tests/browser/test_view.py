"""The view of a run, in a real browser: on a gradio page where streaming matters, alone where it does not."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from specviz.app.components.trace_view import TraceView
from tests.browser.bare import open_bare, scripts
from tests.browser.driving import unfold_all, violations
from tests.support.traces import Trace, end_entry, line, make_trace, round_entry, run_entry, token_entry

METHODS = {
    "cascade_chow": {
        "title": "Chow",
        "formula": "max q₁ ≥ 1 − α",
        "sentence": "Keeps the drafter where it is sure.",
        "score_label": "max q₁",
        "threshold_label": "1 − α",
    }
}
HOSTILE = (
    "<img src=x onerror=window.pwned=1>",
    "${window.pwned=1}",
    "{{window.pwned=1}}",
    "</script><script>window.pwned=1</script>",
    "`${window.pwned=1}`\\",
)


def hostile_trace() -> Trace:
    """Markup and template code wherever a trace carries text."""
    top = [{"id": index, "text": text, "probability": 0.1} for index, text in enumerate(HOSTILE)]
    tokens = [
        token_entry(
            text,
            id=index,
            accepted=False,
            coin=0.9,
            draft={"id": 9, "text": text, "q": 0.2, "p": 0.01, "pi": 0.01},
            top={"q": top, "p": top, "pi": top},
        )
        for index, text in enumerate(HOSTILE)
    ]
    tokens.append(token_entry("", id=77, special=True, label=HOSTILE[0]))
    run = run_entry(prompt=" ".join(HOSTILE))
    lines = [line(run), *(line(round_entry([token], index=index)) for index, token in enumerate(tokens))]
    return Trace(lines, tokens)


WHOLE = make_trace(stop_reason="eos")
TRACES = {
    "whole": WHOLE.prefixes(),
    "start": WHOLE.prefixes()[:9],
    "rest": WHOLE.prefixes()[9:],
    "other": make_trace([" Another", " run", "."], seed=5).prefixes(),
    "hostile": hostile_trace().prefixes(),
    "nothing": [""],
}


@pytest.fixture(scope="module")
def address(serve: Callable[[gr.Blocks], str]) -> str:
    """A page with the view and a button that streams the trace of the given name into it."""

    def stream(name: str) -> Iterator[str]:
        yield from TRACES[name]

    def selected(event: gr.SelectData) -> str:
        return f"{event.index}|{event.value}"

    with gr.Blocks() as app:
        view = TraceView(methods=METHODS)
        name = gr.Textbox(label="name")
        selection = gr.Textbox(label="selected")
        # A click counts also while the stream before it is still ending.
        gr.Button("Stream").click(stream, name, view, show_progress="hidden", trigger_mode="multiple")
        view.select(selected, None, selection, show_progress="hidden")
    return serve(app)


def stream(page: Page, name: str) -> None:
    page.get_by_label("name").fill(name)
    page.get_by_role("button", name="Stream").click()


def open_with(page: Page, address: str, name: str, tokens: int) -> None:
    page.goto(address)
    expect(page.get_by_test_id("text")).to_be_attached()
    stream(page, name)
    expect(page.get_by_test_id("token")).to_have_count(tokens)


@pytest.fixture
def alone(page: Page) -> Callable[..., None]:
    """A function that puts the bare view on an empty page, without gradio, and shows it a trace."""

    def show(value: str = "") -> None:
        open_bare(page, TraceView)
        page.evaluate(
            """(methods) => {
                window.selected = [];
                window.view = SpecViz.createTraceView(document.querySelector(".host"), {
                    methods, onSelect: (...what) => window.selected.push(what) });
            }""",
            METHODS,
        )
        update(page, value)

    return show


@pytest.fixture
def alone_in() -> Callable[[Page], None]:
    """A function that puts the bare view on a page of another context, with a whole run."""

    def show(page: Page) -> None:
        open_bare(page, TraceView)
        page.evaluate(
            """([methods, value]) => {
                window.view = SpecViz.createTraceView(document.querySelector(".host"), { methods });
                view.update(value);
            }""",
            [METHODS, WHOLE.value],
        )

    return show


def update(page: Page, value: str) -> None:
    page.evaluate("(value) => view.update(value)", value)


def shown_text(page: Page) -> str:
    return page.get_by_test_id("token").evaluate_all("nodes => nodes.map(node => node.textContent).join('')")


def shares(page: Page, line: str) -> list[float]:
    """The shares of accepted draft tokens along a line of the chart: "all" or "recent"."""
    found: list[float] = page.evaluate(
        "line => Array.from(document.querySelector('polyline.sv-line-' + line).points).map(point => point.y)",
        line,
    )
    return found


def bricks(page: Page) -> Locator:
    return page.get_by_test_id("chart").locator(".sv-brick")


def figure(page: Page, name: str) -> Locator:
    return page.get_by_test_id("status").locator(f"[data-figure={name}]")


def one_round(*tokens: dict[str, Any], method: str = "cascade_chow", **run: Any) -> str:
    return line(run_entry(method, **run)) + line(round_entry(list(tokens)))


# ---- streaming through gradio


def test_a_streamed_run_has_a_node_and_a_brick_for_every_token_and_the_traces_figures(
    page: Page, address: str
) -> None:
    """Law 7: what is shown is what ran."""
    open_with(page, address, "whole", len(WHOLE.tokens))
    assert shown_text(page) == WHOLE.text
    fates = ["accepted" if token["accepted"] else "resampled" for token in WHOLE.tokens]
    assert {"accepted", "resampled"} == set(fates)
    for fate in ("accepted", "resampled"):
        expect(page.get_by_test_id("text").locator(f".{fate}")).to_have_count(fates.count(fate))
    expect(bricks(page)).to_have_count(len(WHOLE.tokens))
    expect(page.get_by_test_id("chart").locator(".sv-brick.kept")).to_have_count(fates.count("accepted"))
    points = shares(page, "all")
    assert len(points) == len(WHOLE.tokens)
    assert points[-1] == pytest.approx(fates.count("accepted") / len(fates))
    examined = sum(entry["examined"] for entry in WHOLE.rounds)
    accepted = sum(entry["accepted"] for entry in WHOLE.rounds)
    expect(figure(page, "stop")).to_have_text("ended by itself")
    expect(figure(page, "acceptance")).to_contain_text(f"{100 * accepted / examined:.0f} %")
    expect(figure(page, "efficiency")).to_contain_text(
        f"{len(WHOLE.tokens) / len(WHOLE.rounds):.1f}tokens per verifier call"
    )
    expect(figure(page, "calls")).to_contain_text(str(len(WHOLE.rounds)))
    expect(figure(page, "speed")).to_contain_text(
        f"{len(WHOLE.tokens) / (0.2 * len(WHOLE.rounds) + 0.1):.1f}"
    )


def test_a_longer_value_keeps_the_nodes_that_are_there_and_another_run_replaces_them(
    page: Page, address: str
) -> None:
    started = sum(len(entry["tokens"]) for entry in WHOLE.rounds[:8])
    open_with(page, address, "start", started)
    page.get_by_test_id("token").evaluate_all("nodes => nodes.forEach(node => { node.kept = true; })")
    stream(page, "rest")
    expect(page.get_by_test_id("token")).to_have_count(len(WHOLE.tokens))
    kept = page.get_by_test_id("token").evaluate_all("nodes => nodes.map(node => node.kept === true)")
    assert kept == [True] * started + [False] * (len(WHOLE.tokens) - started)
    stream(page, "other")
    expect(page.get_by_test_id("token")).to_have_count(4)
    assert shown_text(page) == " Another run."
    expect(bricks(page)).to_have_count(4)
    stream(page, "nothing")
    expect(page.get_by_test_id("token")).to_have_count(0)
    expect(page.get_by_text("The answer will appear here")).to_be_visible()
    expect(figure(page, "tokens")).to_contain_text("–")


def test_each_line_is_parsed_once_however_often_the_value_grows(
    page: Page, alone: Callable[..., None]
) -> None:
    """An update reads what is new: what came before is neither parsed nor searched again."""
    alone()
    parsed = page.evaluate(
        """(values) => {
            const parse = JSON.parse;
            let lines = 0;
            JSON.parse = (...given) => { lines += 1; return parse(...given); };
            for (const value of values) view.update(value);
            JSON.parse = parse;
            return lines;
        }""",
        WHOLE.prefixes(),
    )
    assert parsed == len(WHOLE.lines)
    expect(page.get_by_test_id("token")).to_have_count(len(WHOLE.tokens))


def test_a_value_that_takes_another_s_place_is_read_from_its_beginning(
    page: Page, alone: Callable[..., None]
) -> None:
    """Also one that begins with the same line, is as long, or stops short of what was read."""
    first, other = (
        [
            run_entry(),
            *(round_entry([token_entry(text)], index=index) for index, text in enumerate(texts)),
            end_entry(3, "cascade_chow", "eos"),
        ]
        for texts in (("one", "two", "six"), ("ten", "two", "six"))
    )
    other = [entry | {"seconds": 0.125} if "seconds" in entry else entry for entry in other]
    alone("".join(map(line, first)))
    for entries, text in (
        (other, "tentwosix"),
        (other[:3], "tentwo"),
        (first[:2], "one"),
        ([run_entry(seed=1), first[3]], "six"),
        (first, "onetwosix"),
    ):
        update(page, "".join(map(line, entries)))
        assert shown_text(page) == text
        assert page.get_by_test_id("token").count() == len(entries) - 1 - (entries[-1]["type"] == "end")


def test_clicking_a_token_or_its_brick_selects_it_and_tells_python(page: Page, address: str) -> None:
    open_with(page, address, "whole", len(WHOLE.tokens))
    page.get_by_test_id("token").nth(3).click()
    expect(page.get_by_label("selected")).to_have_value(f"3|{WHOLE.tokens[3]['text']}")
    wanted = 60
    box = bricks(page).nth(wanted).bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(page.get_by_test_id("token").nth(wanted)).to_have_attribute("aria-selected", "true")
    expect(bricks(page).nth(wanted)).to_have_class(re.compile("is-marked"))
    expect(page.get_by_test_id("inspector")).to_contain_text(f"Token {wanted + 1} ")
    expect(page.get_by_label("selected")).to_have_value(f"{wanted}|{WHOLE.tokens[wanted]['text']}")


def test_hostile_text_is_shown_literally_and_never_runs(page: Page, address: str) -> None:
    open_with(page, address, "hostile", len(HOSTILE) + 1)
    assert shown_text(page) == "".join(HOSTILE)
    expect(page.get_by_test_id("token").last).to_have_attribute("data-label", HOSTILE[0].replace(" ", "␣"))
    page.get_by_test_id("prompt").locator("summary").click()
    expect(page.locator(".sv-prompt-full")).to_have_text(" ".join(HOSTILE))
    for index, text in enumerate(HOSTILE):
        page.get_by_test_id("token").nth(index).click()
        unfold_all(page)
        visible = text.replace(" ", "␣")
        expect(page.locator(".sv-verdict")).to_have_text(f"{visible} made way for {visible}")
        expect(page.locator(".sv-top-q .sv-row-name").first).to_have_text(HOSTILE[0].replace(" ", "␣"))
        expect(page.get_by_test_id("draft").nth(index)).to_have_text(visible)
    assert page.evaluate("window.pwned") is None
    assert page.locator(".specviz :is(img, script)").count() == 0


def test_the_view_follows_the_page_into_the_dark(page: Page, address: str) -> None:
    open_with(page, address, "other", 4)
    colour = "getComputedStyle(document.querySelector('.sv-brick')).fill"
    light = page.evaluate(colour)
    page.evaluate("document.body.classList.toggle('dark')")
    expect(page.locator(".specviz")).to_have_attribute("data-theme", "dark")
    page.wait_for_function(f"light => {colour} !== light", arg=light)


# ---- text


def test_white_space_and_pieces_of_characters_keep_a_node_of_their_own(
    page: Page, alone: Callable[..., None]
) -> None:
    texts = ["a", "\n\n", " ", "", "🌈", "b.\n", "\t"]
    alone(make_trace(texts).value)
    tokens = page.get_by_test_id("token")
    assert tokens.evaluate_all("nodes => nodes.map(node => node.textContent)") == [*texts, ""]
    widths = tokens.evaluate_all("nodes => nodes.map(node => node.getBoundingClientRect().width)")
    assert min(widths) > 2
    assert tokens.nth(1).evaluate("node => node.getClientRects().length") >= 2
    expect(tokens.nth(7)).to_have_attribute("data-label", "<|im_end|>")


def test_a_fork_begins_with_what_it_keeps_and_the_token_that_was_chosen(
    page: Page, alone: Callable[..., None]
) -> None:
    """Law 7: what another run wrote, and what a person chose, are nobody's decisions here; both are untrusted text."""
    hostile = "<img src=x onerror='window.pwned = 1'> Once upon"
    continues = {"prompt": "p", "text": hostile, "tokens": 9, "chosen": 5, "chosen_text": " a <b>time"}
    alone(
        line(run_entry(continues=continues))
        + line(round_entry([token_entry(" there"), token_entry(" was")]))
        + line(end_entry(2, "cascade_chow", "eos"))
    )
    text = page.get_by_test_id("text")
    expect(text).to_have_text(hostile + " a <b>time there was")
    expect(text.locator(".sv-chosen")).to_have_text(" a <b>time")
    expect(text.locator(".sv-chosen")).to_have_attribute("title", re.compile("Chosen by hand"))
    expect(page.get_by_test_id("token")).to_have_count(2)
    assert page.evaluate("window.pwned") is None
    assert {rule for rule, *_ in violations(page)} <= {
        "document-title",
        "html-has-lang",
    }  # the bare page's own
    alone(WHOLE.value)
    expect(text.locator(".sv-kept, .sv-chosen")).to_have_count(0)


def test_a_rejected_draft_shows_above_what_replaced_it_or_in_the_text(
    page: Page, alone: Callable[..., None]
) -> None:
    alone(WHOLE.value)
    rejected = [
        (at, token["draft"]["text"].strip()) for at, token in enumerate(WHOLE.tokens) if token["draft"]
    ]
    drafts = page.get_by_test_id("draft")
    assert drafts.all_text_contents() == [text for _, text in rejected]
    expect(drafts.first).to_be_hidden()
    token = page.get_by_test_id("token").nth(rejected[0][0])
    token.scroll_into_view_if_needed()
    following = page.get_by_test_id("token").nth(rejected[0][0] + 1)
    before, after = token.bounding_box(), following.bounding_box()
    token.hover()
    expect(drafts.first).to_be_visible()
    assert drafts.first.bounding_box()["y"] < before["y"]
    assert following.bounding_box() == after  # nothing moves
    page.get_by_test_id("toggle-drafts").check()
    expect(drafts.last).to_be_visible()
    assert (
        drafts.first.bounding_box()["x"] + drafts.first.bounding_box()["width"]
        <= token.bounding_box()["x"] + 8
    )
    page.get_by_test_id("toggle-drafts").uncheck()
    expect(drafts.last).to_be_hidden()


def test_origins_differ_by_more_than_colour(page: Page, alone: Callable[..., None]) -> None:
    alone(WHOLE.value)
    look = "node => [getComputedStyle(node).fontWeight, getComputedStyle(node).boxShadow]"
    text = page.get_by_test_id("text")
    kept, own = (text.locator(f".{fate} .sv-ink").first.evaluate(look) for fate in ("accepted", "resampled"))
    assert kept[0] != own[0]
    assert kept[1] != own[1]


def test_white_space_at_the_ends_of_a_token_is_not_coloured(page: Page, alone: Callable[..., None]) -> None:
    alone(make_trace([" word", " "]).value)
    inks = page.get_by_test_id("token").evaluate_all(
        "nodes => nodes.slice(0, 2).map(node => node.querySelector('.sv-ink').textContent)"
    )
    assert inks == ["word", " "]


def test_code_between_fences_stands_in_a_fixed_width(page: Page, alone: Callable[..., None]) -> None:
    texts = ["Here", ":\n", "``", "`", "python\n", "x", " =", " 1\n", "```", "\nDone"]
    alone(make_trace(texts).value)
    code = page.get_by_test_id("token").evaluate_all(
        "nodes => nodes.map(node => node.classList.contains('is-code'))"
    )
    assert code[: len(texts)] == [False, False, False, *[True] * 6, False]


def test_an_unfinished_line_waits_for_its_end(page: Page, alone: Callable[..., None]) -> None:
    value = one_round(token_entry("one"))
    alone(value[:-5])
    expect(page.get_by_test_id("token")).to_have_count(0)
    update(page, value)
    expect(page.get_by_test_id("token")).to_have_count(1)


@pytest.mark.parametrize(
    "broken",
    [
        "{oops\n",
        "null\n",
        "3\n",
        '{"type":"round"}\n',
        '{"type":"round","tokens":[null]}\n',
        '{"type":"round","tokens":[{}]}\n',
    ],
)
def test_a_broken_line_is_left_out_and_counted(page: Page, alone: Callable[..., None], broken: str) -> None:
    lines = WHOLE.lines
    alone("".join(lines[:4]) + broken + "".join(lines[4:]))
    expect(page.get_by_test_id("token")).to_have_count(len(WHOLE.tokens))
    expect(page.get_by_test_id("status")).to_contain_text(
        "1 line of this trace could not be read and was left out."
    )


def test_odd_values_inside_a_round_break_nothing(page: Page, alone: Callable[..., None]) -> None:
    odd = token_entry(
        "odd", label=None, draft=5, q="x", rule={"score": None}, top={"q": 3, "p": [None, {}], "pi": None}
    )
    alone(
        one_round(token_entry("fine"), method=None)
        + line({**round_entry([]), "tokens": [odd], "proposals": [None]})
    )
    page.get_by_test_id("token").nth(1).click()
    expect(page.get_by_test_id("inspector")).to_contain_text("odd")


def test_text_scrolls_along_unless_the_reader_scrolled_up(page: Page, alone: Callable[..., None]) -> None:
    prefixes = make_trace([f"line {number}\n" for number in range(60)]).prefixes()
    alone(prefixes[-8])
    text = page.locator(".sv-page")
    left = "node => node.scrollHeight - node.scrollTop - node.clientHeight"
    assert text.evaluate(left) < 2
    text.evaluate("node => new Promise(done => { node.onscroll = done; node.scrollTop = 0; })")
    update(page, prefixes[-3])
    assert text.evaluate("node => node.scrollTop") == 0
    text.evaluate(
        "node => new Promise(done => { node.onscroll = done; node.scrollTop = node.scrollHeight; })"
    )
    update(page, prefixes[-1])
    assert text.evaluate(left) < 2


def test_a_run_that_comes_whole_is_read_from_its_top(page: Page, alone: Callable[..., None]) -> None:
    alone(make_trace([f"line {number}\n" for number in range(60)]).value)
    text = page.locator(".sv-page")
    assert text.evaluate("node => node.scrollHeight > node.clientHeight && node.scrollTop === 0")


def test_a_screen_reader_is_told_the_figures_at_the_end_and_not_at_every_update(
    page: Page, alone: Callable[..., None]
) -> None:
    alone()
    live = page.get_by_test_id("status").locator(".sv-spoken")
    assert live.get_attribute("aria-live") == "polite"
    page.evaluate(
        """() => { window.said = [];
            new MutationObserver(() => said.push(document.querySelector(".sv-spoken").textContent))
                .observe(document.querySelector(".sv-spoken"), { childList: true, characterData: true, subtree: true }); }"""
    )
    page.evaluate("prefixes => prefixes.forEach(value => view.update(value))", WHOLE.prefixes())
    expect(live).to_contain_text(f"{len(WHOLE.tokens)} tokens, ")
    assert len(page.evaluate("said")) == 1


# ---- inspector


REJECTED = token_entry(
    " the", accepted=False, coin=0.61, acceptance=0.25, q=0.3, p=0.5, pi=0.55,
    draft={"id": 9, "text": " a", "q": 0.4, "p": 0.08, "pi": 0.1},
    rule={"score": 0.41, "threshold": 0.7, "trusted": False},
    top={"q": [{"id": 9, "text": " a", "probability": 0.4}, {"id": 123, "text": " the", "probability": 0.3}],
         "p": [{"id": 123, "text": " the", "probability": 0.5}], "pi": [{"id": 123, "text": " the", "probability": 0.55}]},
)  # fmt: skip
KEPT = token_entry("cat", rule={"score": 0.83, "threshold": 0.7, "trusted": True})


def test_pointing_at_a_token_shows_the_numbers_of_the_trace(page: Page, alone: Callable[..., None]) -> None:
    alone(one_round(KEPT, REJECTED))
    page.get_by_test_id("token").nth(1).hover()
    unfold_all(page)
    inspector = page.get_by_test_id("inspector")
    expect(inspector.locator("h3")).to_have_text("␣a made way for ␣the")
    for words in (
        "Token 2 · round 1",
        "position 40 · id 123",
        "The drafter gave ␣a 40 %, the verifier only 8 %.",
        "The chance of keeping it was 25 %; the coin showed 61 %, so it was rejected, and ␣the was drawn",
        "max q₁ ≥ 1 − α",
        "Not trusted: max q₁ = 0.41 < 1 − α = 0.70.",
        "min(1, π / q) = min(1, 0.10 / 0.40) = 0.25",
    ):
        expect(inspector).to_contain_text(words)
    rows = inspector.locator(".sv-numbers tbody tr")
    assert rows.nth(0).locator("td").all_text_contents() == ["0.30", "0.50", "0.55"]
    assert rows.nth(1).locator("td").all_text_contents() == ["0.40", "0.080", "0.10"]
    expect(inspector.locator(".sv-top-q .is-draft")).to_contain_text("␣a")
    expect(inspector.locator(".sv-top .is-emitted")).to_have_count(3)
    page.get_by_test_id("token").nth(0).hover()
    expect(inspector).to_contain_text("Trusted: max q₁ = 0.83 ≥ 1 − α = 0.70.")
    expect(inspector).to_contain_text(
        "The chance of keeping it was 87 %; the coin showed 23 %, so it stayed."
    )
    expect(inspector).to_contain_text("Inspection was off for this run.")


def test_the_picture_is_drawn_to_the_numbers_of_the_trace(page: Page, alone: Callable[..., None]) -> None:
    """Law 7: what is shown is what ran. The bars are q, p and pi of the draft token, the cover its acceptance."""
    alone(one_round(KEPT, REJECTED))
    page.get_by_test_id("token").nth(1).hover()
    widths = {"verifier": 0.08, "target": 0.1, "drafter": 0.4}
    for name, share in widths.items():
        fill = page.locator(f".sv-picture .{name} .sv-bar-fill")
        assert float(fill.evaluate("node => parseFloat(node.style.width)")) == pytest.approx(100 * share)
    cover, coin = page.locator(".sv-cover"), page.locator(".sv-stretched .sv-coin")
    assert cover.evaluate("node => parseFloat(node.style.width)") == pytest.approx(25)
    assert coin.evaluate("node => parseFloat(node.style.left)") == pytest.approx(61)
    boxes = [
        page.locator(name).bounding_box() for name in (".sv-stretched", ".sv-cover", ".sv-stretched .sv-coin")
    ]
    assert boxes[1]["width"] / boxes[0]["width"] == pytest.approx(0.25, abs=0.01)
    middle = boxes[2]["x"] + boxes[2]["width"] / 2 - boxes[0]["x"]
    assert middle / boxes[0]["width"] == pytest.approx(0.61, abs=0.01)


def test_tokens_outside_the_most_likely_are_added_below_them(page: Page, alone: Callable[..., None]) -> None:
    alone(one_round(REJECTED))
    page.get_by_test_id("token").hover()
    unfold_all(page)
    added = page.get_by_test_id("inspector").locator(".sv-top-p .is-beyond")
    expect(added).to_have_text("␣a8 %")


def test_numbers_that_look_alike_get_more_places_until_they_differ(
    page: Page, alone: Callable[..., None]
) -> None:
    close = token_entry(
        "x", coin=0.87004, acceptance=0.87, rule={"score": 0.6999, "threshold": 0.7, "trusted": False}
    )
    alone(one_round(close))
    page.get_by_test_id("token").hover()
    unfold_all(page)
    inspector = page.get_by_test_id("inspector")
    expect(inspector).to_contain_text("max q₁ = 0.6999 < 1 − α = 0.7000.")
    expect(inspector).to_contain_text("kept 87.000 %")


def test_speed_is_explained_by_the_drafts_two_probabilities(page: Page, alone: Callable[..., None]) -> None:
    alone(one_round({**REJECTED, "rule": None}, method="speed", lenience=0.2))
    page.get_by_test_id("token").hover()
    unfold_all(page)
    expect(page.get_by_test_id("inspector")).to_contain_text(
        "min(1, p / ((1 − α) q)) = min(1, 0.080 / (0.80 × 0.40)) = 0.25"
    )


def test_a_pinned_token_stays_until_it_is_unpinned(page: Page, alone: Callable[..., None]) -> None:
    alone(one_round(KEPT, REJECTED))
    title = page.get_by_test_id("inspector").locator("h3")
    first, second = page.get_by_test_id("token").nth(0), page.get_by_test_id("token").nth(1)
    first.click()
    second.hover()
    expect(title).to_have_text("cat drafted and kept")
    page.get_by_role("button", name="unpin").click()
    expect(first).to_have_attribute("aria-selected", "false")
    second.hover()
    expect(title).to_have_text("␣a made way for ␣the")
    assert page.evaluate("selected") == [[0, "cat"]]


def test_the_keyboard_alone_reaches_everything_through_one_tab_stop(
    page: Page, alone: Callable[..., None]
) -> None:
    alone(WHOLE.value)
    assert page.locator(".sv-text [tabindex='0']").count() == 1
    focused = "document.activeElement.dataset.index"
    starts = [
        sum(len(entry["tokens"]) for entry in WHOLE.rounds[:index]) for index in range(len(WHOLE.rounds))
    ]
    last = len(WHOLE.tokens) - 1
    page.get_by_test_id("prompt").locator("summary").focus()
    page.keyboard.press("Tab")
    for key, goal in (
        ("ArrowRight", 1), ("ArrowLeft", 0), ("ArrowLeft", 0), ("ArrowDown", starts[1]), ("ArrowDown", starts[2]),
        ("ArrowRight", starts[2] + 1), ("ArrowUp", starts[1]), ("End", last), ("ArrowDown", last), ("Home", 0),
    ):  # fmt: skip
        page.keyboard.press(key)
        assert page.evaluate(focused) == str(goal)
        expect(page.get_by_test_id("inspector")).to_contain_text(f"Token {goal + 1} ")
    assert page.locator(".sv-text [tabindex='0']").count() == 1
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("token").first).to_have_attribute("aria-selected", "true")
    page.keyboard.press("ArrowRight")
    expect(page.get_by_test_id("token").nth(1)).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Escape")
    expect(page.locator("[aria-selected=true]")).to_have_count(0)
    expect(page.get_by_test_id("inspector")).to_contain_text("Choose a token")
    page.keyboard.press("Tab")
    assert not page.evaluate("document.querySelector('.sv-text').contains(document.activeElement)")


# ---- chart, methods without an examination, surroundings


@pytest.mark.parametrize(
    ("method", "author"),
    [("verifier_only", "Written by the verifier itself"), ("drafter_only", "Written by the drafter alone")],
)
def test_a_baseline_shows_that_nothing_was_examined(
    page: Page, alone: Callable[..., None], method: str, author: str
) -> None:
    trace = make_trace(method=method)
    alone(trace.value)
    assert shares(page, "all") == []
    expect(bricks(page)).to_have_count(len(trace.tokens))
    expect(page.get_by_test_id("chart")).to_contain_text("Nothing is examined")
    expect(figure(page, "acceptance")).to_contain_text("–")
    expect(page.get_by_test_id("legend").locator(".sv-key:visible")).to_have_count(1)
    expect(page.get_by_test_id("legend")).to_contain_text(f"written by the {method.removesuffix('_only')}, ")
    page.get_by_test_id("token").nth(5).click()
    unfold_all(page)
    inspector = page.get_by_test_id("inspector")
    expect(inspector).to_contain_text(author)
    expect(inspector).to_contain_text("Nothing was examined")
    expect(inspector).to_contain_text("did not run")
    expect(inspector.locator(".sv-picture")).to_have_count(0)


def test_the_rolling_acceptance_covers_the_last_sixteen_proposals(
    page: Page, alone: Callable[..., None]
) -> None:
    tokens = [token_entry("no ", accepted=False)] * 4 + [token_entry("yes ")] * 16
    alone(line(run_entry()) + "".join(line(round_entry([token])) for token in tokens))
    rolling = shares(page, "recent")
    assert len(rolling) == 20
    assert rolling[3] == 0
    assert rolling[15] == pytest.approx(12 / 16)
    assert rolling[19] == 1


def test_the_chart_is_drawn_to_the_measured_times(page: Page, alone: Callable[..., None]) -> None:
    alone(WHOLE.value)
    clock, drawn = (
        0.0,
        bricks(page).evaluate_all(
            "nodes => nodes.map(node => ['x', 'y', 'width'].map(name => Number(node.getAttribute(name))))"
        ),
    )
    wanted = []
    for entry in WHOLE.rounds:
        wanted += [(clock, offset, entry["seconds"]) for offset, _ in enumerate(entry["tokens"])]
        clock += entry["seconds"]
    for (x, y, width), (start, offset, seconds) in zip(drawn, wanted, strict=True):
        assert (x, width) == (pytest.approx(start), pytest.approx(seconds))
        assert int(y) == offset


def test_all_that_happens_at_once_is_on_one_screen(page: Page, alone: Callable[..., None]) -> None:
    page.set_viewport_size({"width": 1280, "height": 800})
    alone(WHOLE.value)
    page.get_by_test_id("token").nth(4).click()
    names = ("round", "text", "chart", "inspector")
    boxes = {name: page.get_by_test_id(name).bounding_box() for name in names}
    assert boxes["inspector"]["x"] > boxes["text"]["x"] + boxes["text"]["width"]
    assert boxes["round"]["y"] < boxes["text"]["y"] < boxes["chart"]["y"]
    for name in ("round", "chart", "inspector"):
        assert boxes[name]["y"] + boxes[name]["height"] <= 800, name
    sentence = page.locator(".sv-sentence").bounding_box()
    assert sentence["y"] + sentence["height"] <= 800


def test_on_a_phone_the_inspector_is_a_sheet_that_tap_opens_and_swipe_back_and_escape_close(
    browser: Browser, alone_in: Callable[[Page], None]
) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    try:
        page = context.new_page()
        alone_in(page)
        sheet, token = page.get_by_test_id("inspector"), page.get_by_test_id("token").nth(4)
        expect(sheet).to_be_hidden()

        def tap() -> None:
            token.tap()
            expect(sheet).to_be_visible()
            box = sheet.bounding_box()
            assert box["y"] + box["height"] <= 845
            assert page.evaluate("document.documentElement.scrollWidth") <= 390

        def swipe() -> None:
            page.evaluate(
                """() => {
                    const sheet = document.querySelector("[data-testid=inspector]");
                    const touch = (type, y) => sheet.dispatchEvent(new TouchEvent(type, { bubbles: true,
                        touches: type === "touchend" ? [] : [new Touch({ identifier: 1, target: sheet, clientX: 200, clientY: y })],
                        changedTouches: [new Touch({ identifier: 1, target: sheet, clientX: 200, clientY: y })] }));
                    touch("touchstart", 400); touch("touchmove", 480); touch("touchend", 540);
                }"""
            )

        for close in (
            lambda: page.locator(".sv-close").tap(),
            lambda: page.keyboard.press("Escape"),
            lambda: page.go_back(),
            swipe,
        ):
            tap()
            close()
            expect(sheet).to_be_hidden()
            expect(page.locator("[aria-selected=true]")).to_have_count(0)
    finally:
        context.close()


# ---- Python


def test_a_trace_with_a_script_tag_passes_without_a_warning() -> None:
    view = TraceView(methods=METHODS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert view.postprocess("<script>") == "<script>"
    assert view.postprocess(None) == ""
    assert view.preprocess(None) == ""


def test_the_template_and_the_style_pass_gradios_templating_untouched() -> None:
    assert not re.search(r"\{\{|\$\{|`|\\", TraceView.TEMPLATE + TraceView.CSS)
    assert "value" not in TraceView.TEMPLATE


def test_the_script_never_turns_text_into_markup() -> None:
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function",
        scripts(TraceView.MODULE),
    )


def drafted(*lengths: int) -> str:
    """Rounds of such K; in each the first proposal is rejected, and so the K-th never drafted."""
    some = {"id": 9, "text": " a", "q": 0.4}
    return "".join(
        line(round_entry([KEPT], draft_length=length, proposals=[some] * max(1, length - 1)))
        for length in lengths
    )


def test_an_automatic_run_tells_its_draft_length_and_when_it_does_not_speculate(
    page: Page, alone: Callable[..., None]
) -> None:
    """Eight rounds of one proposal count as not speculating, unless they were forced, or asked for, or nothing is examined."""
    automatic = line(run_entry(draft_length=None, max_new_tokens=12))
    figures, said = figure(page, "drafted"), page.get_by_test_id("not-speculating")
    alone(automatic)
    expect(figures).to_be_visible()
    update(page, automatic + drafted(4, *[1] * 7))
    expect(figures.locator("dd")).to_have_text("1.3 now 1")
    expect(said).to_be_hidden()
    update(page, automatic + drafted(4, *[1] * 8))
    expect(said).to_have_text("not speculating")
    expect(said).to_have_attribute(
        "title", re.compile("each token costs one verifier pass and one drafter pass")
    )
    update(page, automatic + drafted(4, *[1] * 8, 2))
    expect(said).to_be_hidden()
    ended = automatic + drafted(*[1] * 8) + line(end_entry(8, "cascade_chow", "cancelled"))
    update(page, ended)
    expect(said).to_be_visible()
    expect(figures.locator("dd")).to_have_text("1.0")
    expect(page.get_by_test_id("status").locator(".sv-spoken")).to_contain_text(", not speculating, stopped.")
    update(page, automatic + drafted(2, 2, 2, 2, *[1] * 8))
    expect(said).to_be_hidden()  # the last of the 12 tokens could not be drafted any further
    for other in ({"draft_length": 1}, {"draft_length": None, "method": "drafter_only"}):
        update(page, line(run_entry(**{"max_new_tokens": 99} | other)) + drafted(*[1] * 9))
        expect(page.get_by_test_id("token")).to_have_count(9)
        expect(said).to_be_hidden()
        expect(figures).to_be_hidden()


def test_the_end_line_names_every_stop_reason(page: Page, alone: Callable[..., None]) -> None:
    words = {
        "eos": "ended by itself",
        "length": "reached the token limit",
        "context": "context is full",
        "cancelled": "stopped",
        "time": "time was up",
    }
    alone()
    for reason, shown in words.items():
        update(page, one_round(KEPT, seed=reason) + json.dumps(end_entry(1, "cascade_chow", reason)) + "\n")
        expect(figure(page, "stop")).to_have_text(shown)


def test_who_waits_reads_the_position_in_the_queue_and_who_had_company_that_there_was_some(
    page: Page, alone: Callable[..., None]
) -> None:
    """Lines of type "waiting" come before the run's own and belong to no trace; the end line says how many wrote beside."""

    def waiting(position: int) -> str:
        return json.dumps({"type": "waiting", "queue_position": position}) + "\n"

    alone(waiting(3))
    status = page.locator('[data-figure="stop"]')
    expect(status).to_have_text("waiting, number 3 in the queue")
    expect(page.locator(".sv-empty")).to_be_visible()
    value = waiting(3) + waiting(1) + waiting(0)
    update(page, value)
    expect(status).to_have_text("reading the prompt")
    lines = [json.loads(line) for line in WHOLE.lines]
    lines[-1]["neighbours"] = 4
    update(page, value + "".join(json.dumps(line) + "\n" for line in lines))
    expect(status).to_have_text("ended by itself")
    expect(page.locator(".sv-empty")).to_be_hidden()
    expect(page.locator('[data-figure="speed"]')).to_contain_text("beside up to 4 other texts")
    assert page.locator(".sv-warning").is_hidden()
