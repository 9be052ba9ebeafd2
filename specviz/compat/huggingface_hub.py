"""The undocumented names of huggingface_hub that SpecViz needs, as of 2.4."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout
from huggingface_hub import constants
from huggingface_hub.file_download import repo_folder_name
from huggingface_hub.utils import httpx

TransportError = httpx.TransportError
"""What a request raises when the network fails. The hub's client lets it through unwrapped, and documents neither that
nor which package it uses: httpx since 1.0, httpx2 since 2.0. `huggingface_hub.utils.httpx` is whichever it is."""

BROKEN_OFF = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)
"""Those of them that are raised where an answer was begun and did not end."""


def delete_abandoned(repository: str) -> None:
    """Delete the unfinished files of a repository whose download was killed: the hub's client neither resumes nor deletes them.

    It locks a file that it downloads; such a file stays.
    """
    folder, cache = repo_folder_name(repo_id=repository, repo_type="model"), Path(constants.HF_HUB_CACHE)
    for path in (cache / folder / "blobs").glob("*.*.incomplete"):
        lock = cache / ".locks" / folder / f"{path.name.partition('.')[0]}.lock"
        with suppress(OSError, Timeout), FileLock(lock, timeout=0, mode=0o664):
            path.unlink()
