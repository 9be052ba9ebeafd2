"""The shell: `python -m specviz generate PROMPT`, `pairs`, `methods`.

Parses arguments, prints what happens; knows nothing of how it happens. Text goes to standard output, everything
about it to standard error. Exit status: 0 done, 1 could not be done, 2 asked wrongly, 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from specviz import __version__
from specviz.cli import bench as bench_command
from specviz.cli import eval as harness_command
from specviz.cli import loadtest as loadtest_command
from specviz.cli import sweep as sweep_command
from specviz.cli.table import print_table
from specviz.errors import RequestError, SpecvizError, StoppedError
from specviz.progress import TerminalProgress
from specviz.schema.settings import read_draft_length

_ACCEPTED, _RESAMPLED, _PLAIN = "\x1b[38;5;33m", "\x1b[4;38;5;208m", "\x1b[0m"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # threads that do not spin: see app.py
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except RequestError as error:
        print(f"specviz: {error}", file=sys.stderr)
        return 2
    except StoppedError as error:
        print(f"specviz: {error}", file=sys.stderr)
        return 130
    except SpecvizError as error:
        print(f"specviz: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m specviz", description="Speculative cascades, token by token."
    )
    parser.add_argument("--version", action="version", version=f"specviz {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    generate = commands.add_parser(
        "generate", help="continue a prompt; the text streams, coloured in a terminal"
    )
    generate.set_defaults(run=_generate)
    generate.add_argument(
        "prompt", metavar="PROMPT", help="what to answer or continue; - reads standard input"
    )
    generate.add_argument(
        "--pair", default="embedded", help="model pair, see the command pairs (default: embedded)"
    )
    generate.add_argument(
        "--method", default="cascade_tokenV3", help="see the command methods (default: cascade_tokenV3)"
    )
    generate.add_argument(
        "--lenience", type=float, help="within the method's range (default: the method's own)"
    )
    generate.add_argument(
        "--draft-length",
        type=read_draft_length,
        default="auto",
        metavar="K",
        help="proposals a round, 1 to 16, or auto: chosen for each round (default: auto)",
    )
    generate.add_argument("--temperature", type=float, default=1.0, help="0 is greedy (default: 1)")
    generate.add_argument(
        "--top-k", type=int, default=0, help="keep the k most probable tokens; 0 keeps all (default)"
    )
    generate.add_argument(
        "--top-p", type=float, default=1.0, help="keep this much probability; 1 keeps all (default)"
    )
    generate.add_argument("--seed", type=int, default=0, help="the text depends on it alone (default: 0)")
    generate.add_argument("--max-new-tokens", type=int, default=128, help="stop after so many (default: 128)")
    generate.add_argument(
        "--forbid", action="append", default=[], metavar="TOKEN", help="a token never to write; repeatable"
    )
    generate.add_argument(
        "--raw", action="store_true", help="no chat template: continue the prompt as it stands"
    )
    generate.add_argument(
        "--inspect", type=int, default=0, metavar="N", help="record the N most probable tokens in the trace"
    )
    generate.add_argument("--trace", type=Path, metavar="FILE", help="save the run as JSON lines")
    generate.add_argument(
        "--json", action="store_true", help="print one JSON object with everything, and no stream"
    )
    generate.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, ... (default: auto)")
    generate.add_argument(
        "--dtype", default="auto", help="auto, float32, bfloat16, float16, float64 (default: auto)"
    )

    pairs = commands.add_parser(
        "pairs", help="list the model pairs: sizes, source, whether they can be used now"
    )
    pairs.set_defaults(run=_pairs)

    distil = commands.add_parser(
        "distill", help="distil a drafter for a pair's verifier; goes on where it was broken off"
    )
    distil.set_defaults(run=_distil)
    distil.add_argument(
        "--pair-verifier",
        default="embedded",
        metavar="PAIR",
        help="the pair whose verifier teaches (embedded)",
    )
    distil.add_argument("--out", type=Path, required=True, metavar="DIR", help="where everything goes")
    distil.add_argument(
        "--shape",
        default="layers:0,-2,-1",
        help="layers:0,-2,-1 takes the verifier's first layer and its last two, narrow:4x256 is depth x width "
        "(default: layers:0,-2,-1)",
    )
    distil.add_argument(
        "--vocabulary",
        type=int,
        default=12288,
        metavar="N",
        help="tokens it knows; 0 for all (default: 12288)",
    )
    for name, default, about in (
        ("--tokens", 1_000_000, "tokens that the verifier writes"),
        ("--passes", 8, "times each is learned from"),
        ("--rows", 128, "answers written at once"),
        ("--answer-tokens", 224, "at most so many an answer"),
        ("--batch-tokens", 2048, "learned from in one step"),
        ("--seed", 0, "of everything random"),
    ):
        distil.add_argument(
            name, type=int, default=default, metavar="N", help=f"{about} (default: {default})"
        )
    distil.add_argument("--learning-rate", type=float, default=1e-3, help="at its height (default: 0.001)")
    distil.add_argument("--device", default="auto", help="auto, cpu, cuda, ... (default: auto)")

    bench = commands.add_parser(
        "bench", help="measure this machine: our methods, transformers and flashspec side by side"
    )
    bench.set_defaults(run=_bench)
    bench_command.add_arguments(bench)

    sweep = commands.add_parser(
        "sweep", help="quality against cost of all methods; goes on where it was broken off"
    )
    sweep.set_defaults(run=_sweep)
    sweep_command.add_arguments(sweep)

    evaluate = commands.add_parser(
        "eval", help="score a pair and a method on the tasks of lm-evaluation-harness"
    )
    evaluate.set_defaults(run=_evaluate)
    harness_command.add_arguments(evaluate)

    loadtest = commands.add_parser(
        "loadtest", help="many visitors at once on a running server; is every text still the right one?"
    )
    loadtest.set_defaults(run=_loadtest)
    loadtest_command.add_arguments(loadtest)

    record = commands.add_parser("record", help="make the recorded runs of the tab Replay anew")
    record.set_defaults(run=_record)
    record.add_argument("--pair", default="embedded", help="model pair (default: embedded)")
    record.add_argument("--folder", type=Path, help="where they are put (default: the project’s own)")

    methods = commands.add_parser("methods", help="list the nine methods")
    methods.set_defaults(run=_methods)
    return parser


def _generate(options: argparse.Namespace) -> int:
    from specviz.schema.settings import Request

    request = Request(
        prompt=sys.stdin.read() if options.prompt == "-" else options.prompt,
        raw=options.raw,
        method=options.method,
        lenience=options.lenience,
        draft_length=options.draft_length,
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        seed=options.seed,
        max_new_tokens=options.max_new_tokens,
        forbidden_tokens=options.forbid,
        inspect=options.inspect,
    )
    # Both are slow to import, and a request asked wrongly should hear of it at once.
    from specviz.engine.engine import Decided, Engine, Finished
    from specviz.models.pairs import load_pair

    progress = TerminalProgress(sys.stderr)
    pair = load_pair(options.pair, device=options.device, dtype=options.dtype, progress=progress)
    run = None
    with _interrupt() as stop:
        for event in Engine(pair).stream(request, stop=stop):
            run = event.run
            if isinstance(event, Decided) and not options.json:
                for token in event.round.tokens:
                    _write(token.text, token.accepted)
            if isinstance(event, Finished) and not options.json:
                print(flush=True)
    assert run is not None
    if options.trace:
        run.save(options.trace)
    if options.json:
        print(json.dumps(run.summary(), ensure_ascii=False))
    else:
        figures = [
            ("acceptance rate", run.acceptance_rate, ".0%"),
            ("block efficiency", run.block_efficiency, ".2f"),
        ]
        if run.draft_length is None:
            figures.append(("proposals a round", run.mean_draft_length, ".1f"))
        figures += [("verifier calls", run.verifier_calls, "d"), ("tokens/s", run.tokens_per_second, ".1f")]
        told = [f"{name} {value:{form}}" for name, value, form in figures if value is not None]
        print(
            " · ".join([f"{len(run.tokens)} tokens", *told, f"stopped: {run.stop_reason}"]), file=sys.stderr
        )
    return 130 if run.stop_reason == "cancelled" else 0


def _coloured(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR")


def _write(text: str, accepted: bool) -> None:
    """Print a token's text; in a terminal coloured, and with control characters made visible."""
    if sys.stdout.isatty():
        # Model text is untrusted: an escape sequence must not reach the terminal.
        text = "".join(c if c in "\n\t" or c.isprintable() else f"\\x{ord(c):02x}" for c in text)
    if text and _coloured(sys.stdout):
        text = f"{_ACCEPTED if accepted else _RESAMPLED}{text}{_PLAIN}"
    print(text, end="", flush=True)


@contextmanager
def _interrupt() -> Iterator[threading.Event]:
    """Ctrl-C ends the run within a round, and the trace is kept; a second one breaks off."""
    stop = threading.Event()
    before = signal.getsignal(signal.SIGINT)

    def ask_to_stop(_signal: int, _frame: object) -> None:
        stop.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, ask_to_stop)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


def _distil(options: argparse.Namespace) -> int:
    from specviz.tools.distill.job import Plan, distil
    from specviz.tools.distill.student import Shape

    plan = Plan(
        verifier=options.pair_verifier,
        shape=Shape.parse(options.shape, options.vocabulary),
        tokens=options.tokens,
        answer_tokens=options.answer_tokens,
        rows=options.rows,
        passes=options.passes,
        batch_tokens=options.batch_tokens,
        learning_rate=options.learning_rate,
        seed=options.seed,
    )
    with _interrupt() as stop:
        report = distil(
            plan, options.out, device=options.device, progress=TerminalProgress(sys.stderr), stop=stop
        )
    for name, value in report["held_out"].items():
        print(f"acceptance {value:.3f}  {name}")
    print(f"cost {report['cost']:.3f} of a verifier forward")
    print(f"the drafter is in {options.out / 'student'}")
    return 0


def _bench(options: argparse.Namespace) -> int:
    with _interrupt() as stop:
        return bench_command.run(options, stop)


def _sweep(options: argparse.Namespace) -> int:
    with _interrupt() as stop:
        return sweep_command.run(options, stop)


def _evaluate(options: argparse.Namespace) -> int:
    with _interrupt() as stop:
        return harness_command.run(options, stop)


def _loadtest(options: argparse.Namespace) -> int:
    with _interrupt() as stop:
        return loadtest_command.run(options, stop)


def _pairs(_options: argparse.Namespace) -> int:
    from specviz.models.pairs import describe_pairs

    rows = [("pair", "drafter → verifier", "parameters", "size", "source", "cached", "usable now")]
    for pair in describe_pairs():
        usable = ("yes" if pair.usable else "no") + (f": {pair.note}" if pair.note else "")
        models = f"{pair.drafter} → {pair.verifier}"
        rows.append(
            (
                pair.key,
                models,
                pair.parameters,
                f"{pair.size_gb:.1f} GB",
                pair.source,
                "yes" if pair.cached else "no",
                usable,
            )
        )
    print_table(rows)
    return 0


def _record(options: argparse.Namespace) -> int:
    from specviz.models.pairs import load_pair
    from specviz.tools.record import SHELF, record

    pair = load_pair(options.pair, progress=TerminalProgress(sys.stderr))
    shelf = record(pair, options.folder or SHELF, lambda title: print(title, file=sys.stderr))
    print(
        f"{len(shelf.runs)} runs · verifier alone {1000 * shelf.verifier_only_seconds_per_token:.0f} ms a token "
        f"on {shelf.machine}",
        file=sys.stderr,
    )
    return 0


def _methods(_options: argparse.Namespace) -> int:
    from specviz.core.methods import METHODS

    rows = [("method", "trusts the drafter where", "lenience", "default")]
    for method in METHODS.values():
        low, high = method.offered_range
        lenience = f"{low:g} … {high:g}" if method.has_lenience else "none"
        rows.append(
            (
                method.name,
                method.formula,
                lenience,
                f"{method.default_lenience:g}" if method.has_lenience else "",
            )
        )
    print_table(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
