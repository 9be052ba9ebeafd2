"""The place "Will it pay?": computed in the browser, without any model."""

from __future__ import annotations

import re
from urllib.parse import urlencode, urlsplit

import pytest
from playwright.sync_api import Locator, Page, expect

from specviz.analysis.payoff import measurements
from specviz.app.components.lessons import PayoffView
from specviz.engine.draft_length import expected_tokens
from specviz.schema.settings import MAX_DRAFT_LENGTH
from tests.browser.bare import mount
from tests.browser.driving import violations


def open_place(page: Page, **numbers: float) -> None:
    mount(page, PayoffView(), query=f"?{urlencode({'tab': 'pay', **numbers})}")
    expect(verdict(page)).to_be_visible()


def verdict(page: Page) -> Locator:
    return page.get_by_test_id("payoff-verdict")


def computed(page: Page) -> dict[int, float]:
    """The curve: speed-ups by draft length."""
    found = page.locator(".st-point").evaluate_all(
        "all => all.map((each) => [Number(each.dataset.index), each.getAttribute('aria-label')])"
    )
    values = ((k, re.search(r"speed-up ([0-9.]+)", label)) for k, label in found)
    return {k: float(match[1]) for k, match in values if match and k <= MAX_DRAFT_LENGTH}


def test_the_curve_is_the_engines_own_count_of_tokens_over_the_cost_of_a_round(page: Page) -> None:
    """And where drafting cannot pay the page says so."""
    for kept, draft, check, rest in ((0.5, 0.2, 0.0, 0.0), (0.8, 0.1, 0.07, 0.15), (0.9, 1.0, 0.0, 0.0)):
        open_place(page, kept=kept, draft=draft, check=check, rest=rest, length=2)
        expect(page.locator(".st-point")).to_have_count(MAX_DRAFT_LENGTH)
        wanted = {
            k: expected_tokens(kept, k) / (1 + draft * k + check * (k - 1) + rest)
            for k in range(1, MAX_DRAFT_LENGTH + 1)
        }
        assert computed(page) == pytest.approx(wanted, abs=0.006)
        best = max(wanted, key=wanted.__getitem__)
        pays = "pays" if wanted[best] > 1 else "does not pay"
        expect(verdict(page)).to_have_text(
            re.compile(f"Drafting {pays}.*K = {best}.*{wanted[best]:.2f} times")
        )


def test_keys_move_the_numbers_and_the_address_keeps_them(page: Page) -> None:
    open_place(page)
    page.locator(".host [data-control=kept]").press("End")
    page.locator(".st-point[tabindex='0']").focus()
    page.keyboard.press("ArrowRight")
    k = page.locator(".st-point[aria-checked=true]").first.get_attribute("data-index")
    expect(page).to_have_url(re.compile(f"tab=pay.*kept=1.*length={k}"))
    said = verdict(page).inner_text()
    mount(page, PayoffView(), query=f"?{urlsplit(page.url).query}")
    expect(verdict(page)).to_have_text(said)


def test_a_measured_point_sets_the_share_that_its_method_keeps(page: Page, address: str) -> None:
    """On the page, where chart and sliders fit a phone's window."""
    each = next(each for each in measurements() if each.speed_ups[0].method)
    page.goto(f"{address}?tab=pay")
    page.get_by_test_id("payoff-from").select_option(label=each.title)
    page.locator("#payoff .st-point[aria-label^='Diff']").press("Enter")  # others may lie on it
    diff = next(one for one in each.speed_ups if one.method == "cascade_diff")
    kept = page.locator("#payoff [data-control=kept]")
    expect(kept).to_have_value(f"{diff.kept:.2f}".rstrip("0"))
    page.set_viewport_size({"width": 390, "height": 844})
    page.evaluate("scrollTo(0, 0)")
    expect(page.get_by_test_id("payoff-chart")).to_be_in_viewport(ratio=0.99)
    expect(kept).to_be_in_viewport()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert violations(page, "#payoff") == []
