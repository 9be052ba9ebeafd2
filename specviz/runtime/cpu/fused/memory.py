"""Memory as numba code of the fused pass sees it: addresses in bytes, atomics, the cycle counter, functions by address."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from specviz.runtime.cpu.fused.vectors import F32, I64, Builder, Value, call, instruction, load, store


def _word(b: Builder, address: Value, index: Value) -> Value:
    return load(b, b.add(address, b.mul(index, I64(8))), I64, align=8)


def _set_word(b: Builder, address: Value, index: Value, value: Value) -> None:
    store(b, value, b.add(address, b.mul(index, I64(8))))


def _number(b: Builder, address: Value, index: Value) -> Value:
    return load(b, b.add(address, b.mul(index, I64(4))), F32)


def _double(b: Builder, address: Value, index: Value) -> Value:
    return load(b, b.add(address, b.mul(index, I64(8))), ir.DoubleType(), align=8)


def _set_number(b: Builder, address: Value, index: Value, value: Value) -> None:
    store(b, value, b.add(address, b.mul(index, I64(4))))


def _pointer(b: Builder, address: Value) -> Value:
    return b.inttoptr(address, I64.as_pointer())


def _read_shared(b: Builder, address: Value) -> Value:
    return b.load_atomic(_pointer(b, address), "seq_cst", 8)


def _write_shared(b: Builder, address: Value, value: Value) -> None:
    b.store_atomic(value, _pointer(b, address), "seq_cst", 8)


def _exchange(b: Builder, address: Value, expected: Value, value: Value) -> Value:
    found = b.cmpxchg(_pointer(b, address), expected, value, "seq_cst", "seq_cst")
    return b.zext(b.extract_value(found, 1), I64)


def _pause(b: Builder) -> None:
    call(b, "llvm.x86.sse2.pause", result=ir.VoidType())


def _cycles(b: Builder) -> Value:
    return call(b, "llvm.readcyclecounter", result=I64)


word = instruction(_word, 2, result=types.int64)
set_word = instruction(_set_word, 3)
number = instruction(_number, 2, result=types.float32)
double = instruction(_double, 2, result=types.float64)
set_number = instruction(_set_number, 2, 1)
read_shared = instruction(_read_shared, 1, result=types.int64)
write_shared = instruction(_write_shared, 2)
exchange = instruction(_exchange, 3, result=types.int64)
"""(address, expected, value) -> 1 if the expected value was there and has been replaced."""
pause = instruction(_pause, 0)
cycles = instruction(_cycles, 0, result=types.int64)


def caller(arguments: int, result: Any = types.void) -> Any:
    """numba function (address, *arguments) -> result: calls a function of so many int64 arguments by its address, which returns
    nothing or an int64.
    """

    def call_address(b: Builder, address: Value, *given: Value) -> Value:
        kind = ir.FunctionType(ir.VoidType() if result is types.void else I64, [I64] * arguments)
        return b.call(b.inttoptr(address, kind.as_pointer()), given)

    return instruction(call_address, 1 + arguments, result=result)
