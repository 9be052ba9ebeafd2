"""The generator written down a second time, slowly and plainly: no cache, no block, one position after another.

Each position recomputes both models on the whole text. What the engine does in blocks must equal this.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from specviz.core.methods import METHODS, acceptance_and_residual, target_distribution
from specviz.core.sampling import ACCEPT, DRAFT, RESAMPLE, distribution, uniforms
from specviz.models.pairs import ModelPair


@dataclass
class Step:
    """What was decided at one position."""

    token: int
    accepted: bool
    draft: int | None
    acceptance: float | None
    coin: float | None
    q: float | None
    p: float | None
    pi: float


def pick(probabilities: torch.Tensor, uniform: float) -> int:
    """Inverse-CDF draw by walking along the vocabulary."""
    total = 0.0
    for token, probability in enumerate(probabilities.tolist()):
        total += probability
        if uniform < total:
            return token
    return int(probabilities.nonzero()[-1])


@torch.inference_mode()
def reference(
    pair: ModelPair, ids: list[int], method: str, lenience: float, temperature: float, seed: int, count: int
) -> list[Step]:
    """Up to `count` positions after `ids`, ending after an end-of-sequence token."""
    coins = uniforms(seed, 0, len(ids) + count)
    rule, steps, ids = METHODS[method], [], list(ids)

    def last(model: torch.nn.Module) -> torch.Tensor:
        return model(input_ids=torch.tensor([ids])).logits[0, -1, : pair.vocabulary_size]

    for _ in range(count):
        u = coins[len(ids)].tolist()
        drafter, verifier = last(pair.drafter), last(pair.verifier)
        q, p = distribution(drafter, temperature), distribution(verifier, temperature)
        pi = target_distribution(method, drafter, verifier, lenience=lenience, temperature=temperature)
        draft, acceptance = pick(q, u[DRAFT]), None
        if not rule.drafts:
            token, accepted, draft = pick(p, u[RESAMPLE]), False, None
        elif not rule.verifies:
            token, accepted = draft, True
        else:
            kept, residual = acceptance_and_residual(
                method, drafter, verifier, torch.tensor(draft), lenience=lenience, temperature=temperature
            )
            acceptance = kept.item()
            accepted = u[ACCEPT] < acceptance
            token = draft if accepted else pick(residual, u[RESAMPLE])
        steps.append(
            Step(
                token,
                accepted,
                None if accepted else draft,
                acceptance,
                None if acceptance is None else u[ACCEPT],
                q[token].item() if rule.drafts else None,
                p[token].item() if rule.verifies else None,
                pi[token].item(),
            )
        )
        ids.append(token)
        if token in pair.eos_token_ids:
            break
    return steps
