"""A key-value cache where every row stands at its own position.

Keys and values live in fixed [rows, heads, length + 1, size] buffers. A forward pass writes each token at its own
absolute position and attends to what lies at or before it, so taking tokens back costs nothing: the next write
lands on the stale slots, and until then the mask hides them. Padding goes to the scratch slot behind the last
position, which no mask ever shows. Knows no model, no method, no request and no randomness.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor
from transformers import Cache
from transformers.cache_utils import CacheLayerMixin

GRAIN = 64
"""Buffers grow, and are seen, in steps of this many positions."""
_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
"""The integers as wide as a number of so many bytes."""


Saved = list[tuple[Tensor, Tensor]]
"""Keys and values of one row in every layer, [heads, positions, size] each."""


class SlotLayer(CacheLayerMixin):
    """One layer's keys and values; created when its layer first runs, on that layer's device."""

    is_sliding = False
    keys: Tensor
    values: Tensor

    def __init__(self, cache: SlotCache) -> None:
        super().__init__()
        self._cache = cache

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocate zeros (never garbage: a masked NaN would still spoil a row) for the cache's whole capacity."""
        self.keys, self.values = self._empty(key_states), self._empty(value_states)
        self.dtype, self.device = key_states.dtype, key_states.device
        self.is_initialized = True

    def _empty(self, like: Tensor) -> Tensor:
        _, heads, _, size = like.shape
        return like.new_zeros(self._cache.rows, heads, self._cache.length + 1, size)

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Write [B, H, n, D] states at the positions the cache was aimed at; return all visible ones."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        target, visible = self._cache.target, self._cache.visible
        index = self._cache.index.to(key_states.device)[:, None, :, None]
        result = []
        for buffer, states in ((self.keys, key_states), (self.values, value_states)):
            rows = buffer[target]
            # Moved as bits: on the CPU torch scatters half precision by copying the whole buffer.
            bits = _BITS[states.element_size()]
            rows.view(bits).scatter_(2, index.expand_as(states), states.view(bits))
            result.append(rows[:, :, :visible])
        return result[0], result[1]

    def resize(self, rows: int, length: int) -> None:
        """Move into larger buffers; the old scratch slot is left behind."""
        if not self.is_initialized:
            return
        for name in ("keys", "values"):
            old = getattr(self, name)
            # Larger already where memory ran out while the other layers moved.
            new = old.new_zeros(
                max(rows, old.shape[0]), old.shape[1], max(length + 1, old.shape[2]), old.shape[3]
            )
            new[: old.shape[0], :, : old.shape[2] - 1] = old[:, :, :-1]
            setattr(self, name, new)

    def move(self, source: int, target: int) -> None:
        """Copy one row over another."""
        if self.is_initialized:
            self.keys[target], self.values[target] = self.keys[source], self.values[source]

    def copy(self, source: SlotLayer, rows: slice, start: int, length: int) -> None:
        """Take over rows of another cache's layer, from row `start` on, with their first `length` positions."""
        if not source.is_initialized:
            return
        if not self.is_initialized:
            self.lazy_initialization(source.keys, source.values)
        self.keys[start : start + rows.stop - rows.start, :, :length] = source.keys[rows, :, :length]
        self.values[start : start + rows.stop - rows.start, :, :length] = source.values[rows, :, :length]

    def spread(self, rows: slice, length: int) -> None:
        """Copy the first `length` positions of the first of these rows to all of them."""
        if self.is_initialized:
            for buffer in (self.keys, self.values):
                buffer[rows, :, :length] = buffer[rows.start, :, :length].clone()

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Visible length and offset. (Masks are made by the slot model; transformers only asks.)"""
        return self._cache.visible, 0

    def get_seq_length(self) -> int:
        """Rows have no common length: positions are always given."""
        return 0

    def get_max_length(self) -> int:
        """Positions the buffers hold now."""
        return self._cache.length


class SlotCache(Cache):
    """A transformers cache of `SlotLayer`s. `aim` says where the next forward pass writes and what it sees."""

    layers: list[SlotLayer]  # type: ignore[assignment]

    def __init__(
        self, grain: int = GRAIN, doubles: bool = False, moved: Callable[[], None] = lambda: None
    ) -> None:
        """No buffers yet.

        Args:
            grain: positions by which buffers grow.
            doubles: whether rows grow to the next power of two.
            moved: called before buffers are replaced by larger ones.
        """
        super().__init__(layer_class_to_replicate=cast("type[SlotLayer]", partial(SlotLayer, self)))
        self._grain, self._doubles, self._moved = grain, doubles, moved
        self.rows = self.length = self.visible = 0
        self.target = slice(0, 0)
        self.index = torch.empty(0)
        self.stairs: dict[tuple[int, int | None], Tensor] = {}
        """What masks are cut from, by length and window; as long-lived as the buffers, since captured passes read it."""

    def reserve(self, rows: int, length: int, fresh: bool = False) -> None:
        """Make room for `rows` rows of `length` positions each; `fresh` where nothing is kept of what lies there."""
        rows, length = self._enough(rows, length, fresh)
        if rows < self.rows or length < self.length:
            self.forget()
        if (rows, length) != (self.rows, self.length):
            self._moved()
            for layer in self.layers:
                layer.resize(rows, length)
            self.rows, self.length = rows, length

    def growth(self, rows: int, length: int, fresh: bool = False) -> int:
        """By how many positions, of all rows together, the buffers would grow to make that room."""
        rows, length = self._enough(rows, length, fresh)
        return rows * (length + 1) - self.rows * (self.length + 1)

    def _enough(self, rows: int, length: int, fresh: bool) -> tuple[int, int]:
        """Rows and positions as buffers are made: fewer than there are only where much more would be made than is needed."""
        rows, length = power(rows) if self._doubles else rows, -(-length // self._grain) * self._grain
        grown = max(rows, self.rows), max(length, self.length)
        if fresh and grown != (self.rows, self.length) and grown[0] * grown[1] > 2 * rows * length:
            return rows, length
        return grown

    def forget(self) -> None:
        """Free the buffers."""
        self._moved()
        self.layers.clear()
        self.stairs.clear()
        self.rows = self.length = 0

    def restore(self, row: int, states: Saved, length: int) -> None:
        """Write the first `length` positions of what was saved into a row."""
        self._grow_to(len(states))
        for layer, (keys, values) in zip(self.layers, states, strict=True):
            if not layer.is_initialized:
                layer.lazy_initialization(keys[None], values[None])
            layer.keys[row, :, :length], layer.values[row, :, :length] = keys[:, :length], values[:, :length]

    def _grow_to(self, layers: int) -> None:
        while len(self.layers) < layers:
            self.layers.append(SlotLayer(self))

    def copy(self, other: SlotCache, rows: slice, start: int) -> None:
        """Take over rows of another cache, which is no longer than this one, from row `start` on."""
        self._grow_to(len(other.layers))
        for layer, source in zip(self.layers, other.layers, strict=False):
            layer.copy(source, rows, start, other.length)

    def aim(self, target: slice, index: Tensor, visible: int) -> None:
        """Let the next forward pass run on rows `target`, write at `index` [B, n], and see `visible` positions."""
        self.target, self.index, self.visible = target, index, visible

    def move(self, source: int, target: int) -> None:
        """Copy row `source` over row `target` in all layers."""
        for layer in self.layers:
            layer.move(source, target)

    def spread(self, rows: slice, length: int) -> None:
        """Copy the first `length` positions of the first of these rows to all of them, in all layers."""
        for layer in self.layers:
            layer.spread(rows, length)


def power(count: int) -> int:
    """The next power of two; 0 for none."""
    return 1 << (count - 1).bit_length() if count else 0
