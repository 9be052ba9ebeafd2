"""Prompt lookup: a drafter without a model. It proposes the token that followed an earlier occurrence of the latest tokens.

Like vLLM's `ngram` and transformers' `prompt_lookup_num_tokens`, it uses the longest match, and the earliest of equally long matches.
These two copy all K tokens from the first token's match. Here each draft token is looked up anew, in all tokens before it: prompt, text
and draft. So a proposal is a function of the tokens before it, and neither draft length nor batch can change a text (laws 2 and 3).
"""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from specviz.errors import PairError
from specviz.runtime.runner import Drafting, Model, PassInputs, Runner

LONGEST = 3
"""Maximum length of a match; the minimum is 1. By default transformers matches 2 or 1, and vLLM exactly 5."""


def follower(ids: list[int]) -> int | None:
    """The token that followed the longest match of the latest tokens; None if the latest token occurs nowhere before."""
    matches = (at for at in range(len(ids) - 1) if ids[at] == ids[-1])
    best = max(matches, key=lambda at: _matched(ids, at), default=None)  # the first of equals
    return None if best is None else ids[best + 1]


def _matched(ids: list[int], at: int) -> int:
    """Length of the match that ends at index `at`, at most `LONGEST`. Requires ids[at] == ids[-1]."""
    return next((n for n in range(1, LONGEST) if n > at or ids[at - n] != ids[-1 - n]), LONGEST)


class LookupRunner(Runner):
    """The runner of prompt lookup. It reads no tokens: `propose` is given the text, and q is one-hot at each proposed token."""

    is_invariant = looks_up = is_fused = True
    chunk = 1 << 30

    def __init__(self, vocabulary_size: int, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__()
        self.vocabulary_size, self.device = vocabulary_size, device
        self._dtype = torch.promote_types(dtype, torch.float32)

    def propose(self, ids: list[int], count: int, banned: Collection[int]) -> list[int]:
        """See `Runner.propose`."""
        text = list(ids)
        while len(text) < len(ids) + count:
            token = follower(text)
            if token is None or token in banned:
                break
            text.append(token)
        return text[len(ids) :]

    def draft(self, given: Drafting) -> tuple[list[int], Tensor, Tensor | None]:
        """See `Runner.draft`. The draft tokens are in the token buffer already; no temperature changes a one-hot q."""
        drafts = given.tokens[:, 1:, None]
        q = torch.zeros(*drafts.shape[:2], self.vocabulary_size, dtype=self._dtype, device=self.device)
        q.scatter_(-1, drafts, 1.0)
        return list(given.lengths), q, q.log() if given.keeps_logits else None

    def _logits(self, given: PassInputs, transient: bool) -> Tensor:
        raise PairError(
            "Prompt lookup is no model and has no logits to predict from: compare its runs with those of another pair."
        )

    def _read(self, given: PassInputs) -> None:
        """Nothing is read."""

    def _new_cache(self) -> Any:
        """A cache whose slots hold nothing."""
        return SimpleNamespace(**dict.fromkeys(("add", "drop", "take", "save", "restore"), lambda *_: None))


class LookupModel(Model):
    """Prompt lookup as a `Model`, which drafts for `verifier`."""

    precision = "one-hot"
    gpu = None

    def __init__(self, verifier: Model) -> None:
        self.config, self.generation_config = verifier.config, verifier.generation_config
        self.output_size, self.device, self.dtype = verifier.output_size, verifier.device, verifier.dtype

    def runner(self, vocabulary_size: int, *, apart: bool = False) -> LookupRunner:
        """See `Model`."""
        return LookupRunner(vocabulary_size, self.device, self.dtype)

    def module(self) -> Any:
        """See `Model`."""
        raise PairError("Prompt lookup is no model: only the verifier is one of transformers.")
