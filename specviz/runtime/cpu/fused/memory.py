"""Low-level operations of the fused pass's compiled code: values and records at addresses, atomics, the cycle counter, calls by address."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import from_dtype, types
from numba.extending import intrinsic, register_jitable

from specviz.runtime.cpu.fused.vectors import F32, I64, Builder, Value, call, instruction, load, store

FLOAT_BYTES, WORD_BYTES, CACHE_LINE = 4, 8, 64
jitable: Any = register_jitable(no_cpython_wrapper=True, no_cfunc_wrapper=True)
"""Decorator of functions that only compiled functions call."""


def _at(b: Builder, address: Value, index: Value, size: int) -> Value:
    return b.add(address, b.mul(index, I64(size)))


def _reader(kind: Any, size: int, result: Any) -> Any:
    """numba function (address, index) -> item `index`, of `size` bytes, of the array at `address`."""

    def read(b: Builder, address: Value, index: Value) -> Value:
        return load(b, _at(b, address, index, size), kind, align=size)

    return instruction(read, 2, result=result)


def _writer(size: int, arguments: int, floats: int = 0) -> Any:
    """numba function (address, index, value) that writes item `index`, of `size` bytes, of the array at `address`."""

    def write(b: Builder, address: Value, index: Value, value: Value) -> None:
        store(b, value, _at(b, address, index, size))

    return instruction(write, arguments, floats)


def _pointer(b: Builder, address: Value) -> Value:
    return b.inttoptr(address, I64.as_pointer())


def _read_shared(b: Builder, address: Value) -> Value:
    return b.load_atomic(_pointer(b, address), "seq_cst", 8)


def _write_shared(b: Builder, address: Value, value: Value) -> None:
    b.store_atomic(value, _pointer(b, address), "seq_cst", 8)


def _add_shared(b: Builder, address: Value, value: Value) -> None:
    b.atomic_rmw("add", _pointer(b, address), value, "seq_cst")


def _pause(b: Builder) -> None:
    call(b, "llvm.x86.sse2.pause", result=ir.VoidType())


def _cycles(b: Builder) -> Value:
    return call(b, "llvm.readcyclecounter", result=I64)


word = _reader(I64, WORD_BYTES, types.int64)
set_word = _writer(WORD_BYTES, 3)
number = _reader(F32, FLOAT_BYTES, types.float32)
double = _reader(ir.DoubleType(), WORD_BYTES, types.float64)
set_number = _writer(FLOAT_BYTES, 2, 1)
read_shared = instruction(_read_shared, 1, result=types.int64)
write_shared = instruction(_write_shared, 2)
add_shared = instruction(_add_shared, 2)
pause = instruction(_pause, 0)
cycles = instruction(_cycles, 0, result=types.int64)


def caller(arguments: int, result: Any = types.void) -> Any:
    """numba function (address, *arguments) -> result: calls the function at `address`. Arguments are int64; `result` is int64 or void."""

    def call_address(b: Builder, address: Value, *given: Value) -> Value:
        kind = ir.FunctionType(ir.VoidType() if result is types.void else I64, [I64] * arguments)
        return b.call(b.inttoptr(address, kind.as_pointer()), given)

    return instruction(call_address, 1 + arguments, result=result)


def record_at(dtype: np.dtype) -> Any:
    """numba function (address) -> a view of the record at `address`; assigning to its fields writes to memory."""
    kind = from_dtype(dtype)

    def view(_: Any, address: Any) -> Any:
        def generate(context: Any, b: Builder, __: Any, values: Any) -> Value:
            return b.inttoptr(values[0], context.get_value_type(kind))

        return kind(types.int64), generate

    return intrinsic(view)


def _address_of(_: Any, record: Any) -> Any:
    def generate(context: Any, b: Builder, __: Any, values: Any) -> Value:
        return b.ptrtoint(values[0], I64)

    return types.int64(record), generate


address_of: Any = intrinsic(_address_of)
"""numba function (record) -> its address."""
