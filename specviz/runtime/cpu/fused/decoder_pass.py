"""One pass of a decoder over a few rows, as compiled functions that every thread of the worker pool runs.

A row is one token of one slot at its position. Each stage of a layer is divided among the threads, which wait for each other after it.
"""

from __future__ import annotations

import numpy as np

from specviz.runtime.cpu.fused import layers, memory
from specviz.runtime.cpu.fused.layers import POSITIONS
from specviz.runtime.cpu.fused.memory import FLOAT_BYTES, address_of, jitable, number, set_number, word
from specviz.runtime.cpu.fused.products import BLOCK, PANEL_ROWS
from specviz.runtime.cpu.fused.tables import LAYER, SLOT, layer_at, pass_at, slot_at
from specviz.runtime.cpu.fused.vectors import LANES
from specviz.runtime.cpu.fused.workers import wait_for_all

_LAYER_BYTES, _SLOT_BYTES = LAYER.itemsize, SLOT.itemsize
_multiply, _pack, _attend, _embed = (memory.caller(count) for count in (7, 3, 6, 4))


def run(pass_, pool, thread, threads, arrived):  # type: ignore[no-untyped-def]
    """One thread's part of a pass. `arrived`: number of arrivals at the pool's barrier before the pass."""
    p = pass_at(pass_)
    hidden_bytes = p.hidden * FLOAT_BYTES
    first, last = _share(p.rows, thread, threads)
    for row in range(first, last):
        _embed(p.embed, p.embedding, word(p.tokens, row), p.states + row * hidden_bytes, p.hidden // BLOCK)
    arrived = wait_for_all(pool, thread, threads, arrived)
    for index in range(p.layers):
        layer = layer_at(p.layer_table + index * _LAYER_BYTES)
        _project(p, layer, index, thread, threads)
        arrived = wait_for_all(pool, thread, threads, arrived)
        _attention(p, index, thread, threads)
        arrived = wait_for_all(pool, thread, threads, arrived)
        panels = _prepare(p, layer.output, p.mixed, 0, thread)
        _product(p, layer.output, panels, p.states, hidden_bytes, thread, threads)
        arrived = wait_for_all(pool, thread, threads, arrived)
        _gate(p, layer, thread, threads)
        arrived = wait_for_all(pool, thread, threads, arrived)
        _product(p, layer.down, p.activated, p.states, hidden_bytes, thread, threads)
        arrived = wait_for_all(pool, thread, threads, arrived)
    if p.logits != 0:
        panels = _prepare(p, p.head, p.states, p.norm, thread)
        _product(p, p.head, panels, p.logits, p.logits_bytes, thread, threads)
    wait_for_all(pool, thread, threads, arrived)


@jitable
def _share(units, thread, threads):  # type: ignore[no-untyped-def]
    """A thread's share of `units`: its first unit, and the unit after its last."""
    return units * thread // threads, units * (thread + 1) // threads


@jitable
def _norm(p, x, weight, out, size):  # type: ignore[no-untyped-def]
    """out = RMSNorm(x) · weight, over `size` floats."""
    vectors = size // LANES
    mean = layers.sum_of_squares(x, vectors) / np.float32(size)
    layers.scale(x, weight, out, vectors, np.float32(1.0) / np.sqrt(mean + p.epsilon))


@jitable
def _pack_row(matrix, x, panels, row, first, last):  # type: ignore[no-untyped-def]
    """Pack blocks `first` to `last` − 1 of row `row` of a matrix's inputs into panels. Block `first` is read from `x`."""
    panel = panels + row // PANEL_ROWS * matrix.blocks * matrix.block_bytes
    at = panel + first * matrix.block_bytes + row % PANEL_ROWS * matrix.row_bytes
    _pack(matrix.pack, x, at, last - first)


@jitable
def _prepare(p, matrix, x, norm, thread):  # type: ignore[no-untyped-def]
    """Normalise (unless `norm` is 0) and pack all rows of a matrix's inputs in this thread's scratch; returns the address of the panels."""
    scratch, size = p.scratch + thread * p.scratch_bytes, matrix.blocks * BLOCK
    panels = scratch + size * FLOAT_BYTES
    for row in range(p.rows):
        own = x + row * size * FLOAT_BYTES
        if norm != 0:
            _norm(p, own, norm, scratch, size)
            own = scratch
        _pack_row(matrix, own, panels, row, 0, matrix.blocks)
    return panels


@jitable
def _product_part(p, matrix, panels, out, out_bytes, first, last):  # type: ignore[no-untyped-def]
    """Compute groups `first` to `last` − 1 of a matrix's outputs, 16 in a group, for all rows."""
    _multiply(matrix.multiply, address_of(matrix), panels, out, out_bytes, p.rows, first, last)


@jitable
def _product(p, matrix, panels, out, out_bytes, thread, threads):  # type: ignore[no-untyped-def]
    """Compute a thread's share of a matrix's outputs. Pairs of groups are divided among the threads."""
    first, last = _share((matrix.groups + 1) // 2, thread, threads)
    _product_part(p, matrix, panels, out, out_bytes, 2 * first, min(2 * last, matrix.groups))


@jitable
def _project(p, layer, index, thread, threads):  # type: ignore[no-untyped-def]
    """Compute a thread's share of queries, keys and values; write keys and values to the cache."""
    heads, groups = p.heads + 2 * p.key_heads, p.head_size // LANES
    panels = _prepare(p, layer.inputs, p.states, layer.attention_norm, thread)
    first, last = _share(heads, thread, threads)
    out_bytes = heads * p.head_size * FLOAT_BYTES
    _product_part(p, layer.inputs, panels, p.projected, out_bytes, first * groups, last * groups)
    for row in range(p.rows):
        for head in range(first, last):
            _finish_head(p, layer, index, row, head)


@jitable
def _finish_head(p, layer, index, row, head):  # type: ignore[no-untyped-def]
    """Finish head `head` of a row's queries, keys and values: normalise and rotate a query or key; write a key or value to the cache."""
    size, position = p.head_size, word(p.row_positions, row)
    at = p.projected + (row * (p.heads + 2 * p.key_heads) + head) * size * FLOAT_BYTES
    key, value = head - p.heads, head - p.heads - p.key_heads
    if value >= 0:
        values = _cached(p, index, row, value, False)
        for part in range(size):
            set_number(values, position * size + part, number(at, part))
        return
    norm = layer.query_norm if key < 0 else layer.key_norm
    if norm != 0:
        _norm(p, at, norm, at, size)
    angle = position * size * FLOAT_BYTES
    layers.rotate(at, p.cosines + angle, p.sines + angle, size // LANES)
    if key >= 0:
        keys = _cached(p, index, row, key, True)
        begin = position // POSITIONS * size * POSITIONS + position % POSITIONS
        for part in range(size):
            set_number(keys, begin + part * POSITIONS, number(at, part))


@jitable
def _cached(p, index, row, head, is_key):  # type: ignore[no-untyped-def]
    """Address of the keys (or values) of layer `index` and key head `head` in the slot of row `row`."""
    slot = slot_at(p.slots + word(p.row_slots, row) * _SLOT_BYTES)
    heads_before = index * p.key_heads + head
    base = slot.keys if is_key else slot.values
    return base + heads_before * slot.length * p.head_size * FLOAT_BYTES


@jitable
def _attention(p, index, thread, threads):  # type: ignore[no-untyped-def]
    """Attention of each row to the positions of its slot up to the row's position. Each pair of row and key head goes to one thread."""
    first, last = _share(p.rows * p.key_heads, thread, threads)
    query_bytes = p.heads // p.key_heads * p.head_size * FLOAT_BYTES
    projected_bytes = (p.heads + 2 * p.key_heads) * p.head_size * FLOAT_BYTES
    for part in range(first, last):
        row, head = part // p.key_heads, part % p.key_heads
        query = p.projected + row * projected_bytes + head * query_bytes
        keys, values = _cached(p, index, row, head, True), _cached(p, index, row, head, False)
        out, scores = p.mixed + part * query_bytes, p.scratch + thread * p.scratch_bytes
        _attend(p.attend, query, keys, values, out, scores, word(p.row_positions, row) + 1)


@jitable
def _gate(p, layer, thread, threads):  # type: ignore[no-untyped-def]
    """Compute a thread's share of the gated activation, packed as inputs of `down`. In `gate_and_up`, groups of gates and ups alternate."""
    panels = _prepare(p, layer.gate_and_up, p.states, layer.mlp_norm, thread)
    first, last = _share(p.inner // BLOCK, thread, threads)
    width, groups = 2 * p.inner * FLOAT_BYTES, 2 * BLOCK // LANES
    _product_part(p, layer.gate_and_up, panels, p.gated, width, groups * first, groups * last)
    gated, scratch = p.gated + first * 2 * BLOCK * FLOAT_BYTES, p.scratch + thread * p.scratch_bytes
    for row in range(p.rows):
        layers.gate(gated + row * width, scratch, (last - first) * BLOCK // LANES)
        _pack_row(layer.down, scratch, p.activated, row, first, last)
