"""Products of a few rows of activations with a matrix, in the precision in which its weights were published.

For quantised weights activations become integers, in blocks of 32 inputs with a scale each: of about 16 bits (`EXACT`), or 8
(`FAST`). Products and sums of a block are integers and so exact; what is left is a fixed chain of float operations for each row
and output. So a row's bits depend neither on other rows nor on threads, and are the same on every processor. Activations of other
formats stay float32. Knows matrices in the layout of `layout`; knows no model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np
from llvmlite import ir
from numba.extending import register_jitable

from specviz.runtime.cpu.fused.processor import USUAL, DotProducts, Reading, has_wide_registers
from specviz.runtime.cpu.fused.vectors import (
    BYTES,
    F16,
    F32,
    FLOATS,
    HALVES,
    I8,
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
    opaque,
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
"""Of a row and block of integer activations: scale, scale · sum, and −128 · sum of each level."""
PANEL_ROWS = 16
"""Rows of integer activations that lie together, block by block: first the integers of all, then what lies beside them. A product finds any row
of a panel by one address and a number that is known when it is compiled.
"""


@register_jitable
def panel_places(panels: int, panel_bytes: int, block_bytes: int, row: int) -> tuple[int, int]:
    """Where a row's first block lies in panels one after another, and what lies beside it."""
    panel, own = panels + row // PANEL_ROWS * panel_bytes, row % PANEL_ROWS
    return panel + own * block_bytes, panel + PANEL_ROWS * block_bytes + own * SIDE_BYTES


class Precision(Enum):
    """Of the activations that meet quantised weights: the largest integer."""

    EXACT = 32512
    FAST = 127


class Format(Enum):
    """Of weights, as published: Q4_1 and Q8_0 as in GGUF, or floats."""

    Q4_1 = "Q4_1"
    Q8_0 = "Q8_0"
    BF16 = "BF16"
    F16 = "F16"
    F32 = "F32"

    @property
    def block_bytes(self) -> int:
        """Bytes of 32 inputs × 16 outputs."""
        bits = {Format.Q4_1: 32 * 4 + 2 * 16, Format.Q8_0: 32 * 8 + 16, Format.F32: 32 * 32}
        return bits.get(self, 32 * 16) * LANES // 8

    @property
    def is_quantised(self) -> bool:
        """Whether activations become integers."""
        return self in (Format.Q4_1, Format.Q8_0)


@dataclass(frozen=True)
class Arithmetic:
    """How integer activations are kept and multiplied, and weights read; `has_tiles` where the matrix unit serves for many rows."""

    dots: DotProducts
    precision: Precision
    has_tiles: bool = False
    reading: Reading = USUAL

    def meeting(self, weights: Format) -> Arithmetic:
        """The same for activations that meet such weights: where pairs of bytes serve, and are faster, by these."""
        if (
            self.dots is not DotProducts.PAIRS
            or self.precision is Precision.EXACT
            or weights is not Format.Q4_1
        ):
            return self
        return replace(self, dots=DotProducts.NIBBLES)

    @property
    def levels(self) -> int:
        """Integers an activation is split into: with bytes, 256 · high + low for the exact ones."""
        return 2 if self.has_bytes and self.precision is Precision.EXACT else 1

    @property
    def has_bytes(self) -> bool:
        """Whether integers are bytes, else 16 bits wide."""
        return self.dots is not DotProducts.PAIRS

    @property
    def block_bytes(self) -> int:
        """Bytes of 32 activations."""
        return BLOCK * self.levels if self.has_bytes else 2 * BLOCK

    @property
    def panel_stride(self) -> int:
        """Bytes from a block of a panel to the next: an odd number of cache lines, so that a row's blocks spread over the whole nearest cache."""
        return PANEL_ROWS * (self.block_bytes + SIDE_BYTES) + 64

    @property
    def has_many_registers(self) -> bool:
        """Whether there are 32 registers of 16 lanes, rather than 16 of 8."""
        return self.dots is DotProducts.VNNI_512


def product(weights: Format, arithmetic: Arithmetic, rows: Sequence[int], groups: int = 1) -> Any:
    """numba function (w, x, side, start, ld_start, out, ld_out, blocks, rows) -> None, for one of these numbers of rows and 16 outputs
    a group.

    out = start + x · w, with strides of rows (ld) in bytes; x and side are places in a panel as `quantiser` writes it. Floats have x
    alone, and in `side` its stride.
    """

    def multiply(b: Builder, *arguments: Value) -> None:
        *given, taken = arguments
        done = b.append_basic_block("done")
        cases = [b.append_basic_block(f"rows_{count}") for count in rows]
        choice = b.switch(taken, done)
        for count, case in zip(rows, cases, strict=True):
            choice.add_case(I64(count), case)
            b.position_at_end(case)
            if weights.is_quantised:
                Quantised(weights, arithmetic, count, groups).write(b, *given)
            else:
                _Floats(weights, count, groups, arithmetic.reading).write(b, *given)
            b.branch(done)
        b.position_at_end(done)

    return instruction(multiply, 9)


def rows_at(b: Builder, address: Value, stride: Value, count: int) -> list[Value]:
    """Addresses of the first rows."""
    return [offset(b, address, b.mul(stride, I64(row)) if row else 0) for row in range(count)]


@dataclass(frozen=True)
class _Floats:
    """Products with weights that are floats: for each output two sums, of even and of odd inputs."""

    weights: Format
    rows: int
    groups: int
    reading: Reading

    def write(
        self,
        b: Builder,
        w: Value,
        x: Value,
        ldx: Value,
        start: Value,
        ld_start: Value,
        out: Value,
        ld_out: Value,
        blocks: Value,
    ) -> None:
        """See `product`."""
        size = self.weights.block_bytes // BLOCK
        inputs = rows_at(b, x, ldx, self.rows)
        starts, results = rows_at(b, start, ld_start, self.rows), rows_at(b, out, ld_out, self.rows)
        for group in range(self.groups):
            by = 4 * LANES * group
            begun = [load(b, row, FLOATS, by) for row in starts]
            weights = offset(b, w, b.mul(blocks, I64(group * self.weights.block_bytes)))
            loop = Loop(b, b.mul(blocks, I64(4)), [each for first in begun for each in (first, floats(0.0))])
            sums = list(loop.values)
            own = offset(b, weights, b.mul(loop.index, I64(8 * size)))
            for line in range(0, 8 * size, 64):
                fetch_ahead(b, self.reading, own, line, self.groups)
            at = [offset(b, row, b.mul(loop.index, I64(32))) for row in inputs]
            for step in range(8):
                column = self._load(b, own, step * size)
                for row in range(self.rows):
                    sum_ = 2 * row + step % 2
                    sums[sum_] = fma(b, splat(b, load(b, at[row], F32, 4 * step)), column, sums[sum_])
            sums = loop.close(sums)
            for row in range(self.rows):
                store(b, b.fadd(sums[2 * row], sums[2 * row + 1]), results[row], by)

    def _load(self, b: Builder, address: Value, by: int) -> Value:
        if self.weights is Format.F32:
            return load(b, address, FLOATS, by)
        if self.weights is Format.F16:
            return b.fpext(load(b, address, HALVES, by, align=2), FLOATS)
        bits = b.zext(load(b, address, SHORTS, by, align=2), INTS)
        return b.bitcast(b.shl(bits, ints(16)), FLOATS)


@dataclass(frozen=True)
class Quantised:
    """Products with weights of 4 or 8 bits."""

    weights: Format
    arithmetic: Arithmetic
    rows: int
    groups: int

    def write(
        self,
        b: Builder,
        w: Value,
        x: Value,
        side: Value,
        start: Value,
        ld_start: Value,
        out: Value,
        ld_out: Value,
        blocks: Value,
    ) -> None:
        """See `product`."""
        columns = range(0, 4 * LANES * self.groups, 4 * LANES)
        begun = [load(b, row, FLOATS, by) for row in rows_at(b, start, ld_start, self.rows) for by in columns]
        results = [(row, by) for row in rows_at(b, out, ld_out, self.rows) for by in columns]
        # A turn takes whole cache lines: one block of Q4_1, two of Q8_0.
        turn = 1 if self.weights is Format.Q4_1 else 2
        size = self.weights.block_bytes * turn
        weights = rows_at(b, w, b.mul(blocks, I64(self.weights.block_bytes)), self.groups)
        loop = Loop(b, b.sdiv(blocks, I64(turn)), begun)
        own = [offset(b, group, b.mul(loop.index, I64(size))) for group in weights]
        for line in range(0, size, 64):
            for group in own:
                fetch_ahead(b, self.arithmetic.reading, group, line, self.groups)
        by = b.mul(loop.index, I64(self.arithmetic.panel_stride * turn))
        at, beside = offset(b, x, by), offset(b, side, by)
        sums = list(loop.values)
        for block in range(turn):
            following = block * self.arithmetic.panel_stride
            sums = self.block(b, own, offset(b, at, following), offset(b, beside, following), block, sums)
        for (row, by), sum_ in zip(results, loop.close(sums), strict=True):
            store(b, sum_, row, by)

    def block(
        self, b: Builder, w: list[Value], x: Value, side: Value, block: int, sums: list[Value]
    ) -> list[Value]:
        """One block of 32 inputs: integers first, then scales. It is number `block` of the weights at `w`, and that at `x` and `side`."""
        wholes = self.integers(b, w, x, side, block)
        scales = [_scales(b, own, 256 if self.has_minima else 1024 + 32 * block) for own in w]
        minima = [_scales(b, own, 288) for own in w] if self.has_minima else None
        following = []
        for row in range(self.rows):
            scale = splat(b, load(b, side, F32, SIDE_BYTES * row))
            scaled_sum = splat(b, load(b, side, F32, SIDE_BYTES * row + 4)) if minima else None
            for group in range(self.groups):
                number = row * self.groups + group
                whole = b.fmul(b.sitofp(wholes[number], FLOATS), scale)
                sum_ = fma(b, scales[group], whole, sums[number])
                following.append(fma(b, minima[group], scaled_sum, sum_) if minima else sum_)
        return following

    @property
    def has_minima(self) -> bool:
        """Whether weights have a minimum beside their scale."""
        return self.weights is Format.Q4_1

    def integers(self, b: Builder, w: list[Value], x: Value, side: Value, block: int) -> list[Value]:
        """For each row and group Σ weight · activation over a block, exact."""
        levels = self.arithmetic.levels
        corrections = [
            [self.correction(b, side, row, level) for level in range(levels)] for row in range(self.rows)
        ]
        begun = [each for row in corrections for _ in w for each in row]
        if self.arithmetic.has_many_registers or self._settles:
            sums = self._words(b, w, x, block, begun, range(8))
        else:
            # Written out, LLVM goes through a block row by row, and has no registers for all of its weights.
            loop = Loop(b, opaque(b, 4), begun)
            own = [offset(b, each, b.mul(loop.index, I64(64 if self.has_minima else 128))) for each in w]
            by = 8 if self.arithmetic.has_bytes else 16
            words = offset(b, x, b.mul(loop.index, I64(by)))
            sums = loop.close(self._words(b, own, words, block, loop.values, range(2)))
        if self.arithmetic.dots is DotProducts.NIBBLES:
            sums = [_sums_of_pairs(b, each) for each in sums]
        if levels == 1:
            return sums
        return [b.add(b.shl(high, ints(8)), low) for high, low in zip(sums[::2], sums[1::2], strict=True)]

    def _words(
        self, b: Builder, w: list[Value], x: Value, block: int, sums: list[Value], steps: range
    ) -> list[Value]:
        """Sums of each row, group and level after some steps, of four inputs each."""
        levels, by = self.arithmetic.levels, 0
        for factors in self._factors(b, w, block, steps):
            following = []
            for row in range(self.rows):
                own = sums[row * len(w) * levels : (row + 1) * len(w) * levels]
                for level in range(levels):
                    at = self.arithmetic.block_bytes * row + BLOCK * level + by
                    activations = splat(b, load(b, x, I32, at))
                    for number, factor in enumerate(factors):
                        sum_ = number * levels + level
                        own[sum_] = self._dot(b, own[sum_], factor, activations)
                following += own
            sums, by = following, by + 4
            if self._settles:
                sums = settle(b, sums, whole=self.arithmetic.has_many_registers)
        return sums

    @property
    def _settles(self) -> bool:
        """Whether sums are settled after each step: of several rows in many registers; in sixteen of eight lanes where they have room for all
        sums.
        """
        if self.arithmetic.has_many_registers:
            return self.rows > 1
        return self.arithmetic.levels == 1 and not has_wide_registers()

    def _factors(self, b: Builder, w: list[Value], block: int, steps: range) -> Iterator[list[Value]]:
        """Each group's weights that meet one word of activations after the other: four bytes of them, or two 16-bit numbers."""
        for step in steps:
            at = 32 * (step - step % 2) if self.has_minima else 512 * block + 64 * step
            words = [load(b, own, INTS, at) for own in w]
            if not self.arithmetic.has_bytes:
                for half in range(2):
                    yield [_pairs(b, self.weights, word, step, half) for word in words]
            elif self.has_minima:
                yield [
                    b.and_(b.lshr(word, ints(4)) if step % 2 else word, ints(0x0F0F0F0F)) for word in words
                ]
            else:
                yield words

    def correction(self, b: Builder, side: Value, row: int, level: int) -> Value:
        """What sums begin with: 8-bit weights are stored 128 too large, to be positive."""
        if self.arithmetic.dots is DotProducts.NIBBLES:
            return _NO_PAIRS
        if self.has_minima:
            return ints(0)
        return splat(b, load(b, side, I32, SIDE_BYTES * row + 8 + 4 * level))

    def _dot(self, b: Builder, sums: Value, weights: Value, activations: Value) -> Value:
        """Add the products of each lane's weights with as many activations."""
        if self.arithmetic.dots is DotProducts.NIBBLES:
            return b.add(sums, _pairs_of_bytes(b, weights, activations))
        if self.arithmetic.has_bytes:
            return _dot_bytes(b, self.arithmetic.dots, sums, weights, activations)
        return _dot_pairs(b, sums, weights, activations)


def fetch_ahead(b: Builder, reading: Reading, weights: Value, line: int, groups: int = 1) -> None:
    """Have a line of weights read that will be wanted, where so many groups are gone through at once: the processor's own prefetching
    does not fill the time that memory takes.
    """
    prefetch(b, offset(b, weights, reading.ahead * groups + line), reading.nearness)


def _scales(b: Builder, w: Value, by: int) -> Value:
    return b.fpext(load(b, w, HALVES, by, align=2), FLOATS)


def _dot_bytes(b: Builder, dots: DotProducts, sums: Value, weights: Value, activations: Value) -> Value:
    """Unsigned bytes times signed bytes, in fours."""
    if dots is DotProducts.VNNI_512:
        return call(b, "llvm.x86.avx512.vpdpbusd.512", sums, weights, activations)
    return _by_halves(b, "llvm.x86.avx512.vpdpbusd.256", sums, weights, activations)


_SHORT_PAIRS = ir.VectorType(I16, 2 * LANES)


def _shorts(number: int) -> Value:
    return ir.Constant(_SHORT_PAIRS, [I16(number)] * 2 * LANES)


_NO_PAIRS, _ONES = _shorts(0), _shorts(1)


def _pairs_of_bytes(b: Builder, weights: Value, activations: Value) -> Value:
    """Unsigned bytes up to 15 times signed bytes, summed in twos: 16 bits hold such sums of a block, 16 · 15 · 127 at most."""
    kind = ir.VectorType(I8, 4 * LANES)
    values = (b.bitcast(each, kind) for each in (weights, activations))
    return _by_halves(b, "llvm.x86.avx2.pmadd.ub.sw", *values, result=SHORTS)


def _sums_of_pairs(b: Builder, pairs: Value) -> Value:
    """Both 16-bit sums of a lane as one of 32 bits."""
    return _by_halves(b, "llvm.x86.avx2.pmadd.wd", pairs, _ONES, result=ir.VectorType(I32, LANES // 2))


def _by_halves(b: Builder, name: str, *values: Value, result: Any = None) -> Value:
    """An instruction on vectors twice as wide as it takes."""
    parts = zip(*(halves(b, each) for each in values), strict=True)
    return join(b, *[call(b, name, *part, result=result) for part in parts])


def _pairs(b: Builder, weights: Format, word: Value, step: int, half: int) -> Value:
    """The first and third, or the second and fourth, of a step's four weights in each lane, 16 bits wide."""
    bits, shift = (4, 4 * (step % 2) + 8 * half) if weights is Format.Q4_1 else (8, 8 * half)
    shorts = b.bitcast(word, _SHORT_PAIRS)
    if shift:
        shorts = b.lshr(shorts, _shorts(shift))
    if shift + bits < 16:
        shorts = b.and_(shorts, _shorts((1 << bits) - 1))
    return b.bitcast(shorts, INTS)


def _dot_pairs(b: Builder, sums: Value, weights: Value, activations: Value) -> Value:
    """16-bit numbers in pairs: written so that LLVM finds the one instruction for it."""
    wide = ir.VectorType(I32, 2 * LANES)
    products = b.mul(*(b.sext(b.bitcast(each, _SHORT_PAIRS), wide) for each in (weights, activations)))
    even, odd = (shuffle(b, products, range(first, 2 * LANES, 2)) for first in (0, 1))
    return b.add(sums, b.add(even, odd))


_PAIRS = [4 * four + lane for four in range(LANES // 4) for lane in (0, 2, 1, 3)]
"""The order of 16-bit activations: those come together that meet in one 32-bit lane."""


def quantiser(arithmetic: Arithmetic) -> Any:
    """numba function (x, integers, side, blocks) -> None: float32 activations of a row as integers, with `SIDE_BYTES` a block, at its
    places in a panel.

    The scale is max|x| / the largest integer.
    """
    most = float(arithmetic.precision.value)

    def quantise(b: Builder, x: Value, integers: Value, side: Value, blocks: Value) -> None:
        loop = Loop(b, blocks)
        own = offset(b, x, b.mul(loop.index, I64(4 * BLOCK)))
        values = [load(b, own, FLOATS, 64 * half) for half in range(2)]
        sizes = [call(b, "llvm.fabs.v16f32", each) for each in values]
        largest = larger(b)(reduce(b, larger(b)(*sizes), larger(b)), ir.Constant(F32, 1e-30))
        scale = b.fmul(largest, ir.Constant(F32, float(np.float32(1 / most))))
        factor = splat(b, b.fdiv(ir.Constant(F32, most), largest))
        wholes = [b.fptosi(call(b, "llvm.rint.v16f32", b.fmul(each, factor)), INTS) for each in values]
        levels = [wholes]
        if arithmetic.levels == 2:
            high = [b.ashr(b.add(each, ints(128)), ints(8)) for each in wholes]
            levels = [
                high,
                [b.sub(whole, b.shl(part, ints(8))) for whole, part in zip(wholes, high, strict=True)],
            ]
        by = b.mul(loop.index, I64(arithmetic.panel_stride))
        _store_integers(b, arithmetic, levels, offset(b, integers, by))
        at = offset(b, side, by)
        totals = [reduce(b, b.add(*level), b.add) for level in levels]
        total = totals[0] if len(totals) == 1 else b.add(b.shl(totals[0], I32(8)), totals[1])
        store(b, scale, at)
        store(b, b.fmul(scale, b.sitofp(total, F32)), at, 4)
        for number, each in enumerate(totals):
            store(b, b.mul(each, I32(-128)), at, 8 + 4 * number)
        loop.close()

    return instruction(quantise, 4)


def _store_integers(b: Builder, arithmetic: Arithmetic, levels: list[list[Value]], at: Value) -> None:
    for number, level in enumerate(levels):
        for half, values in enumerate(level):
            if arithmetic.has_bytes:
                store(b, b.trunc(values, BYTES), at, BLOCK * number + LANES * half)
            else:
                store(b, b.trunc(shuffle(b, values, _PAIRS), SHORTS), at, 2 * LANES * half)


def unpacker(weights: Format) -> Any:
    """numba function (w, lane, out, blocks) -> None: one output's weights as float32, of a group of 16 that begins at `w`."""

    def unpack(b: Builder, w: Value, lane: Value, out: Value, blocks: Value) -> None:
        turn = 2 if weights is Format.Q8_0 else 1
        loop = Loop(b, b.sdiv(blocks, I64(turn)))
        own = offset(b, w, b.mul(loop.index, I64(weights.block_bytes * turn)))
        to = offset(b, out, b.mul(loop.index, I64(4 * BLOCK * turn)))
        for index in range(BLOCK * turn):
            store(b, _weight(b, weights, own, lane, index), to, 4 * index)
        loop.close()

    return instruction(unpack, 4)


def _weight(b: Builder, weights: Format, w: Value, lane: Value, index: int) -> Value:
    """Weight `index` of a turn, of one lane, as float32."""

    def number(kind: Any, by: int) -> Value:
        size = {F32: 4, F16: 2, I16: 2}[kind]
        return load(b, offset(b, w, b.mul(lane, I64(size))), kind, by, align=2)

    if weights is Format.F32:
        return number(F32, 64 * index)
    if weights is Format.F16:
        return b.fpext(number(F16, 32 * index), F32)
    if weights is Format.BF16:
        return b.bitcast(b.shl(b.zext(number(I16, 32 * index), I32), I32(16)), F32)
    block, inner = divmod(index, BLOCK)
    step, byte = divmod(inner, 4)
    address = offset(b, w, b.mul(lane, I64(4)))
    if weights is Format.Q8_0:
        level = b.zext(load(b, address, I8, 512 * block + 64 * step + byte, align=1), I32)
        return b.fmul(b.fpext(number(F16, 1024 + 32 * block), F32), b.sitofp(b.sub(level, I32(128)), F32))
    packed = b.zext(load(b, address, I8, 64 * (step // 2) + byte, align=1), I32)
    level = b.and_(b.lshr(packed, I32(4 * (step % 2))), I32(15))
    scaled = b.fmul(b.fpext(number(F16, 256), F32), b.sitofp(level, F32))
    return b.fadd(scaled, b.fpext(number(F16, 288), F32))
