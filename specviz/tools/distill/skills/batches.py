"""Batches of questions with known answers, among batches of the verifier's texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from specviz.models.small_vocabulary import SmallVocabulary
from specviz.models.tokenizer import in_template
from specviz.tools.distill.settings import DistillationSettings
from specviz.tools.distill.skills.question import Question
from specviz.tools.distill.student import hidden_states
from specviz.tools.distill.texts import MARK, Texts
from specviz.tools.distill.training import Batch, TrainingBatches, batches_of, shared_length

_EVERY = 3
"""One in this many positions of the verifier's texts is trained on: adjacent positions teach much the same, and each costs an output layer."""


class SkillBatches:
    """Batches that teach a drafter answers, and otherwise to write as before.

    The teacher is `former`, the drafter before training; batches have its ids. On the `taught` parts of answers the drafter learns the
    tokens. On the other parts, and on the verifier's texts, it learns its former distributions.
    """

    def __init__(
        self,
        settings: DistillationSettings,
        texts: Texts,
        questions: Iterable[Question],
        former: Any,
        vocabulary: SmallVocabulary | None,
        tokenizer: Any,
    ) -> None:
        teacher = former.eval().requires_grad_(False)
        size = teacher.config.vocab_size
        own = list(range(size)) if vocabulary is None else vocabulary.reads.tolist()
        mapped = Texts([[own[token] for token in sequence] for sequence in texts.sequences], texts.starts)
        self._texts = TrainingBatches(settings, mapped, teacher, torch.arange(size), None, every=_EVERY)
        self._teacher, self.device, self.dtype = teacher, self._texts.device, self._texts.dtype
        self._own = own
        self._known = frozenset(range(size)) if vocabulary is None else frozenset(vocabulary.kept.tolist())
        encoded = self._encoded(list(questions), tokenizer)
        self._start = shared_length([ids[:start] for ids, start, _ in encoded])
        self._examples = list(
            batches_of(encoded, settings.batch_tokens, size=lambda one: len(one[0]) - self._start)
        )

    def __len__(self) -> int:
        """The number of batches."""
        return len(self._texts) + len(self._examples)

    def take(self, number: int, temperature: float = 1.0) -> Batch:
        """As `TrainingBatches.take`; taught tokens have probability 1 and are learned at temperature 1."""
        if number < len(self._texts):
            return self._texts.take(number, temperature)
        rows = self._examples[number - len(self._texts)]
        longest = max(len(ids) for ids, _, _ in rows)
        ids = torch.tensor([ids + [0] * (longest - len(ids)) for ids, _, _ in rows], device=self.device)
        mask = torch.zeros_like(ids[:, self._start :], dtype=torch.bool)
        taught = torch.zeros_like(mask)
        for row, (own, start, flags) in enumerate(rows):
            predicts = slice(
                start - self._start - 1, len(own) - self._start - 1
            )  # a position predicts the token after it
            mask[row, predicts] = True
            taught[row, predicts] = torch.tensor(flags)
        labels, certain = ids.roll(-1, 1)[:, self._start :][mask], taught[mask]
        p = torch.zeros(len(labels), self._teacher.config.vocab_size, device=self.device)
        p[certain, labels[certain]] = 1.0
        free = mask & ~taught
        if (some := free.any(1)).any():
            with torch.no_grad():
                hidden = hidden_states(self._teacher, ids[some], self._start)[free[some]]
                p[~certain] = (self._texts.scores(hidden) / temperature).softmax(-1)
        return Batch(ids, self._start, mask, p, certain)

    def _encoded(
        self, questions: Sequence[Question], tokenizer: Any
    ) -> list[tuple[list[int], int, list[bool]]]:
        """By question: drafter ids, start of the answer, which of its tokens are taught. Omits questions with unknown taught tokens."""
        before, after = _around(tokenizer)
        prompts = tokenizer([f"{before}{each.prompt}{after}" for each in questions], add_special_tokens=False)
        answers = tokenizer(
            ["".join(part.text for part in each.answer) for each in questions],
            add_special_tokens=False,
            return_offsets_mapping=True,
        )
        encoded = []
        for number, question in enumerate(questions):
            prompt, answer = (
                prompts["input_ids"][number],
                [*answers["input_ids"][number], tokenizer.eos_token_id],
            )
            by_character = [part.taught for part in question.answer for _ in part.text]
            flags = [by_character[start] for start, _ in answers["offset_mapping"][number]] + [
                any(by_character)
            ]
            if all(token in self._known for token, taught in zip(answer, flags, strict=True) if taught):
                encoded.append(([self._own[token] for token in (*prompt, *answer)], len(prompt), flags))
        return encoded


def _around(tokenizer: Any) -> list[str]:
    """The chat template's text before and after a prompt; empty for a base model."""
    if not tokenizer.chat_template:
        return ["", ""]
    chat = [{"role": "user", "content": MARK}]
    return str(in_template(tokenizer, chat, add_generation_prompt=True, tokenize=False)).split(MARK)
