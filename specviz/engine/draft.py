"""Drafting: draw each sequence's draft tokens from the drafter, in one call or step by step. Knows the drafter's runner alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specviz.core import gumbel
from specviz.core.backend import Backend
from specviz.core.sampling import DRAFT, SamplingParameters, confidence, distribution, penalise
from specviz.engine import inputs
from specviz.engine.plan import Plan
from specviz.runtime.runner import Drafting, Runner

THRESHOLD = 0.2
"""A draft whose length is left to the engine ends after a token of lower confidence."""


@dataclass(frozen=True)
class Drafted:
    """Draft tokens in the order of the plan's drafter slots [D]; values beyond a sequence's draft length are undefined."""

    lengths: list[int]  # draft tokens of each sequence, on the host
    counts: Tensor  # the same on the device, [D]
    tokens: Tensor  # each sequence's last token and its draft tokens, [D, 1 + K or more]
    q: Tensor  # [D, K or more, V]
    logits: Tensor | None  # the drafter's, shaped as `q`; None if they are not kept

    def to(self, device: torch.device) -> Drafted:
        """The same on another device."""
        moved: Any = {
            name: value.to(device) for name, value in vars(self).items() if isinstance(value, Tensor)
        }
        return replace(self, **moved)


def draft(plan: Plan, drafter: Runner, target: torch.device, backend: Backend) -> Drafted:
    """Draw each sequence's draft tokens: K of them, or fewer if one of low confidence ends the draft. They are moved to a device."""
    sequences, device = list(plan.drafter_slots), drafter.device
    lengths = [plan.lengths[each] for each in sequences]
    tokens = np.zeros((len(sequences), 1 + max(lengths)), np.int64)
    for row, each in enumerate(sequences):
        tokens[row, 0] = each.ids[-1]
        if plan.found is not None:
            tokens[row, 1 : 1 + lengths[row]] = plan.found[each]
    keeps_logits = any(  # rules and what-ifs may read q1, which is q where sampling is plain
        each.request.return_logits or each.draft_sampling != SamplingParameters() for each in sequences
    )
    sampling = inputs.sampling(device, [each.draft_sampling for each in sequences])
    thresholds = [THRESHOLD if each.chooses_draft_length else 0.0 for each in sequences]
    # On other devices the host would wait for each confidence.
    ends_early = (
        device.type == target.type == "cpu" and plan.found is None and any(thresholds) and max(lengths) > 1
    )
    given = Drafting(
        inputs.on(device, tokens),
        lengths,
        [each.position for each in sequences],
        sampling.temperature,
        inputs.uniforms(device, sequences, DRAFT, max(lengths)),
        keeps_logits,
        thresholds if ends_early else None,
    )
    is_fused = drafter.is_fused and not any(
        each.repetition_penalty != 1 or each.banned or each.draft_sampling.truncates or each in plan.noise
        for each in sequences
    )
    # What is found in the text stays one-hot, whatever is penalised or truncated.
    if is_fused or plan.found is not None:
        lengths, q, logits = drafter.draft(given)
        drafted = Drafted(lengths, inputs.on(device, lengths), given.tokens, q, logits)
    else:
        drafted = _by_steps(given, plan, sampling, drafter, backend)
    return drafted if device == target else drafted.to(target)


def _by_steps(
    given: Drafting, plan: Plan, sampling: SamplingParameters, drafter: Runner, backend: Backend
) -> Drafted:
    sequences, device = list(plan.drafter_slots), drafter.device
    lengths, tokens = list(given.lengths), given.tokens
    counts, positions = inputs.on(device, lengths), inputs.on(device, given.positions)[:, None]
    penalty, banned = inputs.penalty(device, sequences), inputs.banned(device, sequences)
    coupled = [row for row, each in enumerate(sequences) if each in plan.noise]
    noise = [inputs.on(device, plan.noise[sequences[row]]) for row in coupled]
    all_q: Tensor | None = None
    all_logits: Tensor | None = None
    step = 0
    while step < max(lengths):
        needed = None if step < min(lengths) else counts[:, None] > step
        last = zip(given.positions, lengths, strict=True)
        visible = 1 + max(position + min(step, length - 1) for position, length in last)
        own = slice(step, step + 1)
        logits = drafter.forward(tokens[:, own], positions + step, visible=visible, valid=needed)
        logits = ban(penalise(logits, penalty, tokens[:, 1:], step), banned)
        if all_q is None:
            shape = len(lengths), max(lengths), logits.shape[-1]
            all_q = logits.new_empty(shape, dtype=torch.promote_types(logits.dtype, torch.float32))
            all_logits = logits.new_empty(shape) if given.keeps_logits else None
        q = distribution(logits, *sampling, out=all_q[:, own], backend=backend)
        drawn = backend.draw(q, given.uniforms[:, own])
        for row, exponentials in zip(coupled, noise, strict=True):
            drawn[row] = gumbel.draw(q[row], exponentials[own])
        step += 1
        tokens[:, step : step + 1] = drawn
        if all_logits is not None:
            all_logits[:, own] = logits
        if given.thresholds is not None:
            found = confidence(logits, given.temperature, q, drawn, backend).tolist()
            for row, (value, threshold) in enumerate(zip(found, given.thresholds, strict=True)):
                lengths[row] = min(lengths[row], step) if value < threshold else lengths[row]
            counts = torch.tensor(lengths)
    assert all_q is not None
    return Drafted(lengths, counts, tokens, all_q, all_logits)


def ban(logits: Tensor, banned: Tensor | None) -> Tensor:
    """Set logits [B, n, V] of banned tokens to −inf, in place; `banned` [m, 2] are pairs of row and token id."""
    if banned is not None:
        rows, tokens = banned.unbind(1)
        logits.transpose(1, 2)[rows, tokens] = -math.inf
    return logits
