"""A model's workspace on a GPU: a KV cache that outlives batches, and the passes captured over its buffers.

Captured passes hold their buffers by address, so these outlive a batch and grow in large steps. One runner at a time uses a
model's workspace; other runners allocate their own buffers.
"""

from __future__ import annotations

import threading
import weakref
from itertools import chain
from weakref import WeakKeyDictionary

import torch
from torch import nn

from specviz import environment
from specviz.runtime.cuda.graphs import Graphs
from specviz.runtime.kv_cache import KVCache


class Workspace:
    """KV cache and captured passes of one model."""

    def __init__(self) -> None:
        self.graphs = Graphs()
        self.cache = KVCache(on_move=self.graphs.clear)
        self._use = threading.Lock()

    @property
    def in_use(self) -> bool:
        """Whether a runner uses the workspace."""
        return self._use.locked()

    def acquire(self) -> bool:
        """Begin to use the workspace, without slots; returns False if another runner uses it."""
        if not self._use.acquire(blocking=False):
            return False
        self.cache.used = 0
        return True

    def release(self) -> None:
        """End the use of the workspace; passes may be captured again."""
        self.graphs.resume()
        self._use.release()

    def free_memory(self) -> bool:
        """Free captured passes, and the buffers if they are not in use; returns True if any were freed."""
        freed = self.graphs.suspend()
        if not self.in_use:
            freed = self.cache.slots > 0 or freed
            self.cache.free()
        return freed


def single_gpu(model: nn.Module) -> torch.device | None:
    """The one GPU that a model is on; None for a model elsewhere or on several devices."""
    devices = {parameter.device for parameter in model.parameters()}
    return next((it for it in devices if it.type == "cuda"), None) if len(devices) == 1 else None


_workspaces: WeakKeyDictionary[nn.Module, tuple[list[int], Workspace]] = WeakKeyDictionary()


def workspace(model: nn.Module) -> Workspace | None:
    """The workspace of a model; None where passes are not captured: if the model is not on a single GPU, or if SPECVIZ_GRAPHS is off.

    It is replaced if the model's tensors have moved, because captures use the old addresses.
    """
    if single_gpu(model) is None or not environment.GRAPHS.value():
        return None
    addresses = [tensor.data_ptr() for tensor in chain(model.parameters(), model.buffers())]
    before, shared = _workspaces.get(model, (None, None))
    if shared is None or before != addresses:
        if shared is not None:
            shared.free_memory()
        shared = Workspace()
        _workspaces[model] = addresses, shared
        weakref.finalize(model, shared.cache.free).atexit = False
    return shared
