"""Training of a student on its verifier's next-token distributions: batches, optimizer steps, checkpoints."""

from __future__ import annotations

import os
import random
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import nullcontext
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel

from specviz.models.checkpoint import BLOCK
from specviz.models.small_vocabulary import SmallVocabulary
from specviz.progress import Progress
from specviz.tools.distill.settings import DistillationSettings, raise_if_stopped
from specviz.tools.distill.student import hidden_states, logits, loss_gradient, round_to_four_bits
from specviz.tools.distill.texts import Texts

T = TypeVar("T")
_CHECKPOINT_SECONDS = 120.0
_TEMPERATURES = (1.0, 0.7, 1.0, 0.5)
"""Temperatures of the steps, used in turn."""
_WARM_UP_STEPS = 50
_ROUNDED_FROM = 0.6
"""In training on skills, weights are rounded after this share of the steps."""
_REPORTED_STEPS = 50
"""Number of steps over which reported agreements are averaged."""


class Batch(NamedTuple):
    """One batch.

    Attributes:
        ids: the student's input ids [B, T].
        shared: number of first tokens that are the same in all rows.
        mask: bool [B, T − shared], the n trained positions.
        p: the distributions to learn there, [n, N].
        certain: bool [n], true where p is one token, learned by cross-entropy at temperature 1. None if false everywhere.
    """

    ids: Tensor
    shared: int
    mask: Tensor
    p: Tensor
    certain: Tensor | None = None


class Batches(Sized, Protocol):
    """What a student is trained on."""

    device: torch.device
    dtype: torch.dtype

    def take(self, number: int, temperature: float = 1.0) -> Batch:
        """The batch with this number, with its distributions at a temperature."""


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
        every: int = 1,
    ) -> None:
        """Train on one in `every` positions."""
        self.device, self.dtype = teacher.device, teacher.dtype
        self._teacher, self._kept = teacher, kept.to(teacher.device)
        self._reads = None if vocabulary is None else vocabulary.reads.to(teacher.device)
        self._every = every
        self._start = shared_length(texts.sequences)
        self._batches = list(batches_of(texts.sequences, settings.batch_tokens, len))
        self._hidden: dict[int, Tensor] = {}
        self._free_bytes = settings.remember_gigabytes * 1e9 if settings.passes > 1 else 0.0

    def __len__(self) -> int:
        """The number of batches."""
        return len(self._batches)

    def take(self, number: int, temperature: float = 1.0) -> Batch:
        """The batch with this number and the verifier's distributions.

        The student is trained on all tokens after the prefix that all sequences share, including user turns.
        """
        sequences, device = self._batches[number], self.device
        longest = max(map(len, sequences))
        ids = torch.tensor([s + [0] * (longest - len(s)) for s in sequences], device=device)
        positions = torch.arange(self._start, longest, device=device)
        ends = torch.tensor([len(s) for s in sequences], device=device)[:, None]
        mask = positions < ends - 1  # a position predicts the token after it
        mask &= positions % self._every == number % self._every
        with torch.no_grad():
            hidden = self._hidden.get(number)
            if hidden is None:
                hidden = hidden_states(self._teacher, ids, self._start)[mask]
                if hidden.nbytes <= self._free_bytes:
                    self._hidden[number] = hidden.cpu()
                    self._free_bytes -= hidden.nbytes
            p = (self.scores(hidden.to(device)) / temperature).softmax(-1)
        return Batch(ids if self._reads is None else self._reads[ids], self._start, mask, p)

    def scores(self, hidden: Tensor) -> Tensor:
        """The teacher's logits [n, N] from its last hidden states [n, D]."""
        return logits(self._teacher, hidden, self._kept)


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
        heat = temperature if certain is None else torch.where(certain, 1.0, temperature)[:, None]
        gradient, acceptance = loss_gradient(scores.detach() / heat, p, sharpness)
        scores.backward(gradient)  # not divided by the temperature: all temperatures weigh the same
        _write(rounds, exact)  # the gradients of the rounded weights are applied to the exact weights
        torch.nn.utils.clip_grad_norm_(self._student.parameters(), 1.0)
        self._optimizer.step()
        self._optimizer.zero_grad()
        self._average.update_parameters(self._student)
        return float(acceptance)

    def _load(self) -> None:
        if not self._path.exists():
            return
        # Load to the CPU: the optimizer would read step counts on a GPU back at every step.
        state = torch.load(self._path, map_location="cpu", weights_only=True)
        for name, each in self._stored.items():
            each.load_state_dict(state[name])
        self._agreements = state["agreements"]

    def _save(self) -> None:
        state = {name: each.state_dict() for name, each in self._stored.items()}
        partial = self._path.with_suffix(".part")
        torch.save(state | {"agreements": self._agreements}, partial)
        os.replace(partial, self._path)


def batches_of(sequences: Sequence[T], batch_tokens: int, size: Callable[[T], int]) -> Iterator[list[T]]:
    """Batches of at most `batch_tokens` tokens. Sequences of a batch have similar lengths, so that there is little padding."""
    batch: list[T] = []
    for sequence in sorted(sequences, key=size):
        if batch and (len(batch) + 1) * size(sequence) > batch_tokens:
            yield batch
            batch = []
        batch.append(sequence)
    yield batch


def shared_length(sequences: list[list[int]]) -> int:
    """Length of the prefix that all sequences share: the chat template up to the user turn."""
    return sum(1 for _ in takewhile(lambda tokens: len(set(tokens)) == 1, zip(*sequences, strict=False)))


def _running_mean(mean: Tensor, weight: Tensor, count: Tensor | int) -> Tensor:
    """The mean of about the last 50 steps; early on, of the last tenth of the steps, so that the initial weights soon lose influence."""
    return torch.lerp(mean, weight, max(0.02, 10 / (int(count) + 10)))


@torch.no_grad()
def _write(weights: Iterable[Tensor], values: Iterable[Tensor]) -> None:
    for weight, value in zip(weights, values, strict=True):
        weight.copy_(value)
