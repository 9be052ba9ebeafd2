"""The command `loadtest`: its arguments, and what it prints and writes. Knows nothing of how anything is measured."""

from __future__ import annotations

import argparse
import sys
import threading
from datetime import datetime, timezone
from pathlib import Path

from specviz.cli.command_line import choices, command_line
from specviz.cli.table import print_table
from specviz.files import check_output, write_output
from specviz.progress import TerminalProgress
from specviz.tools.loadtest.plan import WAYS


def add_arguments(loadtest: argparse.ArgumentParser) -> None:
    """What can be asked of a load test. Defaults stay with `specviz.tools.loadtest.plan.Plan`."""
    loadtest.add_argument("address", metavar="URL", help="of a running server, such as http://127.0.0.1:7860")
    for name, kind, about in (
        ("--users", int, "visitors at once (default: 30)"),
        ("--seconds", int, "ask for so long (default: 300, or until there were --requests)"),
        ("--requests", int, "ask for so many in all"),
        ("--think", float, "seconds between two requests of a visitor, on average (default: 5)"),
        ("--cancel", float, "share of the requests that are stopped midway (default: 0.1)"),
        ("--close", float, "share of the requests whose tab is closed midway (default: 0.1)"),
        ("--kill", float, "share of the requests whose connections are reset midway (default: 0)"),
        ("--seed", int, "of everything random (default: 0)"),
        ("--distinct", int, "different requests (default: 24)"),
        ("--pid", int, "the server's process, to watch its memory and threads"),
    ):
        loadtest.add_argument(name, type=kind, metavar="N", help=about)
    loadtest.add_argument(
        "--through", choices=WAYS, help="ask as the page does, or by the endpoint generate (default: page)"
    )
    loadtest.add_argument("--pair", help="model pair (default: embedded)")
    for name, about in (
        ("--again", "ask everything alone once more afterwards: has the machine changed?"),
        ("--anywhere", "allow a server that is not on this machine"),
    ):
        loadtest.add_argument(name, action="store_true", default=None, help=about)
    loadtest.add_argument("--json", type=Path, metavar="FILE", help="write everything that was measured")
    loadtest.add_argument("--markdown", type=Path, metavar="FILE", help="write the report")


def run(options: argparse.Namespace, stop: threading.Event) -> int:
    """Test, print and write; returns the exit status: 1 after any error or wrong text."""
    from specviz.runtime.machine import describe_machine
    from specviz.tools.loadtest.job import Job
    from specviz.tools.loadtest.plan import Plan
    from specviz.tools.loadtest.report import markdown, tables, to_json, verdict

    for name in ("json", "markdown"):  # before anything is measured
        check_output(f"--{name}", getattr(options, name))
    asked = choices(options, Plan)
    measured = Job(Plan(**asked), TerminalProgress(sys.stderr), stop).run()
    print(*verdict(measured), sep="\n")
    for table in tables(measured):
        print(f"\n{table.title}")
        print_table(table.rows)
    # What others need to ask for the same: this server and its process are no part of that.
    same = {name: value for name, value in asked.items() if name not in ("address", "pid")}
    settings = (
        command_line("loadtest URL", same),
        datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        describe_machine("cpu"),
    )
    if options.json:
        write_output(options.json, to_json(measured, *settings))
    if options.markdown:
        write_output(options.markdown, markdown(measured, *settings))
    if measured.failed:
        return 1
    return 0 if measured.complete else 130
