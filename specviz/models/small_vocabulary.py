"""Lets a drafter with fewer tokens than its verifier read and score the verifier's whole vocabulary.

Most of a small drafter's time goes into its output layer. An output layer for the frequent tokens alone is cheaper. The drafter
never proposes other tokens: their q is 0. But it reads every token: in place of a token that it lacks, it reads the most similar
token that it has.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from specviz.models.hub import SMALL_VOCABULARY as FILE
from specviz.runtime.runner import spread


@dataclass(frozen=True)
class SmallVocabulary:
    """Which of the verifier's V tokens a drafter has.

    Attributes:
        kept: int64 [N], the verifier's ids of the drafter's tokens, ascending; the drafter's id of `kept[i]` is i.
        reads: int64 [V], for each of the verifier's ids, the id that the drafter reads in its place.
    """

    kept: Tensor
    reads: Tensor

    @staticmethod
    def of(counts: Tensor, size: int, always: list[int], embedding: Tensor) -> SmallVocabulary:
        """A vocabulary of the tokens in `always` and the most frequent others, `size` in all. Others are read as their nearest kept token.

        Args:
            counts: [V], number of times each token was generated.
            embedding: at least [V, D]; the nearest neighbour has the largest cosine similarity.
        """
        ranked = counts.double()
        ranked[always] = torch.inf
        kept = ranked.topk(min(size, len(counts))).indices.sort().values
        unit = nn.functional.normalize(embedding[: len(counts)].float(), dim=-1)
        reads = torch.cat([(part @ unit[kept].T).argmax(-1) for part in unit.split(4096)])
        reads[kept] = torch.arange(len(kept))
        return SmallVocabulary(kept, reads)

    def save(self, directory: Path) -> None:
        """Write the vocabulary to its file in a drafter's folder."""
        save_file({"kept": self.kept.int(), "reads": self.reads.int()}, directory / FILE)

    @staticmethod
    def load(directory: Path) -> SmallVocabulary | None:
        """The small vocabulary of the drafter in a folder; None if the folder has none.

        Raises:
            OSError, SafetensorError, KeyError, ValueError: the file is damaged.
        """
        if not (directory / FILE).is_file():
            return None
        tensors = load_file(directory / FILE)
        found = SmallVocabulary(tensors["kept"].long(), tensors["reads"].long())
        kept, reads = found.kept, found.reads
        # Compiled loops write to these positions unchecked.
        is_ascending = kept.dim() == reads.dim() == 1 and len(kept) and bool((kept.diff() > 0).all())
        within = is_ascending and kept[0] >= 0 and kept[-1] < len(reads)
        if not (within and reads.min() >= 0 and reads.max() < len(kept)):
            raise ValueError("the vocabulary is damaged or incomplete")
        return found

    def check(self, size: int) -> None:
        """Raise ValueError unless this is the vocabulary of a model with `size` ids."""
        if len(self.kept) != size:
            raise ValueError(
                f"the vocabulary is damaged or incomplete: it has {len(self.kept)} ids, the model {size}"
            )

    def widen(self, model: Any) -> None:
        """Change `model`, which has N ids, so that it reads and scores all V tokens. Raises ValueError if it has another number of ids."""
        self.check(model.config.vocab_size)
        device = model.device
        reads, kept = self.reads.to(device), self.kept.to(device)
        embedding = model.get_input_embeddings().weight.detach()[reads]
        model.set_input_embeddings(nn.Embedding.from_pretrained(embedding))
        model.set_output_embeddings(_WideHead(model.get_output_embeddings(), kept, len(reads)))
        model.config.vocab_size = len(self.reads)


class _WideHead(nn.Module):
    """Scores all V tokens with an output layer for N of them; the logits of the others are −inf."""

    kept: Tensor

    def __init__(self, inner: Any, kept: Tensor, out_features: int) -> None:
        super().__init__()
        self.inner, self.out_features = inner, out_features
        self.register_buffer("kept", kept, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return spread(self.inner(x), self.kept, self.out_features)
