"""The KV cache of fused passes: every slot at its own position, keys and values in the order in which attention reads them."""

from __future__ import annotations

import numpy as np

from specviz.runtime.cpu.fused.decoder import Buffers, DecoderShape
from specviz.runtime.cpu.fused.layers import POSITIONS

_GRAIN = 64
"""Positions by which buffers grow."""

Saved = tuple[np.ndarray, np.ndarray]
"""Keys (in blocks of positions) and values of one slot in every layer."""


class FusedCache:
    """Slots of one decoder; see `runner.SlotCache`."""

    def __init__(self, shape: DecoderShape, layers: int) -> None:
        """No buffers yet."""
        self._shape, self._layers = shape, layers
        self.buffers = Buffers(shape, layers, 0, 0)

    @property
    def slots(self) -> int:
        """Slots the buffers hold now."""
        return self.buffers.slots

    @property
    def length(self) -> int:
        """Positions of a slot that the buffers hold now."""
        return self.buffers.length

    def reserve(self, slots: int, length: int, fresh: bool = False) -> None:
        """Make room for so many slots of so many positions; `fresh` if their contents need not be kept."""
        slots, length = self._capacity(slots, length, fresh)
        if (slots, length) == (self.slots, self.length):
            return
        before, self.buffers = self.buffers, Buffers(self._shape, self._layers, slots, length)
        if not fresh:
            self._copy(before, slice(0, before.slots), 0, before.length)

    def growth(self, slots: int, length: int, fresh: bool = False) -> int:
        """Positions, of all slots together, by which the buffers would grow to make that room."""
        slots, length = self._capacity(slots, length, fresh)
        return slots * length - self.slots * self.length

    def _capacity(self, slots: int, length: int, fresh: bool) -> tuple[int, int]:
        length = -(-length // _GRAIN) * _GRAIN
        if fresh:
            return slots, length
        if slots > self.slots:  # what is not written yet takes no memory, and growing copies everything
            slots = 1 << (slots - 1).bit_length()
        return max(slots, self.slots), max(length, self.length)

    def save(self, slot: int, length: int) -> Saved:
        """A copy of the first `length` positions of a slot."""
        blocks = -(-length // POSITIONS)
        keys, values = self.buffers.keys, self.buffers.values
        return keys[:, slot, :, :blocks].copy(), values[:, slot, :, :length].copy()

    def restore(self, slot: int, saved: Saved, length: int) -> None:
        """Write the first `length` positions of what `save` returned into a slot."""
        blocks = -(-length // POSITIONS)
        keys, values = saved
        self.buffers.keys[:, slot, :, :blocks] = keys[:, :, :blocks]
        self.buffers.values[:, slot, :, :length] = values[:, :, :length]

    def copy(self, other: FusedCache, slots: slice, start: int) -> None:
        """Copy slots of another cache, no longer than this one, to slot `start` and following."""
        self._copy(other.buffers, slots, start, other.length)

    def _copy(self, source: Buffers, slots: slice, start: int, length: int) -> None:
        own = slice(start, start + slots.stop - slots.start)
        self.buffers.keys[:, own, :, : length // POSITIONS] = source.keys[:, slots]
        self.buffers.values[:, own, :, :length] = source.values[:, slots]

    def move(self, source: int, target: int) -> None:
        """Copy one slot over another."""
        for each in (self.buffers.keys, self.buffers.values):
            each[:, target] = each[:, source]

    def zero(self, slot: int) -> None:
        """Overwrite one slot with zeros."""
        for each in (self.buffers.keys, self.buffers.values):
            each[:, slot] = 0

    def broadcast(self, slots: slice, length: int) -> None:
        """Copy the first `length` positions of the first of these slots to all of them."""
        saved = self.save(slots.start, length)
        for slot in range(slots.start + 1, slots.stop):
            self.restore(slot, saved, length)
