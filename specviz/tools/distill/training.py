"""Training of a student on its teacher's next-token distributions: optimizer steps and checkpoints."""

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel

from specviz.models.checkpoint import BLOCK
from specviz.progress import Progress
from specviz.tools.distill.batches import Batches, hidden_states, logits
from specviz.tools.distill.settings import DistillationSettings

_CHECKPOINT_SECONDS = 120.0
_TEMPERATURES = (1.0, 0.7, 1.0, 0.5)
"""Temperatures of the steps, used in turn."""
_WARM_UP_STEPS = 50
_ROUNDED_FROM = 0.6
"""In training on skills, weights are rounded after this share of the steps."""
_REPORTED_STEPS = 50
"""Number of steps over which reported agreements are averaged."""


class Training:
    """Trains `student` and keeps a checkpoint in `directory`."""

    def __init__(
        self, settings: DistillationSettings, directory: Path, student: Any, batches: Batches
    ) -> None:
        self._settings, self._batches = settings, batches
        self._student = student.to(batches.device).train()
        self._average = AveragedModel(student, avg_fn=_running_mean)
        matrices = [p for p in student.parameters() if p.dim() > 1]
        vectors = [p for p in student.parameters() if p.dim() <= 1]
        groups = [{"params": matrices, "weight_decay": 0.01}, {"params": vectors, "weight_decay": 0.0}]
        self._optimizer = torch.optim.AdamW(groups, settings.learning_rate, betas=(0.9, 0.95), fused=True)
        self._rounds = [p for p in matrices if p.shape[-1] % BLOCK == 0] if settings.four_bits else []
        self._stored = {"student": student, "average": self._average, "optimizer": self._optimizer}
        self._path = directory / "checkpoint.pt"
        self._agreements: list[float] = []

    def run(self, progress: Progress) -> tuple[Any, dict[str, Any]]:
        """Train to the end, from the checkpoint if there is one. Returns the trained student and figures for the report."""
        if self._path.exists():
            # Load to the CPU: the optimizer would read step counts on a GPU back at every step.
            state = torch.load(self._path, map_location="cpu", weights_only=True)
            for name, each in self._stored.items():
                each.load_state_dict(state[name])
            self._agreements = state["agreements"]
        draw, count, saved = random.Random(self._settings.seed), len(self._batches), time.monotonic()
        order = [n for _ in range(self._settings.passes) for n in draw.sample(range(count), count)]
        for step in range(len(self._agreements), len(order)):
            self._agreements.append(self._step(order[step], step / len(order)))
            agreement = statistics.fmean(self._agreements[-_REPORTED_STEPS:])
            words = f"Training: step {step + 1:,} of {len(order):,}, agreement {agreement:.3f}"
            progress(0.4 + 0.5 * step / len(order), words)
            if time.monotonic() - saved > _CHECKPOINT_SECONDS or step + 1 == len(order):
                self._save()
                saved = time.monotonic()
        parts = torch.tensor(self._agreements).split(_REPORTED_STEPS)
        return self._average.module.eval().cpu(), {
            "steps": len(order),
            "agreement_every_50_steps": [round(part.mean().item(), 4) for part in parts],
        }

    def _step(self, batch: int, done: float) -> float:
        """One optimizer step. `done` is the finished share of the training. Returns the acceptance rate of lossless decoding."""
        step = len(self._agreements)
        for group in self._optimizer.param_groups:
            warm_up = min(1.0, (step + 1) / _WARM_UP_STEPS)
            group["lr"] = self._settings.learning_rate * warm_up * (1 - 0.95 * done)
        temperature = _TEMPERATURES[step % len(_TEMPERATURES)]
        ids, shared, mask, p, certain = self._batches.take(batch, temperature)
        is_mixed = self._batches.dtype == torch.bfloat16
        # Skills are learned first with unrounded weights, which takes fewer steps.
        rounds = [] if self._settings.skills and done < _ROUNDED_FROM else self._rounds
        exact = [weight.detach().clone() for weight in rounds]
        _write(rounds, map(round_to_four_bits, exact))
        with torch.autocast(self._batches.device.type, torch.bfloat16) if is_mixed else nullcontext():
            hidden = hidden_states(self._student, ids, shared)[mask]
            scores = logits(self._student, hidden)
        # Mostly KL while q is far from p, then more and more total variation, which determines the acceptance rate.
        sharpness = min(0.9, max(1.2 * done, 0.8 if self._settings.start else 0.0))
        if self._settings.skills:  # q equals p at first and stays close
            sharpness = 0.0
        temperatures = torch.where(certain, 1.0, temperature)[:, None]
        gradient, acceptance = loss_gradient(scores.detach() / temperatures, p, sharpness)
        scores.backward(gradient)  # not divided by the temperature: all temperatures weigh the same
        _write(rounds, exact)  # the gradients of the rounded weights are applied to the exact weights
        torch.nn.utils.clip_grad_norm_(self._student.parameters(), 1.0)
        self._optimizer.step()
        self._optimizer.zero_grad()
        self._average.update_parameters(self._student)
        return float(acceptance)

    def _save(self) -> None:
        state = {name: each.state_dict() for name, each in self._stored.items()}
        partial = self._path.with_suffix(".part")
        torch.save(state | {"agreements": self._agreements}, partial)
        os.replace(partial, self._path)


def _running_mean(mean: Tensor, weight: Tensor, count: Tensor | int) -> Tensor:
    """The mean of about the last 50 steps; early on, of the last tenth of the steps, so that the initial weights soon lose influence."""
    return torch.lerp(mean, weight, max(0.02, 10 / (int(count) + 10)))


@torch.no_grad()
def _write(weights: Iterable[Tensor], values: Iterable[Tensor]) -> None:
    for weight, value in zip(weights, values, strict=True):
        weight.copy_(value)


@torch.no_grad()
def loss_gradient(scores: Tensor, p: Tensor, sharpness: float) -> tuple[Tensor, Tensor]:
    """The gradient of the loss in the student's logits `scores` [n, N], and the acceptance rate of lossless decoding, a scalar.

    The loss is (1 − sharpness)·KL(p ‖ q) + sharpness·TV(q, p), the mean over n positions; `p` is [n, N]. The acceptance
    rate is 1 − TV (Leviathan et al. 2023, corollary 3.6), but KL learns faster while q is far from p. The closed form saves
    passes over [n, N] numbers, which take most of a step on a CPU.
    """
    q = scores.softmax(-1)
    low = torch.where(q < p, q, 0.0)  # where q is below p, a draft token is always accepted
    gradient = q * (1 - sharpness + sharpness * low.sum(-1, keepdim=True))
    gradient.sub_(low, alpha=sharpness).sub_(p, alpha=1 - sharpness).div_(len(p))
    return gradient, torch.minimum(q, p).sum(-1).mean()


def round_to_four_bits(weight: Tensor) -> Tensor:
    """`weight` [..., n·32] after a round trip through Q4_1: each block has 16 levels between its minimum and maximum."""
    blocks = weight.unflatten(-1, (-1, BLOCK))
    least, greatest = torch.aminmax(blocks, dim=-1, keepdim=True)
    scale = ((greatest - least) / 15).half().float()
    minimum = least.half().float()
    levels = ((blocks - minimum) / scale.clamp_min(1e-12)).round().clamp(0, 15)
    return (levels * scale + minimum).flatten(-2).to(weight.dtype)
