"""A pretended GPU: tensors that say cuda:0 and hold their values on the CPU, for tests of what runs on CUDA only.

`pretend_gpu()` installs it for a while, in all threads. A tensor is on the GPU if its storage carries a `Block`; torch's
kernels see CPU tensors, and a dispatch mode is as strict about them as CUDA: tensors of both devices do not mix, memory is
counted and may run out, what is freshly allocated holds garbage (NaN, large odd numbers). Graphs are captured without
running anything, and replayed without any Python of the model. Every read (the host waits for the device) and every
upload is noted, with the line that caused it.

Not emulated: CUDA's kernels, which round otherwise; concurrency (streams are names, all is done in order); allocators
(graphs of one pool do not share memory, nothing is fragmented; but a pool that has lost all its graphs takes no other);
several GPUs.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any, NamedTuple

import pytest
import torch
from packaging.version import Version
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from transformers.utils.import_utils import is_torch_cuda_available

from specviz.models.pair import ModelPair
from specviz.runtime.model_runner import TorchModel

DEVICE, _CPU = torch.device("cuda:0"), torch.device("cpu")
_READS = {"_local_scalar_dense", "nonzero", "masked_select", "equal", "_unique2", "bincount"} | {
    "repeat_interleave"
}
_INDEXING = {"index", "index_put", "index_put_", "_unsafe_index", "_unsafe_index_put", "_index_put_impl_"}
_FORBIDDEN = "CUDA error: operation not permitted when stream is capturing"
_TWO_DEVICES = (
    "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
)
_installed: list[PretendGpu] = []

takes_torch_s_attention = pytest.mark.skipif(
    Version(torch.__version__) < Version("2.9"),
    reason="the attention of torch 2.8, which transformers' own passes run, makes tensors where the pretended GPU does not see it",
)
"""For tests of what other libraries run on the pretended GPU. SpecViz's own passes have their own attention."""


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
        self.capturing: Graph | None = None
        self.pools: dict[Any, int] = {}
        self.segments: list[dict[str, Any]] = []
        self.own = threading.local()

    @property
    def reads(self) -> int:
        return sum(note.kind == "read" for note in self.notes)

    @property
    def uploads(self) -> int:
        return sum(note.kind == "upload" for note in self.notes)

    def clear(self) -> None:
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

    def note_upload(self, tensor: Tensor, non_blocking: Any) -> None:
        pinned = bool(non_blocking) and hasattr(tensor.untyped_storage(), "pinned")
        self.note("upload", f"{tuple(tensor.shape)}", waits=not pinned)

    def adopt(self, result: Any) -> Any:
        """Let what an operation has made lie on the GPU."""
        for each in _tensors((result,)):
            storage: Any = each.untyped_storage()
            if not hasattr(storage, "block"):
                storage.block = Block(self, storage)
                if self.recording:
                    self.recording.blocks.add(storage.block)
        return result


class Block:
    """Memory under some tensors, counted as long as their storage lives, which holds this."""

    def __init__(self, gpu: PretendGpu, storage: Any) -> None:
        self.gpu, self.size = gpu, 0
        self.fit(storage)

    def fit(self, storage: Any) -> None:
        """Count the storage as large as it is now; it may not fit."""
        gpu, more = self.gpu, storage.nbytes() - self.size
        if gpu.allocated + more > gpu.memory:
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {more} bytes.")
        self.size += more
        gpu.allocated += more
        gpu.peak, gpu.reserved = max(gpu.peak, gpu.allocated), max(gpu.reserved, gpu.allocated)

    def __del__(self) -> None:
        self.gpu.allocated -= self.size


def _block(tensor: Tensor) -> Block | None:
    return getattr(tensor.untyped_storage(), "block", None)


def _is_ours(it: Any) -> bool:
    return isinstance(it, Tensor) and _block(it) is not None


def _line() -> str:
    """The innermost running line of the project or of transformers."""
    frame: Any = sys._getframe(2)
    while frame:
        path = frame.f_code.co_filename
        if path != __file__ and any(f"/{name}/" in path for name in ("specviz", "tests", "transformers")):
            return f"{'/'.join(path.rsplit('/', 2)[1:])}:{frame.f_lineno}"
        frame = frame.f_back
    return "?"


# ---- operations ------------------------------------------------------------------------------------------


class _Dispatch(TorchDispatchMode):
    """One thread's operations, of which those on the GPU are checked, noted and counted."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, and to be kept from that takes longer than most operations

    def __init__(self, gpu: PretendGpu) -> None:
        super().__init__()
        self.gpu = gpu

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        gpu, kwargs = self.gpu, kwargs or {}
        device = kwargs.get("device")
        goes_there = device is not None and device.type == "cuda"
        given = _tensors(args, kwargs)
        if not goes_there and not any(map(_block, given)):
            return func(*args, **kwargs)
        kind = _kind(func)
        if kind.is_composite:
            with _Dispatch(gpu):
                return func.decompose(*args, **kwargs)
        name = kind.name
        if device is not None:
            kwargs = kwargs | {"device": _CPU}
            if (
                not goes_there and name != "_to_copy"
            ):  # which torch also uses within a device, and takes this for the CPU
                return func(*args, **kwargs)
        if name == "copy_" and not _is_ours(args[0]):
            gpu.note("read", "copy to the CPU")
            return func(*args, **kwargs)
        _check(gpu, kind, args, kwargs, given)
        if not kind.is_view and gpu.recording:
            return gpu.recording.add(func, args, kwargs)
        result = func(*args, **kwargs)
        if kind.is_mutable:  # an `out=` may have been resized
            for each in filter(_is_ours, _tensors((result,))):
                _block(each).fit(each.untyped_storage())  # type: ignore[union-attr]
        return gpu.adopt(_spoil(result) if "empty" in name else result)


class _Kind(NamedTuple):
    """What is to be known of an operation, asked of torch only once."""

    name: str
    is_composite: bool
    is_mutable: bool
    is_view: bool


@cache
def _kind(func: Any) -> _Kind:
    is_composite = torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")
    name = func._schema.name.removeprefix("aten::")
    return _Kind(name, is_composite, func._schema.is_mutable, func.is_view)


def _tensors(values: Iterable[Any], named: dict[str, Any] | None = None) -> list[Tensor]:
    """The tensors among an operation's arguments or results, also those in lists."""
    found: list[Tensor] = []
    for each in values if not named else (*values, *named.values()):
        if isinstance(each, Tensor):
            found.append(each)
        elif isinstance(each, list | tuple):
            found += _tensors(each)
    return found


def _check(gpu: PretendGpu, kind: _Kind, args: Any, kwargs: dict[str, Any], given: list[Tensor]) -> None:
    """Note reads and uploads; on the CPU may be sources of copies, indices, and numbers without dimensions."""
    name = kind.name
    if name in _READS and kwargs.get("output_size") is None:
        gpu.note("read", name)
    if name in ("copy_", "_to_copy"):
        source = args[name == "copy_"]
        if not _is_ours(source):
            gpu.note_upload(source, any(args[2:]) or kwargs.get("non_blocking"))
        return
    if name in _INDEXING:
        fills = (
            len(args) > 2 and not _is_ours(args[2]) and args[2].numel() == 1
        )  # under a mask, without a search
        if any(it is not None and it.dtype in (torch.bool, torch.uint8) for it in args[1]) and not fills:
            gpu.note("read", "index by a mask")
        if any(it is not None and not _is_ours(it) for it in args[1]):
            gpu.note("upload", "an index")
        given = _tensors((args[0], *args[2:]), kwargs)
    for it in given:
        if not _block(it) and (it.dim() or (kind.is_mutable and it is args[0])):
            raise RuntimeError(_TWO_DEVICES)


def _spoil(fresh: Tensor) -> Tensor:
    """Fill new memory with what nobody may rely on."""
    if fresh.is_floating_point():
        return fresh.fill_(torch.nan)
    return fresh.fill_(1 if fresh.dtype == torch.bool else torch.iinfo(fresh.dtype).max // 3 | 1)


# ---- graphs, streams and events --------------------------------------------------------------------------


def _mapped(kind: type, change: Callable[[Any], Any], values: Any) -> Any:
    """The values with every one of that kind changed, also those in lists and dicts."""
    if isinstance(values, kind):
        return change(values)
    if isinstance(values, list | tuple):
        return type(values)([_mapped(kind, change, each) for each in values])
    if isinstance(values, dict):
        return {name: _mapped(kind, change, each) for name, each in values.items()}
    return values


class _Foreign:
    """A tensor that a graph uses and does not keep alive."""

    def __init__(self, tensor: Tensor) -> None:
        self.storage, self.dtype = weakref.ref(tensor.untyped_storage()), tensor.dtype
        self.shape = tensor.storage_offset(), tensor.size(), tensor.stride()

    def get(self) -> Tensor:
        storage = self.storage()
        if storage is None:
            raise RuntimeError("This graph uses memory that has been freed since it was captured.")
        return torch.empty(0, dtype=self.dtype).set_(storage, *self.shape)


class Graph:
    """torch.cuda.CUDAGraph: operations without their Python, on the very memory they were captured on."""

    def __init__(self, keep_graph: bool = False) -> None:
        self.reset()

    def reset(self) -> None:
        if getattr(self, "ready", False):
            self._gpu.pools[self._pool] -= 1
        self.operations: list[tuple[Callable[..., Any], Any, list[Any]]] = []
        self.blocks: set[Block] = set()
        self.ready = self.spoilt = False
        self.mode, self.thread = "global", 0
        self._pool: Any = None

    __del__ = reset

    def pool(self) -> Any:
        return self._pool

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
        """From here on this thread's operations are recorded and not run."""
        gpu = _gpu()
        if _current_stream() is _DEFAULT:
            raise RuntimeError("CUDA graphs must be captured on a non-default stream.")
        if gpu.capturing or self.ready:
            raise RuntimeError("A capture is under way, or this CUDAGraph already owns a captured graph.")
        self.mode, self.thread, self._pool = capture_error_mode, threading.get_ident(), pool or _new_pool()
        if gpu.pools.get(self._pool) == 0:
            raise RuntimeError("it->second->use_count > 0 INTERNAL ASSERT FAILED")
        gpu.pools.setdefault(self._pool, 0)
        self._gpu, gpu.capturing = gpu, self

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
        gpu.pools[self._pool] += 1

    def add(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Record an operation. Its results have the right shapes, and garbage in them."""
        given = [it for it in _tensors(args, kwargs) if _block(it)]
        metas = {
            id(it): torch.empty_strided(it.shape, it.stride(), dtype=it.dtype, device="meta") for it in given
        }
        by_meta = {id(metas[id(it)]): it for it in given}
        on_meta = kwargs | ({"device": torch.device("meta")} if "device" in kwargs else {})
        names, options = _mapped(Tensor, lambda it: metas.get(id(it), it), (args, on_meta))

        def real(meta: Tensor) -> Tensor:
            written = by_meta.get(id(meta))
            if written is None:
                return _spoil(torch.empty_strided(meta.shape, meta.stride(), dtype=meta.dtype))
            if written.shape != meta.shape:
                written.resize_(meta.shape)
                _block(written).fit(written.untyped_storage())  # type: ignore[union-attr]
            return written

        result = _gpu().adopt(_mapped(Tensor, real, func(*names, **options)))
        self.operations.append((func, *self._kept(((args, kwargs), _tensors((result,))))))
        return result

    def _kept(self, tensors: Any) -> Any:
        def keep(it: Tensor) -> Any:
            return _Foreign(it) if _is_ours(it) and _block(it) not in self.blocks else it

        return _mapped(Tensor, keep, tensors)

    def replay(self) -> None:
        """Run what was recorded, in order, on what lies in its memory now."""
        gpu = _gpu()
        if not self.ready:
            raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
        if gpu.recording:
            raise RuntimeError(_FORBIDDEN)
        gpu.replays += 1
        with torch.inference_mode(), _disable_current_modes():
            for func, given, results in self.operations:
                (args, kwargs), written = _mapped(_Foreign, _Foreign.get, (given, results))
                for result, new in zip(written, _tensors((func(*args, **kwargs),)), strict=True):
                    if new.data_ptr() != result.data_ptr():
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
    """torch.cuda.Stream: a name. All is done in order."""

    device = DEVICE

    def __init__(self, *_: Any, **__: Any) -> None:
        self.cuda_stream = next(_numbers)

    def wait_stream(self, stream: Stream) -> None:
        """Nothing to wait for."""

    wait_event = wait_stream

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record(self)
        return event

    def synchronize(self) -> None:
        _gpu().note("read", "synchronize a stream")


_DEFAULT = Stream()


def _current_stream(*_: Any) -> Stream:
    return getattr(_gpu().own, "stream", _DEFAULT)


def _set_stream(stream: Stream) -> None:
    _gpu().own.stream = stream


@contextmanager
def on_stream(stream: Stream | None) -> Iterator[None]:
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
        self._time, self._waits, self._asked = time.perf_counter(), _gpu().waits, 0

    def query(self) -> bool:
        if _gpu().recording:
            raise RuntimeError(_FORBIDDEN)
        self._asked += 1
        return self._asked > 1 or self._waits < _gpu().waits

    def synchronize(self) -> None:
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
    is_torch_cuda_available()  # remembers what it finds when first asked: the truth
    with torch.device("cpu"):  # as does this, of torch's constructors
        torch.empty(0)
    start = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

    def start_thread(thread: threading.Thread) -> None:
        with _Dispatch(gpu):
            start(thread)

    _installed.append(gpu)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(threading.Thread, "_bootstrap_inner", start_thread)
            for name, value in _functions_of_cuda(gpu).items():
                patch.setattr(torch.cuda, name, value)
            for owner, name, value in _functions_of_tensors():
                patch.setattr(owner, name, value)
            with _Dispatch(gpu):
                yield gpu
    finally:
        _installed.remove(gpu)


def _functions_of_cuda(gpu: PretendGpu) -> dict[str, Any]:

    def empty_cache() -> None:
        gpu.reserved = gpu.allocated

    def reset_peak(*_: Any) -> None:
        gpu.peak = gpu.allocated

    return {
        **{"CUDAGraph": Graph, "Event": Event, "Stream": Stream, "graph": capture, "stream": on_stream},
        **{"current_stream": _current_stream, "set_stream": _set_stream, "graph_pool_handle": _new_pool},
        **{"empty_cache": empty_cache, "reset_peak_memory_stats": reset_peak, "_lazy_init": lambda: None},
        **{"is_available": lambda: True, "is_initialized": lambda: True, "device": lambda *_: nullcontext()},
        **{"current_device": lambda: 0, "device_count": lambda: 1, "default_stream": lambda *_: _DEFAULT},
        **{"get_device_capability": lambda *_: (9, 0), "get_device_name": lambda *_: "a pretend GPU"},
        **{"memory_allocated": lambda *_: gpu.allocated, "memory_reserved": lambda *_: gpu.reserved},
        "memory_snapshot": lambda: gpu.segments,
        "is_current_stream_capturing": lambda: gpu.recording is not None,
        "max_memory_allocated": lambda *_: gpu.peak,
        "mem_get_info": lambda *_: (gpu.memory - gpu.reserved, gpu.memory),
        "synchronize": lambda *_: gpu.note("read", "synchronize"),
    }


def _functions_of_tensors() -> list[tuple[Any, str, Any]]:
    """What torch does without asking a dispatch mode: where a tensor is, and what crosses between host and device."""
    make, see, to, tolist, numpy = torch.tensor, torch.as_tensor, Tensor.to, Tensor.tolist, Tensor.numpy
    device_of, clone = Tensor.device, torch.UntypedStorage.clone

    def made(data: Any, dtype: Any = None, device: Any = None, **more: Any) -> Tensor:
        there = (
            torch.device(device) if device else torch.empty(0).device
        )  # of an enclosing `with torch.device(...)`
        if there.type == "cuda":
            return make(data, dtype=dtype, device=_CPU).to(there)
        return make(data, dtype=dtype, device=there, **more)

    def seen(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
        if isinstance(data, Tensor):
            return data.to(device or data.device, dtype or data.dtype)
        return see(data, dtype=dtype, device=_CPU).to(device) if device else see(data, dtype=dtype)

    def sent(self: Tensor, *args: Any, **options: Any) -> Tensor:
        rest = list(args)
        if rest and isinstance(rest[0], Tensor):
            other = rest.pop(0)
            options |= {"device": other.device, "dtype": other.dtype}
        if rest and not isinstance(rest[0], torch.dtype):
            options["device"] = rest.pop(0)
        options |= dict(zip(("dtype", "non_blocking", "copy"), rest, strict=False))
        options = {name: value for name, value in options.items() if value is not None}
        where = torch.device(options.pop("device", self.device))
        if where.type == "cpu" and _is_ours(self):
            _gpu().note("read", "to the CPU")
            with _disable_current_modes():
                return to(self, **{"dtype": self.dtype} | options | {"copy": True})
        if where.type == "cuda" and _is_ours(self):
            return to(self, **{"dtype": self.dtype} | options)
        return to(self, DEVICE if where.type == "cuda" else where, **options)

    def no_numpy(self: Tensor, **options: Any) -> Any:
        if _is_ours(self):
            raise TypeError("can't convert cuda:0 device type tensor to numpy.")
        return numpy(self, **options)

    def pinned(self: Tensor, *_: Any) -> Tensor:
        copied = self.clone()
        copied.untyped_storage().pinned = True  # type: ignore[attr-defined]
        return copied

    def cloned(self: Any) -> Any:  # for copy.deepcopy, which copies storages
        storage = clone(self)
        if hasattr(self, "block"):
            storage.block = Block(_gpu(), storage)
        return storage

    return [
        (torch, "tensor", made),
        (torch, "as_tensor", seen),
        (torch.UntypedStorage, "clone", cloned),
        (Tensor, "device", property(lambda self: DEVICE if _is_ours(self) else device_of.__get__(self))),
        (Tensor, "is_cuda", property(_is_ours)),
        (Tensor, "is_cpu", property(lambda self: self.device.type == "cpu")),
        (Tensor, "to", sent),
        (Tensor, "cuda", lambda self, *_, **__: self.to(DEVICE)),
        (Tensor, "cpu", lambda self, *_, **__: self.to(_CPU)),
        (Tensor, "tolist", lambda self: tolist(self.cpu())),
        (Tensor, "numpy", no_numpy),
        (Tensor, "new_tensor", lambda self, data, dtype=None: made(data, dtype or self.dtype, self.device)),
        (Tensor, "pin_memory", pinned),
        (Tensor, "is_pinned", lambda self, *_: hasattr(self.untyped_storage(), "pinned")),
        (Tensor, "record_stream", lambda self, stream: None),
    ]


@contextmanager
def elsewhere() -> Iterator[None]:
    """For what has nothing on the GPU, such as a text of the CPU to compare with: done without looking, and so faster."""
    with _disable_current_modes():
        yield


def on_gpu(pair: ModelPair) -> ModelPair:
    """The same pair with copies of both models on the pretend GPU; what they share stays shared."""
    drafter, verifier = (model.to(DEVICE) for model in copy.deepcopy((pair.drafter, pair.verifier)))
    return dataclasses.replace(pair, drafter_model=TorchModel(drafter), verifier_model=TorchModel(verifier))
