"""What a process takes: memory, threads, processor time. Knows nothing of what it does."""

from __future__ import annotations

from dataclasses import dataclass

from specviz.errors import RequestError


@dataclass(frozen=True)
class Footprint:
    """Of one process at one moment: resident memory in bytes, threads, and processor seconds since it began."""

    memory: int
    threads: int
    processor_seconds: float


def footprint(pid: int | None = None) -> Footprint:
    """Of a process, by default of this one.

    Raises:
        RequestError: there is none with this number, or it may not be looked at.
    """
    import psutil

    try:
        process = psutil.Process(pid)
        times = process.cpu_times()
        return Footprint(process.memory_info().rss, process.num_threads(), times.user + times.system)
    except (psutil.Error, ValueError) as error:
        raise RequestError(
            f"No process {pid} can be looked at here: give the server's own number."
        ) from error
