"""What a model on a GPU keeps from batch to batch: buffers for keys and values, and the passes captured over them.

Captured passes know their buffers by address, so these outlive the batch that needed them and grow in large steps.
One batch at a time has a model's workspace; any other makes do with buffers of its own. Knows models and buffers; knows
no row.
"""

from __future__ import annotations

import weakref
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from specviz.cache import SlotCache
from specviz.graphs import Graphs, enabled

_GRAIN = 256
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


def single_gpu(model: nn.Module) -> torch.device | None:
    """The one GPU that a model lies on; None off GPUs, and for a model on several."""
    devices = {parameter.device for parameter in model.parameters()}
    return next((it for it in devices if it.type == "cuda"), None) if len(devices) == 1 else None


_workspaces: WeakKeyDictionary[nn.Module, Workspace] = WeakKeyDictionary()


def workspace(model: nn.Module) -> Workspace | None:
    """The workspace of a model; None where passes are not captured: off a single GPU, or switched off."""
    if single_gpu(model) is None or not enabled():
        return None
    return _workspaces.setdefault(model, Workspace())
