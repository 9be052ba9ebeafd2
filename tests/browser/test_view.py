"""The view of a run in a real browser, without gradio: nodes, figures, chart and inspector are the trace's."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from specviz.schema.trace import parse_trace
from tests.browser.bare import open_trace_view, update
from tests.browser.driving import unfold_all
from tests.browser.scripted import HOSTILE
from tests.support.traces import end_entry, line, make_trace, round_entry, run_entry, token_entry

WHOLE = make_trace(stop_reason="eos")


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
    return page.locator(f"[data-figure={name}]")


def one_round(*tokens: dict[str, Any], method: str = "cascade_chow", **run: Any) -> str:
    return line(run_entry(method, **run)) + line(round_entry(list(tokens)))


def test_a_streamed_run_has_a_node_and_a_brick_for_every_token_and_the_traces_figures(page: Page) -> None:
    """Law 7: what is shown is what ran. A longer value keeps the nodes that are there."""
    started = sum(len(entry["tokens"]) for entry in WHOLE.rounds[:8])
    prefixes = WHOLE.prefixes()
    open_trace_view(page, prefixes[8])
    page.get_by_test_id("token").evaluate_all("nodes => nodes.forEach(node => { node.kept = true; })")
    page.evaluate(
        "prefixes => prefixes.forEach(value => view.update(value))", [*prefixes[9::4], prefixes[-1]]
    )
    kept = page.get_by_test_id("token").evaluate_all("nodes => nodes.map(node => node.kept === true)")
    assert kept == [True] * started + [False] * (len(WHOLE.tokens) - started)
    assert shown_text(page) == WHOLE.text
    fates = ["accepted" if token["accepted"] else "resampled" for token in WHOLE.tokens]
    for fate in ("accepted", "resampled"):
        assert fate in fates
        expect(page.get_by_test_id("text").locator(f".{fate}")).to_have_count(fates.count(fate))
    expect(bricks(page)).to_have_count(len(WHOLE.tokens))
    expect(page.get_by_test_id("chart").locator(".sv-brick.kept")).to_have_count(fates.count("accepted"))
    points, rounds = shares(page, "all"), len(WHOLE.rounds)
    assert len(points) == len(WHOLE.tokens)
    assert points[-1] == pytest.approx(fates.count("accepted") / len(fates))
    examined, accepted = (sum(entry[name] for entry in WHOLE.rounds) for name in ("examined", "accepted"))
    metrics = parse_trace(WHOLE.lines).metrics()
    for name, shown in (
        ("acceptance", f"{100 * accepted / examined:.0f} %"),
        ("calls", f"{rounds} verifier calls, not {len(WHOLE.tokens)}"),
        ("utilisation", f"{100 * (metrics.draft_utilisation or 0):.0f} %"),
        ("histogram", ", ".join(f"{n}: {times}" for n, times in enumerate(metrics.acceptance_histogram))),
        ("each", f"{1000 * (metrics.time_per_output_token or 0):.0f} ms"),
    ):
        expect(figure(page, name)).to_contain_text(shown)


def test_a_value_that_takes_another_s_place_is_read_from_its_beginning(page: Page) -> None:
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
    open_trace_view(page, "".join(map(line, first)))
    for entries, text in (
        (other, "tentwosix"),
        (other[:3], "tentwo"),
        ([run_entry(seed=1), first[3]], "six"),
        (first, "onetwosix"),
        ([], ""),
    ):
        update(page, "".join(map(line, entries)))
        assert shown_text(page) == text


def test_a_token_that_is_clicked_or_its_brick_stays_selected_until_it_is_unpinned(page: Page) -> None:
    open_trace_view(page, WHOLE.value)
    tokens, inspector, wanted = page.get_by_test_id("token"), page.get_by_test_id("inspector"), 60
    tokens.nth(3).click()
    box = bricks(page).nth(wanted).bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(tokens.nth(wanted)).to_have_attribute("aria-selected", "true")
    assert page.evaluate("selected") == [[index, WHOLE.tokens[index]["text"]] for index in (3, wanted)]
    tokens.nth(3).hover()
    expect(inspector).to_contain_text(f"Token {wanted + 1} ")
    page.get_by_role("button", name="unpin").click()
    tokens.nth(3).hover()
    expect(inspector).to_contain_text("Token 4 ")


def test_a_fork_begins_with_what_it_keeps_and_the_token_that_was_chosen(page: Page) -> None:
    """Law 7: what another run wrote, and what a person chose, are no decisions of this run; both are untrusted text."""
    continues = {"prompt": "p", "text": HOSTILE[0], "tokens": 9, "chosen": 5, "chosen_text": " a <b>time"}
    open_trace_view(page, one_round(token_entry(" there"), token_entry(" was"), continues=continues))
    text = page.get_by_test_id("text")
    expect(text).to_have_text(HOSTILE[0] + " a <b>time there was")
    expect(text.locator(".sv-chosen")).to_have_text(" a <b>time")
    expect(page.get_by_test_id("token")).to_have_count(2)
    assert page.evaluate("window.pwned") is None


def test_a_rejected_draft_shows_above_what_replaced_it_or_in_the_text(page: Page) -> None:
    open_trace_view(page, WHOLE.value)
    rejected = [
        (at, token["draft"]["text"].strip()) for at, token in enumerate(WHOLE.tokens) if token["draft"]
    ]
    drafts = page.get_by_test_id("draft")
    assert drafts.all_text_contents() == [text for _, text in rejected]
    page.get_by_test_id("token").first.hover()
    expect(drafts.first).to_be_hidden()
    token, following = (page.get_by_test_id("token").nth(rejected[0][0] + step) for step in (0, 1))
    token.scroll_into_view_if_needed()
    before, after = token.bounding_box(), following.bounding_box()
    token.hover()
    expect(drafts.first).to_be_visible()
    assert drafts.first.bounding_box()["y"] < before["y"]
    assert following.bounding_box() == after  # nothing moves
    page.get_by_test_id("toggle-drafts").check()
    expect(drafts.last).to_be_visible()


def test_how_a_token_is_drawn(page: Page) -> None:
    """Origins differ by more than colour; white space and pieces of characters keep a node of their own."""
    open_trace_view(page, WHOLE.value)
    look = "node => [getComputedStyle(node).fontWeight, getComputedStyle(node).boxShadow]"
    text = page.get_by_test_id("text")
    kept, own = (text.locator(f".{fate} .sv-ink").first.evaluate(look) for fate in ("accepted", "resampled"))
    assert kept[0] != own[0]
    assert kept[1] != own[1]
    texts = ["a", "\n\n", " ", "", "🌈", "b.\n", "\t"]
    update(page, make_trace(texts).value)
    tokens = page.get_by_test_id("token")
    assert tokens.evaluate_all("nodes => nodes.map(node => node.textContent)") == [*texts, ""]
    widths = tokens.evaluate_all("nodes => nodes.map(node => node.getBoundingClientRect().width)")
    assert min(widths) > 2


def test_an_unfinished_line_waits_and_a_broken_one_is_left_out_and_counted(page: Page) -> None:
    value = one_round(token_entry("one"))
    open_trace_view(page, value[:-5])
    expect(page.get_by_test_id("token")).to_have_count(0)
    update(page, value)
    expect(page.get_by_test_id("token")).to_have_count(1)
    for broken in ("{oops", "null", '{"type":"round"}', '{"type":"round","tokens":[{}]}'):
        update(page, "".join([*WHOLE.lines[:4], broken + "\n", *WHOLE.lines[4:]]))
        expect(page.get_by_test_id("token")).to_have_count(len(WHOLE.tokens))
        expect(page.locator(".sv-warning")).to_contain_text(
            "1 line of this trace could not be read and was left out."
        )


def test_text_scrolls_along_unless_the_reader_scrolled_up(page: Page) -> None:
    """A run that comes whole is read from its top."""
    prefixes = make_trace([f"line {number}\n" for number in range(60)]).prefixes()
    open_trace_view(page, prefixes[-1])
    text = page.locator(".sv-page")
    assert text.evaluate("node => node.scrollHeight > node.clientHeight && node.scrollTop === 0")
    open_trace_view(page, prefixes[-8])
    assert text.evaluate("node => node.scrollHeight - node.scrollTop - node.clientHeight") < 2
    text.evaluate("node => new Promise(done => { node.onscroll = done; node.scrollTop = 0; })")
    update(page, prefixes[-3])
    assert text.evaluate("node => node.scrollTop") == 0


def test_a_screen_reader_is_told_the_figures_at_the_end_and_not_at_every_update(page: Page) -> None:
    open_trace_view(page)
    said = page.evaluate(
        """async (prefixes) => {
            const live = document.querySelector(".sv-spoken[aria-live=polite]"), said = [];
            new MutationObserver(() => said.push(live.textContent))
                .observe(live, { childList: true, characterData: true, subtree: true });
            for (const value of prefixes) { view.update(value); await new Promise(requestAnimationFrame); }
            return said;
        }""",
        [*WHOLE.prefixes()[::4], WHOLE.value],
    )
    assert len(said) == 1
    assert said[0].startswith(f"{len(WHOLE.tokens)} tokens, ")


REJECTED = token_entry(
    " the", accepted=False, coin=0.61, acceptance=0.25, q=0.3, p=0.5, pi=0.55,
    draft={"id": 9, "text": " a", "q": 0.4, "p": 0.08, "pi": 0.1},
    rule={"score": 0.41, "threshold": 0.7, "trusted": False},
    top={"q": [{"id": 9, "text": " a", "probability": 0.4}, {"id": 123, "text": " the", "probability": 0.3}],
         "p": [{"id": 123, "text": " the", "probability": 0.5}], "pi": [{"id": 123, "text": " the", "probability": 0.55}]},
)  # fmt: skip
KEPT = token_entry("cat", rule={"score": 0.83, "threshold": 0.7, "trusted": True})


def test_pointing_at_a_token_shows_the_numbers_of_the_trace(page: Page) -> None:
    """Law 7: the bars are q, p and pi of the draft token, the cover its acceptance."""
    open_trace_view(page, line(run_entry()) + line(round_entry([KEPT, REJECTED], kept_by_block=3)))
    page.get_by_test_id("token").nth(1).hover()
    unfold_all(page)
    inspector = page.get_by_test_id("inspector")
    expect(inspector.locator("h3")).to_have_text("␣a → ␣the")
    for words in (
        "Why? Token 2, round 1",
        "Position 40, id 123.",
        "The drafter gave ␣a 40 %, the verifier only 8 %, the rule’s target π 10 %.",
        "It is accepted with a chance of 25 %; the coin showed 61 %, so it was rejected. ␣the was drawn",
        "Not trusted: max q₁ = 0.41 < 1 − α = 0.70.",
        "min(1, π / q) = min(1, 0.10 / 0.40) = 0.25",
        "Block verification would have kept 2 tokens more of this round, with the same coins.",
    ):
        expect(inspector).to_contain_text(words)
    cells = inspector.locator(".sv-numbers tbody td").all_text_contents()
    assert cells == ["0.30", "0.50", "0.55", "0.40", "0.080", "0.10"]
    expect(inspector.locator(".sv-top-p .is-beyond")).to_have_text("␣a8 %")  # not among the most likely
    for part, side, share in (
        (".verifier .sv-bar-fill", "width", 0.08),
        (".target .sv-bar-fill", "width", 0.1),
        (".drafter .sv-bar-fill", "width", 0.4),
        (".sv-cover", "width", 0.25),
        (".sv-stretched .sv-coin", "left", 0.61),
    ):
        drawn = page.locator(f".sv-picture {part}").evaluate(f"node => parseFloat(node.style.{side})")
        assert drawn == pytest.approx(100 * share), part
    page.get_by_test_id("token").nth(0).hover()
    expect(inspector).to_contain_text("Trusted: max q₁ = 0.83 ≥ 1 − α = 0.70.")
    update(page, one_round({**REJECTED, "rule": None}, method="speed", lenience=0.2))
    page.get_by_test_id("token").hover()
    expect(inspector).to_contain_text("min(1, p / ((1 − α) q)) = min(1, 0.080 / (0.80 × 0.40)) = 0.25")


def test_the_keyboard_alone_reaches_everything_through_one_tab_stop(page: Page) -> None:
    open_trace_view(page, WHOLE.value)
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
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("token").first).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Escape")
    expect(page.locator("[aria-selected=true]")).to_have_count(0)
    page.keyboard.press("Tab")
    assert not page.evaluate("document.querySelector('.sv-text').contains(document.activeElement)")


def test_a_baseline_shows_that_nothing_was_examined(page: Page) -> None:
    trace = make_trace(method="verifier_only")
    open_trace_view(page, trace.value)
    assert shares(page, "all") == []
    expect(bricks(page)).to_have_count(len(trace.tokens))
    page.get_by_test_id("token").nth(5).click()
    unfold_all(page)
    inspector = page.get_by_test_id("inspector")
    for words in ("Written by the verifier itself", "Nothing was examined", "did not run"):
        expect(inspector).to_contain_text(words)
    expect(inspector.locator(".sv-picture")).to_have_count(0)


def test_the_chart_is_drawn_to_the_measured_times_and_the_latest_sixteen_proposals(page: Page) -> None:
    open_trace_view(page, WHOLE.value)
    drawn = bricks(page).evaluate_all(
        "nodes => nodes.map(node => ['x', 'y', 'width'].map(name => Number(node.getAttribute(name))))"
    )
    clock, wanted = 0.0, []
    for entry in WHOLE.rounds:
        seconds = entry["seconds"]
        wanted += [[pytest.approx(clock), at, pytest.approx(seconds)] for at in range(len(entry["tokens"]))]
        clock += seconds
    assert [[x, int(y), width] for x, y, width in drawn] == wanted
    tokens = [token_entry("no ", accepted=False)] * 4 + [token_entry("yes ")] * 16
    update(page, line(run_entry()) + "".join(line(round_entry([token])) for token in tokens))
    rolling = shares(page, "recent")
    assert len(rolling) == 20
    assert (rolling[3], rolling[19]) == (0, 1)
    assert rolling[15] == pytest.approx(12 / 16)


def test_on_a_phone_the_inspector_is_a_sheet_that_tap_opens_and_swipe_back_and_escape_close(
    phone: Page,
) -> None:
    open_trace_view(phone, WHOLE.value)
    sheet, token = phone.get_by_test_id("inspector"), phone.get_by_test_id("token").nth(4)
    expect(sheet).to_be_hidden()

    def swipe() -> None:
        phone.evaluate(
            """() => {
                const sheet = document.querySelector("[data-testid=inspector]");
                const touch = (type, y) => sheet.dispatchEvent(new TouchEvent(type, { bubbles: true,
                    touches: type === "touchend" ? [] : [new Touch({ identifier: 1, target: sheet, clientX: 200, clientY: y })],
                    changedTouches: [new Touch({ identifier: 1, target: sheet, clientX: 200, clientY: y })] }));
                touch("touchstart", 400); touch("touchmove", 480); touch("touchend", 540);
            }"""
        )

    for close in (
        lambda: phone.locator(".sv-close").tap(),
        lambda: phone.keyboard.press("Escape"),
        lambda: phone.go_back(),
        swipe,
    ):
        token.tap()
        expect(sheet).to_be_in_viewport(ratio=1)
        close()
        expect(sheet).to_be_hidden()
        expect(phone.locator("[aria-selected=true]")).to_have_count(0)


def test_a_run_stays_while_another_waits_and_a_finished_one_says_how_many_ran_beside_it(page: Page) -> None:
    """Neither a queue position, which belongs to no trace, nor a failure takes the text away that is being read."""

    def waiting(position: int) -> str:
        return line({"type": "waiting", "queue_position": position})

    open_trace_view(page, WHOLE.value)
    status = figure(page, "stop")
    update(page, waiting(2))
    expect(status).to_have_text("waiting, number 2 in the queue")
    update(page, waiting(2) + line({"type": "error", "message": "The prompt is empty."}))
    expect(page.get_by_test_id("failure")).to_have_text("The prompt is empty.")
    assert shown_text(page) == WHOLE.text
    update(page, waiting(2) + one_round(KEPT))
    assert shown_text(page) == "cat"
    expect(page.get_by_test_id("failure")).to_be_hidden()
    *entries, end = WHOLE.lines
    update(page, waiting(3) + waiting(0) + "".join(entries) + line(json.loads(end) | {"neighbours": 4}))
    expect(status).to_have_text("ended by itself")
    expect(figure(page, "speed")).to_contain_text("beside up to 4 other texts")
    assert page.locator(".sv-warning").is_hidden()


def test_where_no_coin_decided_the_inspector_draws_none(page: Page) -> None:
    """At temperature 0 the reason is both favourites; a verifier that draws itself accepts with another chance than p/q."""
    other = [{"id": 123, "text": " the", "probability": 0.5}, {"id": 9, "text": " a", "probability": 0.2}]
    tops = {"q": other[::-1], "p": other, "pi": other[:1]}
    token = {**REJECTED, "acceptance": 0.0, "rule": None, "top": tops}
    open_trace_view(page, one_round(token, method="speed", lenience=0, temperature=0))
    page.get_by_test_id("token").click()
    inspector = page.get_by_test_id("inspector")
    expect(inspector).to_contain_text("The drafter’s favourite is ␣a; the verifier’s is ␣the. They differ")
    expect(inspector.locator(".sv-bar-words").first).to_have_text("drafter 20 %")
    expect(inspector.locator(".sv-coin")).to_have_count(0)
    update(page, one_round(KEPT, REJECTED, method="sampler_match"))
    page.get_by_test_id("token").nth(1).hover()
    expect(inspector).to_contain_text("The verifier drew ␣the itself, so the draft was rejected.")
    expect(inspector.locator(".sv-picture")).to_have_count(0)
