"""The generator in its plainest form: no cache, no draft of several tokens, no batch, one position after another.

At every position it runs both models on the whole text, draws one draft token from q, and accepts or resamples it. The engine,
with its longer drafts and its batches, must emit the same tokens (laws 2 and 3). The models are functions from token ids to
logits. Knows no pair, no request and no trace.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specviz.core import gumbel
from specviz.core.methods import get_method
from specviz.core.sampling import ACCEPT, DRAFT, GREEDY, RESAMPLE, SamplingParameters, distribution, uniforms
from specviz.core.target import target_under

NextLogits = Callable[[Sequence[int]], Tensor]
"""A model: token ids so far -> logits [V] of the next token."""


@dataclass(frozen=True)
class Decision:
    """What was decided at one position.

    Attributes:
        token: the id that was emitted.
        accepted: whether the token was drafted and accepted; otherwise it was resampled, or drawn by the verifier alone.
        draft: the draft token that was rejected here, if any.
        acceptance, coin: the draft token is accepted if coin < acceptance; None if there is no draft token to examine. The coin of
            a method that `matches` is computed from the verifier's own draw.
        q, p, pi: the emitted token's probability under drafter, verifier and target; None for a model that does not run.
    """

    token: int
    accepted: bool
    draft: int | None
    acceptance: float | None
    coin: float | None
    q: float | None
    p: float | None
    pi: float


def generate(
    drafter: NextLogits,
    verifier: NextLogits,
    prompt: Sequence[int],
    *,
    method: str,
    lenience: float,
    temperature: float,
    seed: int,
    max_new_tokens: int,
    eos_token_ids: Collection[int] = (),
    repetition_penalty: float = 1.0,
    greedy_drafts: bool = False,
) -> Iterator[Decision]:
    """Yield one decision per position, up to `max_new_tokens` or the first end-of-sequence token.

    Raises:
        RequestError: unknown method.
    """
    ids = list(prompt)
    coins = uniforms(seed, 0, len(ids) + max_new_tokens)
    chosen = get_method(method)
    greedy_drafts |= chosen.greedy_drafts
    sampling = chosen.sampling(SamplingParameters(temperature), lenience)
    for _ in range(max_new_tokens):
        coin = coins[len(ids)].tolist()
        logits = (
            _penalised(drafter(ids), ids, repetition_penalty),
            _penalised(verifier(ids), ids, repetition_penalty),
        )
        q = distribution(logits[0], *(GREEDY if greedy_drafts else sampling))
        p = distribution(logits[1], *sampling)
        target = target_under(chosen, *logits, SamplingParameters(temperature), lenience, greedy_drafts)
        pi = target.pi()
        acceptance, draft, own = None, inverse_cdf(q, coin[DRAFT]), inverse_cdf(p, coin[RESAMPLE])
        if chosen.shares_noise:
            noise = torch.from_numpy(gumbel.noise(coins[len(ids), RESAMPLE].numpy(), len(p)))
            draft, own = (int(gumbel.draw(each, noise)) for each in (q, p))
        if not chosen.drafts:
            token, accepted = own, False
        elif not chosen.verifies:
            token, accepted = draft, True
        else:
            proposed = torch.tensor(draft)
            acceptance, residual = target.acceptance(proposed).item(), target.residual(proposed)
            if chosen.matches:
                token, accepted = own, own == draft
                coin[ACCEPT] = (coin[RESAMPLE] - p[:draft].sum().item()) % 1.0
                if chosen.shares_noise:
                    coin[ACCEPT] = gumbel.Coupling(q, p).uniforms(torch.tensor(draft), noise).item()
            else:
                accepted = coin[ACCEPT] < acceptance
                token = draft if accepted else inverse_cdf(residual, coin[RESAMPLE])
        yield Decision(
            token,
            accepted,
            None if accepted or not chosen.drafts else draft,
            acceptance,
            None if acceptance is None else coin[ACCEPT],
            q[token].item() if chosen.drafts else None,
            p[token].item() if chosen.verifies else None,
            pi[token].item(),
        )
        ids.append(token)
        if token in eos_token_ids:
            return


def _penalised(logits: Tensor, ids: Sequence[int], penalty: float) -> Tensor:
    """A copy of logits [V] with a repetition penalty on the tokens in `ids`, which divides positive logits and multiplies negative ones."""
    changed = logits.clone()
    for token in set(ids):
        changed[token] = logits[token] * penalty if logits[token] < 0 else logits[token] / penalty
    return changed


def inverse_cdf(probabilities: Tensor, uniform: float) -> int:
    """Draw from probabilities [V] by walking along the vocabulary: the first token whose cumulative mass exceeds `uniform`."""
    cumulative = 0.0
    for token, probability in enumerate(probabilities.tolist()):
        cumulative += probability
        if uniform < cumulative:
            return token
    return int(probabilities.nonzero()[-1])
