"""Forward passes captured as CUDA graphs: a thousand small kernels, launched as one.

A shape is captured when it is needed for the third time; until then it runs kernel by kernel, which a capture wants
to come first anyway. A capture is used only if its first replay says what the plain pass said. One that fails is told
in the log, and its shape goes on kernel by kernel. Knows tensors and shapes; knows no model, no row and no cache.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from specviz.errors import is_out_of_memory

log = logging.getLogger(__name__)

Shape = tuple[int, ...]
"""What tells two captures apart: sizes of the inputs, and whatever else the passes depend on."""
_capturing = threading.Lock()
"""One thread captures at a time."""

PLAIN = 2
"""Passes of a shape that run kernel by kernel before it is captured: most shapes of a short visit never come back."""
_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-3}
"""How far a replay may lie from the plain pass, as a share of the largest number; half precisions: 0.05."""


def enabled() -> bool:
    """Whether passes may be captured; SPECVIZ_GRAPHS=0 says no."""
    return os.environ.get("SPECVIZ_GRAPHS") != "0"


class Graphs:
    """The captured passes of one model over one set of buffers, which must stay where they are until `clear`."""

    def __init__(self) -> None:
        self._plain: dict[Shape, int] = {}
        self._captured: dict[Shape, _Captured | None] = {}
        self._pool: Any = None
        self._given_up = False

    def __len__(self) -> int:
        """How many shapes are captured."""
        return sum(each is not None for each in self._captured.values())

    def run(self, shape: Shape, forward: Callable[..., Tensor], inputs: Sequence[Tensor]) -> Tensor:
        """What `forward(*inputs)` gives, in the order of the current stream.

        Args:
            shape: equal for calls that differ in the values of `inputs` alone.
            forward: launches kernels and does nothing else: no wait for the device, no choice by a value.
            inputs: on one CUDA device.
        """
        if shape in self._captured:
            captured = self._captured[shape]
            return forward(*inputs) if captured is None else captured.replay(inputs)
        result = forward(*inputs)
        self._plain[shape] = self._plain.get(shape, 0) + 1
        if self._plain[shape] > PLAIN and not self._given_up:
            self._captured[shape] = self._capture(shape, forward, inputs, result)
        return result

    def _capture(
        self, shape: Shape, forward: Callable[..., Tensor], inputs: Sequence[Tensor], expected: Tensor
    ) -> _Captured | None:
        device = expected.device
        before = torch.cuda.current_stream(device)
        try:
            if self._pool is None:
                self._pool = torch.cuda.graph_pool_handle()
            own = [tensor.clone() for tensor in inputs]
            graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream(device)
            # Other threads may go on with the device meanwhile: load a pair, serve another.
            mode = {"pool": self._pool, "stream": stream, "capture_error_mode": "thread_local"}
            with _capturing, torch.cuda.graph(graph, **mode):
                output = forward(*own)
            captured = _Captured(graph, own, output)
            if _alike(captured.replay(inputs), expected):
                return captured
            reason = "its replay differs from the plain pass"
        except Exception as error:  # the pass itself is done: whatever a capture fails of must not fail it
            torch.cuda.set_stream(before)
            reason = str(error).partition("\n")[0]
            self._given_up = not is_out_of_memory(error)  # what is not permitted in one shape is in none
        log.warning(
            "a forward pass was not captured; it runs kernel by kernel",
            extra={"fields": {"shape": list(shape), "reason": reason}},
        )
        return None

    def clear(self) -> None:
        """Forget all captures, because buffers move or go; waits until none runs any more."""
        for captured in self._captured.values():
            if captured:
                torch.cuda.synchronize(captured.output.device)
        self._plain, self._captured, self._pool = {}, {}, None

    def give_up(self) -> bool:
        """Forget all captures and make no more, because memory is needed; whether there were any."""
        found = len(self) > 0
        self.clear()
        self._given_up = True
        return found


@dataclass(frozen=True)
class _Captured:
    """A graph, the tensors it reads, and the one it writes."""

    graph: Any
    inputs: list[Tensor]
    output: Tensor

    def replay(self, inputs: Sequence[Tensor]) -> Tensor:
        """The pass over other inputs; the result is a copy, since the next replay writes over its own."""
        for own, given in zip(self.inputs, inputs, strict=True):
            own.copy_(given)
        self.graph.replay()
        return self.output.clone()


def _alike(one: Tensor, other: Tensor) -> bool:
    """Whether two results differ by rounding alone; infinities and what is no number must agree."""
    finite = other.isfinite()
    scale = torch.where(finite, other, 0).abs().amax()
    near = (one - other).abs() <= _TOLERANCE.get(other.dtype, 0.05) * scale
    same = (one == other) | (one.isnan() & other.isnan())
    return bool(torch.where(finite, near, same).all())
