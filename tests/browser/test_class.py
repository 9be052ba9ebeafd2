"""A class in a real browser: the teacher invites to a step, a visitor's open page shows it, and following it leads there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from specviz.app.classroom import Classroom
from specviz.app.page import build_page
from specviz.serving.service import Service
from tests.browser.driving import MINUTES, violations
from tests.support.serving import close, free_port, start

POLL_SECONDS = 0.5
"""How often pages ask for an invitation here."""
WITHIN = 20_000


@pytest.fixture(scope="module")
def room() -> Iterator[Classroom]:
    """A class, served whole; no pair is loaded."""
    port = free_port()
    service, room = Service(), Classroom(f"http://127.0.0.1:{port}")
    with pytest.MonkeyPatch.context() as patch:
        for module in ("page", "classroom"):
            patch.setattr(f"specviz.app.{module}.POLL_SECONDS", POLL_SECONDS)
        page = build_page(service, room)
        start(page, service, room, port=port)
        yield room
    close(page)
    service.close()


def test_an_invitation_comes_to_an_open_page_and_leads_to_the_step(
    room: Classroom, page: Page, browser: Browser
) -> None:
    """Within the time after which pages ask; it moves nobody, goes where it says, and is gone once it was followed."""
    page.goto(room.address)
    expect(page.locator("#tabs")).to_be_visible(timeout=MINUTES)
    line = page.get_by_test_id("invitation")
    expect(line).to_be_hidden()
    context = browser.new_context()
    teacher = context.new_page()
    teacher.goto(room.teachers_address)
    expect(teacher.get_by_test_id("now")).to_contain_text("1 page open", timeout=WITHIN)
    assert not violations(teacher)

    teacher.get_by_label("Step", exact=True).fill("3")
    teacher.get_by_role("button", name="Invite", exact=True).click()
    expect(teacher.get_by_test_id("step-link")).to_have_text("step 3 of “cascades”")
    expect(line).to_be_visible(timeout=WITHIN)
    assert "step=" not in page.url, "nobody is led"
    teacher.get_by_test_id("next").click()
    link = page.get_by_test_id("invitation-link")
    expect(link).to_have_text("Your teacher invites you to step 4", timeout=WITHIN)
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    expect(line).to_be_in_viewport()
    link.click()
    page.wait_for_url("**/?lesson=cascades&step=4*")
    expect(page.locator("#tabs")).to_be_attached(timeout=MINUTES)
    page.wait_for_timeout(2000 * POLL_SECONDS)
    expect(page.get_by_test_id("invitation")).to_be_hidden()  # is there already
    teacher.get_by_test_id("next").click()
    expect(link).to_have_text("Your teacher invites you to step 5", timeout=WITHIN)
    expect(page.get_by_test_id("player")).to_be_visible()
    page.keyboard.press("Escape")
    expect(link).to_be_visible()
    page.go_back()
    expect(page.get_by_test_id("player")).to_be_visible()
    expect(link).to_be_visible(timeout=WITHIN)
    assert page.locator(".si-invitation").evaluate("(node) => getComputedStyle(node).position") == "fixed"
    link.click()  # a lesson does not lie over it
    page.wait_for_url("**/?lesson=cascades&step=5*")

    context.close()


def test_the_projectors_page_fits_and_is_accessible(room: Classroom, page: Page) -> None:
    """Nothing to scroll at 1280 × 720, nothing wider than a phone, no serious violation; no control and no key in it."""
    page.set_viewport_size({"width": 1280, "height": 720})
    page.goto(f"{room.address}class")
    expect(page.get_by_test_id("now")).to_contain_text("open", timeout=WITHIN)
    assert page.evaluate("document.documentElement.scrollHeight") <= 720
    assert not violations(page)
    page.emulate_media(color_scheme="dark")
    assert not violations(page, None, "color-contrast")
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert room.secret not in page.content()
    expect(page.locator("form")).to_have_count(0)
