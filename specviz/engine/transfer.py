"""What goes to a device for a round, and what comes back: one transfer each way.

The host waits for the device whenever it sends from ordinary memory, or reads. So all that a round needs is gathered before
it begins, and goes from memory that stays where it is; all that it tells is packed on the device. Knows numbers and rows; knows no model and no rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specviz.core.sampling import Number
from specviz.engine.sequence import Row


class Parcel:
    """Numbers that the host knows before a round begins, sent to a device in one transfer."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._parts: list[np.ndarray] = []
        self._size = 0
        self._there: Tensor | None = None

    def add(self, values: Any, dtype: type = np.int64) -> Callable[[], Tensor]:
        """Put numbers of 8 bytes in. What is returned gives them, on the device; nothing can be added then."""
        assert self._there is None
        array: np.ndarray = np.asarray(values, dtype)
        begin, self._size = self._size, self._size + array.size
        end = self._size
        self._parts.append(array.reshape(-1).view(np.int64))

        def get() -> Tensor:
            if self._there is None:
                here = torch.from_numpy(np.concatenate(self._parts))
                here = here.pin_memory() if self._device.type == "cuda" else here
                self._there = here.to(self._device, non_blocking=True)
            part = self._there[begin:end].view(array.shape)
            return part.view(torch.float64) if dtype is np.float64 else part

        return get

    def agreed(self, values: Sequence[float]) -> Callable[[], Number]:
        """One number where all rows agree; otherwise a tensor [B, 1], in double precision as Python's numbers are."""
        one = values[0]
        if len(set(values)) == 1:
            return lambda: one
        column = self.add(values, np.float64)
        return lambda: column()[:, None]

    def warp(self, rows: list[Row]) -> Callable[[], tuple[Number, Any, Number]]:
        """Temperature, top-k and top-p of rows, for `distribution` and `Beliefs`."""
        names = ("temperature", "top_k", "top_p")
        settings = [self.agreed([getattr(row.request, name) for row in rows]) for name in names]
        return lambda: tuple(setting() for setting in settings)  # type: ignore[return-value]

    def coins(self, rows: list[Row], steps: int) -> Callable[[], Tensor]:
        """The rows' coins for their next `steps` positions, float64 [B, steps, 3]; zeros past a row's end."""
        coins = np.zeros((len(rows), steps, 3))
        for place, row in enumerate(rows):
            own = row.coins[len(row.ids) : len(row.ids) + steps]
            coins[place, : len(own)] = own
        return self.add(coins, np.float64)

    def forbidding(self, rows: list[Row]) -> Callable[[Tensor], Tensor]:
        """What takes all hope from the tokens that each of these rows forbids, in logits [B, n, V]."""
        pairs = [(place, token) for place, row in enumerate(rows) for token in row.forbidden]
        where = self.add(pairs) if pairs else None

        def forbid(logits: Tensor) -> Tensor:
            if where is not None:
                places, tokens = where().unbind(1)
                logits.transpose(1, 2)[places, tokens] = -math.inf
            return logits

        return forbid

    def taking(self, rows: list[Row], order: list[Row]) -> Callable[[Tensor], Tensor]:
        """What takes from tensors [len(order), ...] those of `rows`, in their order; all of it where that is the same."""
        if rows == order:
            return lambda tensor: tensor
        where = {id(row): place for place, row in enumerate(order)}
        places = self.add([where[id(row)] for row in rows])
        return lambda tensor: tensor[places()]


@dataclass
class Readback:
    """Tensors of a round, sent to the host in one transfer as float64 (ids and float32 fit exactly)."""

    _tensors: list[Tensor] = field(default_factory=list)
    _host: list[Any] = field(default_factory=list)

    def add(self, tensor: Tensor) -> int:
        """Queue a tensor; returns the key to find it by after `fetch`."""
        self._tensors.append(tensor)
        return len(self._tensors) - 1

    def fetch(self) -> None:
        """The round's only wait for the device."""
        packed = torch.cat([tensor.double().flatten() for tensor in self._tensors]).cpu()
        parts = packed.split([tensor.numel() for tensor in self._tensors])
        self._host = [
            part.view(tensor.shape).tolist() for part, tensor in zip(parts, self._tensors, strict=True)
        ]

    def get(self, key: int, *place: int) -> Any:
        """A number of the record, or a list of them where `place` stops short."""
        value = self._host[key]
        for index in place:
            value = value[index]
        return value
