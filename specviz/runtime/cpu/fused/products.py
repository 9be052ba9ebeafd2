"""Products of a few rows of activations with a matrix, in the precision in which its weights were published.

With quantised weights, activations become integers of about 16 bits (`EXACT`) or 8 (`FAST`), in blocks of 32 inputs with a scale
each. Products and sums within a block are integers, hence exact; the rest is a fixed chain of float operations for each row and
output. So the bits of a row's outputs depend neither on other rows nor on threads, and are the same on every processor. With float weights,
activations stay float32. `layout` describes matrices in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from llvmlite import ir

from specviz.runtime.cpu.fused.memory import CACHE_LINE
from specviz.runtime.cpu.fused.processor import USUAL, DotProducts, Reading
from specviz.runtime.cpu.fused.vectors import (
    BYTES,
    F32,
    FLOATS,
    HALVES,
    I16,
    I32,
    I64,
    INTS,
    LANES,
    SHORTS,
    Builder,
    Loop,
    Value,
    call,
    floats,
    fma,
    halves,
    instruction,
    ints,
    join,
    larger,
    load,
    offset,
    prefetch,
    reduce,
    settle,
    shuffle,
    splat,
    store,
)

BLOCK = 32
"""Inputs that share a scale."""
SIDE_BYTES = 16
"""Bytes after a row's block of integer activations. They hold scale, scale · sum, and −128 · sum for each level."""
PANEL_ROWS = 16
"""Rows of activations in a panel. A panel holds block 0 of all its rows, then block 1, …: a product finds each row by one address and an
offset known at compile time.
"""
_AHEAD = 8192
"""Weights are prefetched this many bytes ahead, times the number of groups computed at once. Twice this distance would read more past the
end of a thread's share.
"""


class Precision(Enum):
    """Precision of activations in products with quantised weights: the largest integer that an activation becomes."""

    EXACT = 32512
    FAST = 127


class Format(Enum):
    """Format of weights, as published: Q4_1 and Q8_0 as in GGUF, or floats."""

    Q4_1 = "Q4_1"
    Q8_0 = "Q8_0"
    BF16 = "BF16"
    F16 = "F16"
    F32 = "F32"

    @property
    def block_bytes(self) -> int:
        """Bytes of the weights of 32 inputs × 16 outputs, with scales and minima."""
        bits = {Format.Q4_1: 32 * 4 + 2 * 16, Format.Q8_0: 32 * 8 + 16, Format.F32: 32 * 32}
        return bits.get(self, 32 * 16) * LANES // 8

    @property
    def is_quantised(self) -> bool:
        """Whether activations become integers."""
        return self in (Format.Q4_1, Format.Q8_0)

    @property
    def turn(self) -> int:
        """Blocks per iteration of the product's loop, so that an iteration reads whole cache lines."""
        return 2 if self is Format.Q8_0 else 1


@dataclass(frozen=True)
class Arithmetic:
    """How activations are multiplied by quantised weights, and how weights are read."""

    dots: DotProducts
    precision: Precision
    reading: Reading = USUAL


@dataclass(frozen=True)
class Kernel:
    """How matrices of one format are multiplied on one processor."""

    weights: Format
    arithmetic: Arithmetic

    @property
    def name(self) -> str:
        """A name of the kernel's code: kernels with different code have different names."""
        own, reading = self.arithmetic, self.arithmetic.reading
        activations = f"{own.dots.name}-{own.precision.name}" if self.weights.is_quantised else own.dots.name
        return f"{self.weights.name}-{activations}-{reading.groups}-{reading.nearness}".lower()

    @property
    def levels(self) -> int:
        """Integers per activation: two bytes (256 · high + low) if activations are exact and become bytes; else one integer."""
        return 2 if self.has_bytes and self.arithmetic.precision is Precision.EXACT else 1

    @property
    def has_bytes(self) -> bool:
        """Whether activations become bytes, not 16-bit integers."""
        return self.arithmetic.dots is not DotProducts.PAIRS

    @property
    def side(self) -> int:
        """Bytes of the integers in a row's block of activations; `SIDE_BYTES` more follow."""
        return BLOCK * self.levels if self.has_bytes else 2 * BLOCK

    @property
    def row_bytes(self) -> int:
        """Bytes of a row's block of packed activations."""
        return self.side + SIDE_BYTES if self.weights.is_quantised else 4 * BLOCK

    @property
    def block_bytes(self) -> int:
        """Bytes from one block of a panel to the next: an odd number of cache lines, so that a row's blocks use the whole nearest cache."""
        return PANEL_ROWS * self.row_bytes + CACHE_LINE

    @property
    def has_many_registers(self) -> bool:
        """Whether the processor has 32 registers of 16 lanes, not 16 of 8."""
        return self.arithmetic.dots is DotProducts.VNNI_512


def product(kernel: Kernel, rows: Sequence[int], groups: int = 1) -> Any:
    """numba function (w, x, out, out_bytes, blocks, rows) -> None: out += x · w, for `groups` groups of 16 outputs. The last argument,
    a number of rows, must be in the sequence `rows`. x: address of the first row in a panel that `packer` wrote. Rows of `out` are
    out_bytes apart.
    """
    writer = _Quantised if kernel.weights.is_quantised else _Floats

    def multiply(b: Builder, *arguments: Value) -> None:
        *given, taken = arguments
        done = b.append_basic_block("done")
        cases = [b.append_basic_block(f"rows_{count}") for count in rows]
        choice = b.switch(taken, done)
        for count, case in zip(rows, cases, strict=True):
            choice.add_case(I64(count), case)
            b.position_at_end(case)
            writer(kernel, count, groups).write(b, *given)
            b.branch(done)
        b.position_at_end(done)

    return instruction(multiply, 6)


@dataclass(frozen=True)
class _Product:
    """Emits the product of `rows` rows with `groups` groups of outputs."""

    kernel: Kernel
    rows: int
    groups: int

    def write(self, b: Builder, w: Value, x: Value, out: Value, out_bytes: Value, blocks: Value) -> None:
        """See `product`."""
        kernel, weights, reading = self.kernel, self.kernel.weights, self.kernel.arithmetic.reading
        rows = [offset(b, out, b.mul(out_bytes, I64(row))) for row in range(self.rows)]
        results = [(row, 4 * LANES * group) for row in rows for group in range(self.groups)]
        group_bytes = b.mul(blocks, I64(weights.block_bytes))
        size = weights.block_bytes * weights.turn
        begun = self._begin([load(b, row, FLOATS, by) for row, by in results])
        loop = Loop(b, b.sdiv(blocks, I64(weights.turn)), begun)
        first = offset(b, w, b.mul(loop.index, I64(size)))
        own = [offset(b, first, b.mul(group_bytes, I64(group))) for group in range(self.groups)]
        # Hardware prefetching does not hide the memory's latency.
        for line in range(0, size, CACHE_LINE):
            for group in own:
                prefetch(b, offset(b, group, _AHEAD * self.groups + line), reading.nearness)
        at = offset(b, x, b.mul(loop.index, I64(kernel.block_bytes * weights.turn)))
        sums = list(loop.values)
        for block in range(weights.turn):
            sums = self._block(b, own, offset(b, at, block * kernel.block_bytes), block, sums)
        for (row, by), total in zip(results, self._end(b, loop.close(sums)), strict=True):
            store(b, total, row, by)

    def _begin(self, starts: list[Value]) -> list[Value]:
        """The sums before the first block, given the outputs' initial values."""
        return starts

    def _end(self, b: Builder, sums: list[Value]) -> list[Value]:
        """Outputs of each row and group."""
        return sums

    def _block(self, b: Builder, w: list[Value], x: Value, block: int, sums: list[Value]) -> list[Value]:
        """`sums` plus the products of block number `block` of the weights at `w` with the activations at `x`."""
        raise NotImplementedError


@dataclass(frozen=True)
class _Floats(_Product):
    """Products with float weights: two sums for each output, of even and of odd inputs."""

    def _begin(self, starts: list[Value]) -> list[Value]:
        return [each for start in starts for each in (start, floats(0.0))]

    def _end(self, b: Builder, sums: list[Value]) -> list[Value]:
        return [b.fadd(even, odd) for even, odd in zip(sums[::2], sums[1::2], strict=True)]

    def _block(self, b: Builder, w: list[Value], x: Value, block: int, sums: list[Value]) -> list[Value]:
        kind = self.kernel.weights
        loop = Loop(b, I64(BLOCK // _STEPS), sums)
        sums = list(loop.values)
        by = b.mul(loop.index, I64(_STEPS * kind.block_bytes // BLOCK))
        weights = [offset(b, own, by) for own in w]
        at = offset(b, x, b.mul(loop.index, I64(4 * _STEPS)))
        for step in range(_STEPS):
            columns = [_column(b, kind, own, step) for own in weights]
            for row in range(self.rows):
                value = splat(b, load(b, at, F32, self.kernel.row_bytes * row + 4 * step))
                for group, column in enumerate(columns):
                    index = 2 * (row * self.groups + group) + step % 2
                    sums[index] = fma(b, value, column, sums[index])
        return loop.close(sums)


_STEPS = 8
"""Inputs per iteration of the loop in `_Floats`."""


@dataclass(frozen=True)
class _Quantised(_Product):
    """Products with weights of 4 or 8 bits."""

    def _block(self, b: Builder, w: list[Value], x: Value, block: int, sums: list[Value]) -> list[Value]:
        """The integer products are summed first, then scaled."""
        wholes = self._integers(b, w, x, block)
        scales = [_scales(b, own, 256 if self._has_minima else 1024 + 32 * block) for own in w]
        minima = [_scales(b, own, 288) for own in w] if self._has_minima else None
        following = []
        for row in range(self.rows):
            side = self.kernel.row_bytes * row + self.kernel.side
            scale = splat(b, load(b, x, F32, side))
            scaled_sum = splat(b, load(b, x, F32, side + 4)) if minima else None
            for group in range(self.groups):
                number = row * self.groups + group
                whole = b.fmul(b.sitofp(wholes[number], FLOATS), scale)
                sum_ = fma(b, scales[group], whole, sums[number])
                following.append(fma(b, minima[group], scaled_sum, sum_) if minima else sum_)
        return following

    @property
    def _has_minima(self) -> bool:
        """Whether weights have a minimum besides their scale."""
        return self.kernel.weights is Format.Q4_1

    def _integers(self, b: Builder, w: list[Value], x: Value, block: int) -> list[Value]:
        """Σ weight · activation over a block for each row and group, as exact integers."""
        levels, begun = self.kernel.levels, list[Value]()
        for row in range(self.rows):
            begun += [self._correction(b, x, row, level) for level in range(levels)] * len(w)
        sums = self._words(b, w, x, block, begun)
        if levels == 1:
            return sums
        return [b.add(b.shl(high, ints(8)), low) for high, low in zip(sums[::2], sums[1::2], strict=True)]

    def _words(self, b: Builder, w: list[Value], x: Value, block: int, sums: list[Value]) -> list[Value]:
        """`sums` of each row, group and level, plus the products of a block."""
        levels, by = self.kernel.levels, 0
        for factors in self._factors(b, w, block):
            following = []
            for row in range(self.rows):
                own = sums[row * len(w) * levels : (row + 1) * len(w) * levels]
                for level in range(levels):
                    activations = splat(b, load(b, x, I32, self.kernel.row_bytes * row + BLOCK * level + by))
                    for number, factor in enumerate(factors):
                        sum_ = number * levels + level
                        own[sum_] = self._dot(b, own[sum_], factor, activations)
                following += own
            sums, by = following, by + 4
            if self.rows > 1:
                sums = settle(b, sums, whole=self.kernel.has_many_registers)
        return sums

    def _factors(self, b: Builder, w: list[Value], block: int) -> Iterator[list[Value]]:
        """Yields, for each 32-bit word of activations, the weights of each group for that word: four bytes, or two 16-bit numbers."""
        for step in range(8):
            at = 32 * (step - step % 2) if self._has_minima else 512 * block + 64 * step
            words = [load(b, own, INTS, at) for own in w]
            if not self.kernel.has_bytes:
                for half in range(2):
                    yield [_pairs(b, self.kernel.weights, word, step, half) for word in words]
            elif self._has_minima:
                yield [
                    b.and_(b.lshr(word, ints(4)) if step % 2 else word, ints(0x0F0F0F0F)) for word in words
                ]
            else:
                yield words

    def _correction(self, b: Builder, x: Value, row: int, level: int) -> Value:
        """Initial value of sums: 0 for 4-bit weights. For 8-bit weights it offsets the 128 that their unsigned bytes are too large by."""
        if self._has_minima:
            return ints(0)
        side = self.kernel.row_bytes * row + self.kernel.side
        return splat(b, load(b, x, I32, side + 8 + 4 * level))

    def _dot(self, b: Builder, sums: Value, weights: Value, activations: Value) -> Value:
        """Add to each lane the products of its weights and activations: four products of bytes (weights unsigned), or two of 16-bit."""
        dots = self.kernel.arithmetic.dots
        if dots is DotProducts.PAIRS:
            return _dot_pairs(b, sums, weights, activations)
        if dots is DotProducts.VNNI_512:
            return call(b, "llvm.x86.avx512.vpdpbusd.512", sums, weights, activations)
        parts = zip(*(halves(b, each) for each in (sums, weights, activations)), strict=True)
        return join(b, *[call(b, "llvm.x86.avx512.vpdpbusd.256", *part) for part in parts])


_SHORT_PAIRS = ir.VectorType(I16, 2 * LANES)


def _shorts(number: int) -> Value:
    return ir.Constant(_SHORT_PAIRS, [I16(number)] * 2 * LANES)


def _pairs(b: Builder, weights: Format, word: Value, step: int, half: int) -> Value:
    """Two of a step's four weights in each lane, as 16-bit numbers: the first and third (`half` 0), or the second and fourth."""
    bits, shift = (4, 4 * (step % 2) + 8 * half) if weights is Format.Q4_1 else (8, 8 * half)
    shorts = b.bitcast(word, _SHORT_PAIRS)
    if shift:
        shorts = b.lshr(shorts, _shorts(shift))
    if shift + bits < 16:
        shorts = b.and_(shorts, _shorts((1 << bits) - 1))
    return b.bitcast(shorts, INTS)


def _dot_pairs(b: Builder, sums: Value, weights: Value, activations: Value) -> Value:
    """`_dot` for pairs of 16-bit numbers, written so that LLVM emits a single instruction for it."""
    wide = ir.VectorType(I32, 2 * LANES)
    products = b.mul(*(b.sext(b.bitcast(each, _SHORT_PAIRS), wide) for each in (weights, activations)))
    even, odd = (shuffle(b, products, range(first, 2 * LANES, 2)) for first in (0, 1))
    return b.add(sums, b.add(even, odd))


_PAIRS = [4 * four + lane for four in range(LANES // 4) for lane in (0, 2, 1, 3)]
"""The order of 16-bit activations, which matches the weights of `_pairs`."""


def packer(kernel: Kernel) -> Any:
    """numba function (x, at, blocks) -> None: writes a row of float32 activations at `x` to `at`, the row's address in a panel.

    If weights are floats, activations stay float32. Otherwise each block becomes integers, with the scale max|x| / the largest integer.
    """

    def pack(b: Builder, x: Value, at: Value, blocks: Value) -> None:
        loop = Loop(b, blocks)
        own = offset(b, x, b.mul(loop.index, I64(4 * BLOCK)))
        to = offset(b, at, b.mul(loop.index, I64(kernel.block_bytes)))
        values = [load(b, own, FLOATS, 64 * half) for half in range(2)]
        if kernel.weights.is_quantised:
            _quantise(b, kernel, values, to)
        else:
            for half, each in enumerate(values):
                store(b, each, to, 64 * half)
        loop.close()

    return instruction(pack, 3)


def _quantise(b: Builder, kernel: Kernel, values: list[Value], at: Value) -> None:
    most = float(kernel.arithmetic.precision.value)
    # Compared as integers, non-negative floats keep their order and NaN is the largest, so that a NaN gets into the scale.
    bits = [b.bitcast(call(b, "llvm.fabs.v16f32", each), INTS) for each in values]
    largest = b.bitcast(reduce(b, larger(b)(*bits), larger(b)), F32)
    least = ir.Constant(F32, 1e-30)
    largest = b.select(b.fcmp_ordered("<", largest, least), least, largest)
    scale = b.fmul(largest, ir.Constant(F32, float(np.float32(1 / most))))
    factor = splat(b, b.fdiv(ir.Constant(F32, most), largest))
    wholes = [b.fptosi(call(b, "llvm.rint.v16f32", b.fmul(each, factor)), INTS) for each in values]
    levels = [wholes]
    if kernel.levels == 2:
        high = [b.ashr(b.add(each, ints(128)), ints(8)) for each in wholes]
        levels = [high, [b.sub(each, b.shl(part, ints(8))) for each, part in zip(wholes, high, strict=True)]]
    for number, level in enumerate(levels):
        for half, each in enumerate(level):
            if kernel.has_bytes:
                store(b, b.trunc(each, BYTES), at, BLOCK * number + LANES * half)
            else:
                store(b, b.trunc(shuffle(b, each, _PAIRS), SHORTS), at, 2 * LANES * half)
    totals = [reduce(b, b.add(*level), b.add) for level in levels]
    total = totals[0] if len(totals) == 1 else b.add(b.shl(totals[0], I32(8)), totals[1])
    store(b, scale, at, kernel.side)
    store(b, b.fmul(scale, b.sitofp(total, F32)), at, kernel.side + 4)
    for number, each in enumerate(totals):
        store(b, b.mul(each, I32(-128)), at, kernel.side + 8 + 4 * number)


def unpacker(weights: Format) -> Any:
    """numba function (w, lane, out, blocks) -> None: writes the weights of output `lane` (of the 16 at `w`) to `out` as float32."""

    def unpack(b: Builder, w: Value, lane: Value, out: Value, blocks: Value) -> None:
        loop = Loop(b, b.sdiv(blocks, I64(weights.turn)))
        own = offset(b, w, b.mul(loop.index, I64(weights.block_bytes * weights.turn)))
        to = offset(b, out, b.mul(loop.index, I64(4 * BLOCK * weights.turn)))
        for index in range(BLOCK * weights.turn):
            store(b, b.extract_element(_column(b, weights, own, index), lane), to, 4 * index)
        loop.close()

    return instruction(unpack, 4)


def _column(b: Builder, weights: Format, w: Value, index: int) -> Value:
    """Input `index` of the weights at `w`, for 16 outputs, as float32."""
    if weights is Format.F32:
        return load(b, w, FLOATS, 64 * index)
    if weights is Format.F16:
        return b.fpext(load(b, w, HALVES, 32 * index, align=2), FLOATS)
    if weights is Format.BF16:
        bits = b.zext(load(b, w, SHORTS, 32 * index, align=2), INTS)
        return b.bitcast(b.shl(bits, ints(16)), FLOATS)
    block, inner = divmod(index, BLOCK)
    step, byte = divmod(inner, 4)
    if weights is Format.Q8_0:
        word = b.lshr(load(b, w, INTS, 512 * block + 64 * step), ints(8 * byte))
        level = b.sub(b.and_(word, ints(255)), ints(128))
        return b.fmul(_scales(b, w, 1024 + 32 * block), b.sitofp(level, FLOATS))
    word = b.lshr(load(b, w, INTS, 64 * (step // 2)), ints(8 * byte + 4 * (step % 2)))
    level = b.and_(word, ints(15))
    return b.fadd(b.fmul(_scales(b, w, 256), b.sitofp(level, FLOATS)), _scales(b, w, 288))


def _scales(b: Builder, w: Value, by: int) -> Value:
    return b.fpext(load(b, w, HALVES, by, align=2), FLOATS)
