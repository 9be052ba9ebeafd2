"""A drafter with a smaller vocabulary than its verifier's, made to speak the whole of it.

Most of a small drafter's time goes into its output layer. One that knows only the frequent tokens is cheaper, and
what it does not know it never proposes: q is zero there. It reads every token, an unknown one as the known one most
like it. Knows embeddings and output layers; knows no pair and no training.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

FILE = "vocabulary.safetensors"
"""Beside a drafter's weights, where its vocabulary is a smaller one."""


@dataclass(frozen=True)
class SmallVocabulary:
    """Which of the verifier's V tokens a drafter knows.

    Attributes:
        kept: int64 [N], the tokens it can propose, ascending: its own ids 0 … N − 1.
        reads: int64 [V], for each of the verifier's tokens the drafter's own id that stands for it.
    """

    kept: Tensor
    reads: Tensor

    @staticmethod
    def of(counts: Tensor, size: int, always: list[int], embedding: Tensor) -> SmallVocabulary:
        """The `size` most frequent tokens, and those in `always`; the others read as their nearest neighbour.

        Args:
            counts: [V], how often each token was written.
            embedding: [V, D], where neighbours are found, by cosine.
        """
        ranked = counts.double()
        ranked[always] = torch.inf
        kept = ranked.topk(min(size, len(counts))).indices.sort().values
        unit = nn.functional.normalize(embedding[: len(counts)].float(), dim=-1)
        reads = torch.cat([(part @ unit[kept].T).argmax(-1) for part in unit.split(4096)])
        reads[kept] = torch.arange(len(kept))
        return SmallVocabulary(kept, reads)

    def save(self, directory: Path) -> None:
        """Write beside a drafter's weights."""
        partial = directory / f"{FILE}.part"
        save_file({"kept": self.kept.int(), "reads": self.reads.int()}, partial)
        os.replace(partial, directory / FILE)

    @staticmethod
    def load(directory: Path) -> SmallVocabulary | None:
        """The small vocabulary of a drafter; None where it knows all tokens."""
        if not (directory / FILE).is_file():
            return None
        tensors = load_file(directory / FILE)
        return SmallVocabulary(tensors["kept"].long(), tensors["reads"].long())

    def widen(self, model: Any) -> None:
        """Let `model`, which speaks its own N ids, read and score all V tokens."""
        device = model.device
        reads, kept = self.reads.to(device), self.kept.to(device)
        model.set_input_embeddings(_WideEmbedding(model.get_input_embeddings(), reads))
        model.set_output_embeddings(_WideHead(model.get_output_embeddings(), kept, len(reads)))
        model.config.vocab_size = len(self.reads)


class _WideEmbedding(nn.Module):
    """Reads all V tokens with an embedding of N."""

    reads: Tensor

    def __init__(self, inner: Any, reads: Tensor) -> None:
        super().__init__()
        self.inner = inner
        self.register_buffer("reads", reads, persistent=False)

    @property
    def weight(self) -> Any:
        return self.inner.weight

    def forward(self, tokens: Tensor) -> Any:
        return self.inner(self.reads[tokens])


class _WideHead(nn.Module):
    """Scores all V tokens with an output layer of N: minus infinity for the others."""

    kept: Tensor

    def __init__(self, inner: Any, kept: Tensor, out_features: int) -> None:
        super().__init__()
        self.inner, self.out_features = inner, out_features
        self.register_buffer("kept", kept, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        known = self.inner(x)
        scores = known.new_full((*known.shape[:-1], self.out_features), -torch.inf)
        return scores.index_copy_(-1, self.kept, known)
