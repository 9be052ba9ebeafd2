"""CUDA graphs on a CPU: operations on CPU tensors are recorded, and a replay runs them again without any Python of a model.

Models of the CPU have workspaces meanwhile, as on a GPU. Devices, streams and memory are not imitated: see tests/gpu.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from specviz.models.pair import ModelPair
from specviz.runtime import model_runner
from specviz.runtime.cuda import workspace


class Captures:
    """How often graphs were replayed, whether this is a capture, and how captures fail."""

    def __init__(self) -> None:
        self.replays = 0
        self.recording = False
        self.fails = False
        self.gone: set[object] = set()
        """Pools whose graphs are gone: torch refuses captures into them."""


class _Graph(TorchDispatchMode):
    """torch.cuda.CUDAGraph."""

    def __init__(self, captures: Captures) -> None:
        super().__init__()
        self._captures = captures
        self._operations: list[tuple[Callable[..., Any], Any, Any, Any]] = []
        self._pool: object = None

    def capture_begin(self, pool: object, capture_error_mode: str) -> None:
        assert capture_error_mode == "thread_local"
        if pool in self._captures.gone:
            raise RuntimeError("it->second->use_count > 0 INTERNAL ASSERT FAILED")
        self._pool, self._captures.recording = pool, True
        self.__enter__()

    def capture_end(self) -> None:
        self.__exit__(None, None, None)
        self._captures.recording = False
        if self._captures.fails:
            raise RuntimeError("CUDA error: operation failed due to a previous error during capture")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        result = func(*args, **(kwargs or {}))
        self._operations.append((func, args, kwargs or {}, result))
        return result

    def replay(self) -> None:
        """Run what was recorded on what its tensors hold now."""
        self._captures.replays += 1
        with torch.inference_mode():
            for func, args, kwargs, before in self._operations:
                for old, new in zip(tree_leaves(before), tree_leaves(func(*args, **kwargs)), strict=True):
                    if isinstance(old, Tensor) and old.data_ptr() != new.data_ptr():
                        old.copy_(new)

    def __del__(self) -> None:
        if self._operations:
            self._captures.gone.add(self._pool)


@contextmanager
def captures_on_cpu() -> Iterator[Captures]:
    """Let passes of models on the CPU be captured."""
    captures = Captures()
    stream = SimpleNamespace(synchronize=lambda: None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPECVIZ_GRAPHS", "1")
        for module in (workspace, model_runner):
            patch.setattr(module, "single_gpu", lambda _: torch.device("cpu"))
        patch.setattr(workspace, "_workspaces", WeakKeyDictionary())
        patch.setattr("specviz.engine.batch.spare_memory", lambda _: 80 << 30)
        names: dict[str, Any] = {
            "CUDAGraph": lambda: _Graph(captures),
            "Stream": lambda *_: stream,
            "current_stream": lambda *_: stream,
            "graph_pool_handle": object,
            "stream": lambda _: nullcontext(),
        }
        for name, value in names.items():
            patch.setattr(torch.cuda, name, value)
        yield captures


def captured(pair: ModelPair) -> int:
    """How many passes of both models are captured."""
    kept = [workspace.workspace(model) for model in (pair.drafter, pair.verifier)]
    return sum(len(each.graphs) for each in kept if each)
