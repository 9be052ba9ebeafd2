"""The command `fit`: its options, and what it prints and writes."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from specviz.cli.options import Device, Dtype, choices, option
from specviz.cli.terminal import interrupt
from specviz.errors import EngineError, PairError
from specviz.files import write_whole
from specviz.progress import TerminalProgress

_NAMES = "Folders, hub names or pairs; the verifier last. A pair alone stands for both its models."


def fit(
    context: typer.Context,
    names: Annotated[
        list[str], typer.Argument(metavar="DRAFTER... VERIFIER", help=_NAMES, show_default=False)
    ],
    prompts: Annotated[
        str | None, option("A file of JSON lines", "prompts that no drafter was trained on", "FILE")
    ] = None,
    kind: Annotated[str | None, option("Only prompts of this kind, such as code or dialogue", "all")] = None,
    limit: Annotated[int | None, option("The most prompts of each kind", 4)] = None,
    tokens: Annotated[int | None, option("The most tokens of a text", 48)] = None,
    temperatures: Annotated[list[float] | None, option("Temperatures", "0 0.7 1", "T...")] = None,
    draft_lengths: Annotated[
        list[int] | None, option("Draft lengths to measure", "the three best", "K...")
    ] = None,
    out: Annotated[Path | None, option("Folder of the report", metavar="DIR")] = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
) -> int:
    """Measure whether drafting pays on this machine: acceptance, costs and speed-ups of drafters for a verifier."""
    from specviz.models import loading  # slow to import, as is the rest
    from specviz.models.placement import find_device
    from specviz.models.registry import PairSpec
    from specviz.tools.fit import report
    from specviz.tools.fit.candidates import candidates
    from specviz.tools.fit.measuring import Fit, FitOptions
    from specviz.tools.machine import describe_machine, describe_processor, versions

    options, specs = FitOptions(**choices(context.params, FitOptions)), candidates(names)
    items, where = options.items(), str(find_device(device))
    if out:
        out.mkdir(parents=True, exist_ok=True)
    about: dict[str, Any] = {
        "models": f"{', '.join(each.drafter_name for each in specs)} → {specs[0].verifier_name}",
        "prompts": f"{len(items)}, up to {options.tokens} tokens each",
        "machine": f"{describe_machine(where)} ({where}, {dtype}); {describe_processor()}",
        "versions": ", ".join(f"{name} {version}" for name, version in versions().items()),
    }
    notes = ["One prompt says nothing of others: there are no intervals."] if len(items) == 1 else []
    results: list[report.Result] = []
    progress = TerminalProgress(sys.stderr)
    with interrupt() as stop:

        def measure(spec: PairSpec) -> report.Result:
            pair = loading.load_pair(spec, device=device, dtype=dtype, progress=progress)
            gc.freeze()  # as the server does: garbage collection skips everything loaded so far
            measured = Fit(pair, options, items, progress, stop)
            measured.measure()
            return report.result(measured)

        for spec in specs:
            try:
                results.append(measure(spec))
            except (PairError, EngineError) as error:
                notes.append(f"{spec.drafter_name} was left out. {error}")
            gc.unfreeze()
            loading.release_memory()
    progress(1.0, "Measured")
    if not results:
        raise PairError(" ".join(notes))
    results.sort(key=lambda each: -each.score)
    text = report.markdown(results, notes, about)
    print(text, end="")
    if out:
        write_whole(out / "report.md", text)
        write_whole(out / "report.json", report.to_json(results, notes, about))
    return 0
