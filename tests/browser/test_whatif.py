"""What if, in a real browser: nine rows with the verdicts of the record, and a slider that changes only what it says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from specviz.core.methods import METHODS
from tests.browser.bare import open_trace_view, update
from tests.browser.driving import unfold_all
from tests.support.traces import (
    alternatives,
    end_entry,
    line,
    make_trace,
    round_entry,
    run_entry,
    token_entry,
    what_if,
)

METHOD, LENIENCE = "cascade_tokenV2", 0.2


def handmade(
    *tokens: dict[str, Any], method: str = METHOD, lenience: float = LENIENCE, end: bool = True
) -> str:
    run = run_entry(method, lenience=lenience, alternatives=alternatives(method, lenience))
    rounds = "".join(line(round_entry([token], index=index)) for index, token in enumerate(tokens))
    return line(run) + rounds + (line(end_entry(len(tokens), method, "eos")) if end else "")


def kept(text: str, *flips: float, **changes: Any) -> dict[str, Any]:
    return token_entry(text, coin=0.4, acceptance=0.9, what_if=what_if(METHOD, 0.9, list(flips), **changes))


def rejected(text: str, draft: str, *flips: float, same: tuple[float, float]) -> dict[str, Any]:
    return token_entry(
        text,
        accepted=False,
        coin=0.4,
        acceptance=0.1,
        draft={"id": 9, "text": draft, "q": 0.5, "p": 0.1, "pi": 0.05},
        what_if=what_if(METHOD, 0.1, list(flips), kept=list(same)),
    )


def slide(page: Page, lenience: float) -> None:
    """Move the slider, to values between its steps too."""
    page.get_by_label("What-if lenience α").evaluate(
        """(slider, lenience) => {
            slider.step = "any";
            slider.value = lenience;
            slider.dispatchEvent(new Event("change"));
        }""",
        lenience,
    )


def words(page: Page) -> Locator:
    return page.locator(".sw-words")


def marks(page: Page) -> list[str]:
    """For every draft and token in order: "" as it was, "beyond" greyed, else its new look."""
    return page.locator("[data-testid=text] :is(.sv-draft, .sv-token)").evaluate_all(
        """nodes => nodes.map(node => [...node.classList].filter(name => /^(sw|is)-(?!shown|pinned)/.test(name))
            .map(name => name.slice(3)).join(" "))"""
    )


def test_the_slider_changes_the_text_from_the_first_change_on_and_says_what_changed(page: Page) -> None:
    tokens = (
        kept("One"),
        kept(" two", -0.3, -0.1),
        rejected(" three", " four", 0.55, same=(0.1, 0.7)),
        kept(" five", 0.3, 0.5),
        kept(" six"),
    )
    open_trace_view(page, handmade(*tokens))
    plain = [""] * 6  # five tokens and, third, a rejected draft
    assert marks(page) == plain
    for lenience, marked, sentence in (
        (0.25, plain, "At α = 0.25 nothing would change: the text is the same from α = 0.1 to 0.3."),
        (0.3, ["", "", "", "", "turned rejected", "beyond"],
         "At α = 0.3 the text stays the same for 3 tokens; then “␣five” would have been rejected."),
        (0.6, ["", "", "turned kept", "beyond", "beyond", "beyond"],
         "At α = 0.6 the text stays the same for 2 tokens; then “␣four” would have been accepted."),
        (0.05, ["", "", "", "turned redrawn", "beyond", "beyond"],
         "At α = 0.05 the text stays the same for 2 tokens; then “␣three” may be resampled differently."),
        (-0.2, ["", "turned rejected", "beyond", "beyond", "beyond", "beyond"],
         "At α = -0.2 the text stays the same for 1 token; then “␣two” would have been rejected."),
        (-0.3001, ["", "", "", "turned redrawn", "beyond", "beyond"],
         "At α = -0.3 the text stays the same for 2 tokens; then “␣three” may be resampled differently."),
    ):  # fmt: skip
        slide(page, lenience)
        expect(words(page)).to_have_text(sentence.replace("= -", "= −"))
        assert marks(page) == marked, lenience
    page.get_by_label("What-if lenience α").press("Escape")
    assert marks(page) == plain
    expect(page.get_by_label("What-if lenience α")).to_have_value("0.2")
    # Another run starts afresh; one that has not ended has no slider yet.
    growing = handmade(kept("A", 0.5), end=False)
    update(page, growing)
    expect(page.get_by_test_id("what-if")).to_be_hidden()
    update(page, growing + line(end_entry(1, METHOD, "length")))
    slide(page, 0.7)
    expect(words(page)).to_contain_text("At α = 0.7 the text changes at its first token")


def test_without_a_record_there_is_no_slider_and_the_inspector_says_why(page: Page) -> None:
    open_trace_view(page)
    for trace, reason in (
        (make_trace(method="drafter_only"), "only one of the two models ran"),
        (make_trace(inspect=0), "Inspection was off"),
    ):
        update(page, trace.value)
        expect(page.get_by_test_id("what-if")).to_be_hidden()
        page.get_by_test_id("token").first.click()
        unfold_all(page)
        inspector = page.get_by_test_id("inspector")
        expect(inspector.locator(".sw-table")).to_have_count(0)
        expect(inspector).to_contain_text(reason)


def test_the_strip_has_nine_rows_with_the_verdicts_of_the_record(page: Page) -> None:
    trace = make_trace(method="cascade_tokenV3", lenience=0.4)
    open_trace_view(page, trace.value)
    methods = [METHODS[each["method"]] for each in json.loads(trace.lines[0])["alternatives"]]
    for token in (trace.tokens[0], trace.tokens[3]):
        page.get_by_test_id("token").nth(trace.tokens.index(token)).click()
        unfold_all(page)
        rows = page.get_by_test_id("inspector").locator(".sw-table tbody tr")
        expect(rows).to_have_count(9)
        for row, method, chance in zip(rows.all(), methods, token["what_if"]["acceptance"], strict=True):
            expect(row.locator("th")).to_contain_text(method.title)
            verdict = "✓accepted" if token["coin"] < chance else "✗rejected"
            expect(row.locator(".sw-verdict")).to_have_text(verdict)
            fill, bar = (row.locator(name).bounding_box()["width"] for name in (".sw-fill", ".sw-bar"))
            assert fill / bar == pytest.approx(chance, abs=0.02)


def test_the_sentence_says_where_the_verdict_flips(page: Page) -> None:
    tokens = {
        "accepted at every lenience": kept("a"),
        "accepted from α = −0.34 on": kept("c", -0.34),
        "accepted up to α = 0.5": kept("e", 0.5),
        "accepted up to α = 0.123 and from 0.57 on": rejected("g", "x", 0.12345, 0.57, same=(0.15, 0.3)),
    }
    open_trace_view(page, handmade(*tokens.values()))
    for index, sentence in enumerate(tokens):
        page.get_by_test_id("token").nth(index).click()
        unfold_all(page)
        expect(page.locator(".sw-own-words")).to_have_text(f"Token V2: {sentence}.")
