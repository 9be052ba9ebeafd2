"""The KV cache of fused passes: each slot has its own buffers, with keys and values in the order in which attention reads them.

Slots come, go and move to another cache without a copy.
"""

from __future__ import annotations

import numpy as np

from specviz.runtime.cpu.fused.decoder import DecoderShape, SlotBuffers, SlotTable
from specviz.runtime.cpu.fused.layers import POSITIONS

Saved = tuple[np.ndarray, np.ndarray]
"""Keys (in blocks of positions) and values of one slot in every layer."""


class FusedCache:
    """Slots of one decoder."""

    def __init__(self, shape: DecoderShape, layers: int) -> None:
        """No slots yet."""
        self._shape, self._layers = shape, layers
        self._slots: list[SlotBuffers] = []
        self.table = SlotTable([])

    def add(self, count: int, length: int) -> None:
        """Add uninitialised slots of at least `length` positions."""
        self._use(self._slots + [SlotBuffers(self._shape, self._layers, length) for _ in range(count)])

    def take(self, other: FusedCache, slots: slice) -> None:
        """Add slots of another cache, which must not use them any more."""
        self._use(self._slots + other._slots[slots])

    def drop(self, slot: int) -> None:
        """Remove a slot; the last one takes its place."""
        slots = list(self._slots)
        slots[slot] = slots[-1]
        self._use(slots[:-1])

    def arrange(self, order: list[int]) -> None:
        """Reorder slots; `order` has their present indices."""
        self._use([self._slots[slot] for slot in order])

    def _use(self, slots: list[SlotBuffers]) -> None:
        self._slots, self.table = slots, SlotTable(slots)

    def stretch(self, slots: np.ndarray, positions: np.ndarray) -> None:
        """Extend `slots` [n] to hold `positions` [n]: those that are too short are copied to longer ones."""
        if (positions < self.table.lengths[slots]).all():
            return
        longer = list(self._slots)
        for slot in set(slots[positions >= self.table.lengths[slots]].tolist()):
            before, needed = self._slots[slot], int(positions[slots == slot].max()) + 1
            longer[slot] = SlotBuffers(self._shape, self._layers, needed)
            longer[slot].keys[:, :, : before.length // POSITIONS] = before.keys
            longer[slot].values[:, :, : before.length] = before.values
        self._use(longer)

    def save(self, slot: int, length: int) -> Saved:
        """A copy of the first `length` positions of a slot."""
        blocks, own = -(-length // POSITIONS), self._slots[slot]
        return own.keys[:, :, :blocks].copy(), own.values[:, :, :length].copy()

    def restore(self, slot: int, saved: Saved, length: int) -> None:
        """Write the first `length` positions of what `save` returned into a slot."""
        blocks, own = -(-length // POSITIONS), self._slots[slot]
        keys, values = saved
        own.keys[:, :, :blocks] = keys[:, :, :blocks]
        own.values[:, :, :length] = values[:, :, :length]

    def broadcast(self, slots: slice, length: int) -> None:
        """Copy the first `length` positions of the first of these slots to all of them."""
        saved = self.save(slots.start, length)
        for slot in range(slots.start + 1, slots.stop):
            self.restore(slot, saved, length)
