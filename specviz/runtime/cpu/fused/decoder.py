"""A decoder of the llama kind for the fused pass: its weights in the pass's layout, and the tables that the pass reads.

RMSNorm, rotary positions, grouped queries and SwiGLU, with what Qwen2 and Qwen3 add: biases of queries, keys and values, norms of
queries and keys. Knows weights by their role; knows no file, no slot's owner and no token's meaning.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from specviz.runtime.cpu.fused import functions
from specviz.runtime.cpu.fused.decoder_pass import MOST_ROWS, WORDS, Layer, Matrix, Pass
from specviz.runtime.cpu.fused.layers import POSITIONS
from specviz.runtime.cpu.fused.layout import LINE, Bytes, Room, arrange, arranged_bytes, inputs
from specviz.runtime.cpu.fused.products import BLOCK, PANEL_ROWS, Arithmetic, Format
from specviz.runtime.cpu.fused.team import most_threads, team
from specviz.runtime.cpu.fused.teamwork import MOST
from specviz.runtime.cpu.fused.vectors import LANES

_FLOAT_BYTES = 4
_TRIED_ROWS, _TRIES, _CLEARLY, _ROUNDS = 4, 4, 1.05, 5
"""Rows of the passes that are timed when a decoder is loaded, how often, by how much one thread must be faster, and how many times over."""


@dataclass(frozen=True)
class Weights:
    """A matrix [outputs, inputs] as published: a row's bytes, and their format."""

    rows: Bytes
    format: Format


@dataclass(frozen=True)
class LayerWeights:
    """One layer. Queries and keys are ordered so that rotary positions turn adjacent pairs.

    Attributes:
        inputs: of queries, keys and values, one after another, in one format.
        gate_and_up: [2 · inner, hidden], gates before ups.
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
        frequencies: float32 [head_size / 2], of rotary positions.
        rotary_scale: of cosines and sines.
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
    """Weights in memory, shared by all who run them.

    Attributes:
        shape: its sizes.
        layers: how many.
        vocabulary: tokens it scores.
        threads: that a pass of a few rows takes.
        bytes: of weights that a pass reads.
        address: of its passes' table.
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
        """Arrange the weights; `head` None where the embedding is the output layer too."""
        self.shape, self.arithmetic = shape, arithmetic
        self.vocabulary = len((head or embedding).rows)
        self.threads = 1
        matrices = [embedding, *([head] if head else [])]
        for layer in layers:
            matrices += [layer.inputs, layer.output, layer.gate_and_up, layer.down]
        self._arena = _Arena(arithmetic, sum(map(_size, matrices)))
        self._table = np.array([self._layer(each) for each in layers], np.int64)
        self._head = self._arena.matrix(head or embedding)
        self._embedding = self._head if head is None else self._arena.matrix(embedding)
        self._embed = functions.embed(embedding.format)
        self._norm = self._arena.vector(norm)
        self._arena.fill()
        self._numbers = np.array([shape.epsilon, shape.head_size**-0.5], np.float32)
        self._begin()

    def _begin(self) -> None:
        """What a decoder has for itself, whoever shares its weights."""
        self._lock = threading.Lock()
        self._pass = np.zeros(Pass.END, np.int64)
        self.address = int(self._pass.ctypes.data)
        self._room: _Room | None = None

    def with_layers(self, indices: Sequence[int]) -> Decoder:
        """A decoder of some of the layers, which shares all weights."""
        other = object.__new__(Decoder)
        other.__dict__ |= self.__dict__
        other._table = self._table[list(indices)]
        other._begin()
        return other

    @property
    def layers(self) -> int:
        """How many."""
        return len(self._table)

    @property
    def bytes(self) -> int:
        """Of weights that a pass over one token reads."""
        return sum(self._arena.sizes[at] for at in {*self._matrices(), self._head[Matrix.WEIGHTS]})

    def _matrices(self) -> list[int]:
        begins = (Layer.INPUTS, Layer.OUTPUT, Layer.GATE_AND_UP, Layer.DOWN)
        return [int(row[begin + Matrix.WEIGHTS]) for row in self._table for begin in begins]

    def _layer(self, layer: LayerWeights) -> list[int]:
        arena = self._arena
        vectors = (layer.attention_norm, layer.mlp_norm, layer.query_norm, layer.key_norm)
        gate, up = (Weights(rows, layer.gate_and_up.format) for rows in np.split(layer.gate_and_up.rows, 2))
        return [
            *(0 if vector is None else arena.vector(vector) for vector in vectors),
            *arena.matrix(layer.inputs, bias=layer.input_bias),
            *arena.matrix(layer.output),
            *arena.matrix(gate, up),
            *arena.matrix(layer.down),
        ]

    def run(
        self,
        tokens: np.ndarray,
        slots: np.ndarray,
        positions: np.ndarray,
        cache: SlotTable,
        logits: int = 0,
        row_bytes: int = 0,
    ) -> bool:
        """Read up to `MOST_ROWS` tokens, each for its slot at its position; those of a slot in ascending order.

        Args:
            tokens, slots, positions: int64 [n].
            cache: its slots, written at these positions, read up to them.
            logits, row_bytes: address of float32 [n, at least `vocabulary` to the next multiple of 16], written, and bytes of a row; 0
                where none are wanted.

        Returns True if as many threads as are set ran it, undisturbed.
        """
        with self._lock:
            room, table = self._make_room(cache), self._pass
            count = table[Pass.ROWS] = len(tokens)
            room.rows[0, :count], room.rows[1, :count], room.rows[2, :count] = tokens, slots, positions
            table[Pass.LOGITS], table[Pass.LOGITS_BYTES] = logits, row_bytes
            return team().run(self.address, self.threads)

    def draft(self, drafting: np.ndarray, cache: SlotTable) -> None:
        """Draw what a `Drafting` of this decoder's passes asks for."""
        with self._lock:
            room, table = self._make_room(cache), self._pass
            table[Pass.LOGITS], table[Pass.LOGITS_BYTES] = room.logits_address, room.logits.strides[0]
            team().draft(int(drafting.ctypes.data), self.threads)

    def choose_threads(self) -> None:
        """Measure how many threads make a pass of a few rows fastest; one only where more are clearly slower.

        The numbers take turns, and the quickest undisturbed pass of each counts. What is chosen stays: one thread, which looks the quickest
        once in thirty times on a busy machine, must be so every time. Where other programs left no pass undisturbed, as many
        threads as there are: the team does without them while they are missed. A tie goes to more: on a rented machine two threads have a core
        each, or the memory to themselves, at one time and not at another.
        """
        self.threads, counts = 1, [1, *_counts(most_threads())]
        if len(counts) == 1:
            return
        slot, rows = SlotBuffers(self.shape, self.layers, POSITIONS), np.arange(_TRIED_ROWS)
        cache = SlotTable([slot])
        logits = np.empty((_TRIED_ROWS, -(-self.vocabulary // LANES) * LANES), np.float32)
        address = int(logits.ctypes.data)
        taken: dict[int, list[float]] = {count: [] for count in counts}

        def cost(count: int) -> float:
            return min(taken[count], default=0.0) * (_CLEARLY if count == 1 else 1.0)

        for _ in range(_ROUNDS):
            for self.threads in counts * _TRIES:
                begin = time.perf_counter()
                if self.run(rows, np.zeros_like(rows), rows, cache, address, logits.strides[0]):
                    taken[self.threads].append(time.perf_counter() - begin)
            self.threads = min(counts, key=cost)
            if self.threads > 1:
                return

    def _make_room(self, cache: SlotTable) -> _Room:
        """Buffers for a cache's slots, of which the pass learns here."""
        if self._room is None or self._room.length < cache.length:
            self._room = self._new_room(cache.length)
        self._pass[Pass.SLOTS], self._pass[Pass.LENGTH] = cache.address, self._room.length
        return self._room

    def _new_room(self, length: int) -> _Room:
        """Buffers for slots of so many positions, and the words of the pass that stay as they are."""
        shape = self.shape
        room = _Room(shape, length, self._arena.scratch_bytes, self.vocabulary)
        table, queries = self._pass, shape.heads * shape.head_size
        sharing = shape.heads // shape.key_heads
        words = {
            Pass.LAYERS: self.layers,
            Pass.LAYER_TABLE: self._table.ctypes.data,
            Pass.HIDDEN: shape.hidden,
            Pass.QUERIES: queries,
            Pass.INNER: shape.inner,
            Pass.KEY_HEADS: shape.key_heads,
            Pass.SHARING: sharing,
            Pass.HEAD_SIZE: shape.head_size,
            Pass.ATTEND: functions.attend(4, shape.head_size) if sharing >= 4 else 0,
            Pass.ATTEND_REST: functions.attend(sharing % 4, shape.head_size) if sharing % 4 else 0,
            Pass.NUMBERS: self._numbers.ctypes.data,
            Pass.EMBED: self._embed,
            Pass.EMBEDDING: self._embedding[Matrix.WEIGHTS],
            Pass.NORM: self._norm,
            **room.words(),
        }
        for index, value in words.items():
            table[index] = value
        table[Pass.HEAD : Pass.HEAD + WORDS] = self._head
        return room


def _counts(most: int) -> list[int]:
    """Numbers of threads worth trying beside one: powers of two, and the most."""
    return sorted({*(1 << power for power in range(1, most.bit_length()) if 1 << power < most), most} - {1})


class SlotBuffers:
    """Keys and values of one slot: [layers, key heads, blocks, head size, 32] and [layers, key heads, length, head size], float32."""

    def __init__(self, shape: DecoderShape, layers: int, length: int) -> None:
        """Not set: a pass reads what passes wrote. `length` is a multiple of 32."""
        head, size = (layers, shape.key_heads), shape.head_size
        numbers = layers * shape.key_heads * length * size
        room = Room(2 * (numbers * _FLOAT_BYTES + LINE))
        keys, values = (room.take(numbers * _FLOAT_BYTES).view(np.float32) for _ in range(2))
        self.keys = keys.reshape(*head, length // POSITIONS, size, POSITIONS)
        self.values = values.reshape(*head, length, size)
        self.length = length
        self.words = int(keys.ctypes.data), int(values.ctypes.data), length
        """What `SlotTable` says of it."""


class SlotTable:
    """Where the buffers of slots lie, as the pass reads it."""

    def __init__(self, slots: Sequence[SlotBuffers]) -> None:
        """Of these slots, which must live as long; with their `lengths` [n], the `shortest` and the longest (`length`)."""
        self._words = np.array([each.words for each in slots], np.int64).reshape(-1, 3)
        self.address, self.lengths = int(self._words.ctypes.data), self._words[:, 2]
        lengths = [each.length for each in slots]
        self.shortest, self.length = min(lengths, default=0), max(lengths, default=0)


def _size(weights: Weights) -> int:
    """Bytes of room that a matrix takes, to the next cache line."""
    size = arranged_bytes(len(weights.rows), inputs(weights.rows, weights.format), weights.format)
    return -(-size // LINE) * LINE


class _Arena:
    """Arranged weights, and where they lie."""

    def __init__(self, arithmetic: Arithmetic, size: int) -> None:
        self._arithmetic, self._room = arithmetic, Room(size)
        self._kept: list[np.ndarray] = []
        self._to_arrange: list[tuple[Bytes, Format, np.ndarray]] = []
        self._zeros = np.zeros(0, np.float32)
        self.sizes: dict[int, int] = {}
        self.scratch_bytes = 0

    def vector(self, values: np.ndarray) -> int:
        """Address of float32 numbers."""
        self._kept.append(np.array(values, np.float32))  # a copy: a view would keep the whole file mapped
        return int(self._kept[-1].ctypes.data)

    def fill(self) -> None:
        """Arrange the weights of all matrices, on as many threads as passes may take: half of it is waiting for memory never touched before."""
        with ThreadPoolExecutor(most_threads()) as pool:
            largest_first = sorted(self._to_arrange, key=lambda each: -each[0].nbytes)
            for _ in pool.map(lambda each: arrange(*each), largest_first):
                pass
        self._to_arrange.clear()

    def matrix(
        self, weights: Weights, other: Weights | None = None, bias: np.ndarray | None = None
    ) -> list[int]:
        """The words of a matrix, which `fill` will arrange; with an `other` one, groups of both alternate."""
        kind, arithmetic = weights.format, self._arithmetic.meeting(weights.format)
        count, parts = inputs(weights.rows, kind), [weights, *([other] if other else [])]
        size = arranged_bytes(len(weights.rows), count, kind)
        room = self._room.take(size * len(parts))
        places = room.reshape(-(-len(weights.rows) // LANES), len(parts), -1)
        for index, part in enumerate(parts):
            self._to_arrange.append((part.rows, kind, places[:, index]))
        groups = len(places) * len(parts)
        address = int(room.ctypes.data)
        self.sizes[address] = room.nbytes
        if bias is None:
            if groups * LANES > len(self._zeros):
                self._zeros = np.zeros(groups * LANES, np.float32)
                self._kept.append(self._zeros)
            start = int(self._zeros.ctypes.data)
        else:
            start = self.vector(bias)
        blocks, block_bytes, panel_bytes = count // BLOCK, 0, 0
        scratch = MOST_ROWS * count * _FLOAT_BYTES
        if kind.is_quantised:
            block_bytes, panel_bytes = arithmetic.block_bytes, blocks * arithmetic.panel_stride
            scratch = count * _FLOAT_BYTES + MOST_ROWS // PANEL_ROWS * panel_bytes
        self.scratch_bytes = max(self.scratch_bytes, scratch)
        words = {
            Matrix.MULTIPLY: functions.multiply(kind, arithmetic),
            Matrix.QUANTISE: functions.quantise(arithmetic) if kind.is_quantised else 0,
            Matrix.WEIGHTS: address,
            Matrix.START: start,
            Matrix.GROUPS: groups,
            Matrix.BLOCKS: blocks,
            Matrix.BLOCK_BYTES: block_bytes,
            Matrix.PANEL_BYTES: panel_bytes,
        }
        return [words[index] for index in Matrix]


class _Room:
    """Buffers of a decoder's passes, for slots of up to `length` positions."""

    def __init__(self, shape: DecoderShape, length: int, scratch_bytes: int, vocabulary: int) -> None:
        self.length = length
        heads, size = shape.heads + 2 * shape.key_heads, shape.head_size
        # Four heads' scores of all positions have to fit too.
        self._scratch_bytes = -(-max(scratch_bytes, 4 * length * _FLOAT_BYTES) // 64) * 64
        widths = {
            Pass.STATES: shape.hidden,
            Pass.PROJECTED: heads * size,
            Pass.MIXED: shape.heads * size,
            Pass.GATED: 2 * shape.inner,
            Pass.ACTIVATED: shape.inner,
        }
        self._buffers = {index: np.zeros((MOST_ROWS, width), np.float32) for index, width in widths.items()}
        self._scratch = Room(MOST * self._scratch_bytes).take(MOST * self._scratch_bytes)
        self.rows = np.zeros((3, MOST_ROWS), np.int64)
        self.logits = np.empty((MOST_ROWS, -(-vocabulary // LANES) * LANES), np.float32)
        self.logits_address = int(self.logits.ctypes.data)
        angles = np.arange(length, dtype=np.float32)[:, None] * shape.frequencies.astype(np.float32)
        twice = np.repeat(angles, 2, axis=1)
        self._cosines = np.cos(twice) * np.float32(shape.rotary_scale)
        signs = np.tile(np.array([-1, 1], np.float32), size // 2)
        self._sines = np.sin(twice) * signs * np.float32(shape.rotary_scale)

    def words(self) -> dict[Pass, int]:
        """What the pass's table has of these buffers."""
        tokens, slots, positions = (int(row.ctypes.data) for row in self.rows)
        return {
            **{index: int(buffer.ctypes.data) for index, buffer in self._buffers.items()},
            Pass.SCRATCH: int(self._scratch.ctypes.data),
            Pass.SCRATCH_BYTES: self._scratch_bytes,
            Pass.COSINES: int(self._cosines.ctypes.data),
            Pass.SINES: int(self._sines.ctypes.data),
            Pass.TOKENS: tokens,
            Pass.ROW_SLOTS: slots,
            Pass.ROW_POSITIONS: positions,
        }
