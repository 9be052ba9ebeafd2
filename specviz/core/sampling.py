"""From logits to tokens: distributions, seeded uniforms, inverse-CDF draws.

A draw depends only on its weights and a uniform, which depends only on the request's seed and the absolute position (laws 2 to 4).
Draws with shared noise are in `gumbel`. Knows no method, no model and no request.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from specviz.core.backend import TORCH, Backend, total

Number = float | Tensor
"""A setting: one number for the whole batch, or a tensor [...] with one value for each distribution [..., V]."""

_LEADING = 256
"""For top-k and top-p, try this many most probable tokens before sorting the whole vocabulary."""

LARGEST = 1e30
"""The largest setting in a computation: float32 can hold its products with logits and probabilities, and its inverse."""
LEAST_TEMPERATURE = 1e-20
"""Temperatures up to this are greedy: float32 cannot hold logits divided by much less."""
MOST_TOKENS = 2**31 - 1
"""No vocabulary has more tokens: this top-k keeps all."""

DRAFT, ACCEPT, RESAMPLE = range(3)
"""Columns of the table of uniforms: for the drafter's draw, the acceptance, and the draw from the residual or from p."""


class SamplingParameters(NamedTuple):
    """Settings that turn logits into a request's distribution: arguments of `distribution`, each a number or a tensor [...]."""

    temperature: Number = 1.0
    top_k: Number = 0
    top_p: Number = 1.0
    min_p: Number = 0.0

    def computable(self) -> SamplingParameters:
        """The settings bounded to what float32 can compute, which changes no distribution. Only for plain numbers."""
        temperature = min(self.temperature, LARGEST) if self.temperature > LEAST_TEMPERATURE else 0
        return self._replace(temperature=temperature, top_k=min(self.top_k, MOST_TOKENS))

    def with_min_p(self, least: Number) -> SamplingParameters:
        """The same settings with a min-p of at least `least`."""
        own, other = (self.min_p, least) if isinstance(self.min_p, Tensor) else (least, self.min_p)
        return self._replace(min_p=own.clamp_min(other) if isinstance(own, Tensor) else max(own, other))

    @property
    def truncates(self) -> bool:
        """Whether tokens are cut off; only for plain numbers."""
        return self[1:] != SamplingParameters()[1:]


GREEDY = SamplingParameters(temperature=0)


def bounded(setting: float) -> float:
    """An unbounded setting clamped to ±`LARGEST`, so that float32 can compute with it."""
    return max(-LARGEST, min(setting, LARGEST))


class Penalty(NamedTuple):
    """Repetition penalties of rows [B] of logits, and the tokens they apply to.

    Attributes:
        strength: > 0, 1 is off; [B, 1].
        seen: ids in each row's prompt and text so far; padding repeats one of these ids, [B, n].
    """

    strength: Tensor
    seen: Tensor


def column(setting: Number) -> Number:
    """Make a setting broadcast over a vocabulary: a tensor [...] becomes [..., 1]."""
    return setting.unsqueeze(-1) if isinstance(setting, Tensor) else setting


def tensor(setting: Number, like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """A setting as a tensor with `like`'s device and dtype. Only this rounds settings: a number and a tensor of it give the same bits."""
    if isinstance(setting, Tensor):
        return setting.to(like.device, dtype or like.dtype)
    return _constant(setting, like.device, dtype or like.dtype)


@lru_cache(1024)
def _constant(value: float, device: torch.device, dtype: torch.dtype) -> Tensor:
    return torch.full((), value, dtype=dtype, device=device)  # a copy would make the host wait for a GPU


@lru_cache
def steps(count: int, device: torch.device) -> Tensor:
    """0, 1, … count − 1."""
    return torch.arange(count, device=device)


def at(values: Tensor, tokens: Tensor) -> Tensor:
    """The values [...] of `tokens` [...] in `values` [..., V]."""
    return values.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)


def of_tokens(values: Tensor, tokens: Tensor | None) -> Tensor:
    """The values [..., m] of `tokens` [..., m] in `values` [..., V]; all values if `tokens` is None."""
    return values if tokens is None else values.gather(-1, tokens)


def distribution(
    logits: Tensor,
    temperature: Number = 1.0,
    top_k: Number = 0,
    top_p: Number = 1.0,
    min_p: Number = 0.0,
    out: Tensor | None = None,
    backend: Backend = TORCH,
) -> Tensor:
    """Probabilities of `logits` [..., V] at a temperature, truncated to top-k, then top-p, then min-p.

    Args:
        logits: [..., V]; half precision is computed in float32.
        temperature: >= 0; at 0 the distribution is one-hot at the argmax (the first one on a tie).
        top_k: keep the k most probable tokens and all that tie with the k-th; 0 keeps all.
        top_p: in (0, 1]; keep the smallest set of most probable tokens whose mass reaches top_p, at least one; ties go to the
            highest ids; 1 keeps all.
        min_p: in [0, 1]; keep tokens with probability >= min_p × the top token's; 0 keeps all.
        out: where to write the result, [..., V].
    """
    if logits.dtype in (torch.float16, torch.bfloat16):
        logits = logits.float()
    probabilities = backend.softmax(logits, temperature, out)
    if isinstance(top_k, Tensor) or isinstance(top_p, Tensor) or top_k > 0 or top_p < 1:
        probabilities = _truncate(probabilities, top_k, top_p)
    if isinstance(min_p, Tensor) or min_p > 0:
        share = tensor(min_p, logits).unsqueeze(-1)
        kept = torch.where(probabilities >= share * probabilities.amax(-1, keepdim=True), probabilities, 0.0)
        # Rows without min-p keep their bits, whatever the settings of other rows (law 3).
        probabilities = torch.where(share > 0, kept / total(kept), probabilities)
    return probabilities if out is None or out is probabilities else out.copy_(probabilities)


def penalise(logits: Tensor, penalty: Penalty | None, drafts: Tensor, before: int | Tensor) -> Tensor:
    """Apply each row's repetition penalty to the tokens before each position: divide positive logits by it, multiply negative ones.

    Each token counts once, and a penalty of 1 changes no bit (law 3).

    Args:
        logits: [B, n, V]; changed in place, except in half precision: then a float32 copy is returned, as in transformers.
        penalty: None if no row has a penalty.
        drafts: each row's draft tokens, which follow the tokens of `penalty.seen`, [B, m].
        before: how many draft tokens precede each position: one number, or [B or 1, n].
    """
    if penalty is None:
        return logits
    if logits.dtype in (torch.float16, torch.bfloat16):
        logits = logits.float()
    strength, seen = penalty.strength.to(logits.dtype)[..., None], penalty.seen[:, None]
    # A seen token replaces draft tokens that do not precede the position: writing its value twice does no harm.
    follows = steps(drafts.shape[1], drafts.device) < column(before)
    drafted = torch.where(follows, drafts[:, None], seen[..., :1])
    shape = (*logits.shape[:2], -1)
    ids = torch.cat([seen.expand(shape), drafted.expand(shape)], -1)
    values = logits.gather(-1, ids)
    return logits.scatter_(-1, ids, torch.where(values < 0, values * strength, values / strength))


def _truncate(probabilities: Tensor, top_k: Number, top_p: Number) -> Tensor:
    """Zero tokens outside top-k, then outside top-p of what remains, and renormalise.

    Ties are decided as in transformers' warpers: top-k keeps all that tie with the k-th, top-p those with the highest ids (in
    transformers only where its sort is stable, as for small vocabularies).
    """
    flat = probabilities.reshape(-1, probabilities.shape[-1])
    settings = tensor(top_k, flat, torch.int64), tensor(top_p, flat)
    limit, bound = (
        each.unsqueeze(-1).expand(*probabilities.shape[:-1], 1).reshape(-1, 1) for each in settings
    )
    kept, complete = flat, torch.tensor(False)
    if flat.device.type == "cpu" and flat.shape[-1] > _LEADING:
        # Sorting a vocabulary takes a hundred times as long as finding its few most probable tokens.
        leading_ids = flat.topk(_LEADING).indices.sort(-1, descending=True).values
        kept, complete = _kept(flat, leading_ids, limit, bound)
    if not complete.all():
        every_id = torch.arange(flat.shape[-1] - 1, -1, -1, device=flat.device).expand_as(flat)
        kept, _ = _kept(flat, every_id, limit, bound)
    kept = torch.where(
        (limit > 0) | (bound < 1), kept / total(kept), flat
    )  # rows without either keep their bits
    return kept.view_as(probabilities)


def _kept(flat: Tensor, ids: Tensor, limit: Tensor, bound: Tensor) -> tuple[Tensor, Tensor]:
    """Truncate distributions [n, V] (top-k `limit`, top-p `bound`), looking only at the most probable tokens, `ids` [n, m], descending.

    Returns the kept probabilities [n, V], not renormalised, and bool [n]: False where a token outside `ids` could have
    been kept or could have changed the result.
    """
    ordered, order = torch.sort(flat.gather(-1, ids), dim=-1, descending=True, stable=True)
    rank = torch.arange(ids.shape[-1], device=ids.device)
    cumulative = ordered.cumsum(-1)
    kth = ordered.gather(-1, limit.clamp(1, len(rank)) - 1)
    leads = (ordered >= kth) | (limit <= 0)
    mass = cumulative.gather(-1, leads.sum(-1, keepdim=True).clamp_min(1) - 1)
    mass = torch.where(limit > 0, mass, total(flat))
    reaches = cumulative - ordered < bound * mass
    keep = leads & (reaches | (bound >= 1) | (rank == 0))
    kept = torch.zeros_like(flat).scatter_(-1, ids.gather(-1, order), torch.where(keep, ordered, 0.0))
    last, least = ordered.gather(-1, keep.sum(-1, keepdim=True).clamp_min(1) - 1), ordered[:, -1:]
    # Tokens outside `ids` are at most as probable as the least of `ids`. If that is 0 or below the deciding token's, they change nothing.
    decides = torch.where(limit > 0, kth, last)
    complete = (limit <= len(rank)) & ((decides > least) | (least == 0))
    return kept, complete.squeeze(-1)


def uniforms(seed: int, start: int, stop: int) -> Tensor:
    """The uniforms of positions start..stop-1 for a seed: float64 [stop - start, 3] in [0, 1); columns `DRAFT`, `ACCEPT`, `RESAMPLE`."""
    generator = np.random.Generator(np.random.PCG64(seed))
    return torch.from_numpy(generator.random((stop, 3))[start:])


def confidence(
    logits: Tensor, temperature: Number, q: Tensor, tokens: Tensor, backend: Backend = TORCH
) -> Tensor:
    """A model's confidence [B] in tokens [B, 1] drawn from its q [B, 1, V]: q(v), or q1(v) at temperature 0, where q is one-hot."""
    own = at(q, tokens)
    if isinstance(temperature, Tensor):
        own = torch.where(temperature > 0, own, at(distribution(logits, backend=backend), tokens))
    elif temperature == 0:
        own = at(distribution(logits, backend=backend), tokens)
    return own[:, 0]
