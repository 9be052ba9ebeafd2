"""What a student is trained on: texts with the teacher's distributions, and answers whose tokens are taught."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

import torch
from torch import Tensor

from specviz.models.small_vocabulary import SmallVocabulary
from specviz.models.tokenizer import in_template
from specviz.tools.distill.settings import DistillationSettings
from specviz.tools.distill.skills import Question
from specviz.tools.distill.student import hidden_states, logits
from specviz.tools.distill.texts import MARK, Text

_EVERY = 3
"""In training on skills, one in this many positions of the texts is trained on: adjacent positions teach much the same, and each costs an
output layer.
"""
_REMEMBERED_BYTES = 4e9
"""Memory for the teacher's hidden states, so that later epochs reuse them."""


class Row(NamedTuple):
    """A sequence of the teacher's ids.

    Attributes:
        start: index of the first token to learn.
        taught: for each token from `start`, whether the drafter learns the token itself instead of the teacher's distribution; None if it
            never does.
    """

    ids: list[int]
    start: int
    taught: list[bool] | None = None


class Batch(NamedTuple):
    """One batch.

    Attributes:
        ids: the student's input ids [B, T].
        shared: number of first tokens that are the same in all rows.
        mask: bool [B, T − shared], the n trained positions.
        p: the distributions to learn there, [n, N].
        certain: bool [n], true where p is one token, learned at temperature 1.
    """

    ids: Tensor
    shared: int
    mask: Tensor
    p: Tensor
    certain: Tensor


class Batches:
    """Batches of rows with the teacher's distributions over `kept` [N], the teacher's ids that the student knows.

    `reads` [V] maps the teacher's ids to the student's input ids; None if they are the same.
    """

    def __init__(
        self, settings: DistillationSettings, teacher: Any, kept: Tensor, reads: Tensor | None = None
    ) -> None:
        self.device, self.dtype = teacher.device, teacher.dtype
        self._teacher, self._kept = teacher, kept.to(self.device)
        self._reads = None if reads is None else reads.to(self.device)
        self._batches: list[tuple[list[Row], int, int]] = []
        self._hidden: dict[int, Tensor] = {}
        self._free_bytes = _REMEMBERED_BYTES if settings.passes > 1 else 0.0

    def __len__(self) -> int:
        """The number of batches."""
        return len(self._batches)

    def add(self, batches: Iterable[list[Row]], shared: int, every: int = 1) -> None:
        """Add batches of rows whose first `shared` tokens are the same, to train on one in `every` positions."""
        self._batches += [(batch, shared, every) for batch in batches]

    def take(self, number: int, temperature: float = 1.0) -> Batch:
        """Batch `number`, with the teacher's distributions at a temperature; the number also selects the positions to train on."""
        rows, shared, every = self._batches[number]
        longest = max(len(row.ids) for row in rows)
        ids = torch.tensor([row.ids + [0] * (longest - len(row.ids)) for row in rows], device=self.device)
        mask = torch.zeros(len(rows), longest - shared, dtype=torch.bool)
        taught = torch.zeros_like(mask)
        for index, (own, start, flags) in enumerate(rows):
            # A position predicts the token after it.
            predicts = slice(start - shared - 1, len(own) - shared - 1)
            mask[index, predicts] = True
            taught[index, predicts] = torch.tensor(flags or False)
        mask &= torch.arange(shared, longest) % every == number % every
        mask, taught = mask.to(self.device), taught.to(self.device)
        certain, untaught = taught[mask], mask & ~taught
        p = self._distributions(number, ids, shared, untaught, temperature)
        if certain.any():
            labels, some = ids.roll(-1, 1)[:, shared:][mask], p
            p = torch.zeros(len(labels), len(self._kept), device=self.device)
            p[certain, labels[certain]] = 1.0
            p[~certain] = some
        return Batch(ids if self._reads is None else self._reads[ids], shared, mask, p, certain)

    @torch.no_grad()
    def _distributions(
        self, number: int, ids: Tensor, shared: int, free: Tensor, temperature: float
    ) -> Tensor:
        """The teacher's distributions [n, N] at the n positions `free` [B, T − shared]."""
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


def text_batches(
    settings: DistillationSettings,
    texts: Sequence[Text],
    teacher: Any,
    kept: Tensor,
    vocabulary: SmallVocabulary | None,
) -> Batches:
    """Batches of texts with the verifier's distributions. All tokens after the prefix that all texts share are learned, including user turns."""
    batches = Batches(settings, teacher, kept, None if vocabulary is None else vocabulary.reads)
    shared = _shared_length([ids for ids, _ in texts])
    batches.add(_batched([Row(ids, shared + 1) for ids, _ in texts], settings.batch_tokens), shared)
    return batches


def skill_batches(
    settings: DistillationSettings,
    texts: Sequence[Text],
    questions: Iterable[Question],
    former: Any,
    vocabulary: SmallVocabulary | None,
    tokenizer: Any,
) -> Batches:
    """Batches that teach a drafter answers, and otherwise to write as before.

    The teacher is `former`, the drafter before training. On the `taught` parts of answers the drafter learns the tokens. On the other parts,
    and on the texts, it learns its former distributions. A question with taught tokens that the drafter does not know is left out.
    """
    teacher = former.eval().requires_grad_(False)
    size = teacher.config.vocab_size
    reads, kept = (range(size),) * 2 if vocabulary is None else (vocabulary.reads, vocabulary.kept)
    own, known = [int(each) for each in reads], {int(each) for each in kept}
    batches = Batches(settings, teacher, torch.arange(size))
    sequences = [[own[token] for token in ids] for ids, _ in texts]
    shared = _shared_length(sequences)
    batches.add(_batched([Row(ids, shared + 1) for ids in sequences], settings.batch_tokens), shared, _EVERY)
    rows = []
    for prompt, answer, taught in _encoded(list(questions), tokenizer):
        if all(token in known for token, flag in zip(answer, taught, strict=True) if flag):
            rows.append(Row([own[token] for token in (*prompt, *answer)], len(prompt), taught))
    shared = _shared_length([row.ids[: row.start] for row in rows])
    batches.add(_batched(rows, settings.batch_tokens, shared), shared)
    return batches


def _encoded(
    questions: Sequence[Question], tokenizer: Any
) -> Iterator[tuple[list[int], list[int], list[bool]]]:
    """By question: the ids of its prompt in the chat template, those of its answer, and which of these are taught."""
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
        taught = [start not in fact for start, _ in answers["offset_mapping"][number]]
        answer = [*answers["input_ids"][number], tokenizer.eos_token_id]
        yield prompts["input_ids"][number], answer, [*taught, question.fact != question.answer]


def _batched(rows: Sequence[Row], batch_tokens: int, shared: int = 0) -> Iterator[list[Row]]:
    """Batches of rows of similar lengths, with at most `batch_tokens` tokens and padding; the first `shared` tokens of a row do not count."""
    batch: list[Row] = []
    for row in sorted(rows, key=lambda row: len(row.ids)):
        if batch and (len(batch) + 1) * (len(row.ids) - shared) > batch_tokens:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def _shared_length(sequences: list[list[int]]) -> int:
    """Length of the prefix that all sequences share: the chat template up to the user turn."""
    return sum(1 for _ in takewhile(lambda tokens: len(set(tokens)) == 1, zip(*sequences, strict=False)))
