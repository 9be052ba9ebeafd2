"""The command `distill`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from specviz.cli.options import Device, choices, option
from specviz.progress import TerminalProgress


def distill(
    context: typer.Context,
    out: Annotated[Path, option("Directory for everything that is written", metavar="DIR")],
    pair_verifier: Annotated[str, option("The pair whose verifier teaches", metavar="PAIR")] = "embedded",
    layers: Annotated[
        list[int] | None,
        option("Layers of the verifier to start from; -1 is the last one", "0 -2 -1", "N..."),
    ] = None,
    vocabulary: Annotated[
        int, option("Size of the drafter's vocabulary; 0 is the verifier's", low=0)
    ] = 12288,
    start: Annotated[str, option("Continue from this drafter instead", metavar="FOLDER")] = "",
    skills: Annotated[
        int, option("Teach that drafter this many questions with known answers too", low=0)
    ] = 0,
    texts: Annotated[
        list[str] | None,
        option("Train on the texts in these folders, which distill wrote (DIR/texts)", None, "FOLDER..."),
    ] = None,
    tokens: Annotated[
        int, option("Tokens to train on; the verifier writes those that --texts lack", low=1)
    ] = 1_000_000,
    passes: Annotated[int, option("Epochs", low=1)] = 8,
    rows: Annotated[int, option("Answers written at once", low=1)] = 128,
    answer_tokens: Annotated[int, option("Maximum length of an answer", low=1)] = 224,
    batch_tokens: Annotated[int, option("Tokens of a training step", low=1)] = 2048,
    seed: Annotated[int, option("Seed of everything random")] = 0,
    learning_rate: Annotated[float, option("Peak learning rate", metavar="X")] = 1e-3,
    four_bits: Annotated[bool, option("Train and store with weights of four bits instead of eight")] = False,
    device: Device = "auto",
) -> int:
    """Train a drafter for a pair's verifier; the same command resumes it."""
    from specviz.tools.distill import distillation  # slow to import
    from specviz.tools.distill.settings import DistillationSettings

    chosen = choices(context.params, DistillationSettings)
    settings = DistillationSettings(pair_verifier, **chosen)
    report = distillation.distill(settings, out, device=device, progress=TerminalProgress(sys.stderr))
    for name, value in report["held_out"].items():
        print(f"acceptance {value:.3f}  {name}")
    print(f"the drafter is in {out / 'student'}")
    return 0
