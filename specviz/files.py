"""Writes files completely or not at all, and manages the cache."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from specviz import environment

_HASH = sha256().digest_size


def write_whole(path: Path, content: str | bytes) -> None:
    """Write bytes, or text as UTF-8. Replaces a file in one step; writes directly to a device or a pipe.

    Raises:
        OSError: `path` cannot be written. No partial file is left.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        partial.write_bytes(data)
        os.replace(partial, path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        error.filename = str(path)
        raise


def json_lines(path: Path) -> Iterator[Any]:
    """The values in a file of JSON lines, none if there is no file. Unreadable lines and an unfinished last line are skipped."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return
    for line in text.split(b"\n")[:-1]:
        try:
            yield json.loads(line)
        except ValueError:
            continue


def append_json_line(path: Path, record: Any) -> None:
    """Append a line to a file of JSON lines, and wait until it is on the disk. Raises OSError if it cannot be written."""
    try:
        with path.open("ab+") as file:
            if file.tell() and (file.seek(-1, os.SEEK_END), file.read(1))[1] != b"\n":
                file.write(b"\n")  # end a truncated line
            file.write(json.dumps(record, ensure_ascii=False).encode("utf-8") + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        error.filename = str(path)
        raise


def cache_directory() -> Path:
    """The folder of the cache: `SPECVIZ_CACHE`, or else `specviz` in `XDG_CACHE_HOME`, by default in ~/.cache."""
    if own := environment.CACHE.value():
        return own
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "specviz"
    return Path.home() / ".cache" / "specviz"


def _is_private(found: os.stat_result) -> bool:
    """Whether this user owns the file and nobody else may write to it; True on systems without user ids."""
    if not hasattr(os, "getuid"):
        return True
    return found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def read_intact(path: Path) -> bytes | None:
    """The content that `write_intact` wrote; None if the file is missing or damaged, or if others may have written it.

    Checks owner and mode of the file, not of its folder: whoever can write to a parent folder can replace the folder.
    """
    try:
        with path.open("rb") as file:
            if not _is_private(os.fstat(file.fileno())):
                return None
            whole = file.read()
    except OSError:
        return None
    return whole[_HASH:] if sha256(whole[_HASH:]).digest() == whole[:_HASH] else None


def write_intact(path: Path, content: bytes) -> None:
    """Write the hash of `content` and then `content`, making the folder if needed. Failures are ignored."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, sha256(content).digest() + content)
        path.chmod(0o600)  # whatever the umask, since `read_intact` refuses files that others can write
