"""The KV cache of fused passes: each slot has its own buffers. Keys and values are in the order in which attention reads them.

Adding a slot, dropping it or moving it to another cache copies no keys or values.
"""

from __future__ import annotations

import numpy as np

from specviz.runtime.cpu.fused.layers import POSITIONS
from specviz.runtime.cpu.fused.layout import aligned
from specviz.runtime.cpu.fused.memory import FLOAT_BYTES
from specviz.runtime.cpu.fused.tables import SLOT

Saved = tuple[np.ndarray, np.ndarray]
"""Keys (in blocks of positions) and values of one slot in every layer."""


class _Slot:
    """Keys and values of one slot: [layers, key heads, blocks, head size, 32] and [layers, key heads, length, head size], float32."""

    def __init__(self, layers: int, key_heads: int, size: int, length: int) -> None:
        """Allocate zeros; `length` is rounded up to blocks. Scores cover whole blocks; garbage there could make a pass 100 times slower."""
        length = -(-length // POSITIONS) * POSITIONS
        count = layers * key_heads * length * size * FLOAT_BYTES
        keys, values = (aligned(count).view(np.float32) for _ in range(2))
        self.keys = keys.reshape(layers, key_heads, length // POSITIONS, size, POSITIONS)
        self.values = values.reshape(layers, key_heads, length, size)
        self.fields = int(keys.ctypes.data), int(values.ctypes.data), length


class FusedCache:
    """Slots of one decoder. Passes must not use positions beyond the length of a slot.

    Attributes:
        address: address of the table of slots, an array of `SLOT`.
        lengths: lengths of the slots [n]; `length` is the largest.
    """

    def __init__(self, layers: int, key_heads: int, head_size: int) -> None:
        """No slots yet."""
        self._sizes = layers, key_heads, head_size
        self._use([])

    def add(self, count: int, length: int) -> None:
        """Add slots of at least `length` positions."""
        self._use(self._slots + [_Slot(*self._sizes, length) for _ in range(count)])

    def take(self, other: FusedCache, slots: slice) -> None:
        """Take over `slots` of another cache, which must not use them afterwards."""
        self._use(self._slots + other._slots[slots])

    def drop(self, slot: int, spoilt: bool) -> None:
        """Remove a slot; the last slot takes its index. `spoilt` is ignored: new slots are zeros."""
        slots = list(self._slots)
        slots[slot] = slots[-1]
        self._use(slots[:-1])

    def _use(self, slots: list[_Slot]) -> None:
        self._slots, self._table = slots, np.array([each.fields for each in slots], SLOT)
        self.address, self.lengths = int(self._table.ctypes.data), self._table["length"]
        self.length = int(max(self.lengths, default=0))

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
