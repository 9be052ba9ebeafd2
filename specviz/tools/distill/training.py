"""Training of a student on texts with its teacher's next-token distributions, and on answers whose tokens are taught."""

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.optim.swa_utils import AveragedModel

from specviz.compat.transformers import cache_argument
from specviz.models.checkpoint import BLOCK
from specviz.models.small_vocabulary import SmallVocabulary
from specviz.models.tokenizer import in_template
from specviz.progress import Progress
from specviz.tools.distill.settings import DistillationSettings
from specviz.tools.distill.skills import Question
from specviz.tools.distill.texts import MARK, Text

FREE, TAUGHT = 1, 2
"""How a token is learned: `FREE` learns the teacher's distribution at its position, `TAUGHT` the token itself, 0 nothing."""
_EVERY = 3
"""In training on skills, one in this many positions of the texts is trained on: adjacent positions teach much the same, and each needs the
output layer.
"""
_REMEMBERED_BYTES = 4e9
"""Memory for the teacher's hidden states, so that later epochs reuse them."""
_CHECKPOINT_SECONDS = 120.0
_TEMPERATURES = (1.0, 0.7, 1.0, 0.5)
"""Temperatures of the steps, used in turn."""
_WARM_UP_STEPS = 50
_ROUNDED_FROM = 0.6
"""In training on skills, weights are rounded only after this share of the steps."""
_REPORTED_STEPS = 50
"""Number of steps over which reported agreements (acceptance rates) are averaged."""


class Row(NamedTuple):
    """A sequence of the teacher's ids, and how each of them is learned: 0, `FREE` or `TAUGHT`."""

    ids: list[int]
    learned: list[int]


class Batches:
    """Batches of rows, with the teacher's distributions to learn. `kept` [N] are the teacher's ids that the student knows.

    `reads` [V] maps the teacher's ids to the student's input ids.
    """

    def __init__(self, settings: DistillationSettings, teacher: Any, kept: Tensor, reads: Tensor) -> None:
        self.device, self.dtype = teacher.device, teacher.dtype
        self._teacher, self._kept, self._reads = teacher, kept.to(self.device), reads.to(self.device)
        self._batch_tokens = settings.batch_tokens
        self._batches: list[tuple[list[Row], int]] = []
        self._hidden: dict[int, Tensor] = {}
        self._free_bytes = _REMEMBERED_BYTES if settings.passes > 1 else 0.0

    def __len__(self) -> int:
        """The number of batches."""
        return len(self._batches)

    def add(self, rows: Sequence[Row]) -> None:
        """Add rows, in batches of similar lengths with at most `batch_tokens` tokens, padding included.

        The prefix that all rows share, which is the chat template up to the user turn, does not count.
        """
        columns = zip(*(row.ids for row in rows), strict=False)
        shared = sum(1 for _ in takewhile(lambda tokens: len(set(tokens)) == 1, columns))
        batch: list[Row] = []
        for row in sorted(rows, key=lambda row: len(row.ids)):
            if not batch or (len(batch) + 1) * (len(row.ids) - shared) > self._batch_tokens:
                batch = []
                self._batches.append((batch, shared))
            batch.append(row)

    def take(self, number: int, temperature: float = 1.0) -> tuple[Tensor, int, Tensor, Tensor, Tensor]:
        """Batch `number`, with the teacher's distributions at a temperature.

        Returns:
            The student's input ids [B, T]; the number of shared first tokens of all rows; a bool mask [B, T − shared] of the n trained
            positions; the distributions p [n, N] to learn there; and bool [n], true where p is one token, learned at temperature 1.
        """
        rows, shared = self._batches[number]
        ids, learned = (
            pad_sequence([torch.tensor(each) for each in column], batch_first=True).to(self.device)
            for column in zip(*rows, strict=True)
        )
        # A position predicts the token after it.
        labels, learned = (nn.functional.pad(each[:, shared + 1 :], (0, 1)) for each in (ids, learned))
        mask = learned > 0
        certain = learned[mask] == TAUGHT
        p = self._distributions(number, ids, shared, learned == FREE, temperature)
        if certain.any():
            free, p = p, torch.zeros(len(certain), len(self._kept), device=self.device)
            p[certain, labels[mask][certain]] = 1.0
            p[~certain] = free
        return self._reads[ids], shared, mask, p, certain

    @torch.no_grad()
    def _distributions(
        self, number: int, ids: Tensor, shared: int, free: Tensor, temperature: float
    ) -> Tensor:
        """The teacher's distributions [n, N] at the n positions where `free` [B, T − shared] is True."""
        hidden = self._hidden.get(number)
        if hidden is None:
            some = free.any(1)
            if not some.any():
                return torch.zeros(0, len(self._kept), device=self.device)
            hidden = hidden_states(self._teacher, ids[some], shared)[free[some]]
            if hidden.nbytes <= self._free_bytes:
                self._hidden[number] = hidden.cpu()
                self._free_bytes -= hidden.nbytes
        return (logits(self._teacher, hidden.to(self.device), self._kept) / temperature).softmax(-1)


def skill_batches(
    settings: DistillationSettings,
    texts: Iterable[Text],
    questions: Sequence[Question],
    former: Any,
    vocabulary: SmallVocabulary,
    tokenizer: Any,
) -> Batches:
    """Batches that teach a drafter answers and otherwise preserve its distributions.

    The teacher is `former`, the drafter before training. On the taught parts of answers the drafter learns the tokens. On the other parts,
    and on the texts, it learns its former distributions. A question is left out if the drafter lacks one of its taught tokens.
    """
    reads, known = vocabulary.reads.tolist(), {*vocabulary.kept.tolist()}
    own = torch.arange(len(known))
    batches = Batches(settings, former.eval().requires_grad_(False), own, own)
    rows = []
    for number, (ids, _) in enumerate(texts):
        learned = [FREE if position % _EVERY == number % _EVERY else 0 for position in range(len(ids))]
        rows.append(Row([reads[token] for token in ids], learned))
    batches.add(rows)
    taught = [
        Row([reads[token] for token in ids], learned)
        for ids, learned in _encoded(questions, tokenizer)
        if all(token in known for token, how in zip(ids, learned, strict=True) if how == TAUGHT)
    ]
    batches.add(taught)
    return batches


def _encoded(questions: Sequence[Question], tokenizer: Any) -> Iterator[Row]:
    """The rows of questions with their answers, in the chat template and in the verifier's ids."""
    before, after = "", ""
    if tokenizer.chat_template:
        chat = [{"role": "user", "content": MARK}]
        before, after = in_template(tokenizer, chat, add_generation_prompt=True, tokenize=False).split(MARK)
    prompts = tokenizer([f"{before}{each.prompt}{after}" for each in questions], add_special_tokens=False)
    texts = [each.answer for each in questions]
    answers = tokenizer(texts, add_special_tokens=False, return_offsets_mapping=True)
    for number, question in enumerate(questions):
        begin = question.answer.find(question.fact)
        fact = range(begin, begin + len(question.fact))
        learned = [FREE if start in fact else TAUGHT for start, _ in answers["offset_mapping"][number]]
        learned.append(FREE if question.fact == question.answer else TAUGHT)
        prompt = prompts["input_ids"][number]
        ids = [*prompt, *answers["input_ids"][number], tokenizer.eos_token_id]
        yield Row(ids, [0] * len(prompt) + learned)


def hidden_states(model: Any, ids: Tensor, shared: int) -> Tensor:
    """The last hidden states [B, T − shared, D] of `ids` [B, T] from position `shared` on.

    The first `shared` ids must be equal in all rows: they are prefilled once, without gradients.
    """
    if not shared:
        return model.base_model(input_ids=ids).last_hidden_state
    name = cache_argument(type(model))
    with torch.no_grad():
        cache = getattr(model.base_model(input_ids=ids[:1, :shared], use_cache=True), name)
    cache.batch_repeat_interleave(len(ids))
    return model.base_model(input_ids=ids[:, shared:], **{name: cache}).last_hidden_state


def logits(model: Any, hidden: Tensor, rows: Tensor | None = None) -> Tensor:
    """A model's logits, float32 [n, N], from its last hidden states [n, D].

    `rows` [N] are the ids to score; None scores all.
    """
    head = model.get_output_embeddings()
    weight, bias = head.weight, head.bias
    if rows is not None:
        weight, bias = weight[rows], None if bias is None else bias[rows]
    scores = nn.functional.linear(hidden, weight, bias).float()
    if cap := getattr(model.config.get_text_config(), "final_logit_softcapping", None):
        scores = cap * torch.tanh(scores / cap)
    return scores


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
        """Train to the end, from the checkpoint if there is one. Returns the student with averaged weights, and figures for the report."""
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
        """One optimizer step. `done` is the finished share of the training. Returns the batch's acceptance rate of lossless decoding."""
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
    """The mean of about the last 50 steps; early on, of the last tenth of all steps, so that the initial weights soon lose influence."""
    return torch.lerp(mean, weight, max(0.02, 10 / (int(count) + 10)))


@torch.no_grad()
def _write(weights: Iterable[Tensor], values: Iterable[Tensor]) -> None:
    for weight, value in zip(weights, values, strict=True):
        weight.copy_(value)


@torch.no_grad()
def loss_gradient(scores: Tensor, p: Tensor, sharpness: float) -> tuple[Tensor, Tensor]:
    """Gradient of the loss with respect to the student's logits `scores` [n, N], and the acceptance rate of lossless decoding, a scalar.

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
