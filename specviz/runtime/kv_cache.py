"""A KV cache in which every slot has its own position.

Keys and values are in fixed [slots, heads, length + 1, size] buffers. A forward pass writes each token at its own absolute
position and attends to positions at or before it, so rollback is free: the next write overwrites rejected tokens, and the
mask hides them until then. Padding is written to the scratch position behind the last one, which every mask hides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers import Cache

GRAIN = 64
"""Buffers grow, and passes of transformers modules read them, in steps of this many positions."""
_CAPTURED_GRAIN = 512
"""As `GRAIN`, for buffers that captured passes read."""
_INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integer dtypes by their bytes."""

KeyValues = dict[int, tuple[Tensor, Tensor]]
"""Keys and values of one sequence by layer, [heads, positions, size] each."""


class KVCache(Cache):
    """Keys and values for transformers' modules; `write_to` says where the next forward pass writes and what it sees.

    Attributes:
        slots, length: number of slots and positions of the buffers; `length` is also the scratch position's index.
        used: number of slots in use; they come first in the buffers.
        buffers: keys and values by layer.
        mask_bands: see `attention.mask_band`, by length and window. They live as long as the buffers, since captured passes
            read them.
    """

    def __init__(self, on_move: Callable[[], None] | None = None) -> None:
        """No buffers yet.

        Args:
            on_move: called before buffers are replaced or freed; needed if captured passes read the buffers. If given, buffers grow
                in large steps, and slots to powers of two.
        """
        super().__init__(layers=[])
        self._on_move = on_move
        self.buffers: dict[int, tuple[Tensor, Tensor]] = {}
        self.slots = self.length = self.used = 0
        self.mask_bands: dict[tuple[int, int | None], Tensor] = {}

    # ---- in a forward pass

    def write_to(self, slots: slice, index: Tensor, visible: int) -> None:
        """Let the next forward pass run on `slots`, write at positions `index` [B, n], and see `visible` positions."""
        self._target, self._index, self._visible = slots, index, visible

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Write a layer's keys and values [B, H, n, D] where `write_to` said; return those of all visible positions."""
        index = self._index.to(key_states.device)[:, None, :, None]
        buffers, visible = self.layer(layer_idx, key_states, value_states), list[Tensor]()
        for buffer, states in zip(buffers, (key_states, value_states), strict=True):
            slots = buffer[self._target]
            # Scattered as integers: on the CPU torch scatters half precision by copying the whole buffer.
            bits = _INTEGERS[states.element_size()]
            slots.view(bits).scatter_(2, index.expand_as(states), states.view(bits))
            visible.append(slots[:, :, : self._visible])
        return visible[0], visible[1]

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        """Visible length and offset. transformers calls this, although the model runner makes the masks."""
        return self._visible, 0

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """0: slots have no common length, and passes are always given positions."""
        return 0

    # ---- slots and buffers

    def layer(self, number: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """A layer's buffers. The first call allocates them, with heads, size, dtype and device of `keys` and `values` [_, H, _, D]."""
        if number not in self.buffers:
            # Zeros for the whole capacity, not garbage: a masked NaN would still spoil its slot.
            key_buffer, value_buffer = (
                like.new_zeros(self.slots, like.shape[1], self.length + 1, like.shape[3])
                for like in (keys, values)
            )
            self.buffers[number] = key_buffer, value_buffer
        return self.buffers[number]

    def add(self, count: int, length: int) -> None:
        """Use `count` more slots; all have at least `length` positions."""
        self.reserve(self.used + count, length, fresh=not self.used)
        self.used += count

    def drop(self, slot: int, spoilt: bool) -> None:
        """Stop using a slot; the last slot in use moves to its index. A `spoilt` slot may hold NaN."""
        self.used -= 1
        for buffers in self.buffers.values():
            for buffer in buffers:
                if slot != self.used:
                    buffer[slot] = buffer[self.used]
                elif spoilt:  # a NaN would spoil the slot's next owner: a weight of 0 times NaN is NaN
                    buffer[slot] = 0

    def reserve(self, slots: int, length: int, fresh: bool = False) -> None:
        """Make the buffers hold `slots` slots of `length` positions; `fresh`: the old contents are not needed."""
        slots, length = self._capacity(slots, length, fresh)
        if slots < self.slots or length < self.length:
            self.free()
        if (slots, length) != (self.slots, self.length):
            if self._on_move is not None:
                self._on_move()
            for number, (keys, values) in self.buffers.items():
                self.buffers[number] = _resized(keys, slots, length), _resized(values, slots, length)
            self.slots, self.length = slots, length

    def growth(self, slots: int, length: int, fresh: bool = False) -> int:
        """Number of positions, over all slots, by which `reserve` would make the buffers grow."""
        slots, length = self._capacity(slots, length, fresh)
        return slots * (length + 1) - self.slots * (self.length + 1)

    def _capacity(self, slots: int, length: int, fresh: bool) -> tuple[int, int]:
        """New number of slots and length. They shrink only if `fresh` and would otherwise be over twice as large as needed."""
        grain = GRAIN
        if self._on_move is not None:
            slots, grain = power(slots), _CAPTURED_GRAIN
        length = -(-length // grain) * grain
        grown = max(slots, self.slots), max(length, self.length)
        if fresh and grown != (self.slots, self.length) and grown[0] * grown[1] > 2 * slots * length:
            return slots, length
        return grown

    def free(self) -> None:
        """Free the buffers."""
        if self._on_move is not None:
            self._on_move()
        self.buffers.clear()
        self.mask_bands.clear()
        self.slots = self.length = 0

    def save(self, slot: int, length: int) -> KeyValues:
        """A copy of the first `length` positions of a slot."""
        own = slot, slice(None), slice(length)
        return {
            number: (keys[own].clone(), values[own].clone())
            for number, (keys, values) in self.buffers.items()
        }

    def restore(self, slot: int, saved: KeyValues, length: int) -> None:
        """Write the first `length` positions of what `save` returned into a slot."""
        for number, states in saved.items():
            for buffer, own in zip(self.layer(number, *(each[None] for each in states)), states, strict=True):
                buffer[slot, :, :length] = own[:, :length]

    def copy(self, other: KVCache, slots: slice) -> None:
        """Copy `slots` of another cache, whose `length` is not above this cache's, to the last slots in use of this cache."""
        target, length = slice(self.used + slots.start - slots.stop, self.used), other.length
        for number, sources in other.buffers.items():
            for buffer, source in zip(self.layer(number, *sources), sources, strict=True):
                buffer[target, :, :length] = source[slots, :, :length]


def _resized(buffer: Tensor, slots: int, length: int) -> Tensor:
    """A larger buffer with the same contents, except those of the scratch position."""
    # The buffer is already larger if memory ran out while other layers were resized.
    slots, positions = max(slots, buffer.shape[0]), max(length + 1, buffer.shape[2])
    new = buffer.new_zeros(slots, buffer.shape[1], positions, buffer.shape[3])
    new[: buffer.shape[0], :, : buffer.shape[2] - 1] = buffer[:, :, :-1]
    return new


def power(count: int) -> int:
    """`count` rounded up to a power of two; 0 for 0."""
    return 1 << (count - 1).bit_length() if count else 0
