"""Block verification, enumerated: every block that can be drafted, and every number of its tokens that can be kept."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from specviz.core import block
from specviz.core.sampling import distribution

WORDS = 3


class Chain:
    """Random distributions of both models after every beginning of a text."""

    def __init__(self, length: int, seed: int, temperature: float, likeness: float) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.q, self.p = {}, {}
        for count in range(length):
            for text in product(range(WORDS), repeat=count):
                own, other = 2 * torch.randn(2, WORDS, generator=generator, dtype=torch.float64)
                self.q[text] = distribution(own, temperature)
                self.p[text] = distribution(likeness * own + (1 - likeness) * other, temperature)

    def along(self, text: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """q and p at each position of a text, and its tokens."""
        parts = [text[:count] for count in range(len(text))]
        q, p = (torch.stack([each[part] for part in parts]) for each in (self.q, self.p))
        return q, p, torch.tensor(text)

    def written(self, text: tuple[int, ...], since: int = 0) -> float:
        """The probability that the verifier writes a text after its first tokens."""
        return float(
            torch.stack(
                [self.p[text[:at]][text[at]] for at in range(since, len(text))] or [torch.ones(())]
            ).prod()
        )


def outcomes(chances: torch.Tensor) -> list[float]:
    """The probability that 0, 1, … K tokens are kept: those up to the last coin below its chance."""
    found, later = [], 1.0
    for chance in reversed(chances.tolist()):
        found.append(later * chance)
        later *= 1 - chance
    return [later, *reversed(found)]


CHAINS = [(0, 1.0, 0.0), (1, 0.7, 0.5), (2, 1.6, 0.9), (3, 1.0, 1.0), (4, 0.0, 0.5)]


@pytest.mark.parametrize(("seed", "temperature", "likeness"), CHAINS)
@pytest.mark.parametrize("length", [1, 2, 3])
def test_what_is_written_has_the_verifiers_distribution(
    length: int, seed: int, temperature: float, likeness: float
) -> None:
    """Law 1, and the theorem of the paper: no fewer tokens are kept on average than by the token rule."""
    chain = Chain(length, seed, temperature, likeness)
    written = dict.fromkeys(product(range(WORDS), repeat=length), 0.0)
    kept, kept_by_tokens = 0.0, 0.0
    for drafted in written:
        q, p, tokens = chain.along(drafted)
        drawn = q.gather(-1, tokens[:, None]).prod().item()
        if drawn == 0:
            continue
        ratios = (p / q).gather(-1, tokens[:, None])[:, 0].clamp_max(1)
        kept_by_tokens += drawn * ratios.cumprod(0).sum().item()
        left = block.residuals(block.prefix_weights(q, p, tokens), q, p)
        for count, share in enumerate(outcomes(block.acceptance(q, p, tokens))):
            kept += drawn * share * count
            if count == length:
                written[drafted] += drawn * share
                continue
            follows = left[count] / left[count].sum().clamp_min(1e-300)
            for rest in product(range(WORDS), repeat=length - count):
                text = drafted[:count] + rest
                written[text] += drawn * share * follows[rest[0]].item() * chain.written(text, count + 1)
    for text, probability in written.items():
        assert probability == pytest.approx(chain.written(text), abs=1e-12)
    assert kept >= kept_by_tokens - 1e-12
    if length > 1 and 0 < likeness < 1 and temperature > 0:
        assert kept > kept_by_tokens + 1e-4


def test_the_last_coin_that_passes_decides() -> None:
    """A block of the paper's example: q and p over two words, the same at every position."""
    q, p = (torch.tensor([pair] * 2, dtype=torch.float64) for pair in ([2 / 3, 1 / 3], [1 / 3, 2 / 3]))
    tokens = torch.tensor([0, 1])
    assert block.acceptance(q, p, tokens).tolist() == pytest.approx([0.0, 1.0])
    assert block.kept(q, p, tokens, torch.tensor([0.9, 0.9])) == 2  # the token rule keeps none
    assert block.kept(q, p, torch.tensor([0, 0]), torch.tensor([0.9, 0.9])) == 0
    assert block.kept(q, p, torch.tensor([1, 0]), torch.tensor([0.9, 0.9])) == 1
