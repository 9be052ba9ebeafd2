"""The names of numba that compiled passes need: what is lost without each."""

from __future__ import annotations

import inspect

import numba
from numba.core.caching import NullCache
from numba.core.ccallback import CFunc
from numba.core.compiler import CompileResult

from specviz.compat.numba import CompiledFunction, target_features


def test_the_names_are_there() -> None:
    assert hasattr(numba.config, "CPU_FEATURES"), (
        "the processor's features cannot be told: no fused pass is chosen"
    )
    assert hasattr(numba.config, "CPU_NAME"), "compiled code would be taken for another processor's"
    assert "avx2" in target_features() or "neon" in target_features(), "features have other names"
    for name in ("load_overload", "save_overload"):
        assert hasattr(NullCache, name), (
            "compiled functions cannot be cached: every start takes ten seconds more"
        )
    for name in ("_reduce", "_rebuild"):
        assert hasattr(CompileResult, name), (
            "compiled functions cannot be cached: every start takes ten seconds more"
        )
    assert "self._cache" in inspect.getsource(CFunc.compile), "a compiled function asks its cache no more"


def test_a_compiled_function_runs() -> None:
    made = CompiledFunction(lambda x, y: x * y, 2, returns=True, name="product", source="", folder=None)
    import ctypes

    kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
    assert kind(made.address)(6, 7) == 42
    assert not made.was_cached
