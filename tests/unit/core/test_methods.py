"""The rules: golden numbers, and the first law (exact) by enumeration over a small vocabulary."""

import json
import math
from pathlib import Path

import pytest
import torch

from specviz.core.backend import TORCH, Backend, compiled_backend
from specviz.core.distributions import Distributions
from specviz.core.method import Method
from specviz.core.methods import METHODS, PAPER, get_method
from specviz.core.sampling import SamplingParameters, distribution
from specviz.core.target import Target, target_under
from specviz.errors import RequestError

GOLDEN = json.loads((Path(__file__).parents[2] / "data" / "methods.json").read_text())
V = 8


def leniences(name: str) -> list[float]:
    """Five leniences over a method's offered range, both ends among them."""
    low, high = METHODS[name].offered_range
    return torch.linspace(low, high, 5).tolist() if low < high else [0.0] * 5


def logits(seed: int, spread: float = 2.0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    drafter = spread * torch.randn(V, generator=generator, dtype=torch.float64)
    return drafter, 0.6 * drafter + spread * torch.randn(V, generator=generator, dtype=torch.float64)


def ruled(name: str, drafter, verifier, lenience, temperature, greedy_drafts: bool = False) -> Target:
    return target_under(
        METHODS[name], drafter, verifier, SamplingParameters(temperature), lenience, greedy_drafts
    )


@pytest.mark.parametrize("case", GOLDEN, ids=lambda c: f"{c['method']}-{c['lenience']}-{c['temperature']}")
def test_golden_numbers_to_1e_9(case: dict) -> None:
    """Law 1: exact."""

    def numbers(key: str) -> torch.Tensor:
        return torch.tensor(case[key], dtype=torch.float64)

    both = numbers("drafter_logits"), numbers("verifier_logits")
    target, token = (
        ruled(case["method"], *both, case["lenience"], case["temperature"]),
        torch.tensor(case["token"]),
    )
    assert (target.acceptance(token) - numbers("acceptance")).abs().max() <= 1e-9
    assert (target.residual(token) - numbers("residual")).abs().max() <= 1e-9


def test_golden_cases_cover_all_nine_methods() -> None:
    assert {case["method"] for case in GOLDEN} == set(PAPER)
    assert len(PAPER) == 9
    assert list(METHODS)[:9] == list(PAPER)  # they come first wherever methods are listed


def enumerate_output(
    name: str, drafter, verifier, lenience: float, temperature: float, greedy_drafts: bool = False
) -> torch.Tensor:
    """What is emitted, by going through every proposal the drafter can make and what follows."""
    greedy = greedy_drafts or name == "greedy_drafts"
    q = distribution(drafter, 0 if greedy else temperature, min_p=share_kept(name, lenience))
    both = (logits.expand(V, -1) for logits in (drafter, verifier))
    target, every = ruled(name, *both, lenience, temperature, greedy_drafts), torch.arange(V)
    acceptance = target.acceptance(every)
    return q * acceptance + (q * (1 - acceptance)) @ target.residual(every)


def share_kept(name: str, lenience: float) -> float:
    """The min-p of a method's distributions."""
    return 1 - lenience if name == "lossless_min_p" else 0.0


def oracle(name: str, drafter, verifier, a: float, temperature: float) -> torch.Tensor:
    """The targets written down a second time, plainly, from the definitions; `speed` by its closed form."""
    q, p = distribution(drafter, temperature), distribution(verifier, temperature)
    q1, p1 = distribution(drafter), distribution(verifier)
    if name == "drafter_only":
        return q
    if name in ("verifier_only", "sampler_match", "gumbel_coupling", "greedy_drafts"):
        return p
    if name == "lossless_min_p":
        kept = p * (p >= (1 - a) * p.max())
        return kept / kept.sum()
    if name == "speed":
        scale = max(1 - a, 1e-10)
        excess, lack = (q - p / scale).clamp_min(0).sum(), (p - q).clamp_min(0).sum()
        kappa = excess / lack if lack > 0 else 0.0
        return torch.where(q <= p, q + kappa * (p - q), torch.minimum(q, p / scale))
    tv = (q - p).clamp_min(0).sum()
    if name == "static_mixture":
        return (1 - a) * p + a * q
    if name == "relaxed_coin":
        accepted = torch.minimum(q, p + a * (1 - p.max()) * q)
        lack = (p - q).clamp_min(0)
        return accepted + (1 - accepted.sum()) * lack / (lack.sum() if lack.sum() > 0 else 1)
    if name == "cactus":
        return cactus(q, p, a)
    whole = {
        "fuzzy": (kl(q1, (q1 + p1) / 2) + kl(p1, (q1 + p1) / 2)) / 2 <= a,
        "cascade_chow": q1.max() >= 1 - a,
        "cascade_diff": q1.max() >= p1.max() - a,
        "cascade_opt": q1.max() >= p1.max() - a * tv,
    }
    if name in whole:
        return q if whole[name] else p
    best = p1.sort(descending=True).values
    trusted = {
        "typical_acceptance": p
        >= torch.minimum(torch.tensor((1 - a) ** 2), (1 - a) * torch.exp(entropy(p).neg())),
        "relaxed_top_k": (p1 >= best[0] - a) & (p1 >= best[min(9, len(best) - 1)]),
        "own_rule": (p1 >= (1 - a) * best[0]) & (entropy(p1) > 0.5),
        "cascade_tokenV1": q1 >= p1.max() - a,
        "cascade_tokenV2": p1 >= p1.max() - a,
        "cascade_tokenV3": p1 >= (1 - a) * p1.max(),
    }[name]
    return q * trusted + p * (1 - (q * trusted).sum())


def kl(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return torch.xlogy(left, left / right).sum()


def entropy(values: torch.Tensor) -> torch.Tensor:
    return torch.special.entr(values).sum()


def cactus(q: torch.Tensor, p: torch.Tensor, a: float) -> torch.Tensor:
    """Proposal by proposal: the target h that it makes, accepted towards h, and redrawn from what h has more of than q."""
    output = torch.zeros_like(q)
    for proposal in range(len(q)):
        raised = (p[proposal] + (2 * a * p[proposal] * (1 - p[proposal])).sqrt()).clamp_max(1)
        h = p * ((1 - raised) / (1 - p[proposal]) if p[proposal] < 1 else 1.0)
        h[proposal] = raised
        accepted = torch.minimum(q[proposal], raised)
        output[proposal] += accepted
        lack = (h - q).clamp_min(0)
        output += (q[proposal] - accepted) * lack / (lack.sum() if lack.sum() > 0 else 1)
    return output


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0, 1.6])
@pytest.mark.parametrize("name", METHODS)
def test_the_target_is_the_published_one_and_what_is_emitted(name: str, temperature: float) -> None:
    """Law 1."""
    for seed in range(8):
        drafter, verifier = logits(seed)
        for lenience in leniences(name):
            pi = ruled(name, drafter, verifier, lenience, temperature).pi()
            for other in (oracle, enumerate_output):
                expected = other(name, drafter, verifier, lenience, temperature)
                assert (pi - expected).abs().max() <= 1e-12
            assert abs(pi.sum() - 1) <= 1e-12
            assert pi.min() >= 0


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0, 1.6])
@pytest.mark.parametrize("name", METHODS)
def test_greedy_drafts_emit_the_target_and_a_lossless_method_accepts_with_p(
    name: str, temperature: float
) -> None:
    """Law 1: q is one-hot at the drafter's favourite x; a lossless method accepts x with p(x) and redraws from p without x."""
    for seed in range(8):
        drafter, verifier = logits(seed)
        favourite, p = drafter.argmax(), distribution(verifier, temperature)
        for lenience in leniences(name):
            target = ruled(name, drafter, verifier, lenience, temperature, greedy_drafts=True)
            emitted = enumerate_output(name, drafter, verifier, lenience, temperature, greedy_drafts=True)
            assert (target.pi() - emitted).abs().max() <= 1e-12
            if name in ("speed", "sampler_match", "gumbel_coupling", "static_mixture") and lenience == 0:
                rest = p.clone()
                rest[favourite] = 0
                assert (target.pi() - p).abs().max() <= 1e-12
                assert abs(target.acceptance(favourite) - p[favourite]) <= 1e-12
                assert (target.residual(favourite) * rest.sum() - rest).abs().max() <= 1e-12


@pytest.mark.parametrize("name", METHODS)
def test_rows_with_settings_of_their_own_equal_rows_alone(name: str) -> None:
    """Law 3: neighbours do not show."""
    pairs = [logits(seed) for seed in range(4)]
    drafter, verifier = (torch.stack(side)[:, None].expand(-1, 3, -1) for side in zip(*pairs, strict=True))
    tokens = torch.tensor([[0, 1, 2]]).expand(4, -1)
    a = torch.tensor(leniences(name)[:4], dtype=torch.float64)[:, None]
    t = torch.tensor([0.0, 0.5, 1.0, 2.0], dtype=torch.float64)[:, None]
    together = ruled(name, drafter, verifier, a, t)
    for row in range(4):
        alone = ruled(name, drafter[row], verifier[row], a[row].item(), t[row].item())
        for numbers in (Target.acceptance, Target.residual):
            one, other = numbers(together, tokens)[row], numbers(alone, tokens[row])
            assert (one - other).abs().max() <= 1e-12


@pytest.mark.parametrize("name", METHODS)
def test_what_is_asked_of_tokens_and_of_places_is_what_the_whole_says(name: str) -> None:
    """`pi(tokens)` and `select(indices)` spare passes over the vocabulary and change no number."""
    pairs = [logits(seed) for seed in range(6)]
    drafter, verifier = (torch.stack(side).view(2, 3, V) for side in zip(*pairs, strict=True))
    tokens = torch.tensor([[0, 1, 2], [3, 4, 5]])
    a = torch.tensor(leniences(name)[1:3], dtype=torch.float64)[:, None]
    for lenience in (a, a[0].item()):
        ruling = Target.of(METHODS[name], Distributions(drafter, verifier, 0.8), lenience)
        chosen = torch.tensor([1, 0]), torch.tensor([1, 0])
        taken = ruling.select(chosen)
        again = taken.select((torch.tensor([1, 0]),)).distributions
        assert torch.equal(again.q1, ruling.distributions.q1[chosen].flip(0))
        some = tokens[chosen]
        assert torch.equal(ruling.pi(tokens[..., None]), ruling.pi().gather(-1, tokens[..., None]))
        assert torch.equal(taken.acceptance(some), ruling.acceptance(tokens)[chosen])
        for whole, part in ((ruling.pi(), taken.pi()), (ruling.residual(tokens), taken.residual(some))):
            assert torch.equal(whole[chosen], part)
        for whole, part in zip(
            ruling.deferral_test(tokens) or (), taken.deferral_test(some) or (), strict=True
        ):
            assert torch.equal(whole[chosen], part)


@pytest.mark.parametrize("backend", [TORCH, compiled_backend() or TORCH], ids=["torch", "compiled"])
@pytest.mark.parametrize("name", METHODS)
def test_a_decision_has_the_same_bits_whatever_is_beside_it(name: str, backend: Backend) -> None:
    """Laws 2 and 3: other places, other rows and other threads: in float32, over a vocabulary large enough to be split up."""
    generator = torch.Generator().manual_seed(5)
    drafter = 3 * torch.randn(4, 49152, generator=generator)
    verifier = 0.8 * drafter + torch.randn(4, 49152, generator=generator)
    tokens = drafter.argmax(-1)
    found = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            for shape in ((1, 1), (1, 4), (2, 2)):
                count = shape[0] * shape[1]
                sides = (side[:count].view(*shape, -1) for side in (drafter, verifier))
                both = Distributions(*sides, backend=backend)
                ruling = Target.of(METHODS[name], both, METHODS[name].default_lenience)
                mine = tokens[:count].view(shape)
                numbers = [
                    ruling.acceptance(mine),
                    ruling.pi(mine[..., None]),
                    ruling.pi(),
                    ruling.residual(mine),
                    ruling.draw_replacement(mine, torch.full(shape, 0.4, dtype=torch.float64)),
                ]
                found.append([number[0, 0] for number in [*numbers, *(ruling.deferral_test(mine) or ())]])
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


def test_a_rejection_of_what_is_fully_trusted_has_nothing_to_draw() -> None:
    drafter, verifier = logits(1)
    target = ruled("cascade_tokenV2", drafter, verifier, 1.0, 1.0)
    assert target.acceptance(torch.tensor(2)) == 1
    assert not target.residual(torch.tensor(2)).any()
    # Rounding may cause one: it then draws from the mixture, which here is q.
    coin = torch.tensor(0.4, dtype=torch.float64)
    assert target.draw_replacement(torch.tensor(2), coin) == TORCH.draw(distribution(drafter), coin)


@pytest.mark.parametrize("name", [n for n in METHODS if METHODS[n].has_lenience])
@pytest.mark.parametrize("lenience", [float("nan"), float("inf"), 1.01, -1.01, "0.5", None])
def test_lenience_out_of_range_is_refused_with_a_sentence(name: str, lenience: object) -> None:
    method = get_method(name)
    low, high = method.lenience_range
    if lenience in (1.01, -1.01) and low <= lenience <= high:
        assert method.check_lenience(lenience) == lenience
        return
    with pytest.raises(RequestError, match=rf"does not fit {name}, which takes"):
        method.check_lenience(lenience)


def test_unknown_method_names_the_known_ones() -> None:
    with pytest.raises(RequestError, match="drafter_only, verifier_only, speed, cascade_chow"):
        get_method("cascade_magic")


def test_a_ratio_or_a_function_may_leave_its_range() -> None:
    """A ratio below 0 accepts nothing; thresholds may be plain numbers, and infinite."""
    b = Distributions(*torch.randn(2, 3, 8, dtype=torch.float64), 1.0)
    negative = Method(name="negative", title="Negative", ratio="p(v) / q(v) - 2")
    assert Target.of(negative, b, 0.0).pi().min() >= 0
    for threshold, trusts in ((-math.inf, 1), (math.inf, 0), (0.1, None)):
        rule = Method(name="own", title="Own", function=lambda b, a, threshold=threshold: (b.q1, threshold))
        score, found = Target.of(rule, b, 0.0).deferral_test(torch.zeros(3, dtype=torch.long)) or ((), ())
        assert found.isfinite().all()
        assert trusts is None or ((score >= found) == bool(trusts)).all()


def test_logits_of_a_model_in_training_have_a_target() -> None:
    logits = torch.randn(2, 1, 8, requires_grad=True)
    assert target_under(METHODS["cascade_tokenV3"], *logits, SamplingParameters(), 0.5).pi().sum() > 0.99


def test_a_rule_may_be_a_function() -> None:
    by_hand = Method(
        name="by_hand", title="By hand", function=lambda b, a: (b.p1, (1 - a) * b.quantity("max", "p1"))
    )
    both = (
        target_under(each, *logits(5), SamplingParameters(0.7), 0.4)
        for each in (by_hand, METHODS["cascade_tokenV3"])
    )
    mine, registered = (each.pi() for each in both)
    assert torch.equal(mine, registered)
