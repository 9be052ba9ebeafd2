"""What a model on a GPU keeps from batch to batch: buffers for keys and values, and the passes captured over them.

Captured passes know their buffers by address, so these outlive the batch that needed them and grow in large steps.
One batch at a time has a model's workspace; any other makes do with buffers of its own. Knows models and buffers; knows
no row.
"""

from __future__ import annotations

import weakref
from itertools import chain
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from specviz.runtime.cuda.graphs import Graphs, enabled
from specviz.runtime.kv_cache import SlotCache

_GRAIN = 512
"""Positions by which buffers grow that are captured."""


class Workspace:
    """Buffers and captured passes of one model."""

    def __init__(self) -> None:
        self.graphs = Graphs()
        self.cache = SlotCache(grain=_GRAIN, doubles=True, moved=self.graphs.clear)
        self._holder: Any = None

    def lend(self, holder: object) -> bool:
        """Give it to `holder` until that gives it back or is gone; False where somebody else has it."""
        if not self.is_free_for(holder):
            return False
        self._holder = weakref.ref(holder)
        return True

    def is_free_for(self, holder: object) -> bool:
        """Whether `holder` has it, or could have it."""
        return self._holder is None or self._holder() in (None, holder)

    def give_back(self) -> None:
        """Whoever had it is done."""
        self._holder = None
        self.graphs.spend()

    def save(self) -> bool:
        """Free what can be done without; whether that was anything."""
        found = self.graphs.save()
        if self._holder is None or self._holder() is None:
            found = self.cache.rows > 0 or found
            self.cache.forget()
        return found


def single_gpu(model: nn.Module) -> torch.device | None:
    """The one GPU that a model lies on; None off GPUs, and for a model on several."""
    devices = {parameter.device for parameter in model.parameters()}
    return next((it for it in devices if it.type == "cuda"), None) if len(devices) == 1 else None


_workspaces: WeakKeyDictionary[nn.Module, tuple[object, Workspace]] = WeakKeyDictionary()


def workspace(model: nn.Module) -> Workspace | None:
    """The workspace of a model; None where passes are not captured: off a single GPU, or switched off.

    A new one where the model's tensors have moved since, or its attention is another: captures would know the old ones.
    """
    if single_gpu(model) is None or not enabled():
        return None
    signature = _signature(model)
    before, kept = _workspaces.get(model, (None, None))
    if kept is None or before != signature:
        if kept is not None:
            kept.save()
        kept = Workspace()
        _workspaces[model] = signature, kept
        # Buffers refer to one another: they would wait for a garbage collection.
        weakref.finalize(model, kept.cache.forget).atexit = False
    return kept


def _signature(model: nn.Module) -> object:
    """What captures of a model's passes depend on."""
    attention = getattr(getattr(model, "config", None), "_attn_implementation", None)
    return attention, tuple(tensor.data_ptr() for tensor in chain(model.parameters(), model.buffers()))
