"""A decoder of the llama kind for the fused pass: its weights in the pass's layout, and the tables that the pass reads.

Decoders of the llama kind have RMSNorm, rotary positions, grouped-query attention and SwiGLU. Qwen2 adds biases of queries, keys and
values; Qwen3 adds norms of queries and keys.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from specviz.runtime.cpu.fused import functions
from specviz.runtime.cpu.fused.cache import FusedCache
from specviz.runtime.cpu.fused.layout import Bytes, aligned, arrange, inputs
from specviz.runtime.cpu.fused.memory import CACHE_LINE, FLOAT_BYTES
from specviz.runtime.cpu.fused.products import BLOCK, PANEL_ROWS, Arithmetic, Format, Kernel
from specviz.runtime.cpu.fused.tables import LAYER, MATRICES, MATRIX, MOST_ROWS, PASS
from specviz.runtime.cpu.fused.vectors import LANES
from specviz.runtime.cpu.fused.worker_pool import most_threads, worker_pool
from specviz.runtime.cpu.fused.workers import MOST_THREADS
from specviz.runtime.cpu.threads import quickest, worth_trying

_TRIED_ROWS = 4
"""Rows of the passes that are timed when a decoder is loaded."""


@dataclass(frozen=True)
class Weights:
    """A matrix [outputs, inputs] in its published format; `rows` has the bytes of each row."""

    rows: Bytes
    format: Format


@dataclass(frozen=True)
class LayerWeights:
    """Weights of one layer. Outputs of queries and keys are ordered so that rotary positions rotate adjacent pairs.

    Attributes:
        inputs: the projections to queries, keys and values, concatenated in this order, in one format.
        gate_and_up: [2 · inner, hidden], all gates before all ups.
        input_bias, query_norm, key_norm: float32; None where the model has none.
    """

    attention_norm: np.ndarray
    inputs: Weights
    output: Weights
    mlp_norm: np.ndarray
    gate_and_up: Weights
    down: Weights
    input_bias: np.ndarray | None = None
    query_norm: np.ndarray | None = None
    key_norm: np.ndarray | None = None


@dataclass(frozen=True)
class DecoderShape:
    """Sizes of a decoder.

    Attributes:
        frequencies: float32 [head_size / 2], the frequencies of rotary positions.
        rotary_scale: a factor that multiplies cosines and sines.
    """

    hidden: int
    heads: int
    key_heads: int
    head_size: int
    inner: int
    epsilon: float
    frequencies: np.ndarray
    rotary_scale: float


class Decoder:
    """A decoder's weights in memory, shared by all runners, and its passes.

    Attributes:
        vocabulary, layers: number of tokens that have logits, and number of layers.
        threads: number of threads of a pass.
        address: address of the decoder's `PASS` table.
    """

    def __init__(
        self,
        shape: DecoderShape,
        layers: Sequence[LayerWeights],
        embedding: Weights,
        norm: np.ndarray,
        head: Weights | None,
        arithmetic: Arithmetic,
    ) -> None:
        """Arrange the weights; `head` is None if the embedding is also the output layer."""
        self.shape, self.vocabulary, self.threads = shape, len((head or embedding).rows), 1
        self._arena = arena = _Arena(arithmetic)
        self._table = np.array([self._layer(each) for each in layers], LAYER)
        self._pass = table = np.zeros(1, PASS)
        for name in ("heads", "key_heads", "head_size", "hidden", "inner", "epsilon"):
            table[name] = getattr(shape, name)
        table["attend"] = functions.attend(shape.heads // shape.key_heads, shape.head_size)
        table["embed"], table["norm"] = functions.embed(embedding.format), arena.vector(norm)
        table["head"] = arena.matrix(head or embedding)
        reading = table["head"] if head is None else np.array(arena.matrix(embedding), MATRIX)
        table["embedding"] = reading["weights"]
        begin = arena.fill()
        for matrix in (*map(self._table.__getitem__, MATRICES), table["head"]):
            matrix["weights"] += begin
        table["embedding"] += begin
        self._begin()

    def _begin(self) -> None:
        """Set the attributes that decoders with the same weights do not share."""
        self._lock = threading.Lock()
        self._pass = self._pass.copy()
        self.layers = len(self._table)
        self._pass["layers"], self._pass["layer_table"] = self.layers, self._table.ctypes.data
        self._buffers: _Buffers | None = None
        self.address = int(self._pass.ctypes.data)

    def with_layers(self, indices: Sequence[int]) -> Decoder:
        """A decoder of the layers at `indices`, which shares its weights with this decoder."""
        other = copy.copy(self)
        other._table = self._table[list(indices)]
        other._begin()
        return other

    def _layer(self, layer: LayerWeights) -> tuple[Any, ...]:
        arena = self._arena
        vectors = (layer.attention_norm, layer.mlp_norm, layer.query_norm, layer.key_norm)
        return (
            *(0 if vector is None else arena.vector(vector) for vector in vectors),
            arena.matrix(layer.inputs, bias=layer.input_bias),
            arena.matrix(layer.output, adds=True),
            arena.matrix(layer.gate_and_up, parts=2),
            arena.matrix(layer.down, adds=True),
        )

    def new_cache(self) -> FusedCache:
        """A KV cache without slots."""
        return FusedCache(self.layers, self.shape.key_heads, self.shape.head_size)

    def run(
        self,
        tokens: np.ndarray,
        slots: np.ndarray,
        positions: np.ndarray,
        cache: FusedCache,
        logits: int = 0,
        row_bytes: int = 0,
    ) -> None:
        """Read up to `MOST_ROWS` tokens, each in its slot at its position. Positions ascend within a slot.

        Args:
            tokens, slots, positions: int64 [n].
            cache: keys and values are written at `positions`; each token attends to positions up to its own.
            logits: address for the logits, float32 [n, at least `vocabulary` rounded up to a multiple of 16]; 0 if they are not needed.
            row_bytes: bytes from one row of logits to the next.
        """
        with self._lock:
            buffers, table = self._prepare(cache), self._pass
            count = len(tokens)
            for row, values in zip(buffers.rows, (tokens, slots, positions), strict=True):
                row[:count] = values
            table["rows"], table["logits"], table["logits_bytes"] = count, logits, row_bytes
            worker_pool().run(self.address, self.threads)

    def draft(self, drafting: np.ndarray, cache: FusedCache) -> None:
        """Draw the draft tokens that a `DRAFTING` table of this decoder asks for."""
        with self._lock:
            buffers, table = self._prepare(cache), self._pass
            table["logits"], table["logits_bytes"] = buffers.logits.ctypes.data, buffers.logits.strides[0]
            worker_pool().run(int(drafting.ctypes.data), self.threads, drafts=True)

    def choose_threads(self) -> None:
        """Time passes of a few rows, and set `threads` to the fastest number. The first pass compiles.

        One thread is tried only if two are not allowed: the worker pool falls back to one thread while other programs occupy the cores.
        """
        rows = np.arange(_TRIED_ROWS)
        cache = self.new_cache()
        cache.add(1, _TRIED_ROWS)

        def run(count: int) -> None:
            self.threads, buffers = count, self._prepare(cache)
            self.run(rows, 0 * rows, rows, cache, buffers.logits.ctypes.data, buffers.logits.strides[0])

        self.threads = quickest(run, worth_trying(most_threads())[1:] or [1])

    def _prepare(self, cache: FusedCache) -> _Buffers:
        """Returns buffers for a cache's slots, and writes the addresses of buffers and slots to the pass's table."""
        if self._buffers is None or self._buffers.length < cache.length:
            self._buffers = _Buffers(self.shape, cache.length, self._arena.scratch_bytes, self.vocabulary)
            for name, value in self._buffers.fields.items():
                self._pass[name] = value
        self._pass["slots"] = cache.address
        return self._buffers


class _Arena:
    """Weights in one block of memory, which the system may map in large pages. With small pages a pass reads at a third of the speed."""

    def __init__(self, arithmetic: Arithmetic) -> None:
        self._arithmetic, self._bytes, self.scratch_bytes = arithmetic, 0, 0
        self._vectors: list[np.ndarray] = []
        self._parts: list[tuple[Weights, int, int, int]] = []

    def vector(self, values: np.ndarray) -> int:
        """Copy a vector as float32; returns its address."""
        self._vectors.append(np.array(values, np.float32))  # a copy: a view would keep the whole file mapped
        return int(self._vectors[-1].ctypes.data)

    def matrix(
        self, weights: Weights, *, parts: int = 1, bias: np.ndarray | None = None, adds: bool = False
    ) -> tuple[int, ...]:
        """Reserve space for a matrix. Returns a `MATRIX`, in which `weights` is an offset from the address that `fill` returns.

        Args:
            parts: number of equal parts of the rows. In memory, the parts alternate after every 16 outputs.
            bias: the outputs' initial values; 0 if None.
            adds: whether the product is added to existing outputs; `bias` is then ignored.
        """
        kernel, offset = Kernel(weights.format, self._arithmetic), self._bytes
        count, groups = inputs(weights.rows, weights.format), -(-len(weights.rows) // parts // LANES) * parts
        blocks = count // BLOCK
        self._parts += [(weights, offset, parts, index) for index in range(parts)]
        self._bytes += -(-groups * blocks * weights.format.block_bytes // CACHE_LINE) * CACHE_LINE
        start = 0 if adds else self.vector(np.zeros(groups * LANES) if bias is None else bias)
        packed = MOST_ROWS // PANEL_ROWS * blocks * kernel.block_bytes
        self.scratch_bytes = max(self.scratch_bytes, count * FLOAT_BYTES + packed)
        code = functions.multiply(kernel), functions.pack(kernel)
        return *code, offset, start, groups, blocks, kernel.row_bytes, kernel.block_bytes

    def fill(self) -> int:
        """Arrange all matrices on many threads: half of the time goes into page faults. Returns the address of the block of memory."""
        self._memory = aligned(self._bytes)

        def arrange_part(part: tuple[Weights, int, int, int]) -> None:
            weights, offset, parts, index = part
            rows, kind = np.split(weights.rows, parts)[index], weights.format
            size = inputs(rows, kind) // BLOCK * kind.block_bytes
            found = self._memory[offset : offset + -(-len(rows) // LANES) * parts * size]
            arrange(rows, kind, found.reshape(-1, parts, size)[:, index])

        with ThreadPoolExecutor(most_threads()) as pool:
            list(pool.map(arrange_part, sorted(self._parts, key=lambda part: -part[0].rows.nbytes)))
        self._parts.clear()
        return int(self._memory.ctypes.data)


class _Buffers:
    """Buffers of a decoder's passes, for slots of up to `length` positions."""

    def __init__(self, shape: DecoderShape, length: int, scratch_bytes: int, vocabulary: int) -> None:
        self.length = length
        heads, size = shape.heads + 2 * shape.key_heads, shape.head_size
        # Scratch also holds the scores of heads that share keys.
        scores = shape.heads // shape.key_heads * length * FLOAT_BYTES
        scratch_bytes = -(-max(scratch_bytes, scores) // CACHE_LINE) * CACHE_LINE
        # A panel's block has an additional cache line, which is one float per row.
        widths = {"states": shape.hidden, "projected": heads * size, "mixed": shape.heads * size}
        widths |= {"gated": 2 * shape.inner, "activated": shape.inner + shape.inner // BLOCK}
        self._arrays = {name: np.zeros((MOST_ROWS, width), np.float32) for name, width in widths.items()}
        self._arrays["scratch"] = aligned(MOST_THREADS * scratch_bytes)
        self.rows = np.zeros((3, MOST_ROWS), np.int64)
        self.logits = np.empty((MOST_ROWS, -(-vocabulary // LANES) * LANES), np.float32)
        angles = np.arange(length, dtype=np.float32)[:, None] * shape.frequencies.astype(np.float32)
        twice = np.repeat(angles, 2, axis=1)
        signs = np.tile(np.array([-1, 1], np.float32), size // 2)
        sines = np.sin(twice) * signs * np.float32(shape.rotary_scale)
        self._arrays |= {"cosines": np.cos(twice) * np.float32(shape.rotary_scale), "sines": sines}
        self._arrays |= zip(("tokens", "row_slots", "row_positions"), self.rows, strict=True)
        self.fields = {name: int(array.ctypes.data) for name, array in self._arrays.items()}
        """Fields of the pass's table: the addresses of these buffers."""
        self.fields["scratch_bytes"] = scratch_bytes
