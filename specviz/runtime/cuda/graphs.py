"""Forward passes captured as CUDA graphs: a thousand small kernels, launched as one.

A shape is captured when it is needed for the third time; until then it runs kernel by kernel, which a capture wants
to come first anyway. A capture is used only if its first replay says what the plain pass said. One that fails is told
in the log, and its shape goes on kernel by kernel. Knows tensors and shapes; knows no model, no row and no cache.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from specviz.errors import is_out_of_memory
from specviz.runtime.machine import capturing

log = logging.getLogger(__name__)

Shape = tuple[int, ...]
"""What tells two captures apart: sizes of the inputs, and whatever else the passes depend on."""

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
        self.unsettled = 0
        """Passes so far that were slower than the same will be once it is captured."""
        self._plain: dict[Shape, int] = {}
        self._captured: dict[Shape, _Captured | None] = {}
        self._failed: list[Any] = []
        self._pool: Any = None
        self._stream: Any = None
        self._broken = self._saving = False

    def __len__(self) -> int:
        """How many shapes are captured."""
        return sum(each is not None for each in self._captured.values())

    @property
    def wanted(self) -> bool:
        """Whether passes should come here at all."""
        return not (self._broken or self._saving)

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
        self.unsettled += 1
        result = forward(*inputs)
        self._plain[shape] = self._plain.get(shape, 0) + 1
        if self._plain[shape] > PLAIN and self.wanted:
            self._captured[shape] = self._capture(shape, forward, inputs, result)
        return result

    def _capture(
        self, shape: Shape, forward: Callable[..., Tensor], inputs: Sequence[Tensor], expected: Tensor
    ) -> _Captured | None:
        own = [tensor.clone() for tensor in inputs]
        graph = torch.cuda.CUDAGraph()
        try:
            output = self._record(graph, forward, own, expected.device)
            captured = _Captured(graph, own, output)
            if _alike(captured.replay(inputs), expected):
                return captured
            reason = "its replay differs from the plain pass"
        except Exception as error:  # the pass itself is done: whatever a capture fails of must not fail it
            reason = str(error).partition("\n")[0]
            self._broken = not is_out_of_memory(error)  # what is not permitted in one shape is in none
            # Up to torch 2.12 a capture that fails leaves the allocator believing that it goes on.
            with contextlib.suppress(Exception):
                torch._C._cuda_endAllocateToPool(expected.device.index, self._pool)
        self._failed.append(graph)
        log.warning(
            "a forward pass was not captured; it runs kernel by kernel",
            extra={"fields": {"shape": list(shape), "reason": reason}},
        )
        return None

    def _record(self, graph: Any, forward: Callable[..., Tensor], own: list[Tensor], device: Any) -> Tensor:
        """Capture a pass. Not by `torch.cuda.graph`, which stops the whole device and empties everybody's cache."""
        if self._stream is None:
            # One for all captures: blocks are shared only within a stream, and each stream has a workspace of cuBLAS.
            self._pool, self._stream = torch.cuda.graph_pool_handle(), torch.cuda.Stream(device)
        with capturing, torch.cuda.stream(self._stream):
            # Other threads may go on with the device meanwhile: load a pair, serve another.
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                return forward(*own)
            finally:
                graph.capture_end()

    def clear(self) -> None:
        """Forget all captures, because buffers move or go; waits until none runs any more.

        All at once: a graph that goes takes the stream's workspace with it, which the others use (torch 2.12 and later).
        """
        for captured in self._captured.values():
            if captured:
                with contextlib.suppress(
                    RuntimeError, AssertionError
                ):  # on a device that is gone nothing runs
                    torch.cuda.current_stream(captured.output.device).synchronize()
        self._plain, self._captured, self._failed = {}, {}, []

    def save(self) -> bool:
        """Forget all captures and make no more until `spend`, because memory is needed; whether there were any."""
        found = len(self) > 0
        self.clear()
        self._saving = True
        return found

    def spend(self) -> None:
        """Memory is not short any more."""
        self._saving = False


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
