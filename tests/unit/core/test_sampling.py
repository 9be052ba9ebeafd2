"""Coins and draws: what the second and fourth law rest on."""

import pytest
import torch
from transformers import MinPLogitsWarper, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from specviz.core.backend import TORCH, Backend, compiled_backend, draw_in_two_steps, total
from specviz.core.reference import generate, inverse_cdf
from specviz.core.sampling import distribution, uniforms

THREADS = (1, 2)
"""So many threads at least, for whatever is summed differently by more than one."""
VOCABULARY = 49152
"""Larger than what torch sums by one thread at a time."""


def test_draw_is_the_inverse_cdf() -> None:
    probabilities = torch.tensor([0.0, 0.25, 0.0, 0.5, 0.25, 0.0], dtype=torch.float64)
    for uniform, token in [(0.0, 1), (0.2499, 1), (0.25, 3), (0.7499, 3), (0.75, 4), (1 - 2**-53, 4)]:
        assert TORCH.draw(probabilities, torch.tensor(uniform, dtype=torch.float64)) == token


def test_coins_of_a_position_depend_on_seed_and_position_alone() -> None:
    """Law 4: same coins."""
    table = uniforms(5, 0, 300)
    assert torch.equal(uniforms(5, 100, 120), table[100:120])
    assert torch.equal(uniforms(5, 0, 1000)[:300], table)
    assert not torch.equal(uniforms(6, 0, 300), table)
    assert table.min() >= 0
    assert table.max() < 1


def test_coins_are_those_of_every_version() -> None:
    """Law 4: saved traces must be reproducible: the table is part of the format."""
    assert uniforms(0, 0, 1).tolist() == [[0.6369616873214543, 0.2697867137638703, 0.04097352393619469]]


def test_temperature_0_is_one_hot_at_the_first_argmax() -> None:
    logits = torch.tensor([[1.0, 3.0, 3.0, 0.0]])
    assert distribution(logits, 0).tolist() == [[0, 1, 0, 0]]
    mixed = distribution(logits.expand(2, -1), torch.tensor([0.0, 1.0]))
    assert mixed[0].tolist() == [0, 1, 0, 0]
    assert torch.equal(mixed[1], distribution(logits[0]))


@pytest.mark.parametrize("settings", [{"min_p": 0.02}, {"top_p": 0.9}, {"top_k": 40, "min_p": 0.1}])
def test_settings_of_others_in_the_batch_leave_the_bits(settings: dict[str, float]) -> None:
    """Law 3, for top-k, top-p and min-p together: each distribution is the one its settings alone give."""
    logits = 3 * torch.randn(3, 1, 5000, generator=torch.Generator().manual_seed(5))
    others = {"top_k": 0.0, "top_p": 1.0, "min_p": 0.0}
    columns = {
        name: torch.tensor(
            [[float(settings.get(name, none))], [{"top_k": 9.0, "top_p": 0.5, "min_p": 0.2}[name]], [none]],
            dtype=torch.float64,
        )
        for name, none in others.items()
    }
    together = distribution(logits, 1.0, **columns)
    assert torch.equal(together[0], distribution(logits[0], 1.0, **settings))
    assert torch.equal(together[2], distribution(logits[2], 1.0))


def test_truncation_agrees_with_transformers() -> None:
    """Top-p is of what top-k left, min-p of what both left."""
    logits = torch.randn(6, 500, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for temperature, k, p, least in [
        (0.7, 40, 0.9, 0.0),
        (1.3, 7, 0.5, 0.6),
        (1.0, 500, 0.95, 0.1),
        (2.0, 9, 1e-9, 1.0),
    ]:
        scores = TemperatureLogitsWarper(temperature)(None, logits)
        for warper in (TopKLogitsWarper(k), TopPLogitsWarper(p), MinPLogitsWarper(least)):
            scores = warper(None, scores)
        ours = distribution(logits, temperature, k, p, least)
        assert (ours - scores.softmax(-1)).abs().max() < 1e-12


@pytest.mark.parametrize("size", [16, 4096])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ties_at_the_edge_fall_as_in_transformers(size: int, dtype: torch.dtype) -> None:
    """Top-k keeps all that tie with the k-th, top-p the highest ids of a tie; whether all tokens are sorted or the leading ones."""
    levels = torch.randint(-2, 3, (8, size), generator=torch.Generator().manual_seed(3)).to(dtype)
    for k in (1, 5, 15, 2 * size):
        kept = TopKLogitsWarper(k)(None, levels) > -torch.inf
        assert torch.equal(distribution(levels, 1.0, k) > 0, kept)
    even = torch.zeros(1, size, dtype=dtype)  # sums of equal powers of two have no rounding
    for p in (0.25, 0.5, 0.75) if size == 16 else ():  # of a large vocabulary its sort is not stable
        kept = TopPLogitsWarper(p)(None, even) > -torch.inf
        assert torch.equal(distribution(even, 1.0, 0, p) > 0, kept)
    few = torch.full((1, size), -torch.inf, dtype=dtype)
    few[0, 2:6] = 0
    assert distribution(few, 1.0, 0, 0.5)[0].nonzero().flatten().tolist() == [4, 5]


@pytest.mark.parametrize("settings", [{"top_p": 0.9}, {"top_k": 40}, {"top_k": 300, "top_p": 0.8}])
def test_truncation_by_the_leading_tokens_is_the_one_by_sorting_all(
    settings: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Peaked, flat and tied distributions: those whose leading tokens do not suffice are sorted after all."""
    logits = torch.randn(8, 5000, generator=torch.Generator().manual_seed(2))
    logits *= torch.tensor([0.0, 0.1, 0.5, 1.0, 2.0, 3.0, 5.0, 9.0])[:, None]
    logits[3:5] = logits[3:5].round()
    quick = distribution(logits, **settings)
    monkeypatch.setattr("specviz.core.sampling._LEADING", 5000)
    assert torch.equal(quick, distribution(logits, **settings))


@pytest.mark.parametrize("backend", [TORCH, compiled_backend() or TORCH], ids=["torch", "compiled"])
@pytest.mark.parametrize("settings", [{}, {"temperature": 0.7}, {"top_p": 0.9}, {"top_k": 40, "top_p": 0.9}])
def test_a_distribution_has_the_same_bits_whatever_is_beside_it(settings: dict, backend: Backend) -> None:
    """Laws 2 and 3: draft-length invariance and batch invariance."""
    logits = 3 * torch.randn(4, VOCABULARY, generator=torch.Generator().manual_seed(3))
    found = []
    before = torch.get_num_threads()
    try:
        for threads in THREADS:
            torch.set_num_threads(threads)
            for count in (1, 2, 4):
                probabilities = distribution(logits[None, :count], **settings, backend=backend)
                coins = torch.full((1, count), 0.4, dtype=torch.float64)
                token = backend.draw(probabilities, coins)
                found.append((probabilities[0, 0], total(probabilities)[0, 0], token[0, 0]))
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


def test_half_precision_is_computed_in_float32() -> None:
    assert distribution(torch.zeros(2, 4, dtype=torch.bfloat16)).dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_draw_in_two_steps_is_the_draw(dtype: torch.dtype) -> None:
    """Many empty tokens, whole empty blocks, a last block that is not full, and coins at both ends."""
    torch.manual_seed(0)
    q = torch.rand(6, 40, 3000, dtype=dtype) ** 20 * (torch.rand(6, 40, 3000) < 0.02)
    q[0, :, :1500] = 0
    q[..., 7] += 1e-3
    uniform = torch.rand(6, 40, dtype=torch.float64)
    uniform[1], uniform[2] = 0.0, 1 - 2**-53
    found, expected = draw_in_two_steps(q, uniform), TORCH.draw(q, uniform)
    # At the very end the last bits of a sum decide among tokens of nearly no probability.
    rest = [0, 1, 3, 4, 5]
    assert torch.equal(found[rest], expected[rest])
    assert bool((q.gather(-1, found[..., None]) > 0).all())


def test_the_reference_ends_with_the_text_and_always_draws_a_possible_token() -> None:
    logits = torch.tensor([0.0, 3.0, 1.0])
    decisions = generate(
        lambda _: logits, lambda _: logits, [0], method="verifier_only", lenience=0.0, temperature=0.0, seed=0,
        max_new_tokens=5, eos_token_ids={1},
    )  # fmt: skip
    assert [each.token for each in decisions] == [1]
    assert inverse_cdf(torch.tensor([0.5, 0.5 - 1e-9, 0.0]), 1 - 2**-53) == 1, "rounding leaves less than 1"
