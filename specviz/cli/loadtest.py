"""The command `loadtest`: its options, and what it prints and writes. Knows nothing of how anything is measured."""

from __future__ import annotations

import sys
from datetime import datetime, timezone
from typing import Annotated

import typer

from specviz.cli.options import Json, Markdown, asks, choices, command_line, flag
from specviz.cli.terminal import interrupt, print_tables
from specviz.files import write_output
from specviz.progress import TerminalProgress


def loadtest(
    context: typer.Context,
    address: Annotated[
        str, typer.Argument(metavar="URL", help="Of a running server, such as http://127.0.0.1:7860.")
    ],
    users: Annotated[int | None, asks("Visitors at once", 30)] = None,
    seconds: Annotated[int | None, asks("Ask for so long", "300, or until there were --requests")] = None,
    requests: Annotated[int | None, asks("Ask for so many in all")] = None,
    think: Annotated[float | None, asks("Seconds between two requests of a visitor, on average", 5)] = None,
    cancel: Annotated[float | None, asks("Share of the requests that are stopped midway", 0.1)] = None,
    close: Annotated[float | None, asks("Share of the requests whose tab is closed midway", 0.1)] = None,
    kill: Annotated[float | None, asks("Share of the requests whose connections are reset midway", 0)] = None,
    seed: Annotated[int | None, asks("Of everything random", 0)] = None,
    distinct: Annotated[int | None, asks("Different requests", 24)] = None,
    pid: Annotated[int | None, asks("The server's process, to watch its memory and threads")] = None,
    through: Annotated[
        str | None, asks("Ask as the page does, or by the endpoint generate", "page", "page|api")
    ] = None,
    pair: Annotated[str | None, asks("Model pair", "embedded", "PAIR")] = None,
    again: Annotated[
        bool | None, flag("again", "Ask everything alone once more afterwards: has the machine changed?")
    ] = None,
    anywhere: Annotated[bool | None, flag("anywhere", "Allow a server that is not on this machine.")] = None,
    json: Json = None,
    markdown: Markdown = None,
) -> int:
    """Many visitors at once on a running server; is every text still the right one?"""
    from specviz.tools.loadtest import report
    from specviz.tools.loadtest.load_test import LoadTest
    from specviz.tools.loadtest.scenario import Scenario
    from specviz.tools.machine import describe_machine  # slow to import, as is what follows

    asked = choices(context.params, Scenario)
    plan = Scenario(**asked)
    with interrupt() as stop:
        measured = LoadTest(plan, TerminalProgress(sys.stderr), stop).run()
    print(*report.verdict(measured), sep="\n")
    print_tables(report.tables(measured))
    # What others need to ask for the same: this server and its process are no part of that.
    same = {name: value for name, value in asked.items() if name not in ("address", "pid")}
    about = {
        "command": command_line("loadtest URL", same),
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": describe_machine("cpu"),
    }
    if json:
        write_output(json, report.to_json(measured, **about))
    if markdown:
        write_output(markdown, report.markdown(measured, **about))
    if measured.failed:
        return 1
    return 0 if measured.complete else 130
