"""The tour in a real browser: every number in an answer is what methods.py says, and cards are walked by keyboard."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr
import pytest
import torch
from playwright.sync_api import Browser, Locator, Page, expect
from torch import Tensor

from specviz.app.components.lessons import Tour
from specviz.core.distributions import Distributions, total_variation
from specviz.core.methods import get_method
from specviz.core.target import Target
from tests.browser.bare import open_bare

CARDS = 9
WRONG = ([0.16, 0.66, 0.1, 0.04, 0.02, 0.02], [0.8, 0.1, 0.04, 0.02, 0.02, 0.02])
UNSURE = ([0.22, 0.3, 0.18, 0.12, 0.1, 0.08], [0.28, 0.2, 0.16, 0.12, 0.1, 0.14])
AGREED = ([0.5, 0.25, 0.12, 0.06, 0.04, 0.03], [0.52, 0.24, 0.12, 0.06, 0.03, 0.03])
SURE = ([0.3, 0.35, 0.15, 0.1, 0.04, 0.06], [0.95, 0.02, 0.01, 0.01, 0.005, 0.005])
CANBERRA, SYDNEY = 0, 1

Case = tuple[list[float], list[float]]


def ruled(case: Case, method: str, lenience: float, temperature: float = 1.0) -> Target:
    """What methods.py makes of a case."""
    drafter, verifier = (torch.tensor(one, dtype=torch.float64).log() for one in case)
    return Target.of(get_method(method), Distributions(drafter, verifier, temperature), lenience)


def acceptance_rate(ruling: Target) -> float:
    words = torch.arange(len(WRONG[0]))
    q = ruling.distributions.q
    return float((q * torch.stack([ruling.acceptance(word) for word in words])).sum())


def distance(a: Tensor, b: Tensor) -> float:
    return float(total_variation(a, b))


def said(value: float) -> str:
    """A number as the page writes it, about two significant digits."""
    return f"{value:.2f}" if value >= 0.0995 else f"{value:#.2g}"


@pytest.fixture(scope="module")
def address(serve: Callable[[gr.Blocks], str]) -> str:
    with gr.Blocks() as app, gr.Tab("Tour"):
        Tour(elem_id="tour")
    return serve(app)


@pytest.fixture(scope="module")
def answers(browser: Browser, address: str) -> Iterator[list[str]]:
    """The answers of all cards, read in one walk."""
    page = browser.new_page()
    page.goto(address)
    found = []
    for number in range(1, CARDS + 1):
        expect(page.get_by_test_id("progress")).to_have_text(f"{number} of {CARDS}")
        page.get_by_test_id("answer").locator("summary").click()
        found.append(page.get_by_test_id("answer").inner_text())
        if number < CARDS:
            page.get_by_role("button", name="Next").click()
    yield found
    page.close()


def test_a_round_yields_a_geometric_sum(answers: list[str]) -> None:
    assert f"at K = 5 that is {sum(0.7**k for k in range(5)):.2f}" in answers[0]
    assert f"1 / (1 − 0.70) = {1 / 0.3:.2f}" in answers[0]


def test_speed_at_0_is_the_verifier_and_the_drafter_costs_only_acceptance(answers: list[str]) -> None:
    lossless, lossy = ruled(WRONG, "speed", 0), ruled(WRONG, "speed", 0.5)
    q, p = lossless.distributions.q, lossless.distributions.p
    assert distance(lossless.pi(), p) == pytest.approx(0, abs=1e-12)
    assert acceptance_rate(lossless) == pytest.approx(1 - distance(q, p))
    assert f"1 − TV(q, p) = {said(acceptance_rate(lossless))}." in answers[1]
    assert f"At α = 0.5 it is {said(acceptance_rate(lossy))}" in answers[1]
    assert f"TV(π, p) = {said(distance(lossy.pi(), p))}." in answers[1]


def test_chow_flips_where_the_answer_says(answers: list[str]) -> None:
    below, above = ruled(WRONG, "cascade_chow", 0.3399), ruled(WRONG, "cascade_chow", 0.3401)
    assert torch.equal(below.pi(), below.distributions.p)
    assert torch.equal(above.pi(), above.distributions.q)
    assert "1 − max q₁ = 1 − 0.66 = 0.34." in answers[2]
    assert f"the acceptance rate is {said(acceptance_rate(below))}." in answers[2]
    assert "sure of Sydney, the verifier of Canberra" in answers[2]


def test_chow_defers_and_diff_does_not_where_both_are_unsure(answers: list[str]) -> None:
    chow, diff = ruled(UNSURE, "cascade_chow", 0.1), ruled(UNSURE, "cascade_diff", 0.1)
    assert torch.equal(chow.pi(), chow.distributions.p)
    assert torch.equal(diff.pi(), diff.distributions.q)
    assert "max q₁ = 0.30, far below Chow’s 1 − α = 0.90." in answers[3]
    assert "max p₁ − α = 0.28 − 0.10 = 0.18" in answers[3]
    sure = ruled(SURE, "cascade_diff", 0.1)
    assert torch.equal(sure.pi(), sure.distributions.p)
    assert "max p₁ = 0.95, Diff would want max q₁ ≥ 0.85" in answers[3]


@pytest.mark.parametrize(("case", "gap", "tv"), [(WRONG, 0.14, 0.64), (AGREED, 0.02, 0.02)])
def test_opt_tips_where_the_answer_says(answers: list[str], case: Case, gap: float, tv: float) -> None:
    b = ruled(case, "cascade_opt", 0).distributions
    assert float(b.p1.max() - b.q1.max()) == pytest.approx(gap)
    assert distance(b.q, b.p) == pytest.approx(tv)
    below, above = (ruled(case, "cascade_opt", gap / tv + step) for step in (-0.001, 0.001))
    assert torch.equal(below.pi(), b.p)
    assert torch.equal(above.pi(), b.q)
    assert 1 - acceptance_rate(below) == pytest.approx(tv), "the share that would be rejected"
    assert f"α = {said(gap)} / {said(tv)} = {said(gap / tv)}." in answers[4]


def test_token_rules_trust_the_words_the_answer_names(answers: list[str]) -> None:
    first, third = ruled(WRONG, "cascade_tokenV1", 0.4), ruled(WRONG, "cascade_tokenV3", 0.4)
    for ruling, word in ((first, SYDNEY), (third, CANBERRA)):
        assert ruling.score is not None
        assert (ruling.score >= ruling.threshold).nonzero().flatten().tolist() == [word]
        assert float(ruling.acceptance(torch.tensor(word))) == 1
    assert "q₁(v) ≥ 0.40 and trusts Sydney:" in answers[5]
    assert "p₁(v) ≥ 0.48 and trusts Canberra." in answers[5]
    shares = [said(float(ruling.pi()[SYDNEY])) for ruling in (first, third)]
    assert f"π(Sydney) is {shares[0]} under V1 and {shares[1]} under V3" in answers[5]
    rates = [said(acceptance_rate(ruling)) for ruling in (first, third)]
    assert f"The acceptance rates, {rates[0]} and {rates[1]}," in answers[5]


def test_the_ends_are_what_the_answer_says(answers: list[str]) -> None:
    end = ruled(WRONG, "cascade_tokenV3", 0)
    q, p = end.distributions.q, end.distributions.p
    assert distance(end.pi(), p) == pytest.approx(0.16 * (1 - 0.8))
    assert f"q(a)·(1 − p(a)) = 0.16 × (1 − 0.80) = {said(distance(end.pi(), p))}." in answers[6]
    for method, strict in (
        ("speed", 0),
        ("cascade_diff", -1),
        ("cascade_tokenV1", -1),
        ("cascade_tokenV2", -1),
    ):
        for case in (WRONG, UNSURE, AGREED, SURE, ([1.0, 0, 0, 0, 0, 0], SURE[1])):
            ruling = ruled(case, method, strict)
            assert torch.allclose(ruling.pi(), ruling.distributions.p, atol=1e-12), method
    certain = ruled(([0.0, 1, 0, 0, 0, 0], WRONG[1]), "cascade_chow", 0)
    assert torch.equal(certain.pi(), certain.distributions.q)
    generator = torch.Generator().manual_seed(3)
    for case in [WRONG, AGREED, *torch.rand((100, 2, 6), generator=generator).square().tolist()]:
        never, always = (ruled(case, "cascade_opt", a) for a in (-1.001, 1.001))
        assert torch.equal(never.pi(), never.distributions.p)
        assert torch.equal(always.pi(), always.distributions.q)
    for method in ("chow", "diff", "tokenV1", "tokenV2", "tokenV3"):
        assert torch.equal(ruled(WRONG, f"cascade_{method}", 1).pi(), q), method


def test_at_temperature_0_speed_ignores_lenience_and_the_cascades_do_not(answers: list[str]) -> None:
    for lenience in (0, 0.3, 0.99, 1):
        ruling = ruled(WRONG, "speed", lenience, 0)
        assert float(ruling.acceptance(torch.tensor(SYDNEY))) == 0
        assert int(ruling.pi().argmax()) == CANBERRA
        assert float(ruled(AGREED, "speed", lenience, 0).acceptance(torch.tensor(CANBERRA))) == 1
    assert [int(ruled(WRONG, "cascade_chow", a, 0).pi().argmax()) for a in (0.339, 0.341)] == [
        CANBERRA,
        SYDNEY,
    ]
    assert "The drafter always proposes Sydney" in answers[7]
    assert "greedy text: Canberra." in answers[7]
    assert "from α = 0.34 on, and write Sydney." in answers[7]


def test_with_the_same_coins_only_the_rule_changes_a_token(page: Page, answers: list[str]) -> None:
    """Law 4: the counts in the answer, from coins drawn in the browser and decisions made in Python."""
    open_bare(page, None, "playground/methods")
    coins = torch.tensor(page.evaluate("() => SpecViz.coinsOf(1, 1000)"), dtype=torch.float64)
    assert coins.min() >= 0
    assert coins.max() < 1

    def draws(distribution: Tensor, uniforms: Tensor) -> Tensor:
        return torch.searchsorted(distribution.cumsum(-1), uniforms.contiguous(), right=True)

    def throw(method: str, lenience: float) -> Tensor:
        ruling = ruled(WRONG, method, lenience)
        drafted = draws(ruling.distributions.q, coins[:, 0])
        accepted = coins[:, 1] < torch.stack([ruling.acceptance(word) for word in drafted])
        return torch.where(accepted, drafted, draws(ruling.residual(), coins[:, 2]))

    reference = throw("speed", 0)
    changed = [
        int((throw(*other) != reference).sum()) for other in (("cascade_opt", 0.3), ("cascade_tokenV3", 0))
    ]
    assert f"{changed[0]} of the 1,000 under OPT at α = 0.3" in answers[8]
    assert f"and {changed[1]} under Token V3 at α = 0" in answers[8]
    assert 0 < changed[1] < changed[0]


def test_the_tour_is_walked_by_keyboard_and_asks_the_server_nothing(page: Page, address: str) -> None:
    page.goto(address)
    card, progress = page.get_by_test_id("card"), page.get_by_test_id("progress")
    expect(progress).to_have_text(f"1 of {CARDS}")
    expect(page.get_by_role("button", name="Previous")).to_be_disabled()
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))

    questions = []
    for number in range(1, CARDS + 1):
        expect(progress).to_have_text(f"{number} of {CARDS}")
        questions.append(card.get_by_role("heading").first.inner_text())
        answer = page.get_by_test_id("answer")
        expect(answer.locator("p").first).to_be_hidden()
        move_the_one_control(page, card)
        answer.locator("summary").focus()
        page.keyboard.press("Enter")
        expect(answer.locator("p").first).to_be_visible()
        if number < CARDS:
            page.get_by_role("button", name="Next").focus()
            page.keyboard.press("Enter")
            expect(card.get_by_role("heading").first).to_be_focused()
    assert len(set(questions)) == CARDS
    assert all(question.endswith("?") for question in questions)
    expect(page.get_by_role("button", name="Next")).to_be_disabled()

    page.get_by_role("button", name="Previous").focus()
    page.keyboard.press("ArrowLeft")
    expect(progress).to_have_text(f"{CARDS - 1} of {CARDS}")
    assert not [url for url in requests if "heartbeat" not in url and "/static/fonts/" not in url], requests


def move_the_one_control(page: Page, card: Locator) -> None:
    """There is exactly one control; moving it by key changes what the card shows."""
    controls = card.locator("[data-control]")
    expect(controls).to_have_count(1)
    stage = card.get_by_test_id("stage")
    before = shown(stage)
    if controls.get_attribute("role") == "group":
        controls.get_by_role("button", pressed=False).focus()
        page.keyboard.press("Enter")
    elif controls.evaluate("node => node.tagName") == "SELECT":
        controls.select_option("cascade_tokenV1")
    else:
        controls.focus()
        page.keyboard.press("ArrowRight")
    after = shown(stage)
    assert after != before


def shown(stage: Locator) -> dict[str, Any]:
    return {
        "text": stage.inner_text(),
        "values": stage.locator("input").evaluate_all("nodes => nodes.map(n => n.value)"),
    }


def test_no_card_runs_off_a_phone_s_edge(page: Page, address: str) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(address)
    for number in range(1, CARDS + 1):
        expect(page.get_by_test_id("progress")).to_have_text(f"{number} of {CARDS}")
        page.get_by_test_id("answer").locator("summary").click()
        edges = page.locator(".st-tour").evaluate(
            "host => [...host.querySelectorAll('*')].map(n => n.getBoundingClientRect().right - host.getBoundingClientRect().right)"
        )
        assert max(edges) <= 1, number
        if number < CARDS:
            page.get_by_role("button", name="Next").click()


def test_moving_the_control_shows_what_the_question_is_about(page: Page, address: str) -> None:
    """What the cards ask people to see is there to be seen: Chow's flip, and that nothing happens at temperature 0."""
    page.goto(address)
    following = page.get_by_role("button", name="Next")
    for _ in range(2):
        following.click()
    lenience, rule_words = page.get_by_label("Lenience α"), page.get_by_test_id("rule")
    lenience.fill("0.33")
    expect(rule_words).to_contain_text("not trusted")
    lenience.fill("0.34")
    expect(rule_words).to_have_text(re.compile("0.66 ≥ 1 − α = 0.66: the drafter is trusted"))
    for _ in range(5):
        following.click()
    seen = set()
    for value in ("0", "0.5", "1"):
        lenience.fill(value)
        seen.add(page.get_by_test_id("outcome").inner_text())
    assert len(seen) == 1
