"""Operations of a decoder layer other than matrix products: norms, rotary positions, gated activation, attention.

Attention reads a slot's keys transposed, in blocks of 32 positions (each [head size, 32]): the lanes of a vector are positions. It reads
values as [positions, head size]. Query heads that share a key-value head are computed together. Sums run in one fixed order.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from specviz.runtime.cpu.fused.vectors import (
    F32,
    FLOATS,
    I64,
    LANES,
    Builder,
    Loop,
    Value,
    exponential,
    floats,
    fma,
    instruction,
    larger,
    load,
    offset,
    reduce,
    shuffle,
    splat,
    store,
)

POSITIONS = 32
"""Positions in a block of keys."""
_VECTORS = POSITIONS // LANES


@contextmanager
def _each_vector(b: Builder, vectors: Value, *addresses: Value) -> Iterator[list[Value]]:
    """Emit a loop over the vectors of 16 floats that begin at each of `addresses`; yields the vectors' addresses in one iteration."""
    loop = Loop(b, vectors)
    yield [offset(b, each, b.mul(loop.index, I64(64))) for each in addresses]
    loop.close()


def _sum_of_squares(b: Builder, x: Value, vectors: Value) -> Value:
    loop = Loop(b, vectors, [floats(0.0)])
    value = load(b, offset(b, x, b.mul(loop.index, I64(64))), FLOATS)
    return reduce(b, loop.close([fma(b, value, value, loop.values[0])])[0], b.fadd)


def _scale(b: Builder, x: Value, weight: Value, out: Value, vectors: Value, factor: Value) -> None:
    """out = x · factor · weight."""
    factors = splat(b, factor)
    with _each_vector(b, vectors, x, weight, out) as (x, weight, out):
        store(b, b.fmul(b.fmul(load(b, x, FLOATS), factors), load(b, weight, FLOATS)), out)


def _rotate(b: Builder, x: Value, cosines: Value, sines: Value, vectors: Value) -> None:
    """Rotate adjacent pairs in place; the tables have each angle twice, and the first of its two sines is negated."""
    with _each_vector(b, vectors, x, cosines, sines) as (x, cosines, sines):
        value = load(b, x, FLOATS)
        other = shuffle(b, value, [lane ^ 1 for lane in range(LANES)])
        store(b, fma(b, value, load(b, cosines, FLOATS), b.fmul(other, load(b, sines, FLOATS))), x)


def _gate(b: Builder, gate_and_up: Value, out: Value, vectors: Value) -> None:
    """out = silu(gate) · up; 16 gates and their 16 ups alternate."""
    loop = Loop(b, vectors)
    own = offset(b, gate_and_up, b.mul(loop.index, I64(128)))
    gate, up = load(b, own, FLOATS), load(b, own, FLOATS, 64)
    activated = b.fdiv(gate, b.fadd(floats(1.0), exponential(b, b.fsub(floats(0.0), gate))))
    store(b, b.fmul(activated, up), offset(b, out, b.mul(loop.index, I64(64))))
    loop.close()


def _softmax(b: Builder, x: Value, vectors: Value) -> None:
    """Softmax of x, in place."""
    loop = Loop(b, vectors, [floats(-1e30)])
    value = load(b, offset(b, x, b.mul(loop.index, I64(64))), FLOATS)
    most = splat(b, reduce(b, loop.close([larger(b)(loop.values[0], value)])[0], larger(b)))
    loop = Loop(b, vectors, [floats(0.0)])
    at = offset(b, x, b.mul(loop.index, I64(64)))
    value = exponential(b, b.fsub(load(b, at, FLOATS), most))
    store(b, value, at)
    total = reduce(b, loop.close([b.fadd(loop.values[0], value)])[0], b.fadd)
    factors = splat(b, b.fdiv(ir.Constant(F32, 1.0), total))
    with _each_vector(b, vectors, x) as (at,):
        store(b, b.fmul(load(b, at, FLOATS), factors), at)


def _copy(b: Builder, x: Value, out: Value) -> None:
    """out = x, 16 numbers."""
    store(b, load(b, x, FLOATS), out)


sum_of_squares = instruction(_sum_of_squares, 2, result=types.float32)
scale = instruction(_scale, 4, 1)
copy = instruction(_copy, 2)
rotate = instruction(_rotate, 4)
gate = instruction(_gate, 3)
softmax = instruction(_softmax, 2)


def _by_fours(heads: int) -> list[range]:
    """Groups of heads that are computed together: registers hold the sums of four heads."""
    return [range(first, min(first + 4, heads)) for first in range(0, heads, 4)]


def scores(heads: int, size: int) -> Any:
    """numba function (query, keys, scores, ld_scores, blocks) -> None: query · key / √size at all positions of `blocks` blocks, for
    `heads` queries that share keys. Queries are adjacent in memory; scores of successive queries are ld_scores bytes apart.
    """

    def score(b: Builder, query: Value, keys: Value, out: Value, ld_out: Value, blocks: Value) -> None:
        factor = floats(float(np.float32(size**-0.5)))
        for some in _by_fours(heads):
            loop = Loop(b, blocks)
            block = offset(b, keys, b.mul(loop.index, I64(4 * size * POSITIONS)))
            inner = Loop(b, I64(size // 4), [floats(0.0)] * (len(some) * _VECTORS))
            sums = list(inner.values)
            for step in range(4):
                at = offset(b, block, b.mul(b.add(b.mul(inner.index, I64(4)), I64(step)), I64(4 * POSITIONS)))
                columns = [load(b, at, FLOATS, 64 * vector) for vector in range(_VECTORS)]
                for number, head in enumerate(some):
                    own = offset(b, query, b.mul(inner.index, I64(16)))
                    value = splat(b, load(b, own, F32, 4 * (head * size + step)))
                    for vector, column in enumerate(columns):
                        index = number * _VECTORS + vector
                        sums[index] = fma(b, value, column, sums[index])
            sums = inner.close(sums)
            at = offset(b, out, b.mul(loop.index, I64(4 * POSITIONS)))
            for number, head in enumerate(some):
                own = offset(b, at, b.mul(ld_out, I64(head)))
                for vector in range(_VECTORS):
                    store(b, b.fmul(factor, sums[number * _VECTORS + vector]), own, 64 * vector)
            loop.close()

    return instruction(score, 5)


def mixture(heads: int, size: int) -> Any:
    """numba function (weights, ld_weights, values, out, positions) -> None: Σ weight · value over positions, for `heads` heads that
    share values. Weights of successive heads are ld_weights bytes apart.
    """
    vectors = 4 if size % (4 * LANES) == 0 else 1

    def mix(b: Builder, weights: Value, ld: Value, values: Value, out: Value, positions: Value) -> None:
        for some in _by_fours(heads):
            for first in range(0, 4 * size, 4 * LANES * vectors):
                loop = Loop(b, positions, [floats(0.0)] * (len(some) * vectors))
                own = offset(b, values, b.mul(loop.index, I64(4 * size)))
                columns = [load(b, own, FLOATS, first + 64 * each) for each in range(vectors)]
                at, following = offset(b, weights, b.mul(loop.index, I64(4))), []
                for number, head in enumerate(some):
                    weight = splat(b, load(b, offset(b, at, b.mul(ld, I64(head))), F32))
                    for each, column in enumerate(columns):
                        following.append(fma(b, weight, column, loop.values[number * vectors + each]))
                for index, total in enumerate(loop.close(following)):
                    number, each = divmod(index, vectors)
                    store(b, total, out, 4 * size * some[number] + first + 64 * each)

    return instruction(mix, 5)
