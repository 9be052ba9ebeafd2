"""A runner: the forward passes of one language model for many sequences, each in a slot of one KV cache.

Owners of slots are any objects: a runner knows no method, no request and no randomness.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from specviz.core.sampling import Number

KeyValues = Any
"""Keys and values of one sequence, as a cache saves and restores them."""


@dataclass(frozen=True)
class PassInputs:
    """Inputs of a forward pass; see `Runner.forward`."""

    tokens: Tensor
    positions: Tensor
    visible: int
    valid: Tensor | None = None
    slots: slice | None = None


@dataclass(frozen=True)
class Drafting:
    """Inputs of fused drafting for D slots.

    Attributes:
        tokens: the token buffer, int64 [D, 1 + K]: the token before the first draft token, then the draft tokens, which are written.
        lengths: number of draft tokens of each slot, at most K.
        positions: position of each slot's first token in `tokens`.
        temperature: a number, or [D, 1].
        uniforms: float64 [D, K].
        keeps_logits: whether the drafter's logits are returned.
        thresholds: a slot's draft ends after a draft token whose `confidence` is below the slot's threshold; 0 never ends a draft.
    """

    tokens: Tensor
    lengths: Sequence[int]
    positions: Sequence[int]
    temperature: Number
    uniforms: Tensor
    keeps_logits: bool = False
    thresholds: Sequence[float] | None = None


class Runner(ABC):
    """Forward passes of a model over slots.

    Attributes:
        owners: the slots' owners, in the order of the slots.
        vocabulary_size: number of logits of a position.
        device: device of token ids and logits.
        position_bytes: bytes of keys and values of one position on a GPU.
        is_invariant: batch invariance: a position's logits have the same bits, whatever else a pass reads.
        is_fused: whether `draft` is available.
        looks_up: whether draft tokens are found in the text by `propose`: no pass runs, nothing is drawn.
        chunk: most prompt tokens of a prefill pass; bounds its memory, and how long other sequences wait for it.
    """

    vocabulary_size: int
    device: torch.device
    position_bytes = 0
    is_invariant = False
    is_fused = False
    looks_up = False
    chunk = 512

    def __init__(self) -> None:
        self.owners: list[Any] = []
        self._cache = self._new_cache()

    @abstractmethod
    def _new_cache(self) -> Any:
        """A cache without slots. Its methods are `add`, `drop`, `save`, `restore`, and `take` unless a runner overrides `_copy`."""

    # ---- passes ----------------------------------------------------------------------------------------------

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor,
        *,
        visible: int,
        valid: Tensor | None = None,
        slots: slice | None = None,
        transient: bool = False,
    ) -> Tensor:
        """One forward pass.

        Args:
            tokens, positions: int64 [B, n], each token with its absolute position.
            visible: number of positions to attend to, one more than the largest of `positions`.
            valid: bool [B, n], False for padding, which comes last; None where there is none.
            slots: which B slots; all by default.
            transient: whether this runner's next transient pass may overwrite the logits.

        Returns:
            Logits [B, n, vocabulary_size]; those of padding are uninitialised.
        """
        return self._logits(PassInputs(tokens, positions, visible, valid, slots), transient)

    def read(self, tokens: Tensor, positions: Tensor, **options: Any) -> None:
        """Prefill: as `forward`, but only writes the KV cache and returns no logits."""
        self._read(PassInputs(tokens, positions, **options))

    @abstractmethod
    def _logits(self, given: PassInputs, transient: bool) -> Tensor:
        """See `forward`."""

    @abstractmethod
    def _read(self, given: PassInputs) -> None:
        """See `read`."""

    def draft(self, given: Drafting) -> tuple[list[int], Tensor, Tensor | None]:
        """Fused drafting: draw the draft tokens of each slot in one call. Only where `is_fused`.

        Returns the number of draft tokens of each slot; q [D, K, V]; and the drafter's logits [D, K, V], None unless they are kept.
        The next call may overwrite q and logits. The drafter runs as many passes as the longest draft has tokens.
        """
        raise NotImplementedError

    def propose(self, ids: list[int], count: int, banned: Collection[int]) -> list[int]:
        """Up to `count` draft tokens that continue a text; stops before a `banned` token, or if nothing is found. Only where `looks_up`."""
        raise NotImplementedError

    # ---- slots -----------------------------------------------------------------------------------------------

    def admit(self, owners: list[Any], length: int) -> slice:
        """Give each owner a slot of `length` positions; returns their slots."""
        first = len(self.owners)
        self._cache.add(len(owners), length)  # may run out of memory, so owners change afterwards
        self.owners += owners
        return slice(first, len(self.owners))

    def release(self, owner: Any, *, spoilt: bool = False) -> None:
        """Free an owner's slot, if it has one; the last slot takes its index. A `spoilt` slot may hold NaN."""
        if owner not in self.owners:
            return
        slot = self.owners.index(owner)
        self._cache.drop(slot, spoilt)
        self.owners[slot] = self.owners[-1]
        self.owners.pop()
        if not self.owners:
            self.clear()

    def growth(self, more: int, length: int) -> int:
        """Bytes by which buffers on a GPU grow if `more` owners are admitted and the longest of all needs `length` positions."""
        return 0

    def _copy(self, other: Any, slots: slice) -> None:
        """Admit the owners of `slots` of another runner of the same model. Their slots are moved or copied."""
        self._cache.take(other._cache, slots)
        self.owners += other.owners[slots]

    def merge(self, other: Runner) -> None:
        """Take over all owners of another runner of the same model with their slots; `other` has none afterwards."""
        if other.owners:
            self._copy(other, slice(0, len(other.owners)))
            other.clear()

    def copy(self, owner: Any, other: Runner) -> None:
        """If `other`, a runner of the same model, has a slot for `owner`, move or copy it to this runner. `other` must not use it again."""
        if owner in other.owners:
            slot = other.owners.index(owner)
            self._copy(other, slice(slot, slot + 1))

    def clear(self) -> None:
        """Free all slots."""
        self.owners = []
        self._cache = self._new_cache()

    def broadcast(self, slots: slice, length: int) -> None:
        """Copy the first `length` positions of the first of these slots to all of them."""
        saved = self.save(slots.start, length)
        for slot in range(slots.start + 1, slots.stop):
            self.restore(slot, saved, length)

    def save(self, slot: int, length: int) -> KeyValues:
        """A copy of the keys and values of a slot's first `length` positions."""
        return self._cache.save(slot, length)

    def restore(self, slot: int, saved: KeyValues, length: int) -> None:
        """Write the first `length` positions of what `save` returned into a slot, which then need not be prefilled."""
        self._cache.restore(slot, saved, length)

    def reading_bytes(self, visible: int) -> int:
        """Bytes per token that a prefill pass takes on a GPU, besides the KV cache."""
        return 0


class Model(Protocol):
    """A language model in memory, however it is run.

    Attributes:
        config, generation_config: the model's configs, as transformers' objects.
        precision: how the model computes, in a word or two.
        output_size: number of logits of a position, padding included.
        device: device of token ids.
        dtype: dtype of hidden states.
        gpu: the GPU that the model is on; None if it is elsewhere or on several devices.
    """

    config: Any
    generation_config: Any
    precision: str
    output_size: int
    device: torch.device
    dtype: torch.dtype
    gpu: torch.device | None

    def runner(self, vocabulary_size: int, *, apart: bool = False) -> Runner:
        """A runner without slots. Logits are cut or extended to `vocabulary_size` tokens; tokens that the model lacks get −inf.

        If `apart`, the runner has its own buffers instead of the buffers that the model's runners share.
        """

    def module(self) -> Any:
        """The same model, with the same values, as a transformers module; loaded at first use."""

    def free_memory(self) -> bool:
        """Free memory whose contents can be made again; returns True if any was freed."""
        return False


def spread(logits: Tensor, known: Tensor, size: int) -> Tensor:
    """Expand logits [..., m or more] of the `known` tokens [m] to all `size` tokens: the others get −inf."""
    whole = logits.new_full((*logits.shape[:-1], size), -math.inf)
    return whole.index_copy_(-1, known, logits[..., : len(known)])
