"""A KV cache in which every slot stands at its own position.

Keys and values live in fixed [slots, heads, length + 1, size] buffers. A forward pass writes each token at its own absolute
position and attends to positions at or before it, so rollback is free: the next write overwrites rejected tokens, and the
mask hides them until then. Padding goes to the scratch position behind the last one, which no mask shows. Knows no model, no
method, no request and no randomness.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor
from transformers import Cache

from specviz.compat.transformers import CacheLayerMixin

GRAIN = 64
"""Buffers grow, and passes see them, in steps of this many positions."""
_INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integer dtypes by their bytes."""

KeyValues = list[tuple[Tensor, Tensor]]
"""Keys and values of one sequence in every layer, [heads, positions, size] each."""


@dataclass
class _State:
    """What all layers share: the buffers' size, and where the next pass writes. (Layers don't refer to the cache: a cycle
    would keep its memory until a garbage collection.)"""

    slots: int = 0
    length: int = 0
    target: slice = field(default_factory=lambda: slice(0, 0))
    index: Tensor = field(default_factory=lambda: torch.empty(0))
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
        self.keys, self.values = self._zeros(key_states), self._zeros(value_states)
        self.dtype, self.device = key_states.dtype, key_states.device
        self.is_initialized = True

    def _zeros(self, like: Tensor) -> Tensor:
        _, heads, _, size = like.shape
        return like.new_zeros(self._state.slots, heads, self._state.length + 1, size)

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Write [B, H, n, D] states where `KVCache.write_to` said; return all visible ones."""
        if not self.is_initialized:
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
        if not self.is_initialized:
            return
        for name in ("keys", "values"):
            old = getattr(self, name)
            # Larger already where memory ran out while the other layers were moved.
            new = old.new_zeros(
                max(slots, old.shape[0]), old.shape[1], max(length + 1, old.shape[2]), old.shape[3]
            )
            new[: old.shape[0], :, : old.shape[2] - 1] = old[:, :, :-1]
            setattr(self, name, new)

    def move(self, source: int, target: int) -> None:
        """Copy one slot over another."""
        if self.is_initialized:
            self.keys[target], self.values[target] = self.keys[source], self.values[source]

    def zero(self, slot: int) -> None:
        """Overwrite one slot with zeros."""
        if self.is_initialized:
            self.keys[slot], self.values[slot] = 0, 0

    def copy(self, source: KVCacheLayer, slots: slice, start: int, length: int) -> None:
        """Copy slots of another cache's layer to slot `start` and following, their first `length` positions."""
        if not source.is_initialized:
            return
        if not self.is_initialized:
            self.lazy_initialization(source.keys, source.values)
        self.keys[start : start + slots.stop - slots.start, :, :length] = source.keys[slots, :, :length]
        self.values[start : start + slots.stop - slots.start, :, :length] = source.values[slots, :, :length]

    def broadcast(self, slots: slice, length: int) -> None:
        """Copy the first `length` positions of the first of these slots to all of them."""
        if self.is_initialized:
            for buffer in (self.keys, self.values):
                buffer[slots, :, :length] = buffer[slots.start, :, :length].clone()

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

    def __init__(
        self, grain: int = GRAIN, doubles: bool = False, on_move: Callable[[], None] = lambda: None
    ) -> None:
        """No buffers yet.

        Args:
            grain: positions by which buffers grow.
            doubles: whether slots grow to the next power of two.
            on_move: called before buffers are replaced or freed.
        """
        self._state = _State()
        super().__init__(
            layer_class_to_replicate=cast("type[KVCacheLayer]", partial(KVCacheLayer, self._state))
        )
        self._grain, self._doubles, self._on_move = grain, doubles, on_move
        self.mask_bands: dict[tuple[int, int | None], Tensor] = {}
        """What masks are cut from, by length and window; lives as long as the buffers, since captured passes read it."""

    @property
    def slots(self) -> int:
        """Slots the buffers hold now."""
        return self._state.slots

    @property
    def length(self) -> int:
        """Positions of a slot that the buffers hold now; also the scratch position's index."""
        return self._state.length

    def reserve(self, slots: int, length: int, fresh: bool = False) -> None:
        """Make room for `slots` slots of `length` positions each; `fresh` if their contents need not be kept."""
        slots, length = self._capacity(slots, length, fresh)
        if slots < self.slots or length < self.length:
            self.free()
        if (slots, length) != (self.slots, self.length):
            self._on_move()
            for layer in self.layers:
                layer.resize(slots, length)
            self._state.slots, self._state.length = slots, length

    def allocate(self, layers: int, like: Tensor) -> None:
        """Allocate the buffers of that many layers, where they are not: heads, size, dtype and device of `like` [_, H, _, D]."""
        self._grow_to(layers)
        for layer in self.layers:
            if not layer.is_initialized:
                layer.lazy_initialization(like, like)

    def growth(self, slots: int, length: int, fresh: bool = False) -> int:
        """Positions, of all slots together, by which the buffers would grow to make that room."""
        slots, length = self._capacity(slots, length, fresh)
        return slots * (length + 1) - self.slots * (self.length + 1)

    def _capacity(self, slots: int, length: int, fresh: bool) -> tuple[int, int]:
        """The size buffers get; smaller than now only if nothing is kept and less than half would be needed."""
        slots, length = power(slots) if self._doubles else slots, -(-length // self._grain) * self._grain
        grown = max(slots, self.slots), max(length, self.length)
        if fresh and grown != (self.slots, self.length) and grown[0] * grown[1] > 2 * slots * length:
            return slots, length
        return grown

    def free(self) -> None:
        """Free the buffers."""
        self._on_move()
        self.layers.clear()
        self.mask_bands.clear()
        self._state.slots = self._state.length = 0

    def write_to(self, slots: slice, index: Tensor, visible: int) -> None:
        """Let the next forward pass run on `slots`, write at positions `index` [B, n], and see `visible` positions."""
        self._state.target, self._state.index, self._state.visible = slots, index, visible

    def save(self, slot: int, length: int) -> KeyValues:
        """A copy of the first `length` positions of a slot."""
        return [
            (layer.keys[slot, :, :length].clone(), layer.values[slot, :, :length].clone())
            for layer in self.layers
        ]

    def restore(self, slot: int, saved: KeyValues, length: int) -> None:
        """Write the first `length` positions of what `save` returned into a slot."""
        self._grow_to(len(saved))
        for layer, (keys, values) in zip(self.layers, saved, strict=True):
            if not layer.is_initialized:
                layer.lazy_initialization(keys[None], values[None])
            layer.keys[slot, :, :length], layer.values[slot, :, :length] = (
                keys[:, :length],
                values[:, :length],
            )

    def _grow_to(self, layers: int) -> None:
        while len(self.layers) < layers:
            self.layers.append(KVCacheLayer(self._state))

    def copy(self, other: KVCache, slots: slice, start: int) -> None:
        """Copy slots of another cache, no longer than this one, to slot `start` and following."""
        self._grow_to(len(other.layers))
        for layer, source in zip(self.layers, other.layers, strict=False):
            layer.copy(source, slots, start, other.length)

    def move(self, source: int, target: int) -> None:
        """Copy slot `source` over slot `target` in all layers."""
        for layer in self.layers:
            layer.move(source, target)

    def zero(self, slot: int) -> None:
        """Overwrite one slot with zeros in all layers."""
        for layer in self.layers:
            layer.zero(slot)

    def broadcast(self, slots: slice, length: int) -> None:
        """Copy the first `length` positions of the first of these slots to all of them, in all layers."""
        for layer in self.layers:
            layer.broadcast(slots, length)


def power(count: int) -> int:
    """The next power of two; 0 for 0."""
    return 1 << (count - 1).bit_length() if count else 0
