"""The shell: `specviz COMMAND`, or `python -m specviz COMMAND`.

An error becomes a message and an exit status: 1 failed, 2 invalid request, 130 interrupted. This module does not import
torch, so that help appears at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from specviz import __version__
from specviz.cli.audit import audit
from specviz.cli.bench import bench
from specviz.cli.distill import distill
from specviz.cli.eval import evaluate
from specviz.cli.fit import fit
from specviz.cli.generate import generate
from specviz.cli.listings import methods, pairs
from specviz.cli.loadtest import loadtest
from specviz.cli.options import ListsCommand
from specviz.cli.record import record
from specviz.cli.serve import serve
from specviz.cli.sweep import sweep
from specviz.cli.terminal import drop_output, prepare_streams
from specviz.errors import RequestError, RuleError, SpecvizError, StoppedError


def _exit(status: int, **_: Any) -> None:
    """Exit with the status that a command returned."""
    raise typer.Exit(status)


app = typer.Typer(
    help="Speculative cascades, token by token.",
    result_callback=_exit,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_COMMANDS: tuple[Callable[..., int], ...] = (
    *(generate, serve, pairs, methods),
    *(bench, fit, audit, sweep, evaluate, loadtest, distill, record),
)
_NAMES: dict[Callable[..., int], str] = {evaluate: "eval"}
_TAKE_LISTS = (bench, fit, audit, sweep, evaluate, distill)
for _command in _COMMANDS:
    app.command(_NAMES.get(_command), cls=ListsCommand if _command in _TAKE_LISTS else None)(_command)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"specviz {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # threads do not spin: see specviz/app/server.py
    prepare_streams()
    try:
        try:
            app(arguments)
        finally:
            sys.stdout.flush()  # now, since a failure at Python's exit could not be reported
    except SystemExit as end:
        if isinstance(end.code, str):  # a message about the environment
            print(f"specviz: {end.code}", file=sys.stderr)
        return end.code if isinstance(end.code, int) else 1
    except SpecvizError as error:
        print(f"specviz: {error}", file=sys.stderr)
        if isinstance(error, RuleError):
            print(error.pointed, file=sys.stderr)
        return 2 if isinstance(error, RequestError) else 130 if isinstance(error, StoppedError) else 1
    except BrokenPipeError:  # the reader has closed the pipe
        drop_output()
        return 1
    except OSError as error:
        drop_output()
        what = (
            Path(os.fsdecode(error.filename)).name
            if isinstance(error.filename, str | bytes)
            else "Standard output"
        )
        print(f"specviz: {what} could not be read or written: {error.strerror or error}.", file=sys.stderr)
        return 1
    return 0
