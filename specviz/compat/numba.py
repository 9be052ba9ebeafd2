"""The private names of numba that SpecViz needs, as of 0.68.

Compiled functions are cached under a hash of everything that they are made of, in pickle files that only their owner can write.
numba's own cache has three faults: it checks only one file's date, so it misses changes in other files or in the processor's features; it
does not support functions made by functions; and before it reads a function it loads all of numba's compiler, for half a second or more.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm
import numba
from numba.core import types
from numba.core.bytecode import FunctionIdentity
from numba.core.caching import NullCache
from numba.core.ccallback import CFunc
from numba.core.compiler import CompileResult
from numba.core.compiler_lock import global_compiler_lock
from numba.core.runtime import rtsys
from numba.core.serialize import dumps
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

from specviz.files import cache_directory, read_intact, write_intact

_config: Any = numba.config  # its attributes are set at run time


def target_features() -> frozenset[str]:
    """The processor features that numba compiles for: NUMBA_CPU_FEATURES, by default this processor's."""
    if _config.CPU_FEATURES is not None:
        return frozenset(each[1:] for each in _config.CPU_FEATURES.split(",") if each.startswith("+"))
    return frozenset(name for name, present in llvm.get_host_cpu_features().items() if present)


def target_name() -> str:
    """LLVM's name of the processor that numba compiles for: NUMBA_CPU_NAME, by default this one."""
    return _config.CPU_NAME or llvm.get_host_cpu_name()


def _target() -> str:
    """Text that identifies what machine code depends on besides its source: versions and the processor."""
    versions = numba.__version__, llvmlite.__version__, llvm.llvm_version_info
    return f"{versions} {target_name()} {sorted(target_features())}"


def array_at(kind: Any) -> Any:
    """A numba function (address, size) that returns an array of `size` numbers of type `kind`. numba's `carray` compiles far slower."""

    def view(_: Any, address: Any, size: Any) -> Any:
        def generate(context: Any, builder: Any, __: Any, values: Any) -> Any:
            item = context.get_value_type(kind)
            array = make_array(types.Array(kind, 1, "C"))(context, builder)
            width = context.get_constant(types.intp, context.get_abi_sizeof(item))
            pointer = builder.inttoptr(values[0], item.as_pointer())
            populate_array(array, pointer, (values[1],), (width,), width, None)
            return array._getvalue()

        return types.Array(kind, 1, "C")(types.int64, types.int64), generate

    return intrinsic(view)


def digest(*sources: Path) -> str:
    """Hash of the source files that compiled functions are made of."""
    return sha256(b"".join(sha256(each.read_bytes()).digest() for each in sources)).hexdigest()


class CompiledFunction:
    """A function as machine code.

    Attributes:
        address: address of a C function that takes int64 arguments and returns an int64 or nothing; valid while this object lives.
    """

    def __init__(
        self, function: Callable[..., Any], arguments: int, *, returns: bool, name: str, sources: str
    ) -> None:
        """Compile `function`, or read it from the cache.

        Args:
            function, arguments: the function, and the number of its arguments.
            returns: whether it returns an int64.
            name, sources: its name in the cache, and the `digest` of all code that it is made of.
        """
        result = types.int64 if returns else types.void
        self._compiled: Any = CFunc(function, ((types.int64,) * arguments, result), {}, {})
        with _cached_as(self._compiled, name, sources):
            self._compiled.compile()
        self.address: int = self._compiled.address or 0


def compiled_for_python(
    function: Callable[..., Any], signature: str, *, name: str, sources: str, **options: Any
) -> Any:
    """`function`, compiled for calls from Python with one signature and numba's `options`. `name`, `sources`: see `CompiledFunction`."""
    compiled: Any = numba.njit(**options)(function)
    with _cached_as(compiled, name, sources):
        compiled.compile(signature)
    compiled.disable_compile()
    return compiled


@contextmanager
def _cached_as(compiled: Any, name: str, sources: str) -> Iterator[None]:
    """Within this context, compiling `compiled` reads or writes the cache, and numba's function numbers start at the cache key.

    By these numbers numba distinguishes functions that the same function made. It counts from 1 in each process, so functions that two
    processes compiled could have equal numbers, and a process that read both would call one in place of the other.
    """
    key = sha256(f"{name} {sources} {_OWN_SOURCE} {_target()}".encode()).hexdigest()[:16]
    compiled._cache = _Cache(cache_directory() / "machine-code" / f"{name}-{key}.bin")
    with global_compiler_lock:
        usual = FunctionIdentity._unique_ids
        FunctionIdentity._unique_ids = count(int(key, 16))
        try:
            yield
        finally:
            FunctionIdentity._unique_ids = usual


_OWN_SOURCE = digest(Path(__file__))


class _Cache(NullCache):
    """One compiled function in one file. If the file cannot be read or written, the function is compiled as without a cache."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled function; None if it is not cached or the file is damaged."""
        try:
            if (content := read_intact(self._path)) is None:
                return None
            rtsys.initialize(target_context)  # machine code needs no more of numba's runtime
            return CompileResult._rebuild(target_context, *pickle.loads(content))
        except Exception:
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Write the file, whole or not at all."""
        write_intact(self._path, dumps(data._reduce()))
