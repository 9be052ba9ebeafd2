"""SpecViz's shell on the stand-in hub: pairs are as large as the stand-in's models, whatever the registry says.

Otherwise nothing is replaced. Where STAND_IN_DISK names a file, the disk has room for as many more bytes of downloads as it says.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

from specviz.models.registry import PAIRS

PARAMETERS = 1_500_000
"""Of each of the stand-in's models, about."""


def shrink() -> None:
    """Let the registry's pairs of the hub be as small as the stand-in's."""
    for key, spec in PAIRS.items():
        if spec.repositories:
            PAIRS[key] = replace(spec, drafter_parameters=PARAMETERS, verifier_parameters=PARAMETERS)


def fill_disk(left: Path) -> None:
    """Let downloads run out of disk after as many bytes as `left` says; where it is missing there is room."""
    import errno

    from huggingface_hub import file_download

    real = file_download.http_get

    def http_get(url: str, temp_file: object, **more: object) -> None:
        real(url, _Disk(temp_file, left) if left.exists() else temp_file, **more)  # type: ignore[arg-type]

    class _Disk:
        def __init__(self, file: object, left: Path) -> None:
            self._file, self._left = file, int(left.read_text())

        def write(self, data: bytes) -> int:
            self._file.write(data[: self._left])  # type: ignore[attr-defined]
            if len(data) > self._left:
                raise OSError(errno.ENOSPC, "No space left on device")
            self._left -= len(data)
            return len(data)

        def __getattr__(self, name: str) -> object:
            return getattr(self._file, name)

    file_download.http_get = http_get  # type: ignore[assignment]


if __name__ == "__main__":
    shrink()
    if "STAND_IN_DISK" in os.environ:
        fill_disk(Path(os.environ["STAND_IN_DISK"]))
    from specviz.cli.main import main

    sys.exit(main())
