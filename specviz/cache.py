"""A key-value cache where every row stands at its own position, and the model that runs on it.

Keys and values live in fixed [rows, heads, length + 1, size] buffers. A forward pass writes each token at its own
absolute position and attends to what lies at or before it, so taking tokens back costs nothing: the next write
lands on the stale slots, and until then the mask hides them. Padding goes to the scratch slot behind the last
position, which no mask ever shows. Knows no method, no request and no randomness.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from torch.nn import functional
from transformers import Cache
from transformers.cache_utils import CacheLayerMixin

from specviz import attention
from specviz.graphs import PLAIN
from specviz.threads import chosen, limited_to

if TYPE_CHECKING:
    from specviz.workspace import Workspace

_GRAIN = 64
"""Buffers grow, and are seen, in steps of this many positions."""
_SHORTEST = 256
"""Positions that a captured pass sees at least: fewer shapes, and hardly more to read."""
_WIDEST, _LARGEST = 16, 128
"""Tokens of a row, and of all rows, in a captured pass. Larger ones are worth their launches, and take much memory."""
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
        """Visible length and offset. (Masks are made by `SlotModel`; transformers only asks.)"""
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
        self, grain: int = _GRAIN, doubles: bool = False, moved: Callable[[], None] = lambda: None
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
        rows, length = _power(rows) if self._doubles else rows, -(-length // self._grain) * self._grain
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


class SlotModel:
    """A causal language model that serves many rows at once, each at its own position.

    `owners` lists who sits in which row; `calls` counts forward passes.
    """

    def __init__(self, model: Any, vocabulary_size: int, workspace: Workspace | None = None) -> None:
        """Wrap `model`; its logits are cut to the pair's `vocabulary_size` real tokens.

        With a `workspace` that nobody else has, its buffers are used and its passes captured.
        """
        config = model.config.get_text_config()
        layer_types = set(getattr(config, "layer_types", None) or ())
        self._model = model
        self._vocabulary_size = vocabulary_size
        self._window = getattr(config, "sliding_window", None)
        if not getattr(config, "use_sliding_window", True):
            self._window = None
        self._mixed = "sliding_attention" in layer_types
        self._always_sliding = self._window is not None and not layer_types
        self._config = config
        self._attention = model.config._attn_implementation
        self._cache = SlotCache()
        self._workspace = workspace
        self._captures = False
        self._threads = chosen(model)
        self.device = model.get_input_embeddings().weight.device
        self.dtype = model.dtype
        self.owners: list[Any] = []
        self.calls = 0

    def admit(self, owners: list[Any], length: int) -> slice:
        """Give each owner a row with room for `length` positions; returns their rows."""
        first = len(self.owners)
        if not first:
            self._settle()
        self._cache.reserve(first + len(owners), length, not first)  # which may fail: then nobody is seated
        self.owners += owners
        return slice(first, len(self.owners))

    def reserve(self, rows: int, length: int) -> None:
        """Make room ahead for so many rows, where buffers outlive those who sit in them. Only while nobody is seated."""
        self._settle()
        if self._captures:
            self._cache.reserve(rows, length, fresh=True)
        self._leave()

    def growth(self, more: int, length: int) -> int:
        """Bytes that seating `more` owners would take, if the longest of all rows needs `length` positions."""
        ours = self._workspace is not None and self._workspace.is_free_for(self)
        cache = self._workspace.cache if ours and self._workspace is not None else self._cache
        return cache.growth(len(self.owners) + more, length, not self.owners) * self.position_bytes

    @property
    def position_bytes(self) -> int:
        """Bytes of keys and values that one position of a row holds."""
        return position_bytes(self._model)

    def reading_bytes(self, visible: int) -> int:
        """Bytes that a pass takes for each token it reads of a prompt: the widest layer's states, and its masks."""
        config = self._config
        heads = config.num_attention_heads
        shared = getattr(config, "num_key_value_heads", None) or heads
        inner = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
        return int((4 * inner + heads // shared * visible) * self.dtype.itemsize)

    def drop(self, owner: Any) -> None:
        """Free an owner's row; the last row moves into the gap."""
        if owner not in self.owners:
            return
        gap, last = self.owners.index(owner), len(self.owners) - 1
        if gap != last:
            self._cache.move(last, gap)
            self.owners[gap] = self.owners[last]
        self.owners.pop()
        if not self.owners:
            self._leave()

    def _settle(self) -> None:
        """Take the workspace, if there is one to be had."""
        if self._workspace is not None and self._workspace.lend(self):
            self._cache, self._captures = self._workspace.cache, True

    def clear(self) -> None:
        """Let all owners go."""
        self.owners = []
        self._leave()

    def _leave(self) -> None:
        """Nobody is seated any more."""
        if self._captures and self._workspace is not None:
            self._workspace.give_back()
        self._cache, self._captures = SlotCache(), False

    def spread(self, rows: slice, length: int) -> None:
        """What the first of these rows has read of its first `length` positions, all of them have then."""
        self._cache.spread(rows, length)

    def save(self, row: int, length: int) -> Saved:
        """A copy of what a row has read of its first `length` positions."""
        return [
            (layer.keys[row, :, :length].clone(), layer.values[row, :, :length].clone())
            for layer in self._cache.layers
        ]

    def restore(self, row: int, states: Saved, length: int) -> None:
        """Let a row have read the first `length` positions of what was saved."""
        self._cache.restore(row, states, length)

    def take(self, other: SlotModel) -> None:
        """Seat all owners of another cache of the same model, with what they have read; the other is empty then."""
        if not other.owners:
            return
        if self.owners or self._workspace is not None:
            self._copy(other, slice(0, len(other.owners)))
        else:
            self.owners, self._cache = other.owners, other._cache
        other.clear()

    def copy(self, owner: Any, other: SlotModel) -> None:
        """Seat an owner of another cache of the same model, if it is one, with what it has read."""
        if owner in other.owners:
            place = other.owners.index(owner)
            self._copy(other, slice(place, place + 1))

    def _copy(self, other: SlotModel, rows: slice) -> None:
        places = self.admit(other.owners[rows], other._cache.length)
        self._cache.copy(other._cache, rows, places.start)

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor,
        *,
        visible: int,
        valid: Tensor | None = None,
        rows: slice | None = None,
    ) -> Tensor:
        """One forward pass.

        Args:
            tokens, positions: int64 [B, n], each token with its absolute position.
            visible: positions to attend to: one more than the largest of `positions`.
            valid: bool [B, n], False for padding; None where there is none.
            rows: which B rows; all by default.

        Returns:
            Logits [B, n, vocabulary_size].
        """
        if self._captures and rows is None and self._is_worth_capturing(*tokens.shape):
            return self._replay(tokens, positions, visible, valid)
        output = self._run(self._model, tokens, positions, visible, valid, rows)
        return output.logits[..., : self._vocabulary_size]

    def _is_worth_capturing(self, rows: int, width: int) -> bool:
        """Whether a pass is one of a round, and so small that launching its kernels takes as long as running them."""
        assert self._workspace is not None
        small = width <= _WIDEST and _power(rows) * _power(width) <= _LARGEST
        return small and self._workspace.graphs.wanted

    @property
    def unsettled(self) -> int:
        """Passes so far that will be faster when they come back."""
        return self._workspace.graphs.unsettled if self._workspace is not None else 0

    def _replay(self, tokens: Tensor, positions: Tensor, visible: int, valid: Tensor | None) -> Tensor:
        """`forward` for all rows, as a captured pass over the next larger powers of two of rows and tokens."""
        assert self._workspace is not None
        scratch = self._cache.length
        index = positions
        if valid is not None:
            index, positions = torch.where(valid, positions, scratch), torch.where(valid, positions, 0)
        count, width = tokens.shape
        rows, columns = _power(count), _power(width)
        seen = min(max(_SHORTEST, _power(visible)), scratch)
        margin = (0, columns - width, 0, rows - count)
        inputs = [
            functional.pad(values, margin, value=value)
            for values, value in ((tokens, 0), (positions, 0), (index, scratch))
        ]
        self.calls += 1
        shape = rows, columns, seen, self._vocabulary_size
        logits = self._workspace.graphs.run(shape, partial(self._pass, visible=seen), inputs)
        return logits[:count, :width]

    def warm_up(self, rows: int, length: int, widths: Sequence[int]) -> Iterator[None]:
        """Capture the passes of so many rows over `widths` tokens a row and up to `length` positions; yields after each.

        Only while nobody is seated; nothing at all where passes are not captured.
        """
        owners: list[Any] = list(range(rows))
        self.admit(owners, length)
        try:
            for width, visible in product(widths, _views(length)) if self._captures else ():
                tokens = torch.zeros(rows, width, dtype=torch.long, device=self.device)
                positions = (visible - width + torch.arange(width, device=self.device)).expand(rows, -1)
                for _ in range(PLAIN + 1):
                    self.forward(tokens, positions, visible=visible)
                yield
        finally:
            for owner in owners:
                self.drop(owner)

    def _pass(self, tokens: Tensor, positions: Tensor, index: Tensor, visible: int) -> Tensor:
        """Logits of a whole pass over the first rows, which reads its inputs on the device alone."""
        self._cache.aim(slice(0, len(tokens)), index, visible)
        output = self._call(self._model, tokens, positions, visible)
        logits: Tensor = output.logits[..., : self._vocabulary_size]
        return logits

    def read(
        self,
        tokens: Tensor,
        positions: Tensor,
        *,
        visible: int,
        valid: Tensor | None = None,
        rows: slice | None = None,
    ) -> None:
        """A forward pass for the cache's sake alone, as `forward` but without logits."""
        self._run(self._model.base_model, tokens, positions, visible, valid, rows)

    def _run(
        self,
        model: Any,
        tokens: Tensor,
        positions: Tensor,
        visible: int,
        valid: Tensor | None,
        rows: slice | None,
    ) -> Any:
        index, visible = positions, -(-visible // _GRAIN) * _GRAIN
        if valid is not None:
            index = torch.where(valid, positions, self._cache.length)
            positions = torch.where(valid, positions, 0)
        self._cache.aim(slice(0, len(self.owners)) if rows is None else rows, index, visible)
        self.calls += 1
        with limited_to(self._threads.of(tokens.numel())) if self._threads else nullcontext():
            return self._call(model, tokens, positions, visible)

    def _call(self, model: Any, tokens: Tensor, positions: Tensor, visible: int) -> Any:
        return model(
            input_ids=tokens,
            position_ids=positions,
            attention_mask=self._mask(positions, visible),
            past_key_values=self._cache,
            use_cache=True,
        )

    def _mask(self, positions: Tensor, visible: int) -> Tensor | dict[str, Tensor]:
        """4-D mask(s): a query sees what lies at or before its position, in sliding layers within the window."""
        if self._window is None or not (self._mixed or self._always_sliding):
            return self._as_attention_wants(positions, visible, None)
        sliding = self._as_attention_wants(positions, visible, self._window)
        if self._always_sliding:
            return sliding
        full = self._as_attention_wants(positions, visible, None)
        return {"full_attention": full, "sliding_attention": sliding}

    def _as_attention_wants(self, positions: Tensor, visible: int, window: int | None) -> Tensor:
        if self._attention == attention.NAME:
            key = self._cache.length, window
            if key not in self._cache.stairs:
                self._cache.stairs[key] = attention.staircase(*key, self.dtype, positions.device)
            return attention.grouped_mask(self._cache.stairs[key], positions, visible, self._config)
        seen, query = torch.arange(visible, device=positions.device), positions[:, None, :, None]
        mask = seen <= query
        if window is not None:
            mask &= seen > query - window
        if self._attention != "eager":
            return mask
        return torch.zeros(mask.shape, dtype=self.dtype, device=mask.device).masked_fill_(
            ~mask, torch.finfo(self.dtype).min
        )


def position_bytes(model: Any) -> int:
    """Bytes of keys and values that one position of a row holds, in all layers of a causal language model."""
    config = model.config.get_text_config()
    heads = config.num_attention_heads
    shared = getattr(config, "num_key_value_heads", None) or heads
    size = getattr(config, "head_dim", None) or config.hidden_size // heads
    return int(2 * config.num_hidden_layers * shared * size * model.dtype.itemsize)


def _views(length: int) -> list[int]:
    """Of how many positions captured passes see some, up to `length`."""
    return [_SHORTEST << step for step in range(length.bit_length()) if _SHORTEST << step < length] + [length]


def _power(count: int) -> int:
    """The next power of two."""
    return 1 << (count - 1).bit_length()
