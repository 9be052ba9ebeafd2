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
from specviz.engine.sequence import Sequence
from specviz.runtime.runner import Drafting, Runner

THRESHOLD = 0.3
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
    is_plain = all(each.draft_sampling == SamplingParameters() for each in sequences)
    keeps_logits = any(
        each.request.return_logits or (not is_plain and ("q1" in each.method.reads or each.request.inspect))
        for each in sequences
    )
    thresholds = [THRESHOLD if each.chooses_draft_length else 0.0 for each in sequences]
    # On other devices the host would wait for each confidence.
    ends_early = (
        device.type == target.type == "cpu" and plan.found is None and any(thresholds) and max(lengths) > 1
    )
    task = _Task(
        sequences,
        lengths,
        inputs.on(device, tokens),
        inputs.uniforms(device, sequences, DRAFT, max(lengths)),
        inputs.sampling(device, [each.draft_sampling for each in sequences]),
        keeps_logits,
        thresholds if ends_early else None,
    )
    is_fused = drafter.is_fused and not any(
        each.repetition_penalty != 1 or each.banned or each.draft_sampling.truncates or each in plan.noise
        for each in sequences
    )
    # What is found in the text stays one-hot, whatever is penalised or truncated.
    if is_fused or plan.found is not None:
        return _fused(task, drafter).to(target)
    return _by_steps(task, plan, drafter, backend).to(target)


@dataclass(frozen=True)
class _Task:
    """What drafting needs, in the order of the drafter's slots [D]."""

    sequences: list[Sequence]
    lengths: list[int]  # K of each
    tokens: Tensor  # int64 [D, 1 + K]: last tokens, and 0 for each draft token, or the one that was looked up
    uniforms: Tensor  # float64 [D, K]
    sampling: SamplingParameters
    keeps_logits: bool  # a request returns the drafter's logits, or q1 may be computed from them
    thresholds: list[float] | None  # confidence below which a draft ends; None where none ends early

    @property
    def positions(self) -> list[int]:
        """Of the last tokens."""
        return [each.position for each in self.sequences]


def _fused(task: _Task, drafter: Runner) -> Drafted:
    shape = len(task.lengths), max(task.lengths), drafter.vocabulary_size
    q = drafter.buffer("q", *shape)
    logits = drafter.buffer("logits", *shape) if task.keeps_logits else None
    drafting = Drafting(
        task.tokens,
        q,
        task.lengths,
        task.positions,
        task.sampling.temperature,
        task.uniforms,
        logits,
        task.thresholds,
    )
    lengths = drafter.draft(drafting)
    return Drafted(lengths, inputs.on(drafter.device, lengths), task.tokens, q, logits)


def _by_steps(task: _Task, plan: Plan, drafter: Runner, backend: Backend) -> Drafted:
    device, lengths, tokens = drafter.device, list(task.lengths), task.tokens
    counts, positions = inputs.on(device, lengths), inputs.on(device, task.positions)[:, None]
    penalty, banned = inputs.penalty(device, task.sequences), inputs.banned(device, task.sequences)
    coupled = [row for row, each in enumerate(task.sequences) if each in plan.noise]
    noise = [inputs.on(device, plan.noise[task.sequences[row]]) for row in coupled]
    all_q: Tensor | None = None
    all_logits: Tensor | None = None
    step = 0
    while step < max(lengths):
        needed = None if step < min(lengths) else counts[:, None] > step
        last = zip(task.positions, lengths, strict=True)
        visible = 1 + max(position + min(step, length - 1) for position, length in last)
        own = slice(step, step + 1)
        logits = drafter.forward(tokens[:, own], positions + step, visible=visible, valid=needed)
        logits = ban(penalise(logits, penalty, tokens[:, 1:], step), banned)
        if all_q is None:
            shape = len(lengths), max(lengths), logits.shape[-1]
            all_q = logits.new_empty(shape, dtype=torch.promote_types(logits.dtype, torch.float32))
            all_logits = logits.new_empty(shape) if task.keeps_logits else None
        q = distribution(logits, *task.sampling, out=all_q[:, own], backend=backend)
        drawn = backend.draw(q, task.uniforms[:, own])
        for row, exponentials in zip(coupled, noise, strict=True):
            drawn[row] = gumbel.draw(q[row], exponentials[own])
        step += 1
        tokens[:, step : step + 1] = drawn
        if all_logits is not None:
            all_logits[:, own] = logits
        if task.thresholds is not None:
            found = confidence(logits, task.sampling.temperature, q, drawn, backend).tolist()
            for row, (value, threshold) in enumerate(zip(found, task.thresholds, strict=True)):
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
