"""The compiled functions that a fused pass is made of: made, or read from the cache, when first asked for. Knows no model."""

from __future__ import annotations

import gc
import itertools
import os
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba.extending import register_jitable

from specviz.compat.numba import CompiledFunction
from specviz.core import compiling, loops
from specviz.runtime.cpu.fused import decoder_pass, layers, teamwork, tiles
from specviz.runtime.cpu.fused.layers import POSITIONS
from specviz.runtime.cpu.fused.memory import number, set_number
from specviz.runtime.cpu.fused.processor import dot_products, has_tiles, reading
from specviz.runtime.cpu.fused.products import (
    PANEL_ROWS,
    Arithmetic,
    Format,
    Precision,
    panel_places,
    product,
    quantiser,
    unpacker,
)
from specviz.runtime.cpu.fused.vectors import LANES

_source = compiling.sources()
_alive: list[CompiledFunction] = []


def _compile(name: str, function: Callable[..., Any], arguments: int, *, returns: bool = False) -> int:
    """Address of a function of int64 arguments."""
    folder = compiling.compiled_directory()
    with compiling.alone(name):
        made = CompiledFunction(
            function, arguments, returns=returns, name=name, source=_source, folder=folder
        )
    _alive.append(made)
    return made.address


@cache
def multiply(weights: Format, arithmetic: Arithmetic) -> int:
    """Of a product with any number of rows: (w, x, ldx, start, ld_start, out, ld_out, first, last, blocks, rows), where ldx is the bytes
    from a panel to the next; of floats from a row to the next.

    Made for the groups of 16 outputs from `first` to `last` − 1. Rows are taken a few at a time, while the weights of a group
    are in the processor's nearest cache.
    """
    reading = arithmetic.reading
    kind = f"{arithmetic.dots.name}-{arithmetic.precision.name}" if weights.is_quantised else "floats"
    kind = f"{kind}-{reading.groups}-{reading.nearness}"
    if not arithmetic.has_many_registers:
        function = _group_by_group(weights, arithmetic, 4)
    elif reading.groups == 1:
        function = _group_by_group(weights, arithmetic, 8)
    else:
        function = _in_pairs(weights, arithmetic)
    if weights.is_quantised and arithmetic.has_tiles:
        kind, function = f"{kind}-tiles", _in_sixteens(weights, arithmetic, register_jitable(function))
    return _compile(f"multiply-{weights.value}-{kind}".lower(), function, 11)


def _places(weights: Format, arithmetic: Arithmetic) -> Callable[..., tuple[int, int]]:
    """numba function (x, ldx, row) -> (x, side) of `products.product`, for the rows from one on that share its panel."""
    if not weights.is_quantised:
        return register_jitable(lambda x, ldx, row: (x + row * ldx, ldx))
    size = arithmetic.block_bytes
    return register_jitable(lambda x, ldx, row: panel_places(x, ldx, size, row))


def _group_by_group(weights: Format, arithmetic: Arithmetic, most: int) -> Callable[..., None]:
    """Up to `most` rows at once: as many sums as registers hold."""
    size, some = weights.block_bytes, product(weights, arithmetic, range(1, most + 1))
    places = _places(weights, arithmetic)

    def multiply(w, x, ldx, start, ld_start, out, ld_out, first, last, blocks, rows):  # type: ignore[no-untyped-def]
        for group in range(first, last):
            own, column = w + group * blocks * size, group * 4 * LANES
            row = 0
            while row < rows:
                (x_at, side_at), taken = places(x, ldx, row), min(most, rows - row)
                start_at, out_at = start + row * ld_start + column, out + row * ld_out + column
                some(own, x_at, side_at, start_at, ld_start, out_at, ld_out, blocks, taken)
                row += taken

    return multiply


def _in_pairs(weights: Format, arithmetic: Arithmetic) -> Callable[..., None]:
    """Two to six rows with two groups at once, one, seven or eight with a group after the other: as many sums as registers hold."""
    size = weights.block_bytes
    pair, one = product(weights, arithmetic, range(2, 7), 2), product(weights, arithmetic, (1, 7, 8))
    places = _places(weights, arithmetic)

    def multiply(w, x, ldx, start, ld_start, out, ld_out, first, last, blocks, rows):  # type: ignore[no-untyped-def]
        for group in range(first, last, 2):
            own, column = w + group * blocks * size, group * 4 * LANES
            row = 0
            while row < rows:
                left, (x_at, side_at) = rows - row, places(x, ldx, row)
                start_at, out_at = start + row * ld_start + column, out + row * ld_out + column
                if left == 1 or left >= 7 or group + 1 == last:
                    taken = min(8, left) if left >= 7 else 1
                    for each in range(min(2, last - group)):
                        w_at, by = own + each * blocks * size, each * 4 * LANES
                        one(w_at, x_at, side_at, start_at + by, ld_start, out_at + by, ld_out, blocks, taken)
                else:
                    taken = min(6, left)
                    pair(own, x_at, side_at, start_at, ld_start, out_at, ld_out, blocks, taken)
                row += taken

    return multiply


def _in_sixteens(weights: Format, arithmetic: Arithmetic, rest: Callable[..., None]) -> Callable[..., None]:
    """Thirteen to sixteen rows by tiles, and what is left of more by `rest`. Some groups at a time, which stay in a near cache."""
    size, least, begin, end = weights.block_bytes, tiles.LEAST, tiles.begin, tiles.end
    sixteen, places = tiles.product(weights, arithmetic), _places(weights, arithmetic)

    def multiply(w, x, ldx, start, ld_start, out, ld_out, first, last, blocks, rows):  # type: ignore[no-untyped-def]
        row, some = 0, first
        if rows >= least:
            begin()
            while some < last:
                row, until = 0, min(some + _GROUPS, last)
                while rows - row >= least:
                    x_at, side_at = places(x, ldx, row)
                    start_at, out_at = start + row * ld_start, out + row * ld_out
                    for group in range(some, until):
                        own, column = w + group * blocks * size, group * 4 * LANES
                        begun, to = start_at + column, out_at + column
                        sixteen(own, x_at, side_at, begun, ld_start, to, ld_out, blocks, rows - row)
                    row += min(PANEL_ROWS, rows - row)
                some = until
            end()
        if row < rows:
            x, start, out = x + row // PANEL_ROWS * ldx, start + row * ld_start, out + row * ld_out
            rest(w, x, ldx, start, ld_start, out, ld_out, first, last, blocks, rows - row)

    return multiply


_GROUPS = 32
"""Groups that all rows are multiplied with before the next."""


@cache
def quantise(arithmetic: Arithmetic) -> int:
    """Of (x, integers, side, blocks): see `products.quantiser`."""
    write = quantiser(arithmetic)

    def quantise(x, integers, side, blocks):  # type: ignore[no-untyped-def]
        write(x, integers, side, blocks)

    return _compile(f"quantise-{arithmetic.dots.name}-{arithmetic.precision.name}".lower(), quantise, 4)


@cache
def embed(weights: Format) -> int:
    """Of (w, token, out, blocks): a token's row of an embedding, as float32."""
    unpack, size = unpacker(weights), weights.block_bytes

    def embed(w, token, out, blocks):  # type: ignore[no-untyped-def]
        unpack(w + token // LANES * blocks * size, token % LANES, out, blocks)

    return _compile(f"embed-{weights.value}".lower(), embed, 4)


@cache
def attend(heads: int, size: int) -> int:
    """Of (query, keys, values, out, scores, length, seen, size, scale at): attention of up to four heads with the same keys."""
    vectors = 4 if size % (4 * LANES) == 0 else 1
    score, mix = layers.scores(heads), layers.mixture(heads, vectors)

    def attend(query, keys, values, out, scores, length, seen, size, scale_at):  # type: ignore[no-untyped-def]
        blocks = (seen + POSITIONS - 1) // POSITIONS
        stride, width = length * 4, blocks * (POSITIONS // LANES)
        score(query, keys, scores, stride, blocks, size, number(scale_at, 0))
        for head in range(heads):
            own = scores + head * stride
            for position in range(seen, blocks * POSITIONS):
                set_number(own, position, np.float32(-1e30))
            total = layers.exponentials(own, width, layers.largest(own, width))
            layers.multiply(own, width, np.float32(1.0) / total)
        for part in range(size // (LANES * vectors)):
            mix(scores, stride, values, out, seen, size, part)

    return _compile(f"attend-{heads}-{vectors}", attend, 9)


@cache
def stage() -> int:
    """Of `decoder_pass.run_stage`."""
    return _compile("stage", decoder_pass.run_stage, 6)


@cache
def lead() -> int:
    """Of `teamwork.lead`."""
    return _compile("lead", teamwork.lead, 3, returns=True)


@cache
def follow() -> int:
    """Of `teamwork.follow`."""
    return _compile("follow", teamwork.follow, 2)


@cache
def draft() -> int:
    """Of `draft_pass.draft`."""
    from specviz.runtime.cpu.fused import draft_pass  # which compiles two loops over a vocabulary

    return _compile("draft", draft_pass.draft, 3, returns=True)


def compile_all() -> None:
    """Compile what passes and rounds need, whatever the model, then what the embedded pair's need, and then the rest of the loops: in a
    process of its own.
    """
    gc.disable()
    for make in (stage, lead, follow, draft):
        make()
    for name in loops.FIRST:
        getattr(loops, name)
    if hasattr(os, "nice"):
        os.nice(10)  # texts are being written by now
    if dots := dot_products():
        for weights, size in itertools.product((Format.Q4_1, Format.Q8_0), (1 << 20, 1 << 30)):
            arithmetic = Arithmetic(dots, Precision.EXACT, has_tiles(), reading(size)).meeting(weights)
            multiply(weights, arithmetic)
            quantise(arithmetic)
            embed(weights)
        attend(3, 4 * LANES)
    for name in loops.ALL:
        getattr(loops, name)
    compiling.is_done()
