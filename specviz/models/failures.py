"""Why a model could not be loaded, in one sentence.

Libraries wrap the original error in others. This module searches the whole chain for a cause that people can act on: the
hub, a licence, damaged files, memory, disk.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from json import JSONDecodeError
from pathlib import Path
from pickle import UnpicklingError

from huggingface_hub import errors as hub_errors
from safetensors import SafetensorError

from specviz.compat.huggingface_hub import TransportError
from specviz.errors import NoRoomError, PairError, SpecvizError, is_disk_full, is_out_of_memory
from specviz.models.hub import weight_files

Sign = type | str | Callable[[BaseException], bool]
"""How an error is recognised: by its class, by a substring of its lower-case message, or by a test."""


def _shows(error: BaseException, sign: Sign) -> bool:
    if isinstance(sign, type):
        return isinstance(error, sign)
    return sign in str(error).lower() if isinstance(sign, str) else sign(error)


# Tried in this order: the error of a gated repository is also that of a missing one, and both are errors of the hub.
_FAILURES: tuple[tuple[str, tuple[Sign, ...]], ...] = (
    (
        "{name} is gated: accept its licence on the model's page and log in (hf auth login), or use the embedded pair.",
        (hub_errors.GatedRepoError,),
    ),
    (
        "{name} was not found on the model hub: it may have moved or be private.",
        (hub_errors.RepositoryNotFoundError, hub_errors.RevisionNotFoundError, hub_errors.HFValidationError),
    ),
    (
        "Memory ran out while loading {name}: choose a smaller pair or dtype, or free some memory.",
        (is_out_of_memory, "out of memory", "allocate memory"),
    ),
    (
        "The disk is full: loading {name} needs more space in the local model cache.",
        (is_disk_full,),
    ),
    (
        "The files of {name} cannot be read or stored: check the permissions of the local model cache.",
        (PermissionError, "read-only file system"),
    ),
    # This comes before "cannot be reached", because huggingface_hub says that of any failed answer.
    (
        "The model hub answered with an error when asked for {name}: try again later, or log in (hf auth login).",
        (hub_errors.HfHubHTTPError,),
    ),
    (
        "The model hub cannot be reached from here, or the download of {name} broke off: load it again when the network "
        "works, or use the embedded pair.",
        (
            *(hub_errors.LocalEntryNotFoundError, hub_errors.OfflineModeIsEnabled),
            *(ConnectionError, TimeoutError, TransportError, "consistency check failed"),
        ),
    ),
    (
        "The files of {name} are damaged or incomplete: delete them where they are cached and load again.",
        (
            *(SafetensorError, UnpicklingError, EOFError, FileNotFoundError),
            *(JSONDecodeError, UnicodeDecodeError, "mismatch", "pytorchstreamreader", "eof while parsing"),
            *("does not appear to have", "no file named", "damaged or incomplete"),
        ),
    ),
)
"""Sentences about a model `{name}`. A sentence applies if an error, or any error in its chain, shows one of the signs after it."""


def check_folder(folder: Path, name: str) -> None:
    """Refuse a folder that is missing, or whose weights are incomplete or in an unsupported format, before they are read.

    Raises:
        PairError: the folder is refused; the message calls the model `name`. A damaged config or index passes: reading it fails later.
    """
    weights, quantisation = list[Path](), None
    with suppress(Exception):
        weights = weight_files(folder)
        quantisation = json.loads((folder / "config.json").read_text("utf-8")).get("quantization_config")
    if not folder.is_dir():
        raise PairError(f"{name} is missing from this installation: get SpecViz with its assets.")
    others = [*folder.glob("*.gguf"), *folder.glob("adapter_config.json")]
    if quantisation or (others and not weights):
        raise PairError(
            f"{name} is quantised, an adapter or a GGUF file, which is not supported: use a folder with the whole model's "
            "float weights as safetensors."
        )
    for file in weights:
        if not file.is_file() or not file.stat().st_size:
            raise PairError(f"{name} is incomplete: {file.name} is missing or empty; fetch that file again.")


def explain(error: BaseException, name: str) -> PairError:
    """A new error, without cause or context, that says why `name` (a model or a pair) could not be loaded."""
    for cause in _causes(error):
        if isinstance(cause, SpecvizError):
            return (type(cause) if isinstance(cause, PairError) else PairError)(str(cause))
    for sentence, signs in _FAILURES:
        if any(_shows(cause, sign) for cause in _causes(error) for sign in signs):
            kind = NoRoomError if is_out_of_memory in signs else PairError
            return kind(sentence.format(name=name))
    return PairError(
        f"{name} could not be loaded because of an unexpected {type(error).__name__}: try another pair."
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yields the error, then its cause or context, and so on along the chain."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__
