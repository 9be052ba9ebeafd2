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
    SIDE_BYTES,
    Arithmetic,
    Format,
    Quantised,
    prefetch,
    rows_at,
)
from specviz.runtime.cpu.fused.vectors import (
    FLOATS,
    I8,
    I64,
    INTS,
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

ROWS = 16
"""Of a tile."""
LEAST = 13
"""Rows from which on the matrix unit is the faster: whatever their number, it takes as long."""
_LINE, _WORDS = 64, 8
"""Bytes of a tile's row; words, of four inputs each, of a block."""
_SUMS, _ACTIVATIONS, _WEIGHTS = 0, 4, 6
"""The first of the tiles that hold these, of eight."""


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
    for tile in range(8):
        rows, columns = (ROWS, _LINE) if tile < _ACTIVATIONS else (ROWS, BLOCK)
        if tile >= _WEIGHTS:
            rows, columns = _WORDS, _LINE
        sizes[16 + 2 * tile], sizes[48 + tile] = columns, rows
    at = _bytes_once(b, _LINE)
    store(b, ir.Constant(ir.ArrayType(I8, _LINE), sizes), at)
    _nothing(b, "ldtilecfg", _pointer(b, at))


begin = instruction(_begin, 0)
"""To be called before `product`s, by the thread that runs them."""
end = instruction(lambda b: _nothing(b, "tilerelease"), 0)
"""To be called after them: else the tiles are kept whenever another program has the core."""


def product(weights: Format, arithmetic: Arithmetic) -> Any:
    """numba function (w, x, ldx, side, ld_side, start, ld_start, out, ld_out, blocks, rows) -> None: as `products.product`, for up to
    sixteen rows and 16 outputs. Of further rows up to sixteen something is read, and nothing written.
    """
    emit = _Tiled(weights, arithmetic, ROWS, 1)

    def multiply(b: Builder, *arguments: Value) -> None:
        emit.write_some(b, *arguments)

    return instruction(multiply, 11)


@dataclass(frozen=True)
class _Tiled(Quantised):
    """Blocks are gone through in turns of whole cache lines: the tiles of one turn fill while the sums of the one before are scaled."""

    def write_some(
        self,
        b: Builder,
        w: Value,
        x: Value,
        ldx: Value,
        side: Value,
        ld_side: Value,
        start: Value,
        ld_start: Value,
        out: Value,
        ld_out: Value,
        blocks: Value,
        rows: Value,
    ) -> None:
        """See `product`."""
        sides, results = rows_at(b, side, ld_side, ROWS), rows_at(b, out, ld_out, ROWS)
        begun = [load(b, row, FLOATS) for row in rows_at(b, start, ld_start, ROWS)]
        room, words = _bytes_once(b, 2 * self._sums_bytes), _bytes_once(b, 2 * self._words_bytes)
        last = b.sub(b.sdiv(blocks, I64(self.turn)), I64(1))

        def weights(turn: Value) -> Value:
            return offset(b, w, b.mul(turn, I64(self.turn_bytes)))

        def half(address: Value, turn: Value, size: int) -> Value:
            """One of two places, which take turns."""
            return offset(b, address, b.mul(b.and_(turn, I64(1)), I64(size)))

        def spread(turn: Value) -> None:
            if self.has_minima:
                self._spread(b, weights(turn), half(words, turn, self._words_bytes))

        def multiply(turn: Value) -> None:
            own = half(words, turn, self._words_bytes) if self.has_minima else weights(turn)
            at = offset(b, x, b.mul(turn, I64(self.arithmetic.block_bytes * self.turn)))
            self._multiply(b, own, at, ldx)
            for line in range(0, self.turn_bytes, _LINE):
                prefetch(b, weights(turn), line)

        def keep(turn: Value) -> None:
            self._keep(b, half(room, turn, self._sums_bytes))

        def scale(turn: Value, sums: list[Value]) -> list[Value]:
            found = half(room, turn, self._sums_bytes)
            beside = [offset(b, row, b.mul(turn, I64(SIDE_BYTES * self.turn))) for row in sides]
            for block in range(self.turn):
                sums = self.block(b, [weights(turn)], [found], beside, block, sums)
            return sums

        def after(turn: Value) -> Value:
            return b.select(b.icmp_signed("<", turn, last), b.add(turn, I64(1)), last)

        # Tiles are not loaded from what was written just before, nor sums: either would be waited for.
        spread(I64(0))
        multiply(I64(0))
        spread(after(I64(0)))
        keep(I64(0))
        loop = Loop(b, last, begun)
        turn = b.add(loop.index, I64(1))
        multiply(turn)
        spread(after(turn))
        sums = scale(loop.index, list(loop.values))
        keep(turn)
        sums = scale(last, loop.close(sums))
        for row, (address, sum_) in enumerate(zip(results, sums, strict=True)):
            if row < LEAST:
                store(b, sum_, address)
                continue
            with b.if_then(b.icmp_signed(">", rows, I64(row))):
                store(b, sum_, address)

    @property
    def _sums_bytes(self) -> int:
        """Of a turn's sums."""
        return self.turn * self.arithmetic.levels * ROWS * _LINE

    @property
    def _words_bytes(self) -> int:
        """Of a turn's weights as bytes."""
        return self.turn * _WORDS * _LINE

    def _tiles(self) -> list[tuple[int, int, int]]:
        """Block and level of each of a turn's tiles of sums, and its number."""
        levels = self.arithmetic.levels
        return [
            (block, level, block * levels + level) for block in range(self.turn) for level in range(levels)
        ]

    def _spread(self, b: Builder, w: Value, to: Value) -> None:
        """Weights of four bits as bytes."""
        for step in range(_WORDS):
            word = load(b, w, INTS, 32 * (step - step % 2))
            store(b, b.and_(b.lshr(word, ints(4)) if step % 2 else word, ints(0x0F0F0F0F)), to, _LINE * step)

    def _multiply(self, b: Builder, words: Value, x: Value, ldx: Value) -> None:
        """The tiles of sums of a turn."""
        for block, level, sums in self._tiles():
            weights, activations = _WEIGHTS + block, _ACTIVATIONS + level
            if level == 0:
                at = offset(b, words, _WORDS * _LINE * block)
                _nothing(b, "tileloadd64", I8(weights), _pointer(b, at), I64(_LINE))
            at = offset(b, x, self.arithmetic.block_bytes * block + BLOCK * level)
            _nothing(b, "tileloadd64", I8(activations), _pointer(b, at), ldx)
            _nothing(b, "tilezero", I8(_SUMS + sums))
            _nothing(b, "tdpbsud", I8(_SUMS + sums), I8(activations), I8(weights))

    def _keep(self, b: Builder, to: Value) -> None:
        """Write the sums of a turn."""
        for _, _, sums in self._tiles():
            at = _pointer(b, offset(b, to, sums * ROWS * _LINE))
            _nothing(b, "tilestored64", I8(_SUMS + sums), at, I64(_LINE))

    def integers(
        self, b: Builder, w: list[Value], x: list[Value], side: list[Value], block: int
    ) -> list[Value]:
        """See `Quantised.integers`; `x` is where the sums of the turn lie."""
        found = []
        for row, address in enumerate(side):
            sums = []
            for level in range(self.arithmetic.levels):
                at = ((block * self.arithmetic.levels + level) * ROWS + row) * _LINE
                own = load(b, x[0], INTS, at)
                sums.append(b.add(own, self.correction(b, address, block, level)))
            found.append(sums[0] if len(sums) == 1 else b.add(b.shl(sums[0], ints(8)), sums[1]))
        return found
