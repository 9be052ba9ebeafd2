"""A model runner: executes a causal language model's forward passes for many sequences, each in a slot of one KV cache.

Knows one model, its KV cache, its masks, and which owner holds which slot; knows no method, no request and no randomness.
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

from specviz.compat.transformers import attention_of
from specviz.runtime import attention
from specviz.runtime.cpu.threads import chosen, limited_to
from specviz.runtime.cuda.graphs import PLAIN, Graphs
from specviz.runtime.kv_cache import GRAIN, KeyValues, KVCache, power

if TYPE_CHECKING:
    from specviz.runtime.cuda.workspace import Workspace

_SHORTEST = 256
"""Positions that a captured pass sees at least: fewer shapes to capture, hardly more to read."""
_WIDEST, _LARGEST = 16, 128
"""Tokens of a slot, and of all slots, in a captured pass. Launching kernels matters less in larger ones, which take much memory."""


class ModelRunner:
    """A causal language model whose passes serve many slots at once, each at its own position.

    Attributes:
        owners: of the slots, in their order; any objects.
        calls: forward passes so far.
        device: of token ids.
        dtype: of the weights.
    """

    def __init__(self, model: Any, vocabulary_size: int, workspace: Workspace | None = None) -> None:
        """Wrap `model`, cutting its logits to the pair's `vocabulary_size` real tokens.

        With a `workspace` that is not in use, its buffers are used and passes are captured.
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
        self._attention = attention_of(model)
        self._cache = KVCache()
        self._workspace = workspace
        self._held: Workspace | None = None
        self._threads = chosen(model)
        self.device = model.get_input_embeddings().weight.device
        self.dtype = model.dtype
        self.owners: list[Any] = []
        self.calls = 0

    def admit(self, owners: list[Any], length: int) -> slice:
        """Give each owner a slot with room for `length` positions; returns their slots."""
        first = len(self.owners)
        if not first:
            self._acquire()
        self._cache.reserve(
            first + len(owners), length, not first
        )  # may run out of memory: before owners change
        self.owners += owners
        return slice(first, len(self.owners))

    def reserve(self, slots: int, length: int) -> None:
        """Allocate buffers ahead, where they outlive their owners (in a workspace). Only while there are no owners."""
        self._acquire()
        if self._held is not None:
            self._cache.reserve(slots, length, fresh=True)
        self._release_cache()

    def growth(self, more: int, length: int) -> int:
        """Bytes that admitting `more` owners would take, if the longest of all needs `length` positions."""
        cache = self._cache
        if self._workspace is not None and self._workspace.is_free_for(self):
            cache = self._workspace.cache
        return cache.growth(len(self.owners) + more, length, not self.owners) * self.position_bytes

    @property
    def position_bytes(self) -> int:
        """Bytes of keys and values of one position."""
        return position_bytes(self._model)

    def reading_bytes(self, visible: int) -> int:
        """Bytes a prefill pass takes for each token: the widest layer's activations, and its mask."""
        config = self._config
        sharing = config.num_attention_heads // attention.key_heads(config)
        inner = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
        return int((4 * inner + sharing * visible) * self.dtype.itemsize)

    def release(self, owner: Any) -> None:
        """Free an owner's slot; the last slot moves into the gap."""
        if owner not in self.owners:
            return
        gap, last = self.owners.index(owner), len(self.owners) - 1
        if gap != last:
            self._cache.move(last, gap)
            self.owners[gap] = self.owners[last]
        self.owners.pop()
        if not self.owners:
            self._release_cache()

    def clear(self) -> None:
        """Free all slots."""
        self.owners = []
        self._release_cache()

    def _acquire(self) -> None:
        """Use the workspace, if there is one and it is free."""
        if self._workspace is not None and self._workspace.acquire(self):
            self._cache, self._held = self._workspace.cache, self._workspace

    def _release_cache(self) -> None:
        """Free the buffers, or return them to the workspace."""
        if self._held is not None:
            self._held.release()
        self._cache, self._held = KVCache(), None

    def broadcast(self, slots: slice, length: int) -> None:
        """Copy the first `length` positions of the first of these slots to all of them."""
        self._cache.broadcast(slots, length)

    def save(self, slot: int, length: int) -> KeyValues:
        """A copy of the keys and values of a slot's first `length` positions."""
        return self._cache.save(slot, length)

    def restore(self, slot: int, saved: KeyValues, length: int) -> None:
        """Write the first `length` positions of what `save` returned into a slot, which then need not be prefilled."""
        self._cache.restore(slot, saved, length)

    def merge(self, other: ModelRunner) -> None:
        """Take over all owners of another runner of the same model with their slots; the other is empty then."""
        if not other.owners:
            return
        if self.owners or self._workspace is not None:
            self._copy(other, slice(0, len(other.owners)))
        else:
            self.owners, self._cache = other.owners, other._cache
        other.clear()

    def copy(self, owner: Any, other: ModelRunner) -> None:
        """Admit an owner of another runner of the same model, if it is one, with a copy of its slot."""
        if owner in other.owners:
            slot = other.owners.index(owner)
            self._copy(other, slice(slot, slot + 1))

    def _copy(self, other: ModelRunner, slots: slice) -> None:
        own = self.admit(other.owners[slots], other._cache.length)
        self._cache.copy(other._cache, slots, own.start)

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor,
        *,
        visible: int,
        valid: Tensor | None = None,
        slots: slice | None = None,
    ) -> Tensor:
        """One forward pass.

        Args:
            tokens, positions: int64 [B, n], each token with its absolute position.
            visible: positions to attend to: one more than the largest of `positions`.
            valid: bool [B, n], False for padding; None where there is none.
            slots: which B slots; all by default.

        Returns:
            Logits [B, n, vocabulary_size].
        """
        if (
            self._held is not None
            and slots is None
            and _is_small(*tokens.shape)
            and self._held.graphs.enabled
        ):
            return self._replay(self._held.graphs, tokens, positions, visible, valid)
        output = self._run(self._model, tokens, positions, visible, valid, slots)
        return output.logits[..., : self._vocabulary_size]

    @property
    def uncaptured(self) -> int:
        """Passes so far of shapes that are still to be captured: slower than the same will be."""
        return self._workspace.graphs.uncaptured if self._workspace is not None else 0

    def _replay(
        self, graphs: Graphs, tokens: Tensor, positions: Tensor, visible: int, valid: Tensor | None
    ) -> Tensor:
        """`forward` for all slots, as a captured pass over the next powers of two of slots and tokens."""
        scratch = self._cache.length
        index, positions = self._write_index(positions, valid)
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

    def warm_up(self, slots: int, length: int, widths: Sequence[int]) -> Iterator[None]:
        """Capture the passes over so many slots, `widths` tokens each and up to `length` positions; yields after each.

        Only while there are no owners; does nothing where passes are not captured.
        """
        owners: list[Any] = list(range(slots))
        self.admit(owners, length)
        try:
            for width, visible in product(widths, _views(length)) if self._held is not None else ():
                tokens = torch.zeros(slots, width, dtype=torch.long, device=self.device)
                positions = (visible - width + torch.arange(width, device=self.device)).expand(slots, -1)
                for _ in range(PLAIN + 1):
                    self.forward(tokens, positions, visible=visible)
                yield
        finally:
            for owner in owners:
                self.release(owner)

    def _pass(self, tokens: Tensor, positions: Tensor, index: Tensor, visible: int) -> Tensor:
        """Logits of a pass over the first slots, reading its inputs on the device alone, so that it can be captured."""
        self._cache.write_to(slice(0, len(tokens)), index, visible)
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
        slots: slice | None = None,
    ) -> None:
        """Prefill: as `forward`, but only writes the KV cache and gives no logits."""
        self._run(self._model.base_model, tokens, positions, visible, valid, slots)

    def _run(
        self,
        model: Any,
        tokens: Tensor,
        positions: Tensor,
        visible: int,
        valid: Tensor | None,
        slots: slice | None,
    ) -> Any:
        visible = -(-visible // GRAIN) * GRAIN
        index, positions = self._write_index(positions, valid)
        self._cache.write_to(slice(0, len(self.owners)) if slots is None else slots, index, visible)
        self.calls += 1
        with limited_to(self._threads.of(tokens.numel())) if self._threads else nullcontext():
            return self._call(model, tokens, positions, visible)

    def _write_index(self, positions: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor]:
        """Where a pass writes, and its positions: padding goes to the scratch position, and counts as position 0."""
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
        """4-D mask(s): a query sees positions at or before its own, in sliding layers within the window."""
        if self._window is None or not (self._mixed or self._always_sliding):
            return self._one_mask(positions, visible, None)
        sliding = self._one_mask(positions, visible, self._window)
        if self._always_sliding:
            return sliding
        full = self._one_mask(positions, visible, None)
        return {"full_attention": full, "sliding_attention": sliding}

    def _one_mask(self, positions: Tensor, visible: int, window: int | None) -> Tensor:
        if self._attention == attention.NAME:
            key = self._cache.length, window
            if key not in self._cache.mask_bands:
                self._cache.mask_bands[key] = attention.mask_band(*key, self.dtype, positions.device)
            return attention.grouped_mask(self._cache.mask_bands[key], positions, visible, self._config)
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
    """Bytes of keys and values of one position, in all layers of a causal language model."""
    config = model.config.get_text_config()
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return int(2 * config.num_hidden_layers * attention.key_heads(config) * size * model.dtype.itemsize)


def _is_small(slots: int, width: int) -> bool:
    """Whether a pass is so small that launching its kernels takes about as long as running them."""
    return width <= _WIDEST and power(slots) * power(width) <= _LARGEST


def _views(length: int) -> list[int]:
    """Numbers of positions that captured passes see, up to `length`."""
    return [_SHORTEST << step for step in range(length.bit_length()) if _SHORTEST << step < length] + [length]
