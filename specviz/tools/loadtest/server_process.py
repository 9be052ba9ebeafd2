"""Measures what the process of a local server holds: memory, threads, open files, and files on disk."""

from __future__ import annotations

import tempfile
from pathlib import Path

import psutil

from specviz.environment import CACHE
from specviz.files import cache_directory


def listening_process(port: int) -> psutil.Process:
    """The process that listens on a port.

    Raises:
        LookupError: it is not on this machine, or belongs to another user.
    """
    for each in psutil.net_connections("tcp"):
        if each.status == psutil.CONN_LISTEN and each.laddr.port == port and each.pid:
            return psutil.Process(each.pid)
    raise LookupError(f"No process of yours listens on port {port} of this machine.")


def held(process: psutil.Process) -> dict[str, int]:
    """What a process holds now. Files on disk are gradio's and those of the cache."""
    memory, its = process.memory_full_info(), process.environ()
    uploads = Path(its.get("GRADIO_TEMP_DIR") or Path(tempfile.gettempdir(), "gradio"))
    folders = (uploads, CACHE.value(its) or cache_directory())
    files = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
    return {
        "rss": memory.rss,
        "uss": memory.uss,
        "threads": process.num_threads(),
        "open_files": process.num_fds(),
        "disk": sum(file.stat().st_size for file in files),
    }
