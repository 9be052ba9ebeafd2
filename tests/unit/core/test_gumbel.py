"""Gumbel coupling: the joint law of two draws with one noise, against both marginals and against draws."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from specviz.analysis.audit import examine
from specviz.core import gumbel
from specviz.core.sampling import distribution

V = 7


def pair(seed: int, temperature: float, top_k: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    drafter = 2 * torch.randn(V, generator=generator, dtype=torch.float64)
    verifier = 0.6 * drafter + 2 * torch.randn(V, generator=generator, dtype=torch.float64)
    return distribution(drafter, temperature), distribution(verifier, temperature, top_k)


def joint(q: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    """The probability of each pair of a draw from q and one from p, [V, V]."""
    coupling = gumbel.Coupling(q.expand(V, -1), p.expand(V, -1))
    rows, same = coupling.instead(torch.arange(V)), coupling.acceptance(torch.arange(V))
    return q[:, None] * rows + torch.diag(q * same)


@pytest.mark.parametrize("top_k", [0, 3])
@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0, 1.6])
def test_the_joint_law_has_both_marginals_and_the_paper_s_bound(temperature: float, top_k: int) -> None:
    for seed in range(8):
        q, p = pair(seed, temperature, top_k)
        law = joint(q, p)
        assert law.min() >= 0
        assert (law.sum(1) - q).abs().max() <= 1e-12
        assert (law.sum(0) - p).abs().max() <= 1e-12
        apart = (q - p).clamp_min(0).sum()
        assert law.trace() >= (1 - apart) / (1 + apart) - 1e-12


def test_draws_follow_the_joint_law_and_the_uniform_says_whether_they_agree() -> None:
    count = 50_000
    q, p = pair(3, 1.0, 5)
    noise = torch.from_numpy(gumbel.noise(np.random.default_rng(0).random(count), V))
    drafted, own = (gumbel.draw(each.expand(count, -1), noise) for each in (q, p))
    counts = np.zeros((V, V), np.int64)
    np.add.at(counts, (drafted.numpy(), own.numpy()), 1)
    law = joint(q, p).numpy()
    law[law < 1e-15] = 0
    assert not examine(counts, law).departs
    coupling = gumbel.Coupling(q.expand(count, -1), p.expand(count, -1))
    uniforms, acceptance = coupling.uniforms(drafted, noise), coupling.acceptance(drafted)
    assert torch.equal(uniforms < acceptance, drafted == own)
    assert 0.1 < (acceptance < 1).double().mean() < 1
    tenths = torch.histc(uniforms[acceptance < 1], 10, 0, 1).numpy().astype(np.int64)
    assert not examine(tenths, np.full(10, 0.1)).departs


def test_noise_depends_on_its_own_uniform_alone() -> None:
    """Laws 2 and 3."""
    uniforms = np.random.default_rng(1).random((2, 3))
    whole = gumbel.noise(uniforms, V)
    assert np.array_equal(whole[1, 2], gumbel.noise(uniforms[1, 2:], V)[0])
    assert whole.min() > 0
