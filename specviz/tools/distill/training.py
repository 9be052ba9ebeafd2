"""Training a student on its verifier's distributions: batches of sequences, steps, and a checkpoint to resume from.

Knows no pair and no engine.
"""

from __future__ import annotations

import os
import random
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from itertools import takewhile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specviz.models.checkpoint import BLOCK
from specviz.models.small_vocabulary import SmallVocabulary
from specviz.progress import Progress
from specviz.tools.distill.curve import CurvePoint
from specviz.tools.distill.rounding import round_to_four_bits
from specviz.tools.distill.settings import DistillationSettings, raise_if_stopped, time_left
from specviz.tools.distill.student import logits, loss_gradient
from specviz.tools.distill.texts import Texts

_BUCKET = 512
"""Sequences that are sorted by length together: batches of similar lengths need little padding."""

_CHECKPOINT_SECONDS = 120.0
_TEMPERATURES = (1.0, 0.7, 1.0, 0.5)
"""Of the steps in turn: a drafter serves all of them."""
_MEASURED = 6
"""Measured is after all of the tokens, a half, a quarter, …"""
_WARM_UP_STEPS = 50
_AVERAGED_STEPS = 50
_WEIGHTS_DECAY = 0.98
"""Of the running mean of the weights, which is what is kept: a step counts for some fifty."""


class TrainingBatches:
    """Batches of sequences with the verifier's distributions, which are computed when a batch is taken.

    `kept` [N] are the tokens that the student knows, `vocabulary` maps all others to them.
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
        self._settings, self._teacher, self._kept = settings, teacher, kept.to(teacher.device)
        self._reads = None if vocabulary is None else vocabulary.reads.to(teacher.device)
        self._sequences, self._start = texts.sequences, _shared(texts.sequences)
        self._hidden: dict[int, Tensor] = {}
        self._free_bytes = settings.remember_gigabytes * 1e9

    def epoch(self, number: int) -> list[list[int]]:
        """The batches of one epoch as indices of sequences: similar lengths together, in random order."""
        draw = random.Random(f"{self._settings.seed}/{number}")
        everything = list(range(len(self._sequences)))
        draw.shuffle(everything)
        batches = []
        for first in range(0, len(everything), _BUCKET):
            batch: list[int] = []
            for index in sorted(everything[first : first + _BUCKET], key=lambda i: len(self._sequences[i])):
                if batch and (len(batch) + 1) * len(self._sequences[index]) > self._settings.batch_tokens:
                    batches.append(batch)
                    batch = []
                batch.append(index)
            batches.append(batch)
        draw.shuffle(batches)
        return batches

    def take(self, indices: list[int], temperature: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
        """The student's input ids [B, T], a mask bool [B, T] of n positions, and the verifier's p [n, N] there.

        Learned from is all that follows the opening that the sequences share, user turns included.
        """
        sequences, device = [self._sequences[i] for i in indices], self.device
        longest = max(map(len, sequences))
        ids = torch.tensor([s + [0] * (longest - len(s)) for s in sequences], device=device)
        positions = torch.arange(longest, device=device)
        ends = torch.tensor([len(s) for s in sequences], device=device)[:, None]
        mask = (positions >= self._start) & (positions < ends - 1)  # a position predicts the token after it
        with torch.no_grad():
            scores = logits(self._teacher, self._hidden_states(indices, ids, mask), self._kept)
            p = (scores / temperature).softmax(-1)
        return ids if self._reads is None else self._reads[ids], mask, p

    def _hidden_states(self, indices: list[int], ids: Tensor, mask: Tensor) -> Tensor:
        """The verifier's last hidden states [n, D], computed once as far as memory for them allows."""
        if all(i in self._hidden for i in indices):
            return torch.cat([self._hidden[i] for i in indices]).to(ids.device)
        hidden = self._teacher.base_model(input_ids=ids).last_hidden_state[mask]
        for index, part in zip(indices, hidden.split(mask.sum(1).tolist()), strict=True):
            size = part.numel() * part.element_size()
            if index not in self._hidden and size <= self._free_bytes:
                self._hidden[index] = part.cpu()
                self._free_bytes -= size
        return hidden


class Training:
    """Trains `student` in place and keeps a checkpoint in `directory`; it ends with the mean of its last weights.

    Where the settings say four bits, every pass and the end have the matrices rounded to them.
    """

    def __init__(
        self,
        settings: DistillationSettings,
        directory: Path,
        student: Any,
        batches: TrainingBatches,
        measure: Callable[[], dict[str, float]] = dict,
        curve: Sequence[CurvePoint] = (),
    ) -> None:
        """Prepare the training.

        Args:
            measure: acceptance rates of the student as it is when called, for the `curve`.
            curve: of the drafter that the student was before.
        """
        self._student, self._batches = student.to(batches.device).train(), batches
        self._measure, self._begins_near = measure, bool(settings.start)
        self._steps = [batch for number in range(settings.passes) for batch in batches.epoch(number)]
        self._learning_rate = settings.learning_rate
        matrices = [p for p in student.parameters() if p.dim() > 1]
        vectors = [p for p in student.parameters() if p.dim() <= 1]
        groups = [{"params": matrices, "weight_decay": 0.01}, {"params": vectors, "weight_decay": 0.0}]
        self._optimizer = torch.optim.AdamW(groups, settings.learning_rate, betas=(0.9, 0.95))
        self._matrices = [p for p in matrices if p.shape[-1] % BLOCK == 0] if settings.four_bits else []
        self._average = [weight.detach().clone() for weight in self._student.parameters()]
        self._path = directory / "checkpoint.pt"
        self._agreements: list[float] = []
        self.curve = list(curve)
        self._learned = curve[-1].tokens if curve else 0
        self._earlier_seconds = 0.0

    def run(self, progress: Progress, stop: threading.Event) -> dict[str, Any]:
        """Train to the end, from the checkpoint if there is one; returns figures for the report.

        Raises:
            StoppedError: `stop` was set; a checkpoint was saved.
        """
        first, count = self._load(), len(self._steps)
        begun = saved = time.perf_counter()
        agreements: list[float] = []
        milestones = {count >> halvings for halvings in range(_MEASURED)}
        for step in range(first, count):
            agreements = [*agreements[1 - _AVERAGED_STEPS :], self._step(step)]
            agreement = statistics.fmean(agreements)
            now = time.perf_counter()
            progress(
                0.4 + 0.5 * step / count,
                f"The student learns: step {step + 1:,} of {count:,}, agreement {agreement:.3f}"
                + time_left(count - step - 1, (step + 1 - first) / (now - begun), "steps"),
            )
            if step % _AVERAGED_STEPS == 0:
                self._agreements.append(round(agreement, 4))
            if step + 1 in milestones:
                with self._shipped():
                    self.curve.append(CurvePoint(self._learned, self._measure()))
            if now - saved > _CHECKPOINT_SECONDS or stop.is_set() or step + 1 == count:
                self._save(step + 1, time.perf_counter() - begun)
                saved = now
            raise_if_stopped(stop)
        self._take_average()
        self._student.eval().cpu()
        hours = round((self._earlier_seconds + time.perf_counter() - begun) / 3600, 2)
        return {
            "steps": count,
            "training_hours": hours,
            "agreement_every_50_steps": self._agreements,
            "acceptance_by_tokens": [asdict(point) for point in self.curve],
        }

    def _step(self, step: int) -> float:
        """One optimizer step; returns the acceptance rate of lossless decoding on this batch."""
        done = step / len(self._steps)
        for group in self._optimizer.param_groups:
            group["lr"] = self._learning_rate * min(1.0, (step + 1) / _WARM_UP_STEPS) * (1 - 0.95 * done)
        temperature = _TEMPERATURES[step % len(_TEMPERATURES)]
        ids, mask, p = self._batches.take(self._steps[step], temperature)
        is_mixed = self._batches.dtype == torch.bfloat16
        precision = torch.autocast(self._batches.device.type, torch.bfloat16) if is_mixed else nullcontext()
        with self._rounded():
            with precision:
                hidden = self._student.base_model(input_ids=ids).last_hidden_state[mask]
                scores = logits(self._student, hidden)
            # KL while q is far from p, then ever more of the total variation, on which acceptance depends.
            sharpness = min(0.9, max(1.2 * done, 0.8 * self._begins_near))
            gradient, acceptance = loss_gradient(scores.detach() / temperature, p, sharpness)
            scores.backward(gradient)  # not divided by the temperature: all count alike
        self._learned += len(p)
        torch.nn.utils.clip_grad_norm_(self._student.parameters(), 1.0)
        self._optimizer.step()
        self._optimizer.zero_grad()
        with torch.no_grad():
            share = max(1 - _WEIGHTS_DECAY, 10 / (step + 10))  # little of where it began
            torch._foreach_lerp_(self._average, list(self._student.parameters()), share)
        return float(acceptance)

    @contextmanager
    def _rounded(self) -> Iterator[None]:
        """The student with its matrices as they will be stored; the gradients go to the exact ones, straight through."""
        exact = [weight.detach().clone() for weight in self._matrices]
        with torch.no_grad():
            for weight in self._matrices:
                weight.copy_(round_to_four_bits(weight))
        try:
            yield
        finally:
            with torch.no_grad():
                for weight, value in zip(self._matrices, exact, strict=True):
                    weight.copy_(value)

    @contextmanager
    def _shipped(self) -> Iterator[None]:
        """The student as it would be stored now."""
        exact = [weight.detach().clone() for weight in self._student.parameters()]
        self._take_average()
        try:
            yield
        finally:
            with torch.no_grad():
                torch._foreach_copy_(list(self._student.parameters()), exact)

    @torch.no_grad()
    def _take_average(self) -> None:
        torch._foreach_copy_(list(self._student.parameters()), self._average)
        for weight in self._matrices:
            weight.copy_(round_to_four_bits(weight))

    def _load(self) -> int:
        """Restore the checkpoint, if there is one; returns the number of steps done."""
        if not self._path.exists():
            return 0
        # To the CPU: both copy what they load, and the optimizer's step counts would be read back from the GPU each time.
        state = torch.load(self._path, map_location="cpu", weights_only=True)
        self._student.load_state_dict(state["student"])
        self._average = [weight.to(self._batches.device) for weight in state["average"]]
        self._optimizer.load_state_dict(state["optimizer"])
        self._agreements, self._earlier_seconds = state["agreements"], state["seconds"]
        self._learned, self.curve = state["learned"], [CurvePoint(**each) for each in state["curve"]]
        return int(state["step"])

    def _save(self, step: int, seconds: float) -> None:
        state = {
            "student": self._student.state_dict(),
            "average": self._average,
            "optimizer": self._optimizer.state_dict(),
            "step": step,
            "agreements": self._agreements,
            "learned": self._learned,
            "curve": [asdict(point) for point in self.curve],
            "seconds": self._earlier_seconds + seconds,
        }
        partial = self._path.with_suffix(".part")
        torch.save(state, partial)
        os.replace(partial, self._path)


def _shared(sequences: list[list[int]]) -> int:
    """How many tokens all sequences begin with: the chat template's, up to the user turn."""
    return sum(1 for _ in takewhile(lambda tokens: len(set(tokens)) == 1, zip(*sequences, strict=False)))
