"""Vector code for numba functions: LLVM instructions on sixteen 32-bit lanes, which LLVM splits for the processor at hand.

The lanes of a vector are sixteen outputs of a matrix. Sums never run across lanes, so a lane's bits do not depend on other lanes.
numba's own loops are five to ten times slower.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 16
I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
F16, F32 = ir.HalfType(), ir.FloatType()
FLOATS, HALVES = ir.VectorType(F32, LANES), ir.VectorType(F16, LANES)
INTS, BYTES, SHORTS = (ir.VectorType(kind, LANES) for kind in (I32, I8, I16))

Builder: TypeAlias = Any
Value: TypeAlias = Any
"""llvmlite's `IRBuilder`, and the values that it makes. llvmlite has no types for mypy."""


def floats(number: float) -> Value:
    """A constant vector with `number` in all lanes."""
    return ir.Constant(FLOATS, [ir.Constant(F32, number)] * LANES)


def ints(number: int) -> Value:
    """A constant vector with `number` in all lanes, as int32."""
    return ir.Constant(INTS, [ir.Constant(I32, number)] * LANES)


def offset(b: Builder, address: Value, by: int | Value) -> Value:
    """The address `by` bytes after `address`."""
    if isinstance(by, int):
        return b.add(address, I64(by)) if by else address
    return b.add(address, by)


def load(b: Builder, address: Value, kind: Any, by: int = 0, align: int = 4) -> Value:
    """Load a value of type `kind`, `by` bytes after `address`."""
    value = b.load(b.inttoptr(offset(b, address, by), kind.as_pointer()))
    value.align = align
    return value


def store(b: Builder, value: Value, address: Value, by: int = 0) -> None:
    """Write a value, `by` bytes after `address`."""
    b.store(value, b.inttoptr(offset(b, address, by), value.type.as_pointer())).align = 4


def prefetch(b: Builder, address: Value, nearness: int) -> None:
    """Prefetch a cache line; `nearness` as in `processor.Reading`."""
    pointer = b.inttoptr(address, I8.as_pointer())
    call(b, "llvm.prefetch.p0", pointer, I32(0), I32(nearness), I32(1), result=ir.VoidType())


def splat(b: Builder, scalar: Value) -> Value:
    """A vector with one scalar in all lanes."""
    kind = ir.VectorType(scalar.type, LANES)
    first = b.insert_element(ir.Constant(kind, ir.Undefined), scalar, I32(0))
    return shuffle(b, first, [0] * LANES)


def shuffle(b: Builder, vector: Value, lanes: Sequence[int], other: Value | None = None) -> Value:
    """The given lanes, in that order. The lanes of `other` are numbered after those of `vector`."""
    mask = ir.Constant(ir.VectorType(I32, len(lanes)), [I32(lane) for lane in lanes])
    return b.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined) if other is None else other, mask)


def halves(b: Builder, vector: Value) -> list[Value]:
    """The first and the second half of a vector's lanes."""
    count = vector.type.count // 2
    return [shuffle(b, vector, range(first, first + count)) for first in (0, count)]


def join(b: Builder, low: Value, high: Value) -> Value:
    """The vector with these halves."""
    return shuffle(b, low, range(2 * low.type.count), high)


def call(b: Builder, name: str, *arguments: Value, result: Any = None) -> Value:
    """Call an LLVM intrinsic by its name."""
    kind = ir.FunctionType(result or arguments[0].type, [each.type for each in arguments])
    return b.call(cgutils.get_or_insert_function(b.module, kind, name), arguments)


def fma(b: Builder, x: Value, y: Value, z: Value) -> Value:
    """x · y + z, rounded once."""
    return call(b, "llvm.fma.v16f32", x, y, z)


def reduce(b: Builder, vector: Value, combine: Callable[[Value, Value], Value]) -> Value:
    """All lanes combined to one scalar, always in the same order."""
    while vector.type.count > 1:
        vector = combine(*halves(b, vector))
    return b.extract_element(vector, I32(0))


def larger(b: Builder) -> Callable[[Value, Value], Value]:
    """A function that emits the larger of two numbers, or of two vectors lane by lane. If either is NaN, the second is taken."""

    def combine(one: Value, other: Value) -> Value:
        is_integer = isinstance(getattr(one.type, "element", one.type), ir.IntType)
        compare = b.icmp_signed if is_integer else b.fcmp_ordered
        return b.select(compare(">", one, other), one, other)

    return combine


def exponential(b: Builder, x: Value) -> Value:
    """exp of a vector clamped to [−87, 88], to about one unit in the last place (Cephes' polynomial). NaN stays NaN."""
    x = b.select(b.fcmp_ordered("<", x, floats(-87.0)), floats(-87.0), x)
    x = b.select(b.fcmp_ordered(">", x, floats(88.0)), floats(88.0), x)
    power = call(b, "llvm.floor.v16f32", fma(b, x, floats(1.4426950408889634), floats(0.5)))
    rest = fma(b, power, floats(2.12194440e-4), fma(b, power, floats(-0.693359375), x))
    result = floats(1.9875691500e-4)
    for factor in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        result = fma(b, result, rest, floats(factor))
    result = fma(b, result, b.fmul(rest, rest), b.fadd(rest, floats(1.0)))
    exponent = b.shl(b.add(b.fptosi(power, INTS), ints(127)), ints(23))
    return b.fmul(result, b.bitcast(exponent, FLOATS))


def settle(b: Builder, vectors: Sequence[Value], *, whole: bool = False) -> list[Value]:
    """Returns the vectors unchanged, and makes LLVM compute all of them before any is used. Otherwise LLVM would run ahead with some
    and run out of registers for the others.

    Args:
        whole: whether a register holds a whole vector, not half of it.
    """
    parts = list(vectors) if whole else [half for each in vectors for half in halves(b, each)]
    kinds, numbers = [part.type for part in parts], range(len(parts))
    registers = ",".join([*("=v" if whole else "=x" for _ in numbers), *map(str, numbers)])
    found = b.asm(ir.FunctionType(ir.LiteralStructType(kinds), kinds), "", registers, parts, True)
    parts = [b.extract_value(found, number) for number in numbers]
    return parts if whole else [join(b, *pair) for pair in zip(parts[::2], parts[1::2], strict=True)]


class Loop:
    """A counted loop with loop-carried values. Emit the body, which uses `index` and `values`, then call `close`."""

    def __init__(self, b: Builder, count: Value, values: Sequence[Value] = ()) -> None:
        """Begin a loop of `count` iterations; `values` are the initial values. With 0 iterations, `close` returns them."""
        self._b, self._count, self._before, self._first = b, count, b.block, list(values)
        self._body, self._after = b.append_basic_block("turn"), b.append_basic_block("done")
        b.cbranch(b.icmp_signed(">", count, I64(0)), self._body, self._after)
        b.position_at_end(self._body)
        self.index = b.phi(I64)
        self.index.add_incoming(I64(0), self._before)
        self.values = [b.phi(value.type) for value in self._first]
        for phi, value in zip(self.values, self._first, strict=True):
            phi.add_incoming(value, self._before)

    def close(self, values: Sequence[Value] = ()) -> list[Value]:
        """End the body. `values` are the loop-carried values for the next iteration. Returns the values after the loop."""
        b, last = self._b, self._b.block
        following = b.add(self.index, I64(1))
        self.index.add_incoming(following, last)
        for phi, value in zip(self.values, values, strict=True):
            phi.add_incoming(value, last)
        b.cbranch(b.icmp_signed("<", following, self._count), self._body, self._after)
        b.position_at_end(self._after)
        left = []
        for before, value in zip(self._first, values, strict=True):
            phi = b.phi(value.type)
            phi.add_incoming(before, self._before)
            phi.add_incoming(value, last)
            left.append(phi)
        return left


def instruction(emit: Callable[..., Value], arguments: int, floats: int = 0, result: Any = types.void) -> Any:
    """A numba intrinsic: a function that compiled code calls. `emit(builder, *arguments)` writes its body and returns its result.

    Args:
        arguments: number of its int64 arguments: addresses in bytes, counts.
        floats: number of float32 arguments after them.
        result: numba type of the result.
    """
    kinds = [types.int64] * arguments + [types.float32] * floats

    def define(_: Any, *__: Any) -> Any:
        def generate(context: Any, b: Builder, ___: Any, values: Sequence[Value]) -> Value:
            found = emit(b, *values)
            return context.get_dummy_value() if result is types.void else found

        return result(*kinds), generate

    # numba takes the number of arguments from the signature.
    names = ["typing", *(f"x{number}" for number in range(len(kinds)))]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    define.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])  # type: ignore[attr-defined]
    define.__name__ = emit.__name__
    return intrinsic(define)
