"""Fused drafting: the draft tokens, distributions and logits of passes one by one, and where a slot's draft ends."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import Tensor

from specviz.core.backend import backend_for
from specviz.core.sampling import confidence, distribution
from specviz.runtime.runner import Drafting, Runner
from tests.support.checkpoints import fused, published

LENGTH, KNOWN, PROMPT, MOST = 90, 203, 20, 4


def runners(slots: int, vocabulary: int) -> tuple[Runner, Runner, Tensor]:
    """Two runners of one model that have read the same prompts, and the token that follows each."""
    model = fused(published("llama", "Q8_0"))
    if vocabulary > KNOWN:  # of which it knows every other token
        reads = np.arange(vocabulary) // 2 % KNOWN
        model = dataclasses.replace(model, kept=2 * torch.arange(KNOWN), reads=reads)
    prompts = torch.randint(200, (slots, PROMPT + 1), generator=torch.Generator().manual_seed(0))
    both = model.runner(vocabulary), model.runner(vocabulary)
    for runner in both:
        runner.admit(list(range(slots)), LENGTH)
        runner.read(prompts[:, :PROMPT], torch.arange(PROMPT).expand(slots, -1), visible=PROMPT)
    return *both, prompts[:, PROMPT]


@pytest.mark.parametrize(
    ("slots", "vocabulary", "thresholds"), [(3, 203, None), (3, 500, (0.0, 0.02, 1.0)), (70, 500, None)]
)
def test_fused_drafting_draws_what_passes_one_by_one_draw(
    slots: int, vocabulary: int, thresholds: tuple[float, ...] | None
) -> None:
    """To the bit. Every slot drafts as many tokens as it is asked for, up to the first one below its own threshold."""
    together, apart, first = runners(slots, vocabulary)
    backend = backend_for(together.device, torch.float32)
    generator = torch.Generator().manual_seed(slots)
    uniforms = torch.rand(slots, MOST, dtype=torch.float64, generator=generator)
    temperatures = torch.tensor([0.0, 0.7, 1.0, 1.0], dtype=torch.float64).repeat(slots)[:slots, None]
    asked = [slot // 3 % MOST + 1 for slot in range(slots)]
    own = None if thresholds is None else [thresholds[slot % 3] for slot in range(slots)]
    tokens = torch.zeros(slots, 1 + MOST, dtype=torch.long)
    tokens[:, 0] = first
    expected, lengths = tokens.clone(), list(asked)
    given = Drafting(tokens, asked, [PROMPT] * slots, temperatures, uniforms, True, own)
    drafted, q, logits = together.draft(given)
    assert logits is not None
    for step in range(max(asked)):
        drawing = [step < length for length in lengths]
        if not any(drawing):
            break
        valid, positions = torch.tensor(drawing)[:, None], torch.full((slots, 1), PROMPT + step)
        ours = apart.forward(expected[:, step : step + 1], positions, visible=PROMPT + 1 + step, valid=valid)
        theirs = distribution(ours, temperatures, backend=backend)
        drawn = backend.draw(theirs, uniforms[:, step : step + 1])
        sure = confidence(ours, temperatures, theirs, drawn, backend).tolist()
        for slot in range(slots):
            if drawing[slot]:
                expected[slot, step + 1] = drawn[slot, 0]
                assert torch.equal(q[slot, step], theirs[slot, 0])
                assert torch.equal(logits[slot, step], ours[slot, 0])
                if own is not None and sure[slot] < own[slot]:
                    lengths[slot] = step + 1
    assert drafted == lengths
    assert torch.equal(tokens, expected)
