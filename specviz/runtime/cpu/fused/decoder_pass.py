"""One pass of a decoder over a few rows, layer by layer, as compiled functions that every thread of a team runs.

A row is one token of one slot at its position. Threads share the outputs of each product among them, take over what slower ones have
not begun, and wait for each other between the stages of a layer. What the pass works on stands in two tables of 64-bit words,
`Pass` and `Layer`, mostly addresses. Knows these tables; knows no slot's owner and no text.
"""

from __future__ import annotations

from enum import IntEnum, auto
from typing import Any

import numpy as np
from numba.extending import register_jitable

from specviz.runtime.cpu.fused import layers, memory
from specviz.runtime.cpu.fused.layers import POSITIONS
from specviz.runtime.cpu.fused.memory import (
    exchange,
    number,
    pause,
    read_shared,
    set_number,
    set_word,
    word,
    write_shared,
)
from specviz.runtime.cpu.fused.products import BLOCK, panel_places
from specviz.runtime.cpu.fused.vectors import LANES

MOST_ROWS = 64
"""Rows of one pass; more are read in several."""


class Table(IntEnum):
    """Indices of words in a table, counted from 0."""

    @staticmethod
    def _generate_next_value_(name: str, start: int, count: int, last_values: list[Any]) -> int:
        return last_values[-1] + 1 if last_values else 0


class Matrix(Table):
    """What a product needs: functions (0 where activations stay floats), weights, where outputs start, sizes; the last two of a block of
    integers and of a panel of them.
    """

    MULTIPLY = auto()
    QUANTISE = auto()
    WEIGHTS = auto()
    START = auto()
    GROUPS = auto()
    BLOCKS = auto()
    BLOCK_BYTES = auto()
    PANEL_BYTES = auto()


WORDS = len(Matrix)


class Layer(Table):
    """A layer: norms' weights (0 where there are none), and the first words of its four matrices."""

    ATTENTION_NORM = auto()
    MLP_NORM = auto()
    QUERY_NORM = auto()
    KEY_NORM = auto()
    INPUTS = 4
    OUTPUT = INPUTS + WORDS
    GATE_AND_UP = OUTPUT + WORDS
    DOWN = GATE_AND_UP + WORDS
    END = DOWN + WORDS


class Pass(Table):
    """A pass: sizes, tables, buffers, and what it is to read.

    Strides are in bytes. `SLOTS` is the address of a `Slot` each; `LENGTH` are positions that scores have room for. `HIDDEN`,
    `QUERIES` and `INNER` count floats; `SCRATCH_BYTES` are of one thread.
    """

    LAYERS = auto()
    LAYER_TABLE = auto()
    HIDDEN = auto()
    QUERIES = auto()
    INNER = auto()
    KEY_HEADS = auto()
    SHARING = auto()
    HEAD_SIZE = auto()
    ATTEND = auto()
    ATTEND_REST = auto()
    NUMBERS = auto()
    COSINES = auto()
    SINES = auto()
    EMBED = auto()
    EMBEDDING = auto()
    NORM = auto()
    STATES = auto()
    PROJECTED = auto()
    MIXED = auto()
    GATED = auto()
    ACTIVATED = auto()
    SCRATCH = auto()
    SCRATCH_BYTES = auto()
    SLOTS = auto()
    LENGTH = auto()
    ROWS = auto()
    TOKENS = auto()
    ROW_SLOTS = auto()
    ROW_POSITIONS = auto()
    LOGITS = auto()
    LOGITS_BYTES = auto()
    HEAD = 40
    END = HEAD + WORDS


class Slot(Table):
    """A slot: addresses of its keys and values, and how many positions it has."""

    KEYS = auto()
    VALUES = auto()
    LENGTH = auto()


_SLOT_BYTES = 8 * len(Slot)
_multiply = memory.caller(11)
_quantise = memory.caller(4)
_attend = memory.caller(9)
_embed = memory.caller(4)
_RMS, _ATTENTION = 0, 1
"""Of `Pass.NUMBERS`: epsilon of the norms, scale of the scores."""
_FLOAT_BYTES = 4


class Barrier(Table):
    """Of a team's table: where threads publish how far they are, one cache line pair each; what to call when waiting takes long,
    after how many cycles it does, and for how many cycles the leader has waited."""

    FLAGS = auto()
    YIELD = auto()
    PATIENCE = auto()
    WAITED = auto()


FLAG_BYTES = 128
"""From a thread's flag to the next. In the second half stands what is claimed of its share of a stage: the stage's step, the part to be
begun next, and where the parts end, from where others take theirs; of 48, 8 and 8 bits.
"""
_CLAIM = 64
_PARTS, _LEAST = 8, 2
"""Into how many parts a thread's share of a stage falls at most, and how many units each has at least, since beginning one takes time too."""
give_way = memory.caller(0)


@register_jitable
def wait_for(team: int, thread: int, threads: int, step: int) -> None:
    """Publish that this thread has come to `step`, and wait until all others have."""
    if threads == 1:
        return
    flags, started = word(team, Barrier.FLAGS), memory.cycles()
    write_shared(flags + thread * FLAG_BYTES, step)
    for other in range(threads):
        begun = memory.cycles()
        while other != thread and read_shared(flags + other * FLAG_BYTES) < step:
            pause()
            if memory.cycles() - begun > word(team, Barrier.PATIENCE):
                give_way(word(team, Barrier.YIELD))  # somebody else wants the other thread's core
    if thread == 0:
        set_word(team, Barrier.WAITED, word(team, Barrier.WAITED) + memory.cycles() - started)


@register_jitable
def _claim(address: int, step: int, parts: int, back: int) -> int:
    """A part of a share that nobody has claimed: the first, or from the back; −1 where there is none."""
    while True:
        found = read_shared(address)
        following, end = (found >> 8) & 255, found & 255
        if found >> 16 != step:  # nobody has claimed any
            following, end = 0, parts
        if following >= end:
            return -1
        part = end - 1 if back else following
        left = (following << 8) + end - 1 if back else ((following + 1) << 8) + end
        if exchange(address, found, (step << 16) + left) == 1:
            return part


@register_jitable
def _take(team: int, thread: int, threads: int, step: int, units: int, done: int) -> tuple[int, int]:
    """What a thread does next of a stage's units, from the first to the last − 1: of its own share, then of others'; nothing where all is
    begun. `done` is where what it took before ended, 0 at first.
    """
    if threads == 1:
        return done, units
    for away in range(threads):
        owner = (thread + away) % threads
        first, last = units * owner // threads, units * (owner + 1) // threads
        size = last - first
        parts = min(_PARTS, max(size // _LEAST, min(size, 1)))
        claims = word(team, Barrier.FLAGS) + owner * FLAG_BYTES + _CLAIM
        part = _claim(claims, step, parts, away != 0)
        if part >= 0:
            return first + size * part // parts, first + size * (part + 1) // parts
    return 0, 0


@register_jitable
def _norm(pass_: int, x: int, weight: int, out: int, size: int) -> None:
    """out = RMSNorm(x) · weight, over `size` floats."""
    vectors = size // LANES
    mean = layers.sum_of_squares(x, vectors) / np.float32(size)
    factor = np.float32(1.0) / np.sqrt(mean + number(word(pass_, Pass.NUMBERS), _RMS))
    layers.scale(x, weight, out, vectors, factor)


@register_jitable
def _quantise_row(matrix: int, x: int, to: int, row: int, first: int, last: int) -> None:
    """Write a row of a matrix's inputs, in blocks from the first to the last − 1 that begin at `x`, to panels as integers."""
    panel = word(matrix, Matrix.PANEL_BYTES)
    begin = to + first * (panel // word(matrix, Matrix.BLOCKS))
    at, side = panel_places(begin, panel, word(matrix, Matrix.BLOCK_BYTES), row)
    _quantise(word(matrix, Matrix.QUANTISE), x, at, side, last - first)


@register_jitable
def _prepare(pass_: int, matrix: int, x: int, row_bytes: int, norm: int, thread: int) -> tuple[int, int]:
    """Norm (unless 0) and quantise all rows of a matrix's inputs into this thread's scratch.

    Returns address and stride of the activations: of panels, or of rows of floats.
    """
    rows, blocks = word(pass_, Pass.ROWS), word(matrix, Matrix.BLOCKS)
    size = blocks * BLOCK
    scratch = word(pass_, Pass.SCRATCH) + thread * word(pass_, Pass.SCRATCH_BYTES)
    floats = size * _FLOAT_BYTES
    if word(matrix, Matrix.QUANTISE) == 0:
        if norm == 0:
            return x, row_bytes
        for row in range(rows):
            _norm(pass_, x + row * row_bytes, norm, scratch + row * floats, size)
        return scratch, floats
    for row in range(rows):
        own = x + row * row_bytes
        if norm != 0:
            _norm(pass_, own, norm, scratch, size)
            own = scratch
        _quantise_row(matrix, own, scratch + floats, row, 0, blocks)
    return scratch + floats, word(matrix, Matrix.PANEL_BYTES)


@register_jitable
def _product(
    pass_: int,
    matrix: int,
    prepared: tuple[int, int],
    start: int,
    start_bytes: int,
    out: int,
    out_bytes: int,
    first: int,
    last: int,
) -> None:
    """out = start + inputs · matrix, for its groups of 16 outputs from `first` to `last` − 1."""
    x, stride = prepared
    _multiply(
        word(matrix, Matrix.MULTIPLY),
        word(matrix, Matrix.WEIGHTS),
        x,
        stride,
        start,
        start_bytes,
        out,
        out_bytes,
        first,
        last,
        word(matrix, Matrix.BLOCKS),
        word(pass_, Pass.ROWS),
    )


@register_jitable
def _key_value_base(pass_: int, cache: int, layer: int, slot: int, head: int) -> int:
    """Address of a slot's keys or values of one head in one layer."""
    own = word(pass_, Pass.SLOTS) + slot * _SLOT_BYTES
    index = layer * word(pass_, Pass.KEY_HEADS) + head
    return word(own, cache) + index * word(own, Slot.LENGTH) * word(pass_, Pass.HEAD_SIZE) * _FLOAT_BYTES


@register_jitable
def _finish_heads(pass_: int, table: int, layer: int, row: int, at: int, first: int, last: int) -> None:
    """Norm and rotate a row's queries and keys, and write keys and values to the cache, of some heads of what lies from an address on."""
    size, key_heads = word(pass_, Pass.HEAD_SIZE), word(pass_, Pass.KEY_HEADS)
    queries, groups = word(pass_, Pass.QUERIES) // size, size // LANES
    slot, position = word(word(pass_, Pass.ROW_SLOTS), row), word(word(pass_, Pass.ROW_POSITIONS), row)
    angle = position * size * _FLOAT_BYTES
    for head in range(first, last):
        own = at + head * size * _FLOAT_BYTES
        if head < queries + key_heads:
            norm = word(table, Layer.QUERY_NORM if head < queries else Layer.KEY_NORM)
            if norm != 0:
                _norm(pass_, own, norm, own, size)
            layers.rotate(own, word(pass_, Pass.COSINES) + angle, word(pass_, Pass.SINES) + angle, groups)
        if head >= queries + key_heads:
            values = _key_value_base(pass_, Slot.VALUES, layer, slot, head - queries - key_heads)
            for index in range(size):
                set_number(values, position * size + index, number(own, index))
        elif head >= queries:
            keys = _key_value_base(pass_, Slot.KEYS, layer, slot, head - queries)
            begin = position // POSITIONS * size * POSITIONS + position % POSITIONS
            if position % POSITIONS == 0:
                # Scores are made of whole blocks, and of what memory held before they might take a hundred times as long.
                layers.clear(keys + begin * _FLOAT_BYTES, size * POSITIONS // LANES)
            for index in range(size):
                set_number(keys, begin + index * POSITIONS, number(own, index))


@register_jitable
def _project(pass_: int, team: int, table: int, layer: int, thread: int, threads: int, step: int) -> None:
    """Queries, keys and values: rotated, keys and values also written to the cache."""
    hidden, size = word(pass_, Pass.HIDDEN), word(pass_, Pass.HEAD_SIZE)
    queries, key_heads = word(pass_, Pass.QUERIES) // size, word(pass_, Pass.KEY_HEADS)
    heads, matrix, rows = queries + 2 * key_heads, table + Layer.INPUTS * 8, word(pass_, Pass.ROWS)
    groups = size // LANES
    out, row_bytes = word(pass_, Pass.PROJECTED), heads * size * _FLOAT_BYTES
    norm = word(table, Layer.ATTENTION_NORM)
    _fetch_heads(pass_, layer, thread, threads)
    prepared = _prepare(pass_, matrix, word(pass_, Pass.STATES), hidden * _FLOAT_BYTES, norm, thread)
    start = word(matrix, Matrix.START)
    first, last = _take(team, thread, threads, step, heads, 0)
    while first < last:
        _product(pass_, matrix, prepared, start, 0, out, row_bytes, first * groups, last * groups)
        for row in range(rows):
            _finish_heads(pass_, table, layer, row, out + row * row_bytes, first, last)
        first, last = _take(team, thread, threads, step, heads, last)


@register_jitable
def _attention(pass_: int, team: int, layer: int, thread: int, threads: int, step: int) -> None:
    """Each row's queries over its slot's keys and values, at positions up to its own."""
    key_heads = word(pass_, Pass.KEY_HEADS)
    parts = word(pass_, Pass.ROWS) * key_heads
    first, last = _take(team, thread, threads, step, parts, 0)
    while first < last:
        for part in range(first, last):
            _attend_head(pass_, layer, part // key_heads, part % key_heads, thread)
        first, last = _take(team, thread, threads, step, parts, last)


_FETCHED = 128
"""Positions whose keys and values are fetched before they are wanted; from there on the processor's own prefetching does."""


@register_jitable
def _fetch_heads(pass_: int, layer: int, thread: int, threads: int) -> None:
    """Have the keys and values read that a thread's share of attention begins with: to do so for later rows takes longer than it saves."""
    key_heads = word(pass_, Pass.KEY_HEADS)
    parts = word(pass_, Pass.ROWS) * key_heads
    first, last = parts * thread // threads, parts * (thread + 1) // threads
    for part in range(first, min(first + key_heads, last)):
        row, head = part // key_heads, part % key_heads
        slot = word(word(pass_, Pass.ROW_SLOTS), row)
        seen = min(word(word(pass_, Pass.ROW_POSITIONS), row) + 1, _FETCHED)
        lines = (seen + POSITIONS - 1) // POSITIONS * POSITIONS * word(pass_, Pass.HEAD_SIZE) // LANES
        layers.fetch(_key_value_base(pass_, Slot.KEYS, layer, slot, head), lines)
        layers.fetch(_key_value_base(pass_, Slot.VALUES, layer, slot, head), lines)


@register_jitable
def _attend_head(pass_: int, layer: int, row: int, head: int, thread: int) -> None:
    """The queries of a row that share a head of keys and values."""
    size, key_heads, sharing = (
        word(pass_, Pass.HEAD_SIZE),
        word(pass_, Pass.KEY_HEADS),
        word(pass_, Pass.SHARING),
    )
    queries = word(pass_, Pass.QUERIES)
    row_bytes = (queries + 2 * key_heads * size) * _FLOAT_BYTES
    scratch = word(pass_, Pass.SCRATCH) + thread * word(pass_, Pass.SCRATCH_BYTES)
    slot, seen = word(word(pass_, Pass.ROW_SLOTS), row), word(word(pass_, Pass.ROW_POSITIONS), row) + 1
    keys = _key_value_base(pass_, Slot.KEYS, layer, slot, head)
    values = _key_value_base(pass_, Slot.VALUES, layer, slot, head)
    done = 0
    while done < sharing:
        function, heads = word(pass_, Pass.ATTEND), 4
        if sharing - done < 4:
            function, heads = word(pass_, Pass.ATTEND_REST), sharing - done
        at = (head * sharing + done) * size * _FLOAT_BYTES
        query = word(pass_, Pass.PROJECTED) + row * row_bytes + at
        out = word(pass_, Pass.MIXED) + row * queries * _FLOAT_BYTES + at
        scale = word(pass_, Pass.NUMBERS) + _ATTENTION * _FLOAT_BYTES
        _attend(function, query, keys, values, out, scratch, word(pass_, Pass.LENGTH), seen, size, scale)
        done += heads


@register_jitable
def _share_product(
    pass_: int,
    team: int,
    matrix: int,
    prepared: tuple[int, int],
    start: int,
    start_bytes: int,
    out: int,
    out_bytes: int,
    thread: int,
    threads: int,
    step: int,
) -> None:
    """`_product` of all groups, which threads share in pairs."""
    groups = word(matrix, Matrix.GROUPS)
    pairs = (groups + 1) // 2
    first, last = _take(team, thread, threads, step, pairs, 0)
    while first < last:
        until = min(2 * last, groups)
        _product(pass_, matrix, prepared, start, start_bytes, out, out_bytes, 2 * first, until)
        first, last = _take(team, thread, threads, step, pairs, last)


@register_jitable
def _add_product(
    pass_: int,
    team: int,
    matrix: int,
    prepared: tuple[int, int],
    thread: int,
    threads: int,
    step: int,
) -> None:
    """Add a product to the hidden states."""
    states, hidden_bytes = word(pass_, Pass.STATES), word(pass_, Pass.HIDDEN) * _FLOAT_BYTES
    to = states, hidden_bytes, states, hidden_bytes
    _share_product(pass_, team, matrix, prepared, *to, thread, threads, step)


@register_jitable
def _output(pass_: int, team: int, table: int, thread: int, threads: int, step: int) -> None:
    """What attention found, added to the hidden states."""
    matrix, row_bytes = table + Layer.OUTPUT * 8, word(pass_, Pass.QUERIES) * _FLOAT_BYTES
    prepared = _prepare(pass_, matrix, word(pass_, Pass.MIXED), row_bytes, 0, thread)
    _add_product(pass_, team, matrix, prepared, thread, threads, step)


@register_jitable
def _activated(pass_: int, table: int) -> tuple[int, int]:
    """Where the inputs of a layer's last product lie, as `_prepare` returns it; each thread makes a share of them."""
    matrix, at = table + Layer.DOWN * 8, word(pass_, Pass.ACTIVATED)
    if word(matrix, Matrix.QUANTISE) == 0:
        return at, word(pass_, Pass.INNER) * _FLOAT_BYTES
    return at, word(matrix, Matrix.PANEL_BYTES)


@register_jitable
def _gate(pass_: int, team: int, table: int, thread: int, threads: int, step: int) -> None:
    """The gated activation, by blocks of inner outputs; in its matrix gates and ups alternate by groups."""
    matrix, inner = table + Layer.GATE_AND_UP * 8, word(pass_, Pass.INNER)
    hidden_bytes, blocks = word(pass_, Pass.HIDDEN) * _FLOAT_BYTES, inner // BLOCK
    norm, out = word(table, Layer.MLP_NORM), word(pass_, Pass.GATED)
    prepared = _prepare(pass_, matrix, word(pass_, Pass.STATES), hidden_bytes, norm, thread)
    row_bytes, start = 2 * inner * _FLOAT_BYTES, word(matrix, Matrix.START)
    groups = 2 * BLOCK // LANES
    first, last = _take(team, thread, threads, step, blocks, 0)
    while first < last:
        _product(pass_, matrix, prepared, start, 0, out, row_bytes, groups * first, groups * last)
        for row in range(word(pass_, Pass.ROWS)):
            _activate(pass_, table, row, first, last, thread)
        first, last = _take(team, thread, threads, step, blocks, last)


@register_jitable
def _down(pass_: int, team: int, table: int, thread: int, threads: int, step: int) -> None:
    """What the gated activation leads to, added to the hidden states."""
    _add_product(pass_, team, table + Layer.DOWN * 8, _activated(pass_, table), thread, threads, step)


@register_jitable
def _activate(pass_: int, table: int, row: int, first: int, last: int, thread: int) -> None:
    """The inputs of a layer's last product, of a row's blocks from the first to the last − 1."""
    matrix, inner = table + Layer.DOWN * 8, word(pass_, Pass.INNER)
    x, stride = _activated(pass_, table)
    quantises = word(matrix, Matrix.QUANTISE) != 0
    to = x + row * stride + first * BLOCK * _FLOAT_BYTES
    if quantises:
        to = word(pass_, Pass.SCRATCH) + thread * word(pass_, Pass.SCRATCH_BYTES)
    at = word(pass_, Pass.GATED) + (row * 2 * inner + first * 2 * BLOCK) * _FLOAT_BYTES
    for group in range((last - first) * BLOCK // LANES):
        layers.gate(at + 2 * group * LANES * _FLOAT_BYTES, to + group * LANES * _FLOAT_BYTES)
    if quantises:
        _quantise_row(matrix, to, x, row, first, last)


@register_jitable
def embed(pass_: int) -> None:
    """Begin the hidden states of all rows."""
    hidden = word(pass_, Pass.HIDDEN)
    for row in range(word(pass_, Pass.ROWS)):
        token, out = (
            word(word(pass_, Pass.TOKENS), row),
            word(pass_, Pass.STATES) + row * hidden * _FLOAT_BYTES,
        )
        _embed(word(pass_, Pass.EMBED), word(pass_, Pass.EMBEDDING), token, out, hidden // BLOCK)


STAGES = 5
"""Of a layer. Threads wait for each other after each one."""


def run_stage(pass_: int, team: int, stage: int, thread: int, threads: int, step: int) -> None:
    """A thread's part of a stage, counted from the first layer's first one, or of the output layer after the last; `step` is how far
    the team's barrier comes by it.
    """
    layer, own = stage // STAGES, stage % STAGES
    table = word(pass_, Pass.LAYER_TABLE) + layer * Layer.END * 8
    if layer == word(pass_, Pass.LAYERS):
        _score(pass_, team, thread, threads, step)
    elif own == 0:
        _project(pass_, team, table, layer, thread, threads, step)
    elif own == 1:
        _attention(pass_, team, layer, thread, threads, step)
    elif own == 2:
        _output(pass_, team, table, thread, threads, step)
    elif own == 3:
        _gate(pass_, team, table, thread, threads, step)
    else:
        _down(pass_, team, table, thread, threads, step)
    wait_for(team, thread, threads, step)


@register_jitable
def _score(pass_: int, team: int, thread: int, threads: int, step: int) -> None:
    """Logits, where they are wanted."""
    if word(pass_, Pass.LOGITS) == 0:
        return
    matrix, hidden_bytes = pass_ + Pass.HEAD * 8, word(pass_, Pass.HIDDEN) * _FLOAT_BYTES
    norm, states = word(pass_, Pass.NORM), word(pass_, Pass.STATES)
    prepared = _prepare(pass_, matrix, states, hidden_bytes, norm, thread)
    to = word(matrix, Matrix.START), 0, word(pass_, Pass.LOGITS), word(pass_, Pass.LOGITS_BYTES)
    _share_product(pass_, team, matrix, prepared, *to, thread, threads, step)
