"""A KV cache in which every slot has its own position.

Keys and values are in fixed [slots, heads, length + 1, size] buffers. A forward pass writes each token at its own absolute
position and attends to positions at or before it, so rollback is free: the next write overwrites rejected tokens, and the
mask hides them until then. Padding is written to the scratch position behind the last one, which every mask hides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor
from transformers import Cache

from specviz.compat.transformers import CacheLayerMixin

GRAIN = 64
"""Buffers grow, and passes see them, in steps of this many positions."""
_CAPTURED_GRAIN = 512
"""As `GRAIN`, for buffers that captured passes read."""
_INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integer dtypes by their bytes."""

KeyValues = list[tuple[Tensor, Tensor]]
"""Keys and values of one sequence in every layer, [heads, positions, size] each."""


@dataclass
class _State:
    """What all layers share: the buffers' size, and where the next pass writes. (Layers don't refer to the cache: a cycle
    would keep its memory until a garbage collection.)"""

    target: slice
    index: Tensor
    slots: int = 0
    length: int = 0
    visible: int = 0


class KVCacheLayer(CacheLayerMixin):
    """One layer's keys and values; allocated when its layer first runs, on that layer's device."""

    is_sliding = False
    keys: Tensor
    values: Tensor

    def __init__(self, state: _State) -> None:
        super().__init__()
        self._state = state

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocate zeros for the whole capacity (not garbage: a masked NaN would still spoil its slot)."""
        if self.is_initialized:
            return
        slots, length = self._state.slots, self._state.length + 1
        self.keys, self.values = (
            like.new_zeros(slots, like.shape[1], length, like.shape[3]) for like in (key_states, value_states)
        )
        self.dtype, self.device = key_states.dtype, key_states.device
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Write [B, H, n, D] states where `KVCache.write_to` said; return all visible ones."""
        self.lazy_initialization(key_states, value_states)
        state = self._state
        index = state.index.to(key_states.device)[:, None, :, None]
        result = []
        for buffer, states in ((self.keys, key_states), (self.values, value_states)):
            slots = buffer[state.target]
            # Scattered as integers: on the CPU torch scatters half precision by copying the whole buffer.
            bits = _INTEGERS[states.element_size()]
            slots.view(bits).scatter_(2, index.expand_as(states), states.view(bits))
            result.append(slots[:, :, : state.visible])
        return result[0], result[1]

    def resize(self, slots: int, length: int) -> None:
        """Move into larger buffers; the old scratch position is left behind."""
        for name in ("keys", "values") if self.is_initialized else ():
            old = getattr(self, name)
            # It is larger already if memory ran out while other layers were resized.
            slots, positions = max(slots, old.shape[0]), max(length + 1, old.shape[2])
            new = old.new_zeros(slots, old.shape[1], positions, old.shape[3])
            new[: old.shape[0], :, : old.shape[2] - 1] = old[:, :, :-1]
            setattr(self, name, new)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Visible length and offset; transformers asks, but the model runner makes the masks."""
        return self._state.visible, 0

    def get_seq_length(self) -> int:
        """0: slots have no common length, positions are always given."""
        return 0

    def get_max_length(self) -> int:
        """Positions the buffers hold now."""
        return self._state.length


class KVCache(Cache):
    """A transformers cache of `KVCacheLayer`s; `write_to` says where the next forward pass writes and what it sees."""

    layers: list[KVCacheLayer]  # type: ignore[assignment]

    def __init__(self, on_move: Callable[[], None] | None = None) -> None:
        """No buffers yet.

        Args:
            on_move: called before buffers are replaced or freed; given if captured passes read them. Buffers then grow in large
                steps, and slots to powers of two.
        """
        self._state = _State(slice(0, 0), torch.empty(0))
        super().__init__(
            layer_class_to_replicate=cast("type[KVCacheLayer]", partial(KVCacheLayer, self._state))
        )
        self._on_move = on_move
        self.used = 0
        """Slots in use: the first ones that the buffers hold."""
        self.mask_bands: dict[tuple[int, int | None], Tensor] = {}
        """The bands that masks are cut from, by length and window; they live as long as the buffers, since captured passes read them."""

    @property
    def slots(self) -> int:
        """Slots the buffers hold now."""
        return self._state.slots

    @property
    def length(self) -> int:
        """Positions of a slot that the buffers hold now; also the scratch position's index."""
        return self._state.length

    def add(self, count: int, length: int) -> None:
        """Use `count` more slots; all have at least `length` positions."""
        self.reserve(self.used + count, length, fresh=not self.used)
        self.used += count

    def drop(self, slot: int, spoilt: bool) -> None:
        """Stop using a slot; the last one moves to its index. A `spoilt` slot may hold NaN."""
        self.used -= 1
        for buffer in self._buffers():
            if slot != self.used:
                buffer[slot] = buffer[self.used]
            elif spoilt:  # a NaN would spoil the slot's next owner: a weight of 0 times NaN is NaN
                buffer[slot] = 0

    def reserve(self, slots: int, length: int, fresh: bool = False) -> None:
        """Make the buffers hold `slots` slots of `length` positions; `fresh` if their contents are not needed any more."""
        slots, length = self._capacity(slots, length, fresh)
        if slots < self.slots or length < self.length:
            self.free()
        if (slots, length) != (self.slots, self.length):
            if self._on_move is not None:
                self._on_move()
            for layer in self.layers:
                layer.resize(slots, length)
            self._state.slots, self._state.length = slots, length

    def growth(self, slots: int, length: int, fresh: bool = False) -> int:
        """Number of positions, over all slots, by which `reserve` would make the buffers grow."""
        slots, length = self._capacity(slots, length, fresh)
        return slots * (length + 1) - self.slots * (self.length + 1)

    def _capacity(self, slots: int, length: int, fresh: bool) -> tuple[int, int]:
        """The size that buffers get; smaller than now only if `fresh` and less than half is needed."""
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
        self.layers.clear()
        self.mask_bands.clear()
        self._state.slots = self._state.length = 0

    def write_to(self, slots: slice, index: Tensor, visible: int) -> None:
        """Let the next forward pass run on `slots`, write at positions `index` [B, n], and see `visible` positions."""
        self._state.target, self._state.index, self._state.visible = slots, index, visible

    def allocate(self, layers: int, like: Tensor) -> None:
        """Allocate the buffers of that many layers, if they are not, with heads, size, dtype and device of `like` [_, H, _, D]."""
        for number in range(layers):
            self._layer(number, like, like)

    def _layer(self, number: int, keys: Tensor, values: Tensor) -> KVCacheLayer:
        """Layer `number`, its buffers allocated for keys and values like these [_, H, _, D]."""
        while len(self.layers) <= number:
            self.layers.append(KVCacheLayer(self._state))
        self.layers[number].lazy_initialization(keys, values)
        return self.layers[number]

    def _buffers(self) -> Iterator[Tensor]:
        """Keys and values of every layer, one after another."""
        for layer in self.layers:
            if layer.is_initialized:
                yield from (layer.keys, layer.values)

    def save(self, slot: int, length: int) -> KeyValues:
        """A copy of the first `length` positions of a slot."""
        own = slot, slice(None), slice(length)
        return [(layer.keys[own].clone(), layer.values[own].clone()) for layer in self.layers]

    def restore(self, slot: int, saved: KeyValues, length: int) -> None:
        """Write the first `length` positions of what `save` returned into a slot."""
        for number, (keys, values) in enumerate(saved):
            layer = self._layer(number, keys[None], values[None])
            layer.keys[slot, :, :length] = keys[:, :length]
            layer.values[slot, :, :length] = values[:, :length]

    def copy(self, other: KVCache, slots: slice) -> None:
        """Copy slots of another cache, no longer than this one, to the last slots in use."""
        target, length = slice(self.used + slots.start - slots.stop, self.used), other.length
        for number, source in enumerate(other.layers):
            if source.is_initialized:
                layer = self._layer(number, source.keys, source.values)
                layer.keys[target, :, :length] = source.keys[slots, :, :length]
                layer.values[target, :, :length] = source.values[slots, :, :length]


def power(count: int) -> int:
    """`count` rounded up to a power of two; 0 for 0."""
    return 1 << (count - 1).bit_length() if count else 0
