"""Training of a student on its verifier's next-token distributions: batches, optimizer steps, checkpoints."""

from __future__ import annotations

import os
import random
import statistics
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from itertools import takewhile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel

from specviz.models.checkpoint import BLOCK
from specviz.models.small_vocabulary import SmallVocabulary
from specviz.progress import Progress
from specviz.tools.distill.settings import DistillationSettings, raise_if_stopped
from specviz.tools.distill.student import logits, loss_gradient, round_to_four_bits
from specviz.tools.distill.texts import Texts

_CHECKPOINT_SECONDS = 120.0
_TEMPERATURES = (1.0, 0.7, 1.0, 0.5)
"""Temperatures of the steps, used in turn."""
_WARM_UP_STEPS = 50
_REPORTED_STEPS = 50
"""Number of steps over which reported agreements are averaged."""


class TrainingBatches:
    """Batches of sequences with the verifier's distributions.

    `kept` [N] are the verifier's tokens that the student knows; `vocabulary` maps all others to them.
    """

    def __init__(
        self,
        settings: DistillationSettings,
        texts: Texts,
        teacher: Any,
        kept: Tensor,
        vocabulary: SmallVocabulary | None,
    ) -> None:
        self.device, self.dtype = teacher.device, teacher.dtype
        self._teacher, self._kept = teacher, kept.to(teacher.device)
        self._reads = None if vocabulary is None else vocabulary.reads.to(teacher.device)
        self._start = _shared_length(texts.sequences)
        self._batches = list(_batches(texts.sequences, settings.batch_tokens))
        self._hidden: dict[int, Tensor] = {}
        self._free_bytes = settings.remember_gigabytes * 1e9

    def __len__(self) -> int:
        """The number of batches."""
        return len(self._batches)

    def take(self, number: int, temperature: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
        """The student's input ids [B, T], a mask bool [B, T] of the n trained positions, and the verifier's p [n, N] there.

        The student is trained on all tokens after the opening that the sequences share, including user turns.
        """
        sequences, device = self._batches[number], self.device
        longest = max(map(len, sequences))
        ids = torch.tensor([s + [0] * (longest - len(s)) for s in sequences], device=device)
        positions = torch.arange(longest, device=device)
        ends = torch.tensor([len(s) for s in sequences], device=device)[:, None]
        mask = (positions >= self._start) & (positions < ends - 1)  # a position predicts the token after it
        with torch.no_grad():
            hidden = self._hidden.get(number)
            if hidden is None:
                hidden = self._teacher.base_model(input_ids=ids).last_hidden_state[mask]
                if hidden.nbytes <= self._free_bytes:
                    self._hidden[number] = hidden.cpu()
                    self._free_bytes -= hidden.nbytes
            scores = logits(self._teacher, hidden.to(device), self._kept)
            p = (scores / temperature).softmax(-1)
        return ids if self._reads is None else self._reads[ids], mask, p


class Training:
    """Trains `student` and keeps a checkpoint in `directory`."""

    def __init__(
        self, settings: DistillationSettings, directory: Path, student: Any, batches: TrainingBatches
    ) -> None:
        self._settings, self._batches = settings, batches
        self._student = student.to(batches.device).train()
        self._average = AveragedModel(student, avg_fn=_running_mean)
        matrices = [p for p in student.parameters() if p.dim() > 1]
        vectors = [p for p in student.parameters() if p.dim() <= 1]
        groups = [{"params": matrices, "weight_decay": 0.01}, {"params": vectors, "weight_decay": 0.0}]
        self._optimizer = torch.optim.AdamW(groups, settings.learning_rate, betas=(0.9, 0.95))
        self._rounds = [p for p in matrices if p.shape[-1] % BLOCK == 0] if settings.four_bits else []
        self._stored = {"student": student, "average": self._average, "optimizer": self._optimizer}
        self._path = directory / "checkpoint.pt"
        self._agreements: list[float] = []

    def run(self, progress: Progress, stop: threading.Event) -> tuple[Any, dict[str, Any]]:
        """Train to the end, from the checkpoint if there is one. Returns the trained student and figures for the report.

        Raises:
            StoppedError: `stop` was set; a checkpoint was saved.
        """
        self._load()
        order, saved = self._order(), time.monotonic()
        for step in range(len(self._agreements), len(order)):
            self._agreements.append(self._step(order[step], step / len(order)))
            agreement = statistics.fmean(self._agreements[-_REPORTED_STEPS:])
            words = f"Training: step {step + 1:,} of {len(order):,}, agreement {agreement:.3f}"
            progress(0.4 + 0.5 * step / len(order), words)
            if time.monotonic() - saved > _CHECKPOINT_SECONDS or stop.is_set() or step + 1 == len(order):
                self._save()
                saved = time.monotonic()
            raise_if_stopped(stop)
        parts = torch.tensor(self._agreements).split(_REPORTED_STEPS)
        return self._average.module.eval().cpu(), {
            "steps": len(order),
            "agreement_every_50_steps": [round(part.mean().item(), 4) for part in parts],
        }

    def _order(self) -> list[int]:
        """Indices of the batches in training order. Each epoch is shuffled separately."""
        draw, count = random.Random(self._settings.seed), len(self._batches)
        return [n for _ in range(self._settings.passes) for n in draw.sample(range(count), count)]

    def _step(self, batch: int, done: float) -> float:
        """One optimizer step. `done` is the finished share of the training. Returns the acceptance rate of lossless decoding."""
        step = len(self._agreements)
        for group in self._optimizer.param_groups:
            warm_up = min(1.0, (step + 1) / _WARM_UP_STEPS)
            group["lr"] = self._settings.learning_rate * warm_up * (1 - 0.95 * done)
        temperature = _TEMPERATURES[step % len(_TEMPERATURES)]
        ids, mask, p = self._batches.take(batch, temperature)
        is_mixed = self._batches.dtype == torch.bfloat16
        exact = [weight.detach().clone() for weight in self._rounds]
        _write(self._rounds, map(round_to_four_bits, exact))
        with torch.autocast(self._batches.device.type, torch.bfloat16) if is_mixed else nullcontext():
            hidden = self._student.base_model(input_ids=ids).last_hidden_state[mask]
            scores = logits(self._student, hidden)
        # KL at first, while q is far from p; then more and more total variation, which determines the acceptance rate.
        sharpness = min(0.9, max(1.2 * done, 0.8 if self._settings.start else 0.0))
        gradient, acceptance = loss_gradient(scores.detach() / temperature, p, sharpness)
        scores.backward(gradient)  # not divided by the temperature: all temperatures weigh the same
        _write(self._rounds, exact)  # the gradients of the rounded weights are applied to the exact weights
        torch.nn.utils.clip_grad_norm_(self._student.parameters(), 1.0)
        self._optimizer.step()
        self._optimizer.zero_grad()
        self._average.update_parameters(self._student)
        return float(acceptance)

    def _load(self) -> None:
        if not self._path.exists():
            return
        # On the CPU, since on a GPU the optimizer would read its step counts back each time.
        state = torch.load(self._path, map_location="cpu", weights_only=True)
        for name, each in self._stored.items():
            each.load_state_dict(state[name])
        self._agreements = state["agreements"]

    def _save(self) -> None:
        state = {name: each.state_dict() for name, each in self._stored.items()}
        partial = self._path.with_suffix(".part")
        torch.save(state | {"agreements": self._agreements}, partial)
        os.replace(partial, self._path)


def _batches(sequences: list[list[int]], batch_tokens: int) -> Iterator[list[list[int]]]:
    """Batches of at most `batch_tokens` tokens. Sequences of a batch have similar lengths, so that there is little padding."""
    batch: list[list[int]] = []
    for sequence in sorted(sequences, key=len):
        if batch and (len(batch) + 1) * len(sequence) > batch_tokens:
            yield batch
            batch = []
        batch.append(sequence)
    yield batch


def _shared_length(sequences: list[list[int]]) -> int:
    """Length of the opening that all sequences share: the chat template up to the user turn."""
    return sum(1 for _ in takewhile(lambda tokens: len(set(tokens)) == 1, zip(*sequences, strict=False)))


def _running_mean(mean: Tensor, weight: Tensor, count: Tensor | int) -> Tensor:
    """The mean of about the last 50 steps; at first of a tenth of the steps, so that the initial weights soon lose influence."""
    return torch.lerp(mean, weight, max(0.02, 10 / (int(count) + 10)))


@torch.no_grad()
def _write(weights: Iterable[Tensor], values: Iterable[Tensor]) -> None:
    for weight, value in zip(weights, values, strict=True):
        weight.copy_(value)
