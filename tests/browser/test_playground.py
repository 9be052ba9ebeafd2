"""The playground in a real browser: its rules are those of the core, and its controls move what it shows."""

from __future__ import annotations

import math
import random
from typing import Any
from urllib.parse import urlsplit

import pytest
import torch
from playwright.sync_api import Locator, Page, expect

from specviz.app.components.lessons import Playground
from specviz.app.components.rule_field import read_rule
from specviz.app.components.scripted_html import method_words
from specviz.core.backend import TORCH
from specviz.core.distributions import Distributions
from specviz.core.methods import METHODS, OWN_RULE, get_method
from specviz.core.target import Target
from tests.browser.bare import mount, open_bare
from tests.browser.driving import violations
from tests.support.rules import GOOD_RULES, random_rules

WORDS = ["Canberra", "Sydney", "Melbourne", "Perth", "a", "the"]

RULE = """
([cases, rows]) => cases.map(({method, rule, lenience, temperature, drafter, verifier}) =>
  SpecViz.ruling(method, SpecViz.distributions(drafter, verifier, temperature), lenience, {...rows[method], ...rule}))
"""


def ruled(
    method: str, drafter: torch.Tensor, verifier: torch.Tensor, lenience: float, temperature: float, rule=""
) -> tuple[Target, dict[str, list[float]]]:
    """What Python says of logits over the six words: the rule's target, and its numbers by their names here."""
    target = Target.of(get_method(method, rule), Distributions(drafter, verifier, temperature), lenience)
    q, p, pi = target.distributions.q, target.distributions.p, target.pi()
    acceptance = torch.stack([target.acceptance(torch.tensor(word)) for word in range(len(WORDS))])
    rate, after = (q * acceptance).sum(), [target.residual(torch.tensor(word)) for word in range(len(WORDS))]
    mean = (q * (1 - acceptance)) @ torch.stack(after) / (1 - rate).clamp_min(1e-300)
    residual = mean if target.method.share else after[0]
    numbers = {"q": q, "p": p, "acceptance": acceptance, "residual": residual, "target": pi}
    figures = {"rate": rate, "rejection": 1 - rate, "tv_p": TORCH.excess(pi, p), "tv_q": TORCH.excess(pi, q)}
    return target, {name: value.reshape(-1).tolist() for name, value in (numbers | figures).items()}


def test_every_method_and_every_rule_agrees_with_python_wherever_the_sliders_stand(page: Page) -> None:
    """Methods: both ends and the middle of the lenience, temperatures 0 to 2, also words without probability.

    Rules: from the trees that the server sends.
    """
    open_bare(page, None, "playground/methods")
    dice, cases = random.Random(7), list[dict[str, Any]]()
    for name, method in METHODS.items():
        low, high = method.offered_range
        for lenience in (low, low + 0.37 * (high - low), high) if not method.matches else ():
            for temperature in (0, 0.55, 1, 2):
                drafter, verifier = (
                    [-math.inf if dice.random() < 0.1 else dice.gauss(0, 2) for _ in WORDS] for _ in range(2)
                )
                drafter[0], verifier[1] = 0.1, 0.2
                logits = {"drafter": drafter, "verifier": verifier, "rule": {}}
                cases.append({"method": name, "lenience": lenience, "temperature": temperature} | logits)
    cases += [
        {"method": OWN_RULE, "rule": read_rule(rule), "lenience": lenience, "temperature": temperature}
        | {who: [dice.gauss(0, 2) for _ in WORDS] for who in ("drafter", "verifier")}
        for rule in (*GOOD_RULES, *random_rules(50))
        for lenience, temperature in ((0.1, 0.55), (0.63, 1))
    ]
    trusts = set()
    for case, found in zip(cases, page.evaluate(RULE, [cases, method_words()]), strict=True):
        logits = [torch.tensor(case[who], dtype=torch.float64) for who in ("drafter", "verifier")]
        rule = case["rule"].get("expression", "")
        target, wanted = ruled(case["method"], *logits, case["lenience"], case["temperature"], rule)
        for name in ("acceptance", "residual", "target"):
            assert found[name] == pytest.approx(wanted[name], abs=1e-9), case
        assert [found["acceptanceRate"]] == pytest.approx(wanted["rate"], abs=1e-9), case
        if rule:
            trusted = (target.deferral.score >= target.deferral.threshold).expand(len(WORDS)).tolist()
            assert list(map(bool, found["trusted"])) == trusted, case
            trusts |= set(trusted)
    assert trusts == {True, False}


def open_playground(page: Page, query: str = "") -> Locator:
    mount(page, Playground(), query=query)
    expect(page.get_by_test_id("outcome")).to_be_visible()
    return page.locator(".sp-play")


@pytest.fixture
def host(page: Page) -> Locator:
    """The playground."""
    return open_playground(page)


def control(host: Locator, name: str) -> Locator:
    return host.locator(f"[data-control={name}]")


def slide(host: Locator, name: str, value: float) -> None:
    control(host, name).fill(str(value))


def bar_values(host: Locator, key: str) -> list[float]:
    bars = host.locator(f"[data-belief^={key}]")
    return [float(value) for value in bars.evaluate_all("nodes => nodes.map(n => n.ariaValueNow)")]


def exact(host: Locator, what: str) -> list[float]:
    """The unrounded numbers behind what is shown."""
    nodes = host.locator(f"[data-{what}]:is([data-exact]), [data-{what}] > dd")
    return nodes.evaluate_all("nodes => nodes.map(n => Number(n.dataset.exact))")


def check_against_python(host: Locator, lenience: float, temperature: float) -> None:
    """All that is shown is what methods.py says of the q₁ and p₁ that are set."""
    method = control(host, "method").input_value()
    logits = (torch.tensor(exact(host, f"belief^={key}"), dtype=torch.float64).log() for key in ("q1", "p1"))
    _, wanted = ruled(method, *logits, lenience, temperature)
    for key in ("q", "p", "acceptance", "residual", "target"):
        assert exact(host, f"cell={key}") == pytest.approx(wanted[key], abs=1e-9), key
    for key in ("acceptance", "rejection", "tv_p", "tv_q"):
        [expected] = wanted["rate" if key == "acceptance" else key]
        assert exact(host, f"figure={key}") == [pytest.approx(expected, abs=1e-9)], key
        shown = host.locator(f"[data-figure={key}] dd").inner_text()
        assert float(shown) == pytest.approx(expected, abs=0.0051), key


def throws(host: Locator) -> dict[str, tuple[int, int]]:
    """Accepted and resampled tokens by word."""
    rows = host.locator("[data-throw]").evaluate_all(
        "nodes => nodes.map(n => [n.dataset.throw, Number(n.dataset.accepted), Number(n.dataset.resampled)])"
    )
    return {word: (accepted, resampled) for word, accepted, resampled in rows}


def check_throws(host: Locator) -> None:
    """A thousand tokens fall where the formula says, within five sigma, each word and each fate."""
    counts = throws(host)
    assert list(counts) == WORDS
    assert sum(map(sum, counts.values())) == 1000
    shares = {key: exact(host, f"cell={key}") for key in ("q", "acceptance", "target")}
    for (accepted, resampled), q, acceptance, target in zip(counts.values(), *shares.values(), strict=True):
        for count, expected in ((accepted + resampled, target), (accepted, q * acceptance)):
            sigma = math.sqrt(1000 * expected * max(0.0, 1 - expected))
            assert abs(count - 1000 * expected) <= 5 * sigma + 1e-6


def test_dragging_typing_and_keys_move_what_is_shown(page: Page, host: Locator) -> None:
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    before = bar_values(host, "q1")
    sydney = host.locator("[data-belief=q11]")

    # dragging: the word follows the pointer, the others keep their proportions
    box = sydney.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.66 * box["width"], box["y"] + 5)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] + 50, box["y"] + 5)  # as far as it goes, and back
    assert bar_values(host, "q1") == [0, 1, 0, 0, 0, 0]
    page.mouse.move(box["x"] + 0.4 * box["width"], box["y"] + 5)
    page.mouse.up()
    after = bar_values(host, "q1")
    assert after[1] == pytest.approx(0.4, abs=0.011)
    assert sum(after) == pytest.approx(1, abs=0.003)
    assert after[0] / after[2] == pytest.approx(before[0] / before[2], abs=0.05)

    # keys, on the same bar
    for key, expected in (("ArrowRight", after[1] + 0.01), ("PageUp", after[1] + 0.11), ("Home", 0)):
        page.keyboard.press(key)
        assert bar_values(host, "q1")[1] == pytest.approx(expected, abs=1e-9), key
    check_against_python(host, 0.5, 1)

    # typing: a number out of range becomes the nearest end, and other text changes nothing
    field = host.get_by_label("Perth: verifier p₁ as a number")
    for typed, written in (("0.25", "0.25"), ("", "0.25"), ("7", "1")):
        field.fill(typed)
        field.blur()
        expect(field).to_have_value(written)
        assert bar_values(host, "p1")[3] == float(written)

    # method, lenience, temperature, cases
    host.get_by_role("button", name="both unsure").click()
    settings = ("cascade_opt", 1.03, 0.7), ("verifier_only", 0, 0.5), ("cascade_chow", 0.93, 0)
    for name, lenience, temperature in settings:
        control(host, "method").select_option(name)
        if METHODS[name].has_lenience:
            assert float(control(host, "lenience").input_value()) == METHODS[name].default_lenience
            slide(host, "lenience", lenience)
        else:
            expect(control(host, "lenience")).to_be_disabled()
        slide(host, "temperature", temperature)
        check_against_python(host, lenience, temperature)
        check_throws(host)
    assert not requests


def test_the_rule_is_said_with_its_numbers_and_throws_can_be_thrown_again(page: Page, host: Locator) -> None:
    rule_words = host.get_by_test_id("rule")
    expect(rule_words).to_contain_text("p₁(v) ≥ (1 − α)·max p₁ = 0.40: Canberra.")
    # Exactly on the threshold, in round numbers that floating point does not have: trusted.
    control(host, "method").select_option("cascade_chow")
    host.get_by_label("Sydney: drafter q₁ as a number").fill("0.66")
    slide(host, "lenience", 0.34)
    expect(rule_words).to_contain_text("is trusted")
    slide(host, "lenience", 0.33)
    expect(rule_words).to_contain_text("is not trusted")

    control(host, "method").select_option("speed")
    host.get_by_role("button", name="confident and wrong").click()
    before = throws(host)
    host.get_by_test_id("again").click()
    seen = throws(host)
    check_throws(host)
    assert seen != before
    slide(host, "lenience", 0.5)
    slide(host, "lenience", 0)
    assert throws(host) == seen, "the coins stay until they are thrown again"


def test_the_address_names_the_state_and_opens_it_again(page: Page, host: Locator) -> None:
    """A case, probabilities set by hand, a rule of one's own; what nobody can read of a query is ignored."""
    control(host, "method").select_option("cascade_diff")
    host.get_by_role("button", name="both unsure").click()
    slide(host, "lenience", -0.25)
    slide(host, "temperature", 0.5)
    page.wait_for_function("decodeURIComponent(location.search).includes(':-0.25:0.5')")
    seen = exact(host, "cell=target")
    open_playground(page, f"?{urlsplit(page.url).query}")  # as a link or a reload opens it
    assert exact(host, "cell=target") == seen

    host.get_by_label("Perth: verifier p₁ as a number").fill("0.5")
    control(host, "method").select_option(OWN_RULE)
    control(host, "rule").fill("p1(v) >= a * max p1")
    page.wait_for_function("decodeURIComponent(location.search).includes('a+*+max')")
    emitted = exact(host, "cell=target")
    open_playground(page, f"?{urlsplit(page.url).query}")
    expect(control(host, "rule")).to_have_value("p1(v) >= a * max p1")
    assert exact(host, "cell=target") == pytest.approx(emitted, abs=0.001)

    open_playground(
        page, "?tab=playground&play=cascade_chow:7:9&case=<b>&q=-1,1,1,1,1,1&p=0,0,0,0,0,0&own=)("
    )
    check_throws(host)
    assert control(host, "temperature").input_value() == "1"


def test_everything_has_a_name_and_every_word_a_stop_of_the_keyboard(page: Page, host: Locator) -> None:
    assert violations(page, ".host") == []
    for word in WORDS:
        for whose in ("drafter q₁", "verifier p₁"):
            expect(host.get_by_label(f"{word}: {whose}", exact=True)).to_have_attribute("tabindex", "0")
            expect(host.get_by_label(f"{word}: {whose} as a number", exact=True)).to_be_editable()


def test_a_phone_shows_all_of_it_and_keeps_the_figures_in_sight(page: Page, host: Locator) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    edges = page.locator(".sp-play").evaluate(
        "host => [...host.querySelectorAll('*')].map(n => n.getBoundingClientRect().right - host.getBoundingClientRect().right)"
    )
    assert max(edges) <= 1
    page.locator("[data-belief=p15]").scroll_into_view_if_needed()
    expect(page.get_by_test_id("figures")).to_be_in_viewport(ratio=1)


def test_a_rule_is_read_by_the_server_as_it_is_typed(page: Page, host: Locator) -> None:
    """A good one moves the playground; a bad one gets its sentence, with the caret under the place."""
    control(host, "method").select_option(OWN_RULE)
    field, shown = control(host, "rule"), host.get_by_test_id("rule-shown")
    expect(shown).to_contain_text(METHODS[OWN_RULE].formula)
    good, bad = "q1(v) >= (1 - a) * max p1", "p1(v) >= <b>a</b>"
    field.fill(good)
    expect(shown).to_contain_text(read_rule(good)["formula"])
    expect(host.get_by_test_id("rule")).to_contain_text(read_rule(good)["score_label"])
    expect(host.get_by_test_id("rule-pointed")).to_be_hidden()
    field.fill(bad)
    expect(shown).to_contain_text(read_rule(bad)["sentence"])
    expect(host.get_by_test_id("rule-pointed")).to_have_text(f"{bad}\n{' ' * read_rule(bad)['position']}^")
