"""A causal language model that serves many rows at once: its forward passes over a slot cache, plain or captured.

Knows one model, its cache and masks, and who sits in which row; knows no method, no request and no randomness.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from specviz.runtime import attention
from specviz.runtime.cpu.threads import chosen, limited_to
from specviz.runtime.cuda.graphs import PLAIN, Graphs
from specviz.runtime.kv_cache import GRAIN, Saved, SlotCache, power

if TYPE_CHECKING:
    from specviz.runtime.cuda.workspace import Workspace

_SHORTEST = 256
"""Positions that a captured pass sees at least: fewer shapes, and hardly more to read."""
_WIDEST, _LARGEST = 16, 128
"""Tokens of a row, and of all rows, in a captured pass. Larger ones are worth their launches, and take much memory."""


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
        self._held: Workspace | None = None
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
        if self._held is not None:
            self._cache.reserve(rows, length, fresh=True)
        self._leave()

    def growth(self, more: int, length: int) -> int:
        """Bytes that seating `more` owners would take, if the longest of all rows needs `length` positions."""
        cache = self._cache
        if self._workspace is not None and self._workspace.is_free_for(self):
            cache = self._workspace.cache
        return cache.growth(len(self.owners) + more, length, not self.owners) * self.position_bytes

    @property
    def position_bytes(self) -> int:
        """Bytes of keys and values that one position of a row holds."""
        return position_bytes(self._model)

    def reading_bytes(self, visible: int) -> int:
        """Bytes that a pass takes for each token it reads of a prompt: the widest layer's states, and its masks."""
        config = self._config
        sharing = config.num_attention_heads // attention.key_heads(config)
        inner = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
        return int((4 * inner + sharing * visible) * self.dtype.itemsize)

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
            self._cache, self._held = self._workspace.cache, self._workspace

    def clear(self) -> None:
        """Let all owners go."""
        self.owners = []
        self._leave()

    def _leave(self) -> None:
        """Nobody is seated any more."""
        if self._held is not None:
            self._held.give_back()
        self._cache, self._held = SlotCache(), None

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
        if self._held is not None and rows is None and _is_small(*tokens.shape) and self._held.graphs.wanted:
            return self._replay(self._held.graphs, tokens, positions, visible, valid)
        output = self._run(self._model, tokens, positions, visible, valid, rows)
        return output.logits[..., : self._vocabulary_size]

    @property
    def unsettled(self) -> int:
        """Passes so far that will be faster when they come back."""
        return self._workspace.graphs.unsettled if self._workspace is not None else 0

    def _replay(
        self, graphs: Graphs, tokens: Tensor, positions: Tensor, visible: int, valid: Tensor | None
    ) -> Tensor:
        """`forward` for all rows, as a captured pass over the next larger powers of two of rows and tokens."""
        scratch = self._cache.length
        index, positions = self._places(positions, valid)
        count, width = tokens.shape
        rows, columns = power(count), power(width)
        seen = min(max(_SHORTEST, power(visible)), scratch)
        margin = (0, columns - width, 0, rows - count)
        inputs = [
            functional.pad(values, margin, value=value)
            for values, value in ((tokens, 0), (positions, 0), (index, scratch))
        ]
        self.calls += 1
        shape = rows, columns, seen, self._vocabulary_size
        logits = graphs.run(shape, partial(self._pass, visible=seen), inputs)
        return logits[:count, :width]

    def warm_up(self, rows: int, length: int, widths: Sequence[int]) -> Iterator[None]:
        """Capture the passes of so many rows over `widths` tokens a row and up to `length` positions; yields after each.

        Only while nobody is seated; nothing at all where passes are not captured.
        """
        owners: list[Any] = list(range(rows))
        self.admit(owners, length)
        try:
            for width, visible in product(widths, _views(length)) if self._held is not None else ():
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
        visible = -(-visible // GRAIN) * GRAIN
        index, positions = self._places(positions, valid)
        self._cache.aim(slice(0, len(self.owners)) if rows is None else rows, index, visible)
        self.calls += 1
        with limited_to(self._threads.of(tokens.numel())) if self._threads else nullcontext():
            return self._call(model, tokens, positions, visible)

    def _places(self, positions: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor]:
        """Where a pass writes, and at which positions: padding to the scratch slot, as if at the beginning."""
        if valid is None:
            return positions, positions
        return torch.where(valid, positions, self._cache.length), torch.where(valid, positions, 0)

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
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return int(2 * config.num_hidden_layers * attention.key_heads(config) * size * model.dtype.itemsize)


def _is_small(rows: int, width: int) -> bool:
    """Whether a pass is one of a round, and launching its kernels takes about as long as running them."""
    return width <= _WIDEST and power(rows) * power(width) <= _LARGEST


def _views(length: int) -> list[int]:
    """Of how many positions captured passes see some, up to `length`."""
    return [_SHORTEST << step for step in range(length.bit_length()) if _SHORTEST << step < length] + [length]
