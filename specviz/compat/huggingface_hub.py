"""The undocumented names of huggingface_hub that SpecViz needs, as of 2.4."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout
from huggingface_hub import constants
from huggingface_hub.file_download import repo_folder_name
from huggingface_hub.utils import httpx

TransportError = httpx.TransportError
"""Raised by a request if the network fails. The hub's client does not wrap this error and does not document it. Nor does it document
which HTTP package `huggingface_hub.utils.httpx` is: httpx since 1.0, httpx2 since 2.0."""


def delete_abandoned(repository: str) -> None:
    """Delete the unfinished files that a killed download of a repository has left; the hub's client neither resumes nor deletes them.

    The client locks each file while it downloads it. Locked files stay.
    """
    folder, cache = repo_folder_name(repo_id=repository, repo_type="model"), Path(constants.HF_HUB_CACHE)
    for path in (cache / folder / "blobs").glob("*.*.incomplete"):
        lock = cache / ".locks" / folder / f"{path.name.partition('.')[0]}.lock"
        with suppress(OSError, Timeout), FileLock(lock, timeout=0, mode=0o664):
            path.unlink()
