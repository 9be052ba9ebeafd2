"""The command `gpu`: its options, and what it prints. Knows nothing of how anything is measured."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from specviz.cli.options import Device, asks, flag
from specviz.cli.terminal import print_table
from specviz.progress import TerminalProgress


def gpu(
    out: Annotated[Path, asks("Where results go, in small files", metavar="DIR")],
    stage: Annotated[
        int,
        asks(
            "1 the tests, 2 what is expected, 3 correctness, 4 speed, 5 rounds beside their floor, 6 the drafter"
        ),
    ],
    minutes: Annotated[float, asks("About so long; call it again to go on", metavar="X")] = 9,
    verifier: Annotated[
        list[Path] | None,
        asks(
            "The embedded verifier’s GGUF file, where it cannot be downloaded: whole, or in parts that are joined in this order",
            metavar="FILE...",
        ),
    ] = None,
    device: Device = "auto",
    tiny: Annotated[
        bool,
        flag("tiny", "Rehearse with tiny models and a few tokens, also on a CPU; its figures mean nothing."),
    ] = False,
) -> int:
    """Test and measure all that a GPU is needed for, a stage at a time."""
    from specviz.models.smollm2 import keep_gguf  # slow to import, as is what follows
    from specviz.tools.gpu.job import Job
    from specviz.tools.gpu.stages import run

    if verifier:
        keep_gguf(verifier)
    job = Job.of(out, device, tiny)
    table, record = run(job, stage, minutes, TerminalProgress(sys.stderr))
    print_table(table)
    for name in record.left:
        print(f"left for the next call: {name}")
    return 0 if record.is_complete else 1
