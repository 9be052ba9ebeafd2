"""Files that are written whole or not at all, those that a command was asked to write, and
where what SpecViz derives is cached. Knows no format."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from specviz.errors import RequestError, SpecvizError

_HASH = sha256().digest_size


def write_whole(path: Path, content: str | bytes) -> None:
    """Write bytes, or text as UTF-8; a file of that name is replaced in one step, a device or a pipe written to.

    Raises:
        OSError: it cannot be written. Nothing half-written is left then.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        partial.write_bytes(data)
        os.replace(partial, path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def check_output(option: str, path: Path | None) -> None:
    """Make sure, before a long job begins, that the file which `option` names can be meant to be written.

    Raises:
        RequestError: it is a folder, or lies in none, or in one that may not be written to.
    """
    if path is None:
        return
    if path.is_dir() or not path.parent.is_dir():
        raise RequestError(f"{option} cannot be written there: name a file in a folder that exists.")
    if not os.access(path if path.exists() and not path.is_file() else path.parent, os.W_OK):
        raise RequestError(f"{option} may not be written there: name a file in a folder of your own.")


def write_output(path: Path, text: str) -> None:
    """As `write_whole`.

    Raises:
        SpecvizError: it cannot be written; its sentence names no folder.
    """
    try:
        write_whole(path, text)
    except OSError as error:
        raise SpecvizError(f"{path.name} could not be written: {error.strerror or error}.") from error


def cache_directory() -> Path:
    """Where SpecViz caches what it derives: `SPECVIZ_CACHE`, else `XDG_CACHE_HOME`/specviz or its default."""
    if own := os.environ.get("SPECVIZ_CACHE"):
        return Path(own).expanduser()
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "specviz"
    return Path.home() / ".cache" / "specviz"


def private_directory(path: Path) -> Path | None:
    """`path`, made where it is missing, as a folder that its owner alone can write; None if it is another's, or others can write to it too."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
        found = path.lstat()
    except OSError:
        return None
    others_write = hasattr(os, "getuid") and (
        found.st_uid != os.getuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    )
    return path if stat.S_ISDIR(found.st_mode) and not others_write else None


def read_intact(path: Path) -> bytes | None:
    """What `write_intact` wrote; None if there is no such file, or it was damaged."""
    try:
        whole = path.read_bytes()
    except OSError:
        return None
    return whole[_HASH:] if sha256(whole[_HASH:]).digest() == whole[:_HASH] else None


def write_intact(path: Path, content: bytes) -> None:
    """Keep `content` behind its hash, in a folder that is made for it; nothing where it cannot be written."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, sha256(content).digest() + content)


def kept(name: str, made_of: Iterable[bytes], make: Callable[[], str]) -> str:
    """What `make` returns; from the cache, if it has that under its name, undamaged and made of the same. Not kept where it cannot be."""
    path, parts = cache_directory() / name, sha256()
    for part in made_of:
        parts.update(sha256(part).digest())
    key, found = parts.digest(), read_intact(path)
    if found is not None and found.startswith(key):
        return found[_HASH:].decode("utf-8")
    text = make()
    write_intact(path, key + text.encode("utf-8"))
    return text
