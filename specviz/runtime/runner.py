"""A runner: the forward passes of one language model for many sequences, each in a slot of one KV cache.

What all runners share: which owner holds which slot, and moving slots about. Knows owners as any objects; knows no method, no
request and no randomness.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from specviz.core.sampling import Number
from specviz.runtime.stopping import Stopping

KeyValues = Any
"""Keys and values of one sequence, as a cache saves and restores them."""


class SlotCache(Protocol):
    """Keys and values of slots, in buffers that grow."""

    @property
    def slots(self) -> int:
        """Slots the buffers hold now."""

    @property
    def length(self) -> int:
        """Positions of a slot that the buffers hold now."""

    def reserve(self, slots: int, length: int, fresh: bool = False) -> None:
        """Make room for so many slots of so many positions; `fresh` if their contents need not be kept."""

    def growth(self, slots: int, length: int, fresh: bool = False) -> int:
        """Positions, of all slots together, by which the buffers would grow to make that room."""

    def save(self, slot: int, length: int) -> KeyValues:
        """A copy of the first `length` positions of a slot."""

    def restore(self, slot: int, saved: KeyValues, length: int) -> None:
        """Write the first `length` positions of what `save` returned into a slot."""

    def copy(self, other: Any, slots: slice, start: int) -> None:
        """Copy slots of another cache of the same kind, no longer than this one, to slot `start` and following."""

    def move(self, source: int, target: int) -> None:
        """Copy one slot over another."""

    def zero(self, slot: int) -> None:
        """Overwrite one slot with zeros."""

    def broadcast(self, slots: slice, length: int) -> None:
        """Copy the first `length` positions of the first of these slots to all of them."""


class Runner(ABC):
    """Forward passes of a model over slots.

    Attributes:
        owners: of the slots, in their order.
        calls: forward passes so far.
        vocabulary_size: tokens that it scores.
        device: of token ids.
        dtype: of hidden states.
        position_bytes: of keys and values of one position.
        is_invariant: a position has the same bits, whatever else a pass reads.
    """

    vocabulary_size: int
    device: torch.device
    dtype: torch.dtype
    position_bytes: int
    is_invariant = False

    def __init__(self) -> None:
        self.owners: list[Any] = []
        self.calls = 0
        self._cache = self._new_cache()

    @abstractmethod
    def _new_cache(self) -> Any:
        """A cache with no buffers yet."""

    @abstractmethod
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
            visible: positions to attend to: one more than the largest of `positions`.
            valid: bool [B, n], False for padding, which comes last; None where there is none.
            slots: which B slots; all by default.
            transient: the logits need not outlast the next such pass of this runner.

        Returns:
            Logits [B, n, vocabulary_size]; of padding what is not to be read.
        """

    def room(self, name: str, *shape: int) -> Tensor:
        """float32 of that shape, not set; it need not outlast the next call with that name."""
        return torch.empty(shape)

    @property
    def draws(self) -> bool:
        """Whether `draft` serves."""
        return False

    def draft(
        self,
        line: Tensor,
        room: Tensor,
        stops: Sequence[int],
        positions: Sequence[int],
        temperature: Number,
        uniforms: Tensor,
        *,
        kept: Tensor | None = None,
        sure: Tensor | None = None,
        stopping: Stopping | None = None,
    ) -> list[int]:
        """Draw several draft tokens of each slot [D], one pass each, without coming back between: where `draws` holds.

        Returns how many of each slot: the largest is the number of passes.

        Args:
            line: int64 [D, 1 + K], the token before the first draft token, and these; read and written.
            room: float32 [D, K, V]; their distributions are written there.
            stops: how many draft tokens are to be drawn of each slot, at most.
            positions: of each slot's first token in `line`.
            temperature: a number, or [D, 1].
            uniforms: float64 [D, K], what they are drawn with.
            kept: as `room`, for their logits.
            sure: float32 [D, K], for their `confidence`; 0 so far.
            stopping: where slots stop before `stops`; needs `sure`.
        """
        raise NotImplementedError

    @abstractmethod
    def read(
        self,
        tokens: Tensor,
        positions: Tensor,
        *,
        visible: int,
        valid: Tensor | None = None,
        slots: slice | None = None,
    ) -> None:
        """Prefill: as `forward`, but only writes the KV cache and gives no logits."""

    def admit(self, owners: list[Any], length: int) -> slice:
        """Give each owner a slot with room for `length` positions; returns their slots."""
        first = len(self.owners)
        if not first:
            self._acquire()
        # May run out of memory: before owners change.
        self._cache.reserve(first + len(owners), length, not first)
        self.owners += owners
        return slice(first, len(self.owners))

    def release(self, owner: Any, *, spoilt: bool = False) -> None:
        """Free an owner's slot; the last slot moves into the gap.

        A `spoilt` slot leaves nothing behind: a NaN in it would spoil whoever sits there next, since masked times NaN is NaN.
        """
        if owner not in self.owners:
            return
        gap, last = self.owners.index(owner), len(self.owners) - 1
        if gap != last:
            self._cache.move(last, gap)
            self.owners[gap] = self.owners[last]
        elif spoilt:
            self._cache.zero(gap)
        self.owners.pop()
        if not self.owners:
            self._release_cache()

    def arrange(self, key: Callable[[Any], Any]) -> None:  # noqa: B027  # where moving a slot is copying it
        """Sort slots by a key of their owners, where that costs nothing."""

    def clear(self) -> None:
        """Free all slots."""
        self.owners = []
        self._release_cache()

    def growth(self, more: int, length: int) -> int:
        """Bytes that admitting `more` owners would take, if the longest of all needs `length` positions."""
        return self._cache.growth(len(self.owners) + more, length, not self.owners) * self.position_bytes

    def broadcast(self, slots: slice, length: int) -> None:
        """Copy the first `length` positions of the first of these slots to all of them."""
        self._cache.broadcast(slots, length)

    def save(self, slot: int, length: int) -> KeyValues:
        """A copy of the keys and values of a slot's first `length` positions."""
        return self._cache.save(slot, length)

    def restore(self, slot: int, saved: KeyValues, length: int) -> None:
        """Write the first `length` positions of what `save` returned into a slot, which then need not be prefilled."""
        self._cache.restore(slot, saved, length)

    def merge(self, other: Runner) -> None:
        """Take over all owners of another runner of the same model with their slots; the other is empty then."""
        if not other.owners:
            return
        if self.owners or not self._may_take_buffers:
            self._copy(other, slice(0, len(other.owners)))
        else:
            self.owners, self._cache = other.owners, other._cache
        other.clear()

    def copy(self, owner: Any, other: Runner) -> None:
        """Admit an owner of another runner of the same model, if it is one, with its slot or a copy: the other must not use it again."""
        if owner in other.owners:
            slot = other.owners.index(owner)
            self._copy(other, slice(slot, slot + 1))

    def _copy(self, other: Runner, slots: slice) -> None:
        own = self.admit(other.owners[slots], other._cache.length)
        self._cache.copy(other._cache, slots, own.start)

    # ---- what only some runners have: buffers that outlive their owners, and passes captured over them ------------

    _may_take_buffers = True
    """Whether another runner's buffers may take the place of its own."""

    def _acquire(self) -> None:  # noqa: B027  # most have none
        """Begin to use buffers that outlive their owners, if there are any."""

    def _release_cache(self) -> None:
        """Free the buffers, or return them."""
        self._cache = self._new_cache()

    def reserve(self, slots: int, length: int) -> None:  # noqa: B027  # most have none
        """Allocate buffers ahead, where they outlive their owners. Only while there are no owners."""

    def reading_bytes(self, visible: int) -> int:
        """Bytes a prefill pass takes for each token, beside the KV cache."""
        return 0

    @property
    def uncaptured(self) -> int:
        """Passes so far of shapes that are still to be captured: slower than the same will be."""
        return 0

    def warm_up(self, slots: int, length: int, widths: Sequence[int]) -> Iterator[None]:
        """Capture the passes over so many slots, `widths` tokens each and up to `length` positions; yields after each.

        Only while there are no owners; does nothing where passes are not captured.
        """
        yield from ()


class Model(Protocol):
    """A language model in memory, whoever runs it.

    Attributes:
        config, generation_config: transformers'.
    """

    config: Any
    generation_config: Any

    @property
    def output_size(self) -> int:
        """Number of logits it gives, padding included."""

    @property
    def precision(self) -> str:
        """In which it computes, in a word or two."""

    @property
    def device(self) -> torch.device:
        """Where token ids go."""

    @property
    def dtype(self) -> torch.dtype:
        """Of hidden states."""

    @property
    def gpu(self) -> torch.device | None:
        """The one GPU it is on; None elsewhere or on several devices."""

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights that a pass over one token reads."""

    def runner(self, vocabulary_size: int, *, apart: bool = False, beside: bool = False) -> Runner:
        """A runner with no slots, whose logits are of `vocabulary_size` tokens: cut, or −inf for tokens that the model lacks.

        Args:
            apart: it leaves alone the buffers that outlive their owners; or
            beside: it gets such buffers of its own.
        """

    def with_layers(self, layers: Sequence[int], load: Callable[[], Any]) -> Model:
        """A model of some of the layers (0-based), which shares all weights; `load` makes it as a module."""

    def module(self) -> Any:
        """The same model as one of transformers', with the same values; loaded when first asked for."""

    def prepare_drafting(self) -> None:
        """Compile, or read, what drafting needs, so that the first round takes no longer than others; after the loops of `core`."""

    def free_memory(self) -> bool:
        """Free what could be made again; returns True if anything was freed."""
