"""What a student is trained on: texts with the teacher's distributions, and answers whose tokens are taught."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from specviz.compat.transformers import cache_argument
from specviz.models.small_vocabulary import SmallVocabulary
from specviz.models.tokenizer import in_template
from specviz.tools.distill.settings import DistillationSettings
from specviz.tools.distill.skills import Question
from specviz.tools.distill.texts import MARK, Text

FREE, TAUGHT = 1, 2
"""How a token is learned: the teacher's distribution before it, or the token itself. 0 is not at all."""
_EVERY = 3
"""In training on skills, one in this many positions of the texts is trained on: adjacent positions teach much the same, and each costs an
output layer.
"""
_REMEMBERED_BYTES = 4e9
"""Memory for the teacher's hidden states, so that later epochs reuse them."""


class Row(NamedTuple):
    """A sequence of the teacher's ids, and how each of them is learned: 0, `FREE` or `TAUGHT`."""

    ids: list[int]
    learned: list[int]


class Batches:
    """Batches of rows with the teacher's distributions over `kept` [N], the teacher's ids that the student knows.

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
        """Add rows, in batches of similar lengths with at most `batch_tokens` tokens and padding.

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
            The student's input ids [B, T]; the number of first tokens that all rows share; a bool mask [B, T − shared] of the n trained
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


def skill_batches(
    settings: DistillationSettings,
    texts: Iterable[Text],
    questions: Sequence[Question],
    former: Any,
    vocabulary: SmallVocabulary,
    tokenizer: Any,
) -> Batches:
    """Batches that teach a drafter answers, and otherwise to write as before.

    The teacher is `former`, the drafter before training. On the taught parts of answers the drafter learns the tokens. On the other parts,
    and on the texts, it learns its former distributions. A question with taught tokens that the drafter does not know is left out.
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
