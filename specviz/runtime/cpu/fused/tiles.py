"""Products of up to sixteen rows with quantised weights by the processor's matrix unit (AMX): the integers of a block in two instructions.

The integers are the same as those of `products`, and what is done with them is its code: a row's bits do not depend on which of the
two made them. Knows matrices in the layout of `layout`; knows no model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from specviz.runtime.cpu.fused.products import (
    BLOCK,
    PANEL_ROWS,
    Arithmetic,
    Format,
    Quantised,
    fetch_ahead,
    rows_at,
)
from specviz.runtime.cpu.fused.vectors import (
    FLOATS,
    I8,
    I64,
    INTS,
    LANES,
    Builder,
    Loop,
    Value,
    call,
    instruction,
    ints,
    load,
    offset,
    store,
)

LEAST = 13
"""Rows from which on the matrix unit is the faster: whatever their number, it takes as long."""
_LINE, _WORDS = 64, 8
"""Bytes of a tile's row; words, of four inputs each, of a block."""
_SUMS, _ACTIVATIONS, _WEIGHTS = 0, 2, 4
"""The first of the tiles that hold these: one a level, and one."""


def _bytes_once(b: Builder, size: int) -> Value:
    """Address of so many bytes on the stack, in whole cache lines."""
    room = cgutils.alloca_once(b, ir.ArrayType(I8, size))
    room.align = _LINE
    return b.ptrtoint(room, I64)


def _nothing(b: Builder, name: str, *arguments: Value) -> None:
    call(b, f"llvm.x86.{name}", *arguments, result=ir.VoidType())


def _pointer(b: Builder, address: Value) -> Value:
    return b.inttoptr(address, I8.as_pointer())


def _begin(b: Builder) -> None:
    """Sizes of the tiles: bytes of a row, and rows."""
    sizes = bytearray(_LINE)
    sizes[0] = 1
    kinds = {_SUMS: (_LINE, PANEL_ROWS), _ACTIVATIONS: (BLOCK, PANEL_ROWS), _WEIGHTS: (_LINE, _WORDS)}
    for first, (columns, rows) in kinds.items():
        for tile in (first, first + 1):
            sizes[16 + 2 * tile], sizes[48 + tile] = columns, rows
    at = _bytes_once(b, _LINE)
    store(b, ir.Constant(ir.ArrayType(I8, _LINE), sizes), at)
    _nothing(b, "ldtilecfg", _pointer(b, at))


begin = instruction(_begin, 0)
"""To be called before `product`s, by the thread that runs them."""
end = instruction(lambda b: _nothing(b, "tilerelease"), 0)
"""To be called after them: else the tiles are kept whenever another program has the core."""


def product(weights: Format, arithmetic: Arithmetic) -> Any:
    """numba function (w, x, side, start, ld_start, out, ld_out, blocks, rows) -> None: as `products.product`, for up to a panel of rows
    and 16 outputs. Of further rows of the panel something is read, and nothing written.
    """
    emit = _Tiled(weights, arithmetic, PANEL_ROWS, 1)

    def multiply(b: Builder, *arguments: Value) -> None:
        emit.write_some(b, *arguments)

    return instruction(multiply, 9)


@dataclass(frozen=True)
class _Tiled(Quantised):
    """The tiles of one block fill while the sums of the one before are scaled."""

    def write_some(
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
        rows: Value,
    ) -> None:
        """See `product`."""
        results = rows_at(b, out, ld_out, PANEL_ROWS)
        begun = [load(b, row, FLOATS) for row in rows_at(b, start, ld_start, PANEL_ROWS)]
        tiles, stride = self.arithmetic.levels * PANEL_ROWS * _LINE, self.arithmetic.panel_stride
        room, words = _bytes_once(b, 2 * tiles), _bytes_once(b, 2 * _WORDS * _LINE)
        last = b.sub(blocks, I64(1))

        def weights(block: Value, apart: int) -> Value:
            """A block's; of 8 bits two blocks come first and then what they have beside them, so far `apart` each."""
            if self.has_minima:
                return offset(b, w, b.mul(block, I64(self.weights.block_bytes)))
            pair = offset(b, w, b.mul(b.ashr(block, I64(1)), I64(2 * self.weights.block_bytes)))
            return half(pair, block, apart)

        def half(address: Value, block: Value, size: int) -> Value:
            """One of two places, which take turns."""
            return offset(b, address, b.mul(b.and_(block, I64(1)), I64(size)))

        def spread(block: Value) -> None:
            if self.has_minima:
                _spread(b, weights(block, 0), half(words, block, _WORDS * _LINE))

        def multiply(block: Value) -> None:
            own = half(words, block, _WORDS * _LINE) if self.has_minima else weights(block, _WORDS * _LINE)
            self._multiply(b, own, offset(b, x, b.mul(block, I64(stride))))
            following = offset(b, w, b.mul(block, I64(self.weights.block_bytes)))
            for line in range(0, self.weights.block_bytes, _LINE):
                fetch_ahead(b, self.arithmetic.reading, following, line)

        def keep(block: Value) -> None:
            for level in range(self.arithmetic.levels):
                at = _pointer(b, offset(b, half(room, block, tiles), level * PANEL_ROWS * _LINE))
                _nothing(b, "tilestored64", I8(_SUMS + level), at, I64(_LINE))

        def scale(block: Value, sums: list[Value]) -> list[Value]:
            beside = offset(b, side, b.mul(block, I64(stride)))
            return self.block(b, [weights(block, 2 * LANES)], half(room, block, tiles), beside, 0, sums)

        def after(block: Value) -> Value:
            return b.select(b.icmp_signed("<", block, last), b.add(block, I64(1)), last)

        # Tiles are not loaded from what was written just before, nor sums: either would be waited for.
        spread(I64(0))
        multiply(I64(0))
        spread(after(I64(0)))
        keep(I64(0))
        loop = Loop(b, last, begun)
        block = b.add(loop.index, I64(1))
        multiply(block)
        spread(after(block))
        sums = scale(loop.index, list(loop.values))
        keep(block)
        sums = scale(last, loop.close(sums))
        for row, (address, sum_) in enumerate(zip(results, sums, strict=True)):
            if row < LEAST:
                store(b, sum_, address)
                continue
            with b.if_then(b.icmp_signed(">", rows, I64(row))):
                store(b, sum_, address)

    def _multiply(self, b: Builder, words: Value, x: Value) -> None:
        """The tiles of sums of a block."""
        row_bytes = I64(self.arithmetic.block_bytes)
        _nothing(b, "tileloadd64", I8(_WEIGHTS), _pointer(b, words), I64(_LINE))
        for level in range(self.arithmetic.levels):
            sums, activations = I8(_SUMS + level), I8(_ACTIVATIONS + level)
            _nothing(b, "tileloadd64", activations, _pointer(b, offset(b, x, BLOCK * level)), row_bytes)
            _nothing(b, "tilezero", sums)
            _nothing(b, "tdpbsud", sums, activations, I8(_WEIGHTS))

    def integers(self, b: Builder, w: list[Value], x: Value, side: Value, block: int) -> list[Value]:
        """See `Quantised.integers`; `x` is where the sums lie."""
        found = []
        for row in range(self.rows):
            sums = []
            for level in range(self.arithmetic.levels):
                own = load(b, x, INTS, (level * PANEL_ROWS + row) * _LINE)
                sums.append(b.add(own, self.correction(b, side, row, level)))
            found.append(sums[0] if len(sums) == 1 else b.add(b.shl(sums[0], ints(8)), sums[1]))
        return found


def _spread(b: Builder, w: Value, to: Value) -> None:
    """Weights of four bits as bytes."""
    for step in range(_WORDS):
        word = load(b, w, INTS, 32 * (step - step % 2))
        store(b, b.and_(b.lshr(word, ints(4)) if step % 2 else word, ints(0x0F0F0F0F)), to, _LINE * step)
