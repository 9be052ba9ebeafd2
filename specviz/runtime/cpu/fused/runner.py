"""The runner of fused passes: decoders of the llama kind on the CPU, batch-invariant by construction.

Knows one decoder, its KV cache and its vocabulary; knows no method, no request and no randomness.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specviz.core.compiled import compiled_backend
from specviz.core.sampling import Number
from specviz.runtime.cpu.fused import functions
from specviz.runtime.cpu.fused.cache import FusedCache
from specviz.runtime.cpu.fused.decoder import Decoder
from specviz.runtime.cpu.fused.tables import DRAFTING, MOST_ROWS
from specviz.runtime.cpu.fused.vectors import LANES
from specviz.runtime.runner import Runner


@dataclass(eq=False)
class FusedModel:
    """A decoder as what a pair consists of; see `runner.Model`.

    Attributes:
        decoder: its weights.
        kept, reads: where the decoder knows only some of the tokens: int64 [N], those it scores; int64 [V], what each
            token is read as.
        load: makes the same model with transformers.
        config, generation_config: transformers'.
        precision: formats of weights and activations, in words.
    """

    decoder: Decoder
    load: Callable[[], Any]
    config: Any
    generation_config: Any
    precision: str
    kept: Tensor | None = None
    reads: np.ndarray | None = None
    _vocabularies: dict[int, tuple[Tensor | None, np.ndarray | None]] = field(
        default_factory=dict, init=False, repr=False
    )

    device = torch.device("cpu")
    dtype = torch.float32
    gpu = None

    @property
    def output_size(self) -> int:
        """Number of logits, padding included."""
        return self.decoder.vocabulary if self.reads is None else len(self.reads)

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights that a pass over one token reads."""
        return self.decoder.bytes

    def vocabulary(self, size: int) -> tuple[Tensor | None, np.ndarray | None]:
        """The kept tokens of a vocabulary of that size, and what each of its tokens is read as; None, None where the decoder knows all.

        A token beyond those that the model knows is read as the last one.
        """
        if size not in self._vocabularies:
            kept, reads = self.kept, self.reads
            if size > self.output_size:
                reads = np.arange(self.output_size) if reads is None else reads
                reads = np.pad(reads, (0, size - len(reads)), mode="edge")
                kept = torch.arange(self.output_size) if kept is None else kept
            self._vocabularies[size] = None if kept is None else kept[kept < size], reads
        return self._vocabularies[size]

    def with_layers(self, layers: Sequence[int], load: Callable[[], Any]) -> FusedModel:
        """A model of some of the layers, which shares all weights."""
        return replace(self, decoder=self.decoder.with_layers(layers), load=load)

    def runner(self, vocabulary_size: int, *, apart: bool = False, beside: bool = False) -> FusedRunner:
        """See `runner.Model`."""
        return FusedRunner(self, vocabulary_size)

    def module(self) -> Any:
        """The same model as one of transformers', with the same values; loaded when first asked for."""
        return self._module

    @cached_property
    def _module(self) -> Any:
        return self.load()

    def prepare_drafting(self) -> None:
        """See `runner.Model`."""
        functions.draft()

    def free_memory(self) -> bool:
        """Nothing is kept."""
        return False


class FusedRunner(Runner):
    """A runner of a fused model."""

    is_invariant = True

    def __init__(self, model: FusedModel, vocabulary_size: int) -> None:
        """Logits become those of `vocabulary_size` tokens: cut, or −inf for tokens that the model lacks."""
        self._model, self._decoder, self.vocabulary_size = model, model.decoder, vocabulary_size
        self.device, self.dtype = model.device, model.dtype
        self._width = -(-self._decoder.vocabulary // LANES) * LANES
        self._known, self._reads = model.vocabulary(vocabulary_size)
        self._buffers = dict[str, Tensor]()
        shape = self._decoder.shape
        self.position_bytes = 8 * self._decoder.layers * shape.key_heads * shape.head_size
        super().__init__()

    def _new_cache(self) -> FusedCache:
        return FusedCache(self._decoder.shape, self._decoder.layers)

    def admit(self, owners: list[Any], length: int) -> slice:
        """See `Runner.admit`."""
        first = len(self.owners)
        self._cache.add(len(owners), length)
        self.owners += owners
        return slice(first, len(self.owners))

    def release(self, owner: Any, *, spoilt: bool = False) -> None:
        """See `Runner.release`; a slot's buffers go with it."""
        if owner in self.owners:
            slot, last = self.owners.index(owner), self.owners.pop()
            if slot < len(self.owners):
                self.owners[slot] = last
            self._cache.drop(slot)
            if not self.owners:
                self._buffers.clear()

    def clear(self) -> None:
        """See `Runner.clear`."""
        super().clear()
        self._buffers.clear()

    def arrange(self, key: Callable[[Any], Any]) -> None:
        """See `Runner.arrange`."""
        keys = [key(owner) for owner in self.owners]
        order = sorted(range(len(keys)), key=keys.__getitem__)
        if order != list(range(len(keys))):
            self.owners = [self.owners[slot] for slot in order]
            self._cache.arrange(order)

    def _copy(self, other: Runner, slots: slice) -> None:
        """Take slots over, which nobody writes to in the other runner any more."""
        self._cache.take(other._cache, slots)
        self.owners += other.owners[slots]

    def growth(self, more: int, length: int) -> int:
        """See `Runner.growth`."""
        return more * length * self.position_bytes

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor,
        *,
        visible: int,
        valid: Tensor | None = None,
        slots: slice | None = None,
        transient: bool = False,
    ) -> Tensor:
        """See `Runner.forward`."""
        buffer = self.buffer if transient else super().buffer
        shape = tokens.shape if valid is None else (int(valid.sum()),)
        values = buffer("read", *shape, self._width)
        self._run(tokens, positions, visible, valid, slots, values.data_ptr())
        if self._known is not None:
            values = _spread(values, self._known, self.vocabulary_size)
        elif self._width != self.vocabulary_size:
            values = values[..., : self.vocabulary_size]
        if valid is None:
            return values
        padded = buffer("padded", *tokens.shape, values.shape[-1])
        places = torch.from_numpy(np.flatnonzero(valid.numpy()))
        padded.flatten(0, 1).index_copy_(0, places, values)
        return padded

    def buffer(self, name: str, *shape: int) -> Tensor:
        """See `Runner.buffer`. It is reused while there are slots: page faults on fresh memory cost as much as the write."""
        size, found = math.prod(shape), self._buffers.get(name)
        if found is None or found.numel() < size:
            found = self._buffers[name] = torch.empty(size)
        return found[:size].view(shape)

    @cached_property
    def _drafting(self) -> np.ndarray:
        """A `DRAFTING` with the fields that never change."""
        table, reads, known = np.zeros((), DRAFTING), self._reads, self._known
        table["pass_"], table["lead"] = self._decoder.address, functions.lead()
        table["size"] = self.vocabulary_size
        if reads is not None:
            table["reads"] = reads.ctypes.data
        if known is not None:
            table["known"], table["known_count"] = known.data_ptr(), len(known)
        return table

    @property
    def is_fused(self) -> bool:
        """See `Runner.is_fused`."""
        return compiled_backend() is not None

    def draft(
        self,
        tokens: Tensor,
        q: Tensor,
        lengths: Sequence[int],
        positions: Sequence[int],
        temperature: Number,
        uniforms: Tensor,
        *,
        logits: Tensor | None = None,
        thresholds: Sequence[float] | None = None,
    ) -> list[int]:
        """See `Runner.draft`."""
        slots, table = len(lengths), self._drafting
        last = [position + length - 1 for position, length in zip(positions, lengths, strict=True)]
        if max(last) >= self._cache.table.shortest:
            self._cache.stretch(np.arange(slots), np.array(last))
        integers, numbers = np.empty((2, slots), np.int64), np.empty((2, slots))
        integers[:] = lengths, positions
        numbers[0] = temperature[:, 0] if isinstance(temperature, Tensor) else temperature
        numbers[1] = 0.0 if thresholds is None else thresholds
        table["slots"] = slots
        table["lengths"], table["positions"] = _rows(integers)
        table["tokens"], table["token_words"] = tokens.data_ptr(), tokens.shape[1]
        table["q"], table["steps"] = q.data_ptr(), q.shape[1]
        table["logits"] = 0 if logits is None else logits.data_ptr()
        table["uniforms"], table["uniform_words"] = uniforms.data_ptr(), uniforms.shape[1]
        table["temperatures"], table["thresholds"] = _rows(numbers)
        if thresholds is None:
            table["thresholds"] = 0
        self._decoder.draft(table, self._cache.table)
        drawn: list[int] = integers[0].tolist()
        return drawn

    def read(
        self,
        tokens: Tensor,
        positions: Tensor,
        *,
        visible: int,
        valid: Tensor | None = None,
        slots: slice | None = None,
    ) -> None:
        """See `Runner.read`."""
        self._run(tokens, positions, visible, valid, slots, 0)

    def _run(
        self,
        tokens: Tensor,
        positions: Tensor,
        visible: int,
        valid: Tensor | None,
        slots: slice | None,
        logits: int,
    ) -> None:
        """Read all tokens that are not padding, slot by slot; their logits, one after another, go to that address if it is not 0."""
        indices = _slots(0 if slots is None else slots.start, *tokens.shape)
        ids, at = tokens.numpy().reshape(-1), positions.numpy().reshape(-1)
        if valid is not None:
            needed = valid.numpy().reshape(-1)
            indices, ids, at = indices[needed], ids[needed], at[needed]
        if self._reads is not None:
            ids = self._reads[ids]
        if visible > self._cache.table.shortest:
            self._cache.stretch(indices, at)
        row_bytes = 4 * self._width
        for begin in range(0, len(ids), MOST_ROWS):
            part, own = slice(begin, begin + MOST_ROWS), logits and logits + begin * row_bytes
            self._decoder.run(ids[part], indices[part], at[part], self._cache.table, own, row_bytes)


def _spread(logits: Tensor, known: Tensor, size: int) -> Tensor:
    """Logits [..., m or more] of the `known` tokens [m] as logits of all `size`: −inf elsewhere."""
    whole = logits.new_full((*logits.shape[:-1], size), -math.inf)
    return whole.index_copy_(-1, known, logits[..., : len(known)])


def _rows(array: np.ndarray) -> tuple[int, int]:
    """Addresses of the two rows of an array [2, n] of words."""
    address = array.ctypes.data
    return address, address + array.strides[0]


@lru_cache
def _slots(first: int, count: int, width: int) -> np.ndarray:
    """The slot of each of `width` tokens of `count` slots from the `first` on."""
    return np.repeat(np.arange(first, first + count), width)
