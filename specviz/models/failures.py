"""Why a model could not be loaded, in one sentence.

Libraries wrap the error that matters in others. This module looks through all of them for a cause that people can act
on: the hub, a licence, damaged files, memory, disk.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Container, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import errors as hub_errors
from safetensors import SafetensorError, safe_open

from specviz.compat.huggingface_hub import BROKEN_OFF, TransportError
from specviz.errors import NoRoomError, PairError, is_disk_full, is_out_of_memory


@dataclass(frozen=True)
class Failure:
    """A cause of failure: a sentence about a model `{name}`, and what an error, or one that led to it, is recognised by.

    Attributes:
        kinds: classes of errors.
        marks: parts of their messages, in lower case.
        statuses: HTTP statuses of the hub's answer.
        memory: whether memory ran out.
        disk: whether a disk was full.
    """

    sentence: str
    kinds: tuple[type[BaseException], ...] = ()
    marks: tuple[str, ...] = ()
    statuses: Container[int] = ()
    memory: bool = False
    disk: bool = False

    def explains(self, error: BaseException) -> bool:
        """Whether this is why `error` was raised."""
        return any(
            isinstance(cause, self.kinds)
            or any(mark in str(cause).lower() for mark in self.marks)
            or (isinstance(cause, hub_errors.HfHubHTTPError) and _status(cause) in self.statuses)
            or (self.memory and is_out_of_memory(cause))
            or (self.disk and is_disk_full(cause))
            for cause in _causes(error)
        )

    def of(self, name: str) -> PairError:
        """The error about `name`, a model or a pair."""
        return (NoRoomError if self.memory else PairError)(self.sentence.format(name=name))


GATED = Failure(
    "{name} is gated: accept its licence on the model's page and log in (hf auth login), or use the embedded pair.",
    (hub_errors.GatedRepoError,),
    ("gated repo",),
)
_OFFLINE = hub_errors.LocalEntryNotFoundError, hub_errors.OfflineModeIsEnabled
UNREACHABLE = Failure(
    "The model hub cannot be reached from here and {name} is not in its cache: connect to the network, or use the "
    "embedded pair.",
    (*_OFFLINE, ConnectionError, TimeoutError, TransportError),
    ("couldn't connect to",),
)
_BROKEN = SafetensorError, pickle.UnpicklingError
_BROKEN_MARKS = "mismatch", "pytorchstreamreader", "not a valid json", "eof while parsing"
DAMAGED = Failure(
    "The files of {name} are damaged or incomplete: delete them where they are cached and load again.",
    (*_BROKEN, EOFError, FileNotFoundError, json.JSONDecodeError, UnicodeDecodeError),
    (*_BROKEN_MARKS, "does not appear to have", "no file named", "damaged or incomplete"),
)
# Tried in this order: the error of a gated repository is also that of a missing one, and both are errors of the hub.
_FAILURES = (
    GATED,
    Failure(
        "{name} was not found on the model hub: it may have moved or be private.",
        (hub_errors.RepositoryNotFoundError, hub_errors.RevisionNotFoundError, hub_errors.HFValidationError),
        ("is not a valid model identifier",),
    ),
    Failure(
        "Memory ran out while loading {name}: choose a smaller pair or dtype, or free some memory.",
        marks=("out of memory", "allocate memory"),
        memory=True,
    ),
    Failure(
        "The disk is full: loading {name} needs more room in the model hub's cache.",
        disk=True,
    ),
    Failure(
        "The files of {name} cannot be read or stored: check the permissions of the model cache.",
        (PermissionError,),
        ("read-only file system",),
    ),
    # These come before UNREACHABLE: huggingface_hub calls the hub unreachable, whatever it answers.
    Failure(
        "The model hub does not accept the token that is set here: log in anew (hf auth login) to load {name}.",
        statuses=(401,),
    ),
    Failure(
        "The model hub takes no more requests from here for now: load {name} again in a few minutes, or log in (hf auth login).",
        statuses=(429,),
    ),
    Failure(
        "The model hub is out of order and cannot give {name} now: try again later.",
        statuses=range(500, 600),
    ),
    Failure(
        "The download of {name} broke off, and nothing of an unfinished file was kept: load it again.",
        BROKEN_OFF,
        ("consistency check failed",),
    ),
    Failure(
        "The model hub answered with an error when asked for {name}: try again later.",
        statuses=range(400, 600),
    ),
    UNREACHABLE,
    DAMAGED,
)


def check_folder(folder: Path, name: str) -> None:
    """Refuse a folder whose weights are incomplete or in an unsupported format, before they are read.

    Raises:
        PairError: in a sentence about the model `name`. A folder that cannot be judged passes: reading it will tell why.
    """
    with suppress(OSError, ValueError, AttributeError):
        config = json.loads((folder / "config.json").read_text("utf-8"))
        if quantisation := config.get("quantization_config"):
            method = str(quantisation.get("quant_method") or "a method of its own")
            raise PairError(_UNREAD.format(name=name, kind=f"is quantised by {method[:40]}"))
    index = folder / "model.safetensors.index.json"
    files = sorted(folder.glob("*.safetensors"))
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
        shards = set(json.loads(index.read_text("utf-8"))["weight_map"].values())
        if lacking := sorted(each for each in shards if not (folder / each).is_file()):
            raise PairError(
                f"{name} is incomplete: {lacking[0]}, which its index names, is missing; fetch that file."
            )
    for file in files:
        if file.stat().st_size == 0:
            raise PairError(f"{name} is incomplete: {file.name} is empty; fetch that file again.")
    weights = [each for each in files if each.name.startswith("model")]
    if not weights and not any(folder.glob("*.bin")):
        if any(folder.glob("*.gguf")):
            raise PairError(_UNREAD.format(name=name, kind="holds no safetensors and only GGUF"))
        if (folder / "adapter_config.json").is_file():
            raise PairError(
                f"{name} is an adapter and holds no model.safetensors: merge it into its base model and save that."
            )
    for file in weights:
        with suppress(SafetensorError, OSError), safe_open(file, framework="pt") as opened:
            if any(each.endswith(_PACKED) for each in opened.keys()):  # noqa: SIM118  # it is no dict
                raise PairError(_UNREAD.format(name=name, kind="is quantised by GPTQ, AWQ or bitsandbytes"))


_UNREAD = (
    "{name} {kind}, a format that is not read: take a folder with the model's float weights as safetensors."
)
_PACKED = (".qweight", ".qzeros", ".absmax", ".quant_map")
"""Endings of packed tensors' names."""


def explain(error: BaseException, name: str) -> PairError:
    """A new error, without cause or context, that says why `name` (a model or a pair) could not be loaded."""
    for cause in _causes(error):
        if isinstance(cause, PairError):
            return type(cause)(str(cause))
    for failure in _FAILURES:
        if failure.explains(error):
            return failure.of(name)
    kind = type(error).__name__
    return PairError(f"{name} could not be loaded because of an unexpected {kind}: try another pair.")


def _status(error: hub_errors.HfHubHTTPError) -> int:
    """HTTP status of the hub's answer; 0 if there was none."""
    return error.response.status_code if getattr(error, "response", None) is not None else 0


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error, then its causes and contexts down to the first."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__
