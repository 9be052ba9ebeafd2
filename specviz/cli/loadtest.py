"""The command `loadtest`: its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specviz.cli.options import Json, flag, option, output_file
from specviz.cli.terminal import interrupt


def loadtest(
    context: typer.Context,
    address: Annotated[
        str, typer.Argument(metavar="URL", help="Of a running server, such as http://127.0.0.1:7860.")
    ],
    users: Annotated[int, option("Simulated users", low=1)] = 30,
    seconds: Annotated[int, option("Ask for so long", low=1)] = 300,
    requests: Annotated[int | None, option("Ask for so many in all", low=1)] = None,
    think: Annotated[float, option("Mean seconds between two requests of a user", low=0)] = 5,
    cancel: Annotated[float, option("Share of texts that are cancelled midway", low=0)] = 0.1,
    close: Annotated[float, option("Share of texts whose connection is closed midway", low=0)] = 0.1,
    seed: Annotated[int, option("Seed of everything random")] = 0,
    distinct: Annotated[int, option("Different requests", low=1)] = 24,
    pair: Annotated[str, option("Model pair", metavar="PAIR")] = "embedded",
    anywhere: Annotated[bool, flag("anywhere", "Allow a server that is not on this machine.")] = False,
    json: Json = None,
    html: Annotated[Path | None, output_file("Write locust's report with its charts")] = None,
) -> int:
    """Put many simulated users on a running server, and compare every text with the text of the same request sent alone."""
    from specviz.tools.loadtest.load_test import run  # slow to import

    plan = {name: value for name, value in context.params.items() if name not in ("json", "html")}
    with interrupt() as stop:  # Ctrl-C reaches locust too, which ends and reports its results so far
        status = run(plan, json, html)
    return 130 if stop.is_set() else status
