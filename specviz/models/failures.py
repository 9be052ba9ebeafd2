"""Why a model could not be loaded, in one sentence.

Libraries wrap the telling error in others; this module looks through all of them for what people can act on: the
hub, a licence, damaged files, memory, disk. It knows the libraries' errors and nothing of how loading works.
"""

from __future__ import annotations

import errno
import json
import pickle
from collections.abc import Callable, Iterator

from specviz.errors import NoRoomError, PairError, is_out_of_memory


def unreachable(name: str) -> str:
    """For a model that is not cached while the hub does not answer."""
    return (
        f"The model hub cannot be reached from here and {name} is not in its cache: connect to the network, "
        "or use the embedded pair."
    )


def gated(name: str) -> str:
    """For a model whose licence has not been accepted."""
    return (
        f"{name} is gated: accept its licence on the model's page and log in (hf auth login), or use the "
        "embedded pair."
    )


def damaged(name: str) -> str:
    """For weights that are there and cannot be read."""
    return f"The files of {name} are damaged or incomplete: delete them where they are cached and load again."


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and all that led to it; libraries wrap the telling one."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


def explain(error: BaseException, name: str) -> PairError:
    """The sentence for whatever loading `name` (a model or a pair) ended in: a new error without a past."""
    for cause in _causes(error):
        if isinstance(cause, PairError):
            return type(cause)(str(cause))
    for applies, sentence in _EXPLANATIONS:
        if applies(error):
            kind = NoRoomError if applies is _is_out_of_memory else PairError
            return kind(sentence(name))
    return PairError(
        f"{name} could not be loaded because of an unexpected {type(error).__name__}: try another pair."
    )


def _is_gated(error: BaseException) -> bool:
    from huggingface_hub.errors import GatedRepoError

    return _has(error, (GatedRepoError,), "gated repo")


def _is_missing(error: BaseException) -> bool:
    from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError, RevisionNotFoundError

    kinds = (RepositoryNotFoundError, RevisionNotFoundError, HFValidationError)
    return _has(error, kinds, "is not a valid model identifier")


def _is_out_of_memory(error: BaseException) -> bool:
    return any(map(is_out_of_memory, _causes(error))) or _has(error, (), "out of memory", "allocate memory")


def _is_out_of_disk(error: BaseException) -> bool:
    full = any(isinstance(it, OSError) and it.errno in (errno.ENOSPC, errno.EDQUOT) for it in _causes(error))
    return full or _has(error, (), "no space left")


def _is_unwritable(error: BaseException) -> bool:
    return _has(error, (PermissionError,), "read-only file system")


def _is_disconnected(error: BaseException) -> bool:
    from huggingface_hub.errors import LocalEntryNotFoundError, OfflineModeIsEnabled
    from huggingface_hub.utils import httpx

    kinds = (
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        ConnectionError,
        TimeoutError,
        httpx.TransportError,
    )
    return _has(error, kinds, "couldn't connect to")


def _is_hub_fault(error: BaseException) -> bool:
    from huggingface_hub.errors import HfHubHTTPError

    return _has(error, (HfHubHTTPError,))


def is_damage(error: BaseException) -> bool:
    """Whether loading failed because files are damaged or incomplete."""
    from safetensors import SafetensorError

    kinds = (SafetensorError, EOFError, pickle.UnpicklingError, json.JSONDecodeError, UnicodeDecodeError)
    missing = ("does not appear to have", "no file named", "damaged or incomplete")
    marks = ("mismatch", "pytorchstreamreader", "not a valid json", "eof while parsing", *missing)
    return _has(error, kinds, *marks)


def _has(error: BaseException, kinds: tuple[type[BaseException], ...], *marks: str) -> bool:
    """Whether the error or one of its causes is of these kinds or carries one of these words."""
    return any(
        isinstance(cause, kinds) or any(mark in str(cause).lower() for mark in marks)
        for cause in _causes(error)
    )


# Tried in this order: a gated repository is also a missing one, and both are faults of the hub.
_EXPLANATIONS: tuple[tuple[Callable[[BaseException], bool], Callable[[str], str]], ...] = (
    (_is_gated, gated),
    (_is_missing, lambda name: f"{name} was not found on the model hub: it may have moved or be private."),
    (
        _is_out_of_memory,
        lambda name: (
            f"Memory ran out while loading {name}: choose a smaller pair or dtype, or free some memory."
        ),
    ),
    (
        _is_out_of_disk,
        lambda name: f"The disk is full: loading {name} needs more room in the model hub's cache.",
    ),
    (
        _is_unwritable,
        lambda name: (
            f"The files of {name} cannot be read or stored: check the permissions of the model cache."
        ),
    ),
    (_is_disconnected, unreachable),
    (
        _is_hub_fault,
        lambda name: f"The model hub answered with an error when asked for {name}: try again later.",
    ),
    (is_damage, damaged),
)
