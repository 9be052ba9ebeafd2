"""The command `generate`. The text goes to standard output, everything else to standard error."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specviz.cli.options import Device, Dtype, Pair, flag, output_file, with_settings
from specviz.cli.terminal import interrupt
from specviz.errors import RequestError
from specviz.progress import TerminalProgress
from specviz.schema.settings import Request

if TYPE_CHECKING:
    from specviz.schema.trace import Run

_ACCEPTED, _RESAMPLED, _PLAIN = "\x1b[38;5;33m", "\x1b[4;38;5;208m", "\x1b[0m"


@with_settings()
def generate(
    prompt: Annotated[
        str, typer.Argument(metavar="PROMPT", help="What to answer or continue; - reads standard input.")
    ],
    raw: Annotated[bool, flag("raw", "No chat template: continue the prompt as it stands.")] = False,
    trace: Annotated[Path | None, output_file("Save the run as JSON lines")] = None,
    as_json: Annotated[bool, flag("json", "Print one JSON object with everything, and no stream.")] = False,
    pair: Pair = "embedded",
    device: Device = "auto",
    dtype: Dtype = "auto",
    **settings: Any,
) -> int:
    """Continue a prompt; the text streams, coloured in a terminal."""
    request = Request(prompt=_read_input() if prompt == "-" else prompt, raw=raw, **settings)
    # Imported late: it is slow, and an invalid request should be refused at once.
    from specviz.engine.engine import Engine
    from specviz.engine.events import Decided, Finished
    from specviz.models.loading import load_pair

    loaded = load_pair(pair, device=device, dtype=dtype, progress=TerminalProgress(sys.stderr))
    run = None
    with interrupt() as stop:
        for event in Engine(loaded).stream(request, stop=stop):
            run = event.run
            if isinstance(event, Decided) and not as_json:
                for token in event.round.tokens:
                    write_token(token.text, token.accepted)
            if isinstance(event, Finished) and not as_json:
                write_token(run.tail, accepted=False)
                print(flush=True)
    assert run is not None
    if trace:
        run.save(trace)
    if as_json:
        print(json.dumps(run.summary()))  # ASCII, which any encoding of standard output has
    else:
        print(_figures(run), file=sys.stderr)
    return 130 if run.stop_reason == "cancelled" else 0


def _read_input() -> str:
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise RequestError(
            f"Standard input is no text in {error.encoding}: give the prompt in that encoding."
        ) from error


def write_token(text: str, accepted: bool) -> None:
    """Print a token's text; on a terminal in colour, and with control characters as escapes."""
    if sys.stdout.isatty():
        # Model text is untrusted: an escape sequence must not reach the terminal.
        text = "".join(c if c in "\n\t" or c.isprintable() else f"\\x{ord(c):02x}" for c in text)
        if text and not os.environ.get("NO_COLOR"):
            text = f"{_ACCEPTED if accepted else _RESAMPLED}{text}{_PLAIN}"
    print(text, end="", flush=True)


def _figures(run: Run) -> str:
    metrics = run.metrics()
    figures = [
        ("acceptance rate", metrics.acceptance_rate, ".0%"),
        ("tokens per verifier call", metrics.block_efficiency, ".2f"),
        ("proposals a round", metrics.mean_draft_length if run.draft_length is None else None, ".1f"),
        ("verifier calls", run.verifier_calls, "d"),
        ("tokens/s", metrics.tokens_per_second, ".1f"),
    ]
    known = [f"{name} {value:{form}}" for name, value, form in figures if value is not None]
    return ", ".join([f"{len(run.tokens)} tokens", *known, f"stopped: {run.stop_reason}"])
