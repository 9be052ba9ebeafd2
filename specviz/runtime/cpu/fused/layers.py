"""What a decoder layer does beside its products: norms, rotary positions, gated activation, attention.

Attention reads a slot's keys transposed, in blocks of 32 positions (each [head size, 32]), so that positions are lanes, and its
values as [positions, head size]. Query heads that share a key-value head are done together, up to four of them. Sums run in one
fixed order. Knows addresses and sizes; knows no model.
"""

from __future__ import annotations

from typing import Any

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
    prefetch,
    reduce,
    shuffle,
    splat,
    store,
)

POSITIONS = 32
"""Positions in a block of keys."""
_VECTORS = POSITIONS // LANES


def _sum_of_squares(b: Builder, x: Value, vectors: Value) -> Value:
    loop = Loop(b, vectors, [floats(0.0)])
    value = load(b, offset(b, x, b.mul(loop.index, I64(64))), FLOATS)
    return reduce(b, loop.close([fma(b, value, value, loop.values[0])])[0], b.fadd)


def _scale(b: Builder, x: Value, weight: Value, out: Value, vectors: Value, factor: Value) -> None:
    """out = x · factor · weight."""
    loop, factors = Loop(b, vectors), splat(b, factor)
    x, weight, out = (offset(b, each, b.mul(loop.index, I64(64))) for each in (x, weight, out))
    store(b, b.fmul(b.fmul(load(b, x, FLOATS), factors), load(b, weight, FLOATS)), out)
    loop.close()


def _rotate(b: Builder, x: Value, cosines: Value, sines: Value, vectors: Value) -> None:
    """Rotate adjacent pairs in place; the tables have each angle twice, and sines the sign of the first one reversed."""
    loop = Loop(b, vectors)
    x, cosines, sines = (offset(b, each, b.mul(loop.index, I64(64))) for each in (x, cosines, sines))
    value = load(b, x, FLOATS)
    other = shuffle(b, value, [lane ^ 1 for lane in range(LANES)])
    store(b, fma(b, value, load(b, cosines, FLOATS), b.fmul(other, load(b, sines, FLOATS))), x)
    loop.close()


def _gate(b: Builder, gate_and_up: Value, out: Value) -> None:
    """out = silu(gate) · up for 16 outputs, whose gates come before their ups."""
    gate, up = load(b, gate_and_up, FLOATS), load(b, gate_and_up, FLOATS, 64)
    activated = b.fdiv(gate, b.fadd(floats(1.0), exponential(b, b.fsub(floats(0.0), gate))))
    store(b, b.fmul(activated, up), out)


def _largest(b: Builder, x: Value, vectors: Value) -> Value:
    loop = Loop(b, vectors, [floats(-1e30)])
    value = load(b, offset(b, x, b.mul(loop.index, I64(64))), FLOATS)
    return reduce(b, loop.close([larger(b)(loop.values[0], value)])[0], larger(b))


def _exponentials(b: Builder, x: Value, vectors: Value, largest: Value) -> Value:
    """x = exp(x − largest) in place; returns their sum."""
    loop, most = Loop(b, vectors, [floats(0.0)]), splat(b, largest)
    x = offset(b, x, b.mul(loop.index, I64(64)))
    value = exponential(b, b.fsub(load(b, x, FLOATS), most))
    store(b, value, x)
    return reduce(b, loop.close([b.fadd(loop.values[0], value)])[0], b.fadd)


def _multiply(b: Builder, x: Value, vectors: Value, factor: Value) -> None:
    """x = x · factor in place."""
    loop, factors = Loop(b, vectors), splat(b, factor)
    x = offset(b, x, b.mul(loop.index, I64(64)))
    store(b, b.fmul(load(b, x, FLOATS), factors), x)
    loop.close()


def _clear(b: Builder, x: Value, vectors: Value) -> None:
    """x = 0."""
    loop = Loop(b, vectors)
    store(b, floats(0.0), offset(b, x, b.mul(loop.index, I64(64))))
    loop.close()


def _fetch(b: Builder, address: Value, lines: Value) -> None:
    """Have so many cache lines read into the second cache."""
    loop = Loop(b, lines)
    prefetch(b, offset(b, address, b.mul(loop.index, I64(64))), 2)
    loop.close()


sum_of_squares = instruction(_sum_of_squares, 2, result=types.float32)
scale = instruction(_scale, 4, 1)
multiply = instruction(_multiply, 2, 1)
clear = instruction(_clear, 2)
fetch = instruction(_fetch, 2)
rotate = instruction(_rotate, 4)
gate = instruction(_gate, 2)
largest = instruction(_largest, 2, result=types.float32)
exponentials = instruction(_exponentials, 2, 1, result=types.float32)


def scores(heads: int) -> Any:
    """numba function (query, keys, scores, ld_scores, blocks, size, scale) -> None: scale · query · key at all positions of
    blocks, for `heads` queries that share keys. Queries lie one after another, ld_scores apart are their scores.
    """

    def score(
        b: Builder,
        query: Value,
        keys: Value,
        out: Value,
        ld_out: Value,
        blocks: Value,
        size: Value,
        factor: Value,
    ) -> None:
        factors = splat(b, factor)
        loop = Loop(b, blocks)
        block = offset(b, keys, b.mul(b.mul(loop.index, size), I64(4 * POSITIONS)))
        inner = Loop(b, b.sdiv(size, I64(4)), [floats(0.0)] * (heads * _VECTORS))
        sums = list(inner.values)
        for step in range(4):
            at = offset(b, block, b.mul(b.add(b.mul(inner.index, I64(4)), I64(step)), I64(4 * POSITIONS)))
            columns = [load(b, at, FLOATS, 64 * vector) for vector in range(_VECTORS)]
            for head in range(heads):
                own = offset(b, query, b.mul(size, I64(4 * head)) if head else 0)
                value = splat(b, load(b, offset(b, own, b.mul(inner.index, I64(16))), F32, 4 * step))
                for vector, column in enumerate(columns):
                    index = head * _VECTORS + vector
                    sums[index] = fma(b, value, column, sums[index])
        sums = inner.close(sums)
        at = offset(b, out, b.mul(loop.index, I64(4 * POSITIONS)))
        for head in range(heads):
            own = offset(b, at, b.mul(ld_out, I64(head)) if head else 0)
            for vector in range(_VECTORS):
                store(b, b.fmul(factors, sums[head * _VECTORS + vector]), own, 64 * vector)
        loop.close()

    return instruction(score, 6, 1)


def mixture(heads: int, vectors: int) -> Any:
    """numba function (weights, ld_weights, values, out, positions, size, part) -> None: Σ weight · value over positions, for `heads`
    heads that share values: the numbers of each head in one part of 16 · `vectors`.
    """

    def mix(
        b: Builder,
        weights: Value,
        ld: Value,
        values: Value,
        out: Value,
        positions: Value,
        size: Value,
        part: Value,
    ) -> None:
        first = b.mul(part, I64(4 * LANES * vectors))
        loop = Loop(b, positions, [floats(0.0)] * (heads * vectors))
        own = offset(b, offset(b, values, first), b.mul(b.mul(loop.index, size), I64(4)))
        columns = [load(b, own, FLOATS, 64 * each) for each in range(vectors)]
        at, following = offset(b, weights, b.mul(loop.index, I64(4))), []
        for head in range(heads):
            weight = splat(b, load(b, offset(b, at, b.mul(ld, I64(head)) if head else 0), F32))
            for each, column in enumerate(columns):
                following.append(fma(b, weight, column, loop.values[head * vectors + each]))
        sums = loop.close(following)
        for head in range(heads):
            target = offset(b, offset(b, out, first), b.mul(size, I64(4 * head)) if head else 0)
            for each in range(vectors):
                store(b, sums[head * vectors + each], target, 64 * each)

    return instruction(mix, 7)
