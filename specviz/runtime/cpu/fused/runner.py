"""The runner of fused passes: decoders of the llama kind on the CPU, batch-invariant by construction."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specviz.core.backend import compiled_backend
from specviz.runtime.cpu.fused import functions
from specviz.runtime.cpu.fused.cache import FusedCache
from specviz.runtime.cpu.fused.decoder import Decoder
from specviz.runtime.cpu.fused.tables import DRAFTING, MOST_ROWS
from specviz.runtime.cpu.fused.vectors import LANES
from specviz.runtime.runner import Drafting, Model, PassInputs, Runner, spread


@dataclass(eq=False)
class FusedModel(Model):
    """A decoder as a `Model`.

    Attributes:
        load: loads the same model with transformers.
        kept: int64 [N], the tokens that have logits, ascending, if the decoder has a small vocabulary; None if it has all tokens.
        reads: int64 [V], the decoder's id for each token, if the decoder has a small vocabulary; None if the ids are the same.
    """

    decoder: Decoder
    load: Callable[[], Any]
    config: Any
    generation_config: Any
    precision: str
    kept: Tensor | None = None
    reads: np.ndarray | None = None

    device = torch.device("cpu")
    dtype = torch.float32
    gpu = None

    @property
    def output_size(self) -> int:  # type: ignore[override]
        """See `Model`."""
        return self.decoder.vocabulary if self.reads is None else len(self.reads)

    def vocabulary(self, size: int) -> tuple[Tensor | None, np.ndarray | None]:
        """`kept` and `reads` for a vocabulary of `size` tokens: the tokens that have logits, and the decoder's id for each token.

        Both are None if the decoder has all `size` tokens. A token that the model lacks is read as the model's last token.
        """
        kept, reads = self.kept, self.reads
        if size > self.output_size:
            reads = np.arange(self.output_size) if reads is None else reads
            reads = np.pad(reads, (0, size - len(reads)), mode="edge")
            kept = torch.arange(self.output_size) if kept is None else kept
        return None if kept is None else kept[kept < size], reads

    def with_layers(self, layers: Sequence[int], load: Callable[[], Any]) -> FusedModel:
        """A model of `layers` (0-based), which shares this model's weights. `load` loads the same model with transformers."""
        return replace(self, decoder=self.decoder.with_layers(layers), load=load)

    def runner(self, vocabulary_size: int, *, apart: bool = False) -> FusedRunner:
        """See `Model`."""
        return FusedRunner(self, vocabulary_size)

    def module(self) -> Any:
        """See `Model`."""
        return self._module

    @cached_property
    def _module(self) -> Any:
        return self.load()


class FusedRunner(Runner):
    """A runner of a fused model."""

    is_invariant = True
    chunk = MOST_ROWS

    def __init__(self, model: FusedModel, vocabulary_size: int) -> None:
        """Logits are cut or extended to `vocabulary_size` tokens. Tokens that the model lacks get −inf."""
        self._decoder, self.vocabulary_size, self.device = model.decoder, vocabulary_size, model.device
        self._width = -(-self._decoder.vocabulary // LANES) * LANES
        self._known, self._reads = model.vocabulary(vocabulary_size)
        self._buffers = dict[str, Tensor]()
        super().__init__()

    def _new_cache(self) -> FusedCache:
        return self._decoder.new_cache()

    def clear(self) -> None:
        """Free all slots and the buffers."""
        super().clear()
        self._buffers.clear()

    def _logits(self, given: PassInputs, transient: bool) -> Tensor:
        tokens, valid = given.tokens, given.valid
        shape = tokens.shape if valid is None else (int(valid.sum()),)
        values = self._buffer("read", *shape, self._width) if transient else torch.empty(*shape, self._width)
        self._run(given, values.data_ptr())
        if self._known is not None:
            values = spread(values, self._known, self.vocabulary_size)
        elif self._width != self.vocabulary_size:
            values = values[..., : self.vocabulary_size]
        if valid is None:
            return values
        whole = *tokens.shape, values.shape[-1]
        padded = self._buffer("padded", *whole) if transient else torch.empty(whole)
        rows = torch.from_numpy(np.flatnonzero(valid.numpy()))
        padded.flatten(0, 1).index_copy_(0, rows, values)
        return padded

    def _read(self, given: PassInputs) -> None:
        self._run(given, 0)

    def _buffer(self, name: str, *shape: int) -> Tensor:
        """An uninitialised buffer, reused while there are slots: page faults on fresh memory cost as much as the write."""
        size, buffer = math.prod(shape), self._buffers.get(name)
        if buffer is None or buffer.numel() < size:
            buffer = self._buffers[name] = torch.empty(size)
        return buffer[:size].view(shape)

    @cached_property
    def _drafting(self) -> np.ndarray:
        """A `DRAFTING` in which the fields that never change are set."""
        table, reads, known = np.zeros((), DRAFTING), self._reads, self._known
        table["pass_"], table["lead"] = self._decoder.address, functions.lead()
        table["size"] = self.vocabulary_size
        if reads is not None:
            table["reads"] = reads.ctypes.data
        if known is not None:
            table["known"], table["known_count"] = known.data_ptr(), len(known)
        return table

    @property
    def is_fused(self) -> bool:  # type: ignore[override]
        """See `Runner`."""
        return compiled_backend() is not None

    def draft(self, given: Drafting) -> tuple[list[int], Tensor, Tensor | None]:
        """See `Runner.draft`."""
        slots, table = len(given.lengths), self._drafting
        tokens, uniforms = given.tokens, given.uniforms
        temperature, thresholds = given.temperature, given.thresholds
        shape = slots, max(given.lengths), self.vocabulary_size
        q, logits = self._buffer("q", *shape), self._buffer("logits", *shape) if given.keeps_logits else None
        integers, numbers = np.empty((2, slots), np.int64), np.empty((2, slots))
        integers[:] = given.lengths, given.positions
        self._check(np.arange(slots), integers.sum(0) - 1)
        numbers[0] = temperature[:, 0] if isinstance(temperature, Tensor) else temperature
        numbers[1] = 0.0 if thresholds is None else thresholds
        table["slots"] = slots
        table["lengths"], table["positions"] = (row.ctypes.data for row in integers)
        table["tokens"], table["token_words"] = tokens.data_ptr(), tokens.shape[1]
        table["q"], table["steps"] = q.data_ptr(), q.shape[1]
        table["logits"] = 0 if logits is None else logits.data_ptr()
        table["uniforms"], table["uniform_words"] = uniforms.data_ptr(), uniforms.shape[1]
        table["temperatures"], table["thresholds"] = (row.ctypes.data for row in numbers)
        if thresholds is None:
            table["thresholds"] = 0
        self._decoder.draft(table, self._cache)
        return integers[0].tolist(), q, logits

    def _run(self, given: PassInputs, logits: int) -> None:
        """Read all tokens except padding, slot by slot. Their logits are written to adjacent rows at address `logits`, unless it is 0."""
        count, width = given.tokens.shape
        indices = np.repeat(np.arange(count) + (given.slots.start if given.slots else 0), width)
        ids, at = given.tokens.numpy().reshape(-1), given.positions.numpy().reshape(-1)
        if given.valid is not None:
            needed = given.valid.numpy().reshape(-1)
            indices, ids, at = indices[needed], ids[needed], at[needed]
        if self._reads is not None:
            ids = self._reads[ids]
        self._check(indices, at)
        row_bytes = 4 * self._width
        for begin in range(0, len(ids), MOST_ROWS):
            part, own = slice(begin, begin + MOST_ROWS), logits and logits + begin * row_bytes
            self._decoder.run(ids[part], indices[part], at[part], self._cache, own, row_bytes)

    def _check(self, slots: np.ndarray, positions: np.ndarray) -> None:
        """Raise IndexError if a position is beyond its slot's length: a pass would write to other memory."""
        if (positions >= self._cache.lengths[slots]).any():
            raise IndexError("a slot is shorter than the text that is read into it")
