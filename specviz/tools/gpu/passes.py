"""A model's passes, timed or looked at bit by bit: over some slots, at any position, as the engine runs them.

Knows runners and a clock; knows no request and no expectation.
"""

from __future__ import annotations

import statistics
from typing import Any

import torch
from torch import Tensor

from specviz.runtime.cuda.graphs import PLAIN
from specviz.runtime.runner import Model
from specviz.tools.bench.contender import timed

_TRIES = 15


class Passes:
    """Some slots of a model's KV cache, filled with zeros or by `read`."""

    @torch.inference_mode()
    def __init__(self, model: Model, vocabulary_size: int, length: int, rows: int = 1) -> None:
        """Room for `rows` slots of `length` positions."""
        self.device, self._vocabulary_size = model.device, vocabulary_size
        self.runner: Any = model.runner(vocabulary_size, beside=True)
        self.rows = rows
        self.runner.admit([object() for _ in range(rows)], length)

    def close(self) -> None:
        """Free the slots."""
        self.runner.clear()

    def ids(self, count: int, seed: int = 0) -> Tensor:
        """Random token ids [rows, count], the same on every device."""
        generator = torch.Generator().manual_seed(seed)
        return torch.randint(self._vocabulary_size, (self.rows, count), generator=generator).to(self.device)

    @torch.inference_mode()
    def read(self, ids: Tensor) -> None:
        """Fill the slots with `ids` [rows, n], from position 0 on."""
        positions = torch.arange(ids.shape[1], device=self.device).expand(self.rows, -1)
        self.runner.read(ids, positions, visible=ids.shape[1])

    @torch.inference_mode()
    def logits(self, ids: Tensor, position: int) -> Tensor:
        """Logits [rows, n, V] of one pass over `ids` [rows, n] from that position on."""
        positions = (position + torch.arange(ids.shape[1], device=self.device)).expand(self.rows, -1)
        found: Tensor = self.runner.forward(ids, positions, visible=position + ids.shape[1])
        return found

    def captured(self, ids: Tensor, position: int) -> Tensor:
        """As `logits`, after the passes that it takes for a replay to serve it, where passes are captured."""
        for _ in range(PLAIN + 1):
            self.logits(ids, position)
        return self.logits(ids, position)

    def seconds(self, width: int, position: int) -> float:
        """Median seconds of a pass over `width` tokens a slot at that position, once it is captured where it can be."""
        ids = self.ids(width)
        self.captured(ids, position)
        return statistics.median(
            timed(self.device, lambda: self.logits(ids, position))[1] for _ in range(_TRIES)
        )
