"""The command `distill`: its options, and what it prints. Knows nothing of how a drafter is made."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from specviz.cli.options import Device, asks, choices
from specviz.cli.terminal import interrupt
from specviz.progress import TerminalProgress


def distill(
    context: typer.Context,
    out: Annotated[Path, asks("Where everything goes", metavar="DIR")],
    pair_verifier: Annotated[str, asks("The pair whose verifier teaches", metavar="PAIR")] = "embedded",
    shape: Annotated[
        str,
        asks(
            "layers:0,-2,-1 takes the verifier's first layer and its last two, narrow:4x256 is depth x width",
            metavar="SHAPE",
        ),
    ] = "layers:0,-2,-1",
    vocabulary: Annotated[int, asks("Tokens it knows; 0 for all")] = 12288,
    start: Annotated[
        str, asks("Go on from this drafter, instead of beginning with that shape", metavar="FOLDER")
    ] = "",
    texts: Annotated[
        list[str] | None,
        asks("Learn from the texts in these folders, which distill wrote (to DIR/texts)", None, "FOLDER..."),
    ] = None,
    tokens: Annotated[
        int, asks("Tokens to learn from; those that --texts lack the verifier writes")
    ] = 1_000_000,
    passes: Annotated[int, asks("Times each is learned from")] = 8,
    rows: Annotated[int, asks("Answers written at once")] = 128,
    answer_tokens: Annotated[int, asks("At most so many an answer")] = 224,
    batch_tokens: Annotated[int, asks("Learned from in one step")] = 2048,
    seed: Annotated[int, asks("Of everything random")] = 0,
    learning_rate: Annotated[float, asks("At its height", metavar="X")] = 1e-3,
    four_bits: Annotated[bool, asks("Learn with weights rounded to four bits")] = False,
    device: Device = "auto",
) -> int:
    """Distil a drafter for a pair's verifier; goes on where it was broken off."""
    from specviz.tools.distill.distillation import Distillation  # slow to import
    from specviz.tools.distill.settings import DistillationSettings, Shape

    named = {"verifier": pair_verifier, "shape": Shape.parse(shape, vocabulary)}
    plan = DistillationSettings(**choices(context.params, DistillationSettings) | named)
    with interrupt() as stop:
        report = Distillation(
            plan, out, device=device, progress=TerminalProgress(sys.stderr), stop=stop
        ).run()
    for name, value in report["held_out"].items():
        print(f"acceptance {value:.3f}  {name}" + _expected(report["expected"].get(name)))
    print(f"cost {report['cost']:.3f} of a verifier forward")
    print(f"the drafter is in {out / 'student'}")
    return 0


def _expected(found: dict[str, Any] | None) -> str:
    if not found:
        return ""
    more = ", ".join(f"{rate:.3f} from {times} times" for times, rate in found["acceptance"].items())
    return f" (expected by the curve: {more} the tokens)"
