"""A GPU that is none: tensors that say cuda:0 and hold their values on the CPU, for tests of what runs on CUDA only.

`pretend_gpu()` installs it for a while. Whatever torch does on "cuda" is then done on the CPU, as strictly as on CUDA:
tensors of both devices do not mix, memory is counted and may run out, what is freshly allocated holds garbage (NaN, large
odd numbers). Graphs are captured without running anything, and replayed without any Python of the model. Every read (the
host waits for the device) and every upload is noted, with the line that caused it.

Not emulated: CUDA's kernels, which round otherwise and are chosen otherwise (attention is always the plain one, and a
few of them take no 0-dim CPU tensor); concurrency (streams are names, all is done in order); allocators (graphs of one
pool do not share memory, nothing is fragmented); several GPUs; gradients. torch itself may go on believing, after the
fixture, that CUDA was initialised: what is asked of it then fails with another error than before.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext, _device_constructors
from torch.utils._pytree import tree_leaves, tree_map_only
from transformers.utils.import_utils import is_torch_cuda_available

from specviz.models.pairs import ModelPair

DEVICE = torch.device("cuda:0")
_READS = {
    "_local_scalar_dense",
    "nonzero",
    "masked_select",
    "equal",
    "_unique2",
    "bincount",
    "repeat_interleave",
}
_INDEXING = {"index", "index_put", "index_put_", "_unsafe_index", "_unsafe_index_put", "_index_put_impl_"}
_FORBIDDEN = "CUDA error: operation not permitted when stream is capturing"
_installed: list[PretendGpu] = []


@dataclasses.dataclass(frozen=True)
class Note:
    """A "read", for which the host waits, or an "upload", for which it waits too unless the memory is pinned."""

    kind: str
    what: str
    where: str


class PretendGpu:
    """The one GPU: what it was asked, what lies in its memory, and how it is to misbehave.

    `memory` is all it has, in bytes; with `fail_captures` every capture fails at its end.
    """

    def __init__(self) -> None:
        self.memory = 80 << 30
        self.fail_captures = False
        self.notes: list[Note] = []
        self.replays = self.waits = 0
        self.allocated = self.peak = self.reserved = 0
        self.blocks: weakref.WeakValueDictionary[int, Block] = weakref.WeakValueDictionary()
        self.pinned: dict[int, Any] = {}
        self.capturing: Graph | None = None
        self.own = threading.local()

    @property
    def reads(self) -> int:
        """How often the host has waited for the device."""
        return sum(note.kind == "read" for note in self.notes)

    @property
    def uploads(self) -> int:
        """How often the host has sent something to the device."""
        return sum(note.kind == "upload" for note in self.notes)

    def clear(self) -> None:
        """Forget what was noted."""
        self.notes.clear()
        self.replays = 0

    def __str__(self) -> str:
        return "\n".join(f"{note.kind:6} {note.what:20} {note.where}" for note in self.notes)

    @property
    def recording(self) -> Graph | None:
        """The graph that this thread captures."""
        return self.capturing if self.capturing and self.capturing.thread == threading.get_ident() else None

    def note(self, kind: str, what: str, waits: bool = True) -> None:
        """Note a read or an upload. Waiting spoils a capture, this thread's own or, unless it allows that, any other's."""
        graph = self.capturing
        if waits and graph and (self.recording or graph.mode == "global"):
            graph.spoilt = True
            raise RuntimeError(_FORBIDDEN)
        self.waits += waits
        self.notes.append(Note(kind, what, _line()))

    def allocate(self, size: int) -> None:
        """Count memory, which may run out."""
        if self.allocated + size > self.memory:
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size} bytes.")
        self.allocated += size
        self.peak, self.reserved = max(self.peak, self.allocated), max(self.reserved, self.allocated)


class Block:
    """Memory under some tensors, which is taken as long as one of them, or a graph that uses it, lives."""

    def __init__(self, gpu: PretendGpu, storage: Any) -> None:
        self.gpu, self.storage, self.size = gpu, storage, 0
        self.fit()

    def fit(self) -> None:
        """Count the storage as large as it is now."""
        size = self.storage.nbytes()
        self.gpu.allocate(size - self.size)
        self.size = size

    def __del__(self) -> None:
        self.gpu.allocated -= self.size


class PretendTensor(Tensor):
    """A tensor on cuda:0; `held` has its values, and aliases what it aliases."""

    held: Tensor
    block: Block
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held: Tensor) -> PretendTensor:
        gpu, storage = _gpu(), held.untyped_storage()
        block = gpu.blocks.get(storage._cdata)
        if block is None:
            block = gpu.blocks[storage._cdata] = Block(gpu, storage)
            if gpu.recording:
                gpu.recording.blocks.add(block)
        sizes = {"strides": held.stride(), "storage_offset": held.storage_offset(), "dtype": held.dtype}
        self = Tensor._make_wrapper_subclass(cls, held.shape, device=DEVICE, **sizes)
        self.held, self.block = held, block
        return self

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})

    # What torch would do without asking `__torch_dispatch__`, and cannot do without CUDA.

    def __repr__(self, **_: Any) -> str:
        return f"PretendTensor({tuple(self.shape)}, {self.dtype})"

    def __getitem__(self, index: Any) -> Tensor:
        view, indices = _aim(self, index)
        return torch.ops.aten.index(view, indices) if indices else torch.ops.aten.alias(view)

    def __setitem__(self, index: Any, value: Any) -> None:
        view, indices = _aim(self, index)
        value = value if isinstance(value, Tensor) else torch.tensor(value, dtype=self.dtype)
        if indices:
            torch.ops.aten.index_put_(view, indices, value)
        elif value.dim() == 0 and value.is_cpu and view.dim():
            view.fill_(value)
        else:
            view.copy_(value)

    def to(self, *args: Any, **kwargs: Any) -> Tensor:
        device, options = _parsed(*args, **kwargs)
        if device.type == "cpu":
            options["device"] = device
        return super().to(**{"dtype": self.dtype} | options)

    def cuda(self, *_: Any, **__: Any) -> Tensor:
        return self

    def copy_(self, source: Tensor, non_blocking: bool = False) -> Any:
        return _run(torch.ops.aten.copy_.default, (self, source, non_blocking), {})

    def new_tensor(self, data: Any, dtype: Any = None) -> Tensor:
        return torch.tensor(data, dtype=dtype or self.dtype, device=DEVICE)

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    __index__ = __int__

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if id(self) not in memo:  # views of one memory come apart
            copied = self.clone()
            memo[id(self)] = nn.Parameter(copied, False) if isinstance(self, nn.Parameter) else copied
        return memo[id(self)]  # type: ignore[no-any-return]

    def numpy(self, **_: Any) -> Any:
        raise TypeError("can't convert cuda:0 device type tensor to numpy.")

    def data_ptr(self) -> int:
        return self.held.data_ptr()

    def contiguous(self, memory_format: Any = torch.contiguous_format) -> Any:
        is_so = self.is_contiguous(memory_format=memory_format)
        return self if is_so else self.clone(memory_format=memory_format)

    def nonzero(self, **_: Any) -> Any:
        return torch.ops.aten.nonzero(self)

    def __invert__(self) -> Any:
        return torch.ops.aten.bitwise_not(self)

    def record_stream(self, stream: Stream) -> None:
        pass


def _aim(tensor: Tensor, index: Any) -> tuple[Tensor, list[Tensor | None]]:
    """What an index in Python means: a view of the tensor, and the tensors by which to index that view."""
    parts = index if isinstance(index, tuple) else (index,)
    parts = tuple(torch.tensor(it, device=DEVICE) if isinstance(it, list | range) else it for it in parts)
    is_mask = [isinstance(it, Tensor) and it.dtype == torch.bool for it in parts]
    taken = sum(
        it.dim() if mask else it is not None and it is not ...
        for it, mask in zip(parts, is_mask, strict=True)
    )
    skipped, place = tensor.dim() - taken, 0
    indices: list[Tensor | None] = []
    for it, mask in zip(parts, is_mask, strict=True):
        if it is ...:
            place += skipped
        elif it is None:
            tensor, place = tensor.unsqueeze(place), place + 1
        elif isinstance(it, slice):
            tensor = torch.ops.aten.slice(tensor, place, it.start, it.stop, it.step or 1)
            place += 1
        elif isinstance(it, Tensor) and (mask or it.dim()):
            indices += [None] * (place - len(indices)) + [it]
            place += it.dim() if mask else 1
        else:
            tensor = tensor.select(place, int(it))  # a 0-dim tensor is read back for it
    return tensor, indices


def _parsed(*args: Any, **options: Any) -> tuple[torch.device, dict[str, Any]]:
    """The device, and the other options, of a call of `Tensor.to`; cuda:0 where it names none."""
    rest = list(args)
    if rest and isinstance(rest[0], Tensor):
        other = rest.pop(0)
        options |= {"device": other.device, "dtype": other.dtype}
    if rest and not isinstance(rest[0], torch.dtype):
        options["device"] = rest.pop(0)
    if rest and (rest[0] is None or isinstance(rest[0], torch.dtype)):
        options["dtype"] = rest.pop(0)
    options |= dict(zip(("non_blocking", "copy"), rest, strict=False))
    options = {name: value for name, value in options.items() if value is not None}
    return torch.device(options.pop("device", DEVICE)), options


# ---- operations ------------------------------------------------------------------------------------------


def _run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """One operation with a pretend tensor among its arguments."""
    if _is_made_of_others(func):
        return func.decompose(*args, **kwargs)
    gpu, name = _gpu(), func._schema.name.removeprefix("aten::")
    device = kwargs.get("device")
    if device is not None:
        kwargs = kwargs | {"device": torch.device("cpu")}
        if device.type == "cpu":  # only `_to_copy` has anything to bring there
            if name == "_to_copy":
                gpu.note("read", "to the CPU")
            return func(*_held(args), **kwargs)
    if name == "copy_" and not isinstance(args[0], PretendTensor):
        gpu.note("read", "copy to the CPU")
        args[0].copy_(args[1].held)
        return args[0]
    if name in _READS and kwargs.get("output_size") is None:
        gpu.note("read", name)
    args = _checked(gpu, func, args, kwargs)
    if gpu.recording and not func.is_view:
        return gpu.recording.add(func, args, kwargs)
    held, more = _held((args, kwargs))
    ours = {id(it.held): it for it in tree_leaves((args, kwargs)) if isinstance(it, PretendTensor)}
    result = func(*held, **more)
    if "empty" in name:
        _spoil(result)

    def wrapped(it: Tensor) -> Tensor:
        return _fitted(ours[id(it)]) if id(it) in ours else PretendTensor(it)

    # A view is for inference only where its base is; anything else where it is made.
    with torch.inference_mode(args[0].is_inference() if func.is_view else torch.is_inference_mode_enabled()):
        return tree_map_only(Tensor, wrapped, result)


@cache
def _is_made_of_others(func: Any) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")


def _held(given: Any) -> Any:
    return tree_map_only(PretendTensor, lambda it: it.held, given)


def _fitted(tensor: PretendTensor) -> PretendTensor:
    """The tensor, of the shape that an operation has given it."""
    if (tensor.shape, tensor.stride()) != (tensor.held.shape, tensor.held.stride()):
        tensor.block.fit()
        tensor.data = PretendTensor(tensor.held)
    return tensor


def _checked(gpu: PretendGpu, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The arguments if CUDA would take them: on the CPU are sources of copies, indices, and numbers without dimensions."""
    name = func._schema.name.removeprefix("aten::")
    if name == "copy_" and not isinstance(args[1], PretendTensor):
        pinned = args[1].untyped_storage()._cdata in gpu.pinned and any(args[2:])
        gpu.note("upload", f"{tuple(args[1].shape)}", waits=not pinned)
        return args
    if name in _INDEXING:
        fills = (
            len(args) > 2 and args[2].is_cpu and args[2].numel() == 1
        )  # where the mask is: no places are sought
        if any(it is not None and it.dtype in (torch.bool, torch.uint8) for it in args[1]) and not fills:
            gpu.note("read", "index by a mask")
        args = (args[0], [_index(gpu, it) for it in args[1]], *args[2:])
    for it in tree_leaves((args, kwargs)):
        is_foreign = isinstance(it, Tensor) and not isinstance(it, PretendTensor)
        if is_foreign and (it.dim() or (func._schema.is_mutable and it is args[0])):
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
            )
    return args


def _index(gpu: PretendGpu, index: Tensor | None) -> Tensor | None:
    if index is None or isinstance(index, PretendTensor):
        return index
    gpu.note("upload", "an index")
    return PretendTensor(index.clone())


def _spoil(fresh: Tensor) -> Tensor:
    """Fill new memory with what nobody may rely on."""
    if fresh.is_floating_point():
        return fresh.fill_(torch.nan)
    return fresh.fill_(1 if fresh.dtype == torch.bool else torch.iinfo(fresh.dtype).max // 3 | 1)


def _empty(size: Any, dtype: Any = None, memory_format: Any = None, **_: Any) -> Tensor:
    return PretendTensor(_spoil(torch.empty(size, dtype=dtype, memory_format=memory_format)))


def _empty_strided(size: Any, stride: Any, dtype: Any = None, **_: Any) -> Tensor:
    return PretendTensor(_spoil(torch.empty_strided(size, stride, dtype=dtype)))


def _upload(tensor: Tensor, non_blocking: bool = False) -> Tensor:
    return _empty_strided(tensor.shape, tensor.stride(), tensor.dtype).copy_(tensor, non_blocking)


def _line() -> str:
    """The innermost running line of the project or of transformers."""
    frame: Any = sys._getframe(2)
    while frame:
        path = frame.f_code.co_filename
        if path != __file__ and any(f"/{name}/" in path for name in ("specviz", "tests", "transformers")):
            return f"{'/'.join(path.rsplit('/', 2)[1:])}:{frame.f_lineno}"
        frame = frame.f_back
    return "?"


# ---- graphs, streams and events --------------------------------------------------------------------------


class Graph:
    """torch.cuda.CUDAGraph: operations without their Python, on the very memory they were captured on."""

    def __init__(self, keep_graph: bool = False) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget what was captured."""
        self.operations: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], list[Any]]] = []
        self.blocks: set[Block] = set()
        self.foreign: set[weakref.ref[Block]] = set()
        self.ready = self.spoilt = False
        self.mode, self.thread = "global", 0
        self._pool: Any = None

    def pool(self) -> Any:
        """Where its memory is."""
        return self._pool

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
        """From here on this thread's operations are recorded and not run."""
        gpu = _gpu()
        if _current_stream() is _DEFAULT:
            raise RuntimeError("CUDA graphs must be captured on a non-default stream.")
        if gpu.capturing or self.ready:
            raise RuntimeError(
                "A capture is under way, or this CUDAGraph instance already owns a captured graph."
            )
        self.mode, self.thread, self._pool = capture_error_mode, threading.get_ident(), pool or _new_pool()
        gpu.capturing = self

    def capture_end(self) -> None:
        """The end of what is recorded; fails where something in between was not permitted."""
        gpu = _gpu()
        gpu.capturing = None
        if self.spoilt or gpu.fail_captures:
            self.reset()
            raise RuntimeError(
                f"CUDA error: operation failed due to a previous error during capture ({_FORBIDDEN})"
            )
        self.ready = True

    def add(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record an operation. Its results have the right shapes, and garbage in them."""
        given = [it for it in tree_leaves((args, kwargs)) if isinstance(it, PretendTensor)]
        self.foreign |= {weakref.ref(it.block) for it in given if it.block not in self.blocks}
        shapes = {
            id(it): torch.empty_strided(it.shape, it.stride(), dtype=it.dtype, device="meta") for it in given
        }
        ours = {id(shapes[id(it)]): it for it in given}
        on_meta = kwargs | ({"device": torch.device("meta")} if "device" in kwargs else {})
        names, options = tree_map_only(PretendTensor, lambda it: shapes[id(it)], (args, on_meta))

        def real(shape: Tensor) -> Tensor:
            if id(shape) not in ours:
                return _empty_strided(shape.shape, shape.stride(), shape.dtype)
            written = ours[id(shape)]
            if written.shape != shape.shape:
                written.held.resize_(shape.shape)
            return _fitted(written)

        result = tree_map_only(Tensor, real, func(*names, **options))
        self.operations.append((func, _held(args), _held(kwargs), _held(tree_leaves(result))))
        return result

    def replay(self) -> None:
        """Run what was recorded, in order, on what lies in its memory now."""
        gpu = _gpu()
        if not self.ready:
            raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
        if gpu.recording:
            raise RuntimeError(_FORBIDDEN)
        if any(block() is None for block in self.foreign):
            raise RuntimeError("This graph uses memory that has been freed since it was captured.")
        gpu.replays += 1
        with torch.inference_mode():
            for func, args, kwargs, results in self.operations:
                for result, new in zip(results, tree_leaves(func(*args, **kwargs)), strict=True):
                    if isinstance(new, Tensor) and new is not result:
                        result.copy_(new)


@contextmanager
def capture(
    graph: Graph, pool: Any = None, stream: Stream | None = None, capture_error_mode: str = "global"
) -> Iterator[None]:
    """torch.cuda.graph: captures what is done inside, on a stream of its own."""
    _gpu().note("read", "synchronize")
    before = _current_stream()
    _set_stream(stream or Stream())
    graph.capture_begin(pool, capture_error_mode=capture_error_mode)
    try:
        yield
    finally:
        graph.capture_end()
        _set_stream(before)  # not where the capture has failed: just as torch


_numbers = itertools.count(1)


def _new_pool() -> tuple[int, int]:
    return next(_numbers), 0


class Stream:
    """torch.cuda.Stream: a name."""

    device = DEVICE

    def __init__(self, *_: Any, **__: Any) -> None:
        self.cuda_stream = next(_numbers)

    def wait_stream(self, stream: Stream) -> None:
        """All is done in order."""

    def wait_event(self, event: Event) -> None:
        """All is done in order."""

    def record_event(self, event: Event | None = None) -> Event:
        """An event of now."""
        event = event or Event()
        event.record(self)
        return event

    def synchronize(self) -> None:
        """Wait for the device."""
        _gpu().note("read", "synchronize a stream")


_DEFAULT = Stream()


def _current_stream(*_: Any) -> Stream:
    return getattr(_gpu().own, "stream", _DEFAULT)


def _set_stream(stream: Stream) -> None:
    _gpu().own.stream = stream


@contextmanager
def on_stream(stream: Stream | None) -> Iterator[None]:
    """torch.cuda.stream."""
    before = _current_stream()
    _set_stream(stream or before)
    try:
        yield
    finally:
        _set_stream(before)


class Event:
    """torch.cuda.Event: over as soon as the host has waited for anything after it, or has asked twice."""

    def __init__(self, enable_timing: bool = False, **_: Any) -> None:
        self._timing, self._time, self._waits, self._asked = enable_timing, 0.0, -1, 0

    def record(self, stream: Stream | None = None) -> None:
        """Now."""
        self._time, self._waits, self._asked = time.perf_counter(), _gpu().waits, 0

    def query(self) -> bool:
        """Whether it is over."""
        if _gpu().recording:
            raise RuntimeError(_FORBIDDEN)
        self._asked += 1
        return self._asked > 1 or self._waits < _gpu().waits

    def synchronize(self) -> None:
        """Wait for it."""
        _gpu().note("read", "synchronize an event")

    def wait(self, stream: Stream | None = None) -> None:
        """All is done in order."""

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds between two events that are over."""
        if not (self._timing and end._timing) or -1 in (self._waits, end._waits):
            raise ValueError("Both events must be recorded, and created with argument 'enable_timing=True'.")
        if max(self._waits, end._waits) >= _gpu().waits:
            raise RuntimeError("CUDA error: device not ready")
        return (end._time - self._time) * 1000


# ---- installing ------------------------------------------------------------------------------------------


def _gpu() -> PretendGpu:
    return _installed[-1]


@contextmanager
def pretend_gpu() -> Iterator[PretendGpu]:
    """Let torch have one GPU, which is a pretence, in all threads until this is left."""
    gpu = PretendGpu()
    for remembers in (
        _device_constructors,
        is_torch_cuda_available,
    ):  # what they find when first asked: the truth
        remembers()
    kernels = torch.library.Library("aten", "IMPL", "CUDA")  # by which torch allocates, below Python
    kernels.impl("empty.memory_format", _empty)
    kernels.impl("empty_strided", _empty_strided)
    _installed.append(gpu)
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in _functions_of_cuda(gpu).items():
                patch.setattr(torch.cuda, name, value)
            for owner, name, value in _transfers(gpu):
                patch.setattr(owner, name, value)
            yield gpu
    finally:
        _installed.remove(gpu)
        kernels._destroy()


def _functions_of_cuda(gpu: PretendGpu) -> dict[str, Any]:
    """What `torch.cuda` is to have."""

    def empty_cache() -> None:
        gpu.reserved = gpu.allocated

    def reset_peak(*_: Any) -> None:
        gpu.peak = gpu.allocated

    return {
        "CUDAGraph": Graph,
        "Event": Event,
        "Stream": Stream,
        "_lazy_init": lambda: None,
        "current_device": lambda: 0,
        "current_stream": _current_stream,
        "default_stream": lambda *_: _DEFAULT,
        "device": lambda *_: nullcontext(),
        "device_count": lambda: 1,
        "empty_cache": empty_cache,
        "get_device_capability": lambda *_: (9, 0),
        "get_device_name": lambda *_: "a pretend GPU",
        "graph": capture,
        "graph_pool_handle": _new_pool,
        "is_available": lambda: True,
        "is_current_stream_capturing": lambda: gpu.recording is not None,
        "is_initialized": lambda: True,
        "max_memory_allocated": lambda *_: gpu.peak,
        "mem_get_info": lambda *_: (gpu.memory - gpu.reserved, gpu.memory),
        "memory_allocated": lambda *_: gpu.allocated,
        "memory_reserved": lambda *_: gpu.reserved,
        "reset_peak_memory_stats": reset_peak,
        "set_stream": _set_stream,
        "stream": on_stream,
        "synchronize": lambda *_: gpu.note("read", "synchronize"),
    }


def _transfers(gpu: PretendGpu) -> list[tuple[Any, str, Any]]:
    """The functions by which data of the host goes to a device, or is made ready for that."""
    tensor, as_tensor, to, is_pinned = torch.tensor, torch.as_tensor, Tensor.to, Tensor.is_pinned

    def is_ours(place: Any) -> bool:
        is_name = isinstance(place, str | torch.device)
        return isinstance(place, PretendTensor) or (is_name and torch.device(place).type == "cuda")

    def around() -> Any:
        """The device of an enclosing `with torch.device(...)`."""
        modes = [mode for mode in _get_current_function_mode_stack() if isinstance(mode, DeviceContext)]
        return modes[-1].device if modes else None

    def make(data: Any, dtype: Any = None, device: Any = None, **more: Any) -> Tensor:
        if is_ours(device or around()):
            return _upload(tensor(data, dtype=dtype, device="cpu"))
        return tensor(data, dtype=dtype, device=device, **more)

    def see(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
        if isinstance(data, PretendTensor):
            return data.to(device, dtype)
        if is_ours(device):
            return _upload(as_tensor(data, dtype=dtype, device="cpu"))
        return as_tensor(data, dtype=dtype, device=device)

    def send(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if not any(map(is_ours, (*args, *kwargs.values()))):
            return to(self, *args, **kwargs)
        _, options = _parsed(*args, **kwargs)
        return _upload(to(self, options.get("dtype", self.dtype)), options.get("non_blocking", False))

    def pin(self: Tensor, *_: Any) -> Tensor:
        pinned = self.clone()
        storage = pinned.untyped_storage()
        gpu.pinned[storage._cdata] = storage
        return pinned

    def lies_pinned(self: Tensor, *_: Any) -> bool:
        return self.untyped_storage()._cdata in gpu.pinned if type(self) is Tensor else is_pinned(self)

    return [
        # `Module.to` gives its tensors another class.
        (torch.__future__, "_swap_module_params_on_conversion", True),
        (torch, "tensor", make),
        (torch, "as_tensor", see),
        (Tensor, "to", send),
        (Tensor, "cuda", lambda self, *_, **__: _upload(self)),
        (Tensor, "pin_memory", pin),
        (Tensor, "is_pinned", lies_pinned),
    ]


def on_gpu(pair: ModelPair) -> ModelPair:
    """The same pair with all parameters and buffers of both models on the pretend GPU; what they share stays shared."""
    drafter, verifier = copy.deepcopy((pair.drafter, pair.verifier))
    moved: dict[int, tuple[Tensor, Tensor]] = {}

    def move(tensor: Tensor | None) -> Any:
        if tensor is None:
            return None
        if id(tensor) not in moved:
            there = tensor.detach().to(DEVICE)
            is_parameter = isinstance(tensor, nn.Parameter)
            there = nn.Parameter(there, requires_grad=False) if is_parameter else there
            moved[id(tensor)] = tensor, there  # kept, so that no other has its id
        return moved[id(tensor)][1]

    places = {
        id(them): them
        for module in (*drafter.modules(), *verifier.modules())
        for them in (module._parameters, module._buffers)
    }
    for them in places.values():
        them.update({name: move(tensor) for name, tensor in them.items()})
    return dataclasses.replace(pair, drafter=drafter, verifier=verifier)
