"""The command `audit`: its options, and what it prints and writes."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from specviz.cli.options import Json, Markdown, choices, command_line, option
from specviz.cli.terminal import interrupt
from specviz.files import write_whole
from specviz.progress import TerminalProgress

_ENGINES = "specviz, transformers, flashspec, llama-cpp-python (default: all installed ones), a URL, or module:function."


def audit(
    context: typer.Context,
    engines: Annotated[
        list[str] | None, typer.Argument(metavar="[ENGINE]...", help=_ENGINES, show_default=False)
    ] = None,
    samples: Annotated[int | None, option("Samples of each engine and temperature", 2000)] = None,
    tokens: Annotated[int | None, option("How many first tokens are compared", 3)] = None,
    temperatures: Annotated[list[float] | None, option("Temperatures", "0.7 1", "T...")] = None,
    models: Annotated[
        Path | None, option("Folder of drafter and verifier, written if missing", "temporary", "DIR")
    ] = None,
    body: Annotated[
        str | None, option("Further parameters of each call to a URL, such as its model", "{}", "JSON")
    ] = None,
    seed: Annotated[int | None, option("Seed of the samples", 0)] = None,
    json: Json = None,
    markdown: Markdown = None,
) -> int:
    """Test whether engines sample as the verifier alone would. Exits with 1 if an engine does not."""
    from specviz.tools.audit import auditing  # slow to import
    from specviz.tools.audit import models as pairs
    from specviz.tools.machine import versions

    asked = choices(context.params, auditing.AuditOptions)
    options, progress = auditing.AuditOptions(**asked), TerminalProgress(sys.stderr)
    asked.pop("engines", None)
    about = {
        "command": command_line(" ".join(["audit", *options.names]), asked),
        "versions": ", ".join(f"{name} {version}" for name, version in versions().items()),
    }
    with interrupt() as stop, TemporaryDirectory() as temporary:
        pair = pairs.prepare_pair(Path(options.models or temporary))
        found = auditing.audit(pair, options, progress, stop)
    text = auditing.markdown(found, options, about)
    if markdown:
        write_whole(markdown, text)
    else:
        print(text, end="")
    if json:
        write_whole(json, auditing.to_json(found, options, about))
    return int(any(each.finding.departs for each in found))
