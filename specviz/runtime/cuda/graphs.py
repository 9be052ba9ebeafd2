"""Forward passes captured as CUDA graphs: a thousand small kernels, launched as one.

A shape is captured at its third pass; the first two run kernel by kernel, which a capture needs as warm-up anyway. A
capture is used only if its first replay agrees with the plain pass. A shape that failed is not tried again, and after three
failures in a row no more captures are made; existing captures are still used.
"""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from specviz.compat.torch import end_failed_capture
from specviz.runtime.memory import capturing

log = logging.getLogger(__name__)

Shape = tuple[int, ...]
"""The key of a capture: sizes of the inputs, and anything else that the pass depends on."""

PLAIN = 2
"""Plain passes of a shape before it is captured: most shapes do not recur."""
STRIKES = 3
"""Failures in a row after which no more captures are made."""
MOST = 128
"""Most captures held at once. Each takes some megabytes for a thousand kernels' arguments."""
_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-3}
"""Largest difference of a replay from the plain pass, as a share of the largest absolute value; 0.05 in half precision."""


class Graphs:
    """The captured passes of one model over one set of buffers, which must stay where they are until `clear`."""

    def __init__(self) -> None:
        self._stream: Any = None
        self._suspended = False
        self._reset()

    def _reset(self) -> None:
        self._plain: Counter[Shape] = Counter()
        self._captured: dict[Shape, _Captured | None] = {}
        self._failed: list[Any] = []
        self._pool: Any = None
        self._outputs: dict[tuple[int, torch.dtype], Tensor] = {}
        self._strikes = 0

    def __len__(self) -> int:
        """Number of captured shapes."""
        return sum(each is not None for each in self._captured.values())

    @property
    def enabled(self) -> bool:
        """Whether there are captures, or more may be made."""
        return len(self) > 0 or self._may_capture

    @property
    def _may_capture(self) -> bool:
        return self._strikes < STRIKES and not self._suspended and len(self) < MOST

    def run(self, shape: Shape, forward: Callable[..., Tensor], inputs: Sequence[Tensor]) -> Tensor:
        """Returns `forward(*inputs)`. After `PLAIN` calls the pass is captured, then replayed. Work is queued on the current stream.

        Args:
            shape: identifies the pass. Calls with equal shapes may differ in the values of `inputs` alone.
            forward: must only launch kernels, without waiting for the device or branching on a value.
            inputs: on one CUDA device.
        """
        if captured := self._captured.get(shape):
            return captured.replay(inputs)
        result = forward(*inputs)
        if shape not in self._captured:
            self._plain[shape] += 1
            if self._plain[shape] > PLAIN and self._may_capture:
                self._capture(shape, forward, inputs, result)
        return result

    def _capture(
        self, shape: Shape, forward: Callable[..., Tensor], inputs: Sequence[Tensor], expected: Tensor
    ) -> None:
        """Capture the pass and store it under `shape`; if that fails, store None."""
        own, graph = [tensor.clone() for tensor in inputs], torch.cuda.CUDAGraph()
        try:
            captured = _Captured(graph, own, self._output(expected))
            self._record(captured, forward, expected.device)
            if not _alike(captured.replay(inputs), expected):
                raise ValueError("its replay differs from the plain pass")
            self._captured[shape], self._strikes = captured, 0
        except Exception as error:  # the plain pass is done: a failed capture must not fail it
            self._captured[shape] = None
            self._strikes += 1
            self._failed.append(graph)
            # Up to torch 2.12 a failed capture leaves the allocator in capture mode.
            with contextlib.suppress(Exception):
                end_failed_capture(expected.device.index, self._pool)
            self._pool = self._pool if len(self) else None  # see `clear`
            log.warning(
                "a forward pass was not captured; it runs kernel by kernel",
                extra={"fields": {"shape": list(shape), "reason": str(error).partition("\n")[0]}},
            )

    def _output(self, like: Tensor) -> Tensor:
        """An output buffer of the shape of `like`. Captures with outputs of about that size share it; replays return copies."""
        size = 1 << (like.numel() - 1).bit_length(), like.dtype
        if size not in self._outputs:
            self._outputs[size] = like.new_empty(size[0])
        return self._outputs[size][: like.numel()].view(like.shape)

    def _record(self, captured: _Captured, forward: Callable[..., Tensor], device: Any) -> None:
        """Capture a pass. `torch.cuda.graph` is not used: it synchronises the whole device and empties all caches."""
        # One stream for all captures: memory is shared only within a stream, and each stream has a cuBLAS workspace.
        self._stream = self._stream or torch.cuda.Stream(device)
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        with capturing, torch.cuda.stream(self._stream):
            # thread_local: other threads may use the device meanwhile, to load or serve another pair.
            captured.graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                captured.output.copy_(forward(*captured.inputs))
            finally:
                captured.graph.capture_end()

    def clear(self) -> None:
        """Free all captures, because buffers move or are freed; waits until none runs.

        They are freed all at once: freeing a graph frees the stream's cuBLAS workspace, which other graphs use (torch 2.12 and later). The
        memory pool goes too: torch refuses a capture into a pool whose graphs are all gone.
        """
        for device in {each.output.device for each in self._captured.values() if each}:
            with contextlib.suppress(RuntimeError, AssertionError):  # the device may be gone
                torch.cuda.current_stream(device).synchronize()
        self._reset()

    def suspend(self) -> bool:
        """Free all captures and make none until `resume`, because memory is short; returns True if any were freed."""
        had_captures = len(self) > 0
        self.clear()
        self._suspended = True
        return had_captures

    def resume(self) -> None:
        """Allow captures again."""
        self._suspended = False


@dataclass(frozen=True)
class _Captured:
    """A graph, the tensors that it reads, and its output tensor, which other graphs may share."""

    graph: Any
    inputs: list[Tensor]
    output: Tensor

    def replay(self, inputs: Sequence[Tensor]) -> Tensor:
        """Run the pass over other inputs; the result is a copy, since the next replay overwrites the output."""
        for own, given in zip(self.inputs, inputs, strict=True):
            own.copy_(given)
        self.graph.replay()
        return self.output.clone()


def _alike(one: Tensor, other: Tensor) -> bool:
    """Whether two results differ by rounding alone; infinities and NaN must agree."""
    scale = torch.where(other.isfinite(), other, 0).abs().amax()
    tolerance = _TOLERANCE.get(other.dtype, 0.05) * float(scale)
    return bool(torch.isclose(one, other, rtol=0, atol=tolerance, equal_nan=True).all())
