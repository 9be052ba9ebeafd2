"""The command `loadtest`: its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specviz.cli.options import Json, choices, flag, option, output_file
from specviz.cli.terminal import interrupt


def loadtest(
    context: typer.Context,
    address: Annotated[
        str, typer.Argument(metavar="URL", help="Of a running server, such as http://127.0.0.1:7860.")
    ],
    users: Annotated[int | None, option("Simulated users", 30)] = None,
    seconds: Annotated[int | None, option("Ask for so long", 300)] = None,
    requests: Annotated[int | None, option("Ask for so many in all")] = None,
    think: Annotated[float | None, option("Mean seconds between two requests of a user", 5)] = None,
    cancel: Annotated[float | None, option("Share of texts that are cancelled midway", 0.1)] = None,
    close: Annotated[float | None, option("Share of texts whose connection is closed midway", 0.1)] = None,
    seed: Annotated[int | None, option("Seed of everything random", 0)] = None,
    distinct: Annotated[int | None, option("Different requests", 24)] = None,
    pair: Annotated[str | None, option("Model pair", "embedded", "PAIR")] = None,
    anywhere: Annotated[bool | None, flag("anywhere", "Allow a server that is not on this machine.")] = None,
    json: Json = None,
    html: Annotated[Path | None, output_file("Write locust's report with its charts")] = None,
) -> int:
    """Put many simulated users on a running server and compare every text with the one written alone."""
    from specviz.tools.loadtest.load_test import LoadTest  # slow to import

    plan = LoadTest(**choices(context.params, LoadTest))
    with interrupt() as stop:  # Ctrl-C reaches locust too, which ends and reports its results so far
        status = plan.run(json, html)
    return 130 if stop.is_set() else status
