"""The place "Wrong engines": what six rules write beside what they should."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from specviz.analysis.wrong_engines import WRONG
from specviz.app.components.wrong_engines_view import WORDS, WrongEnginesView, engine_card
from tests.browser.bare import mount
from tests.browser.driving import violations


def test_each_card_names_its_engine_its_worst_word_its_bias_and_its_report(page: Page) -> None:
    mount(page, WrongEnginesView())
    cards = page.locator(".host article")
    expect(cards).to_have_count(len(WRONG))
    for shown, rule in zip(cards.all(), WRONG, strict=True):
        told = engine_card(rule)
        expect(shown.get_by_role("heading")).to_have_text(rule.name)
        number = f"{100 * told['writes'][told['word']]:.0f} %"
        worst = re.compile(f"{WORDS[told['word']]}.*{number}")
        expect(shown.locator(".is-most")).to_have_text(worst)
        here, both = (f"{round(100 * bias)} %" for bias in told["biases"])
        expect(shown).to_contain_text(f"{here} here, {both} over two words")
        name, number = re.findall(r"(\S+)#(\d+)", rule.report)[0]
        link = shown.get_by_role("link", name=f"{name}#{number}")
        expect(link).to_have_attribute("href", f"https://github.com/{name}/issues/{number}")
    assert violations(page, ".host") == []
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
