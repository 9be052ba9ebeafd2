"""The shell: what it prints, where, and with which exit status."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer

from specviz.cli import main as shell
from specviz.cli.generate import write_token
from specviz.cli.options import ListsCommand
from specviz.core.methods import METHODS
from specviz.models.pair import ModelPair
from specviz.models.registry import PAIRS
from specviz.schema.trace import Run


@pytest.fixture(autouse=True)
def _small_pair(pair: ModelPair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands load a tiny pair."""
    monkeypatch.setattr("specviz.models.loading.load_pair", lambda *_, **__: pair)


def test_text_goes_to_standard_output_the_rest_to_standard_error_and_json_is_a_run(
    capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    trace = tmp_path / "trace.jsonl"
    line = "--method cascade_opt --lenience 0.2 --draft-length 3 --temperature 0.8 --top-k 50 --top-p 0.9 --seed 7"
    line += f" --max-new-tokens 10 --inspect 2 --raw --trace {trace}"
    assert shell.main(["generate", "hello", *line.split()]) == 0
    printed = capsys.readouterr()
    assert printed.out == Run.load(trace).text + "\n"
    assert "10 tokens" in printed.err
    assert shell.main(["generate", "hello", *line.split(), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == json.loads(json.dumps(Run.load(trace).summary()))
    asked = {"method": "cascade_opt", "lenience": 0.2, "draft_length": 3, "temperature": 0.8, "top_k": 50}
    asked |= {"top_p": 0.9, "seed": 7, "max_new_tokens": 10, "inspect": 2}
    assert asked.items() <= found.items()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["-"], "utf-8"),
        (["hello", "--lenience", "2"], "Lenience"),
        (["hello", "--draft-length", "many"], "'many'"),
        (["hello", "--trace", "no/trace"], "--trace"),
        (["hello", "--forbid", "two words"], "exactly one"),
        (["hello", "--seed", "x"], "Usage: "),
        ([], "Usage: "),
    ],
)
def test_asked_wrongly_is_status_2_and_nothing_on_standard_output(
    arguments: list[str], word: str, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9"), "utf-8"))
    assert shell.main(["generate", *arguments]) == 2
    printed = capsys.readouterr()
    assert word in printed.err
    assert "Traceback" not in printed.err
    assert not printed.out


def test_options_take_several_values_or_are_repeated() -> None:
    """`--temperatures 0 1` and `--temperatures 0 --temperatures 1` are the same; a negative number is a value."""
    kept: list[dict[str, Any]] = []
    app = typer.Typer()

    @app.command(cls=ListsCommand)
    def job(numbers: list[float] | None = None, names: list[str] | None = None, rows: int = 1) -> None:
        kept.append({"numbers": numbers, "names": names, "rows": rows})

    for line in (
        "--numbers -1 0 0.5 --rows 2 --names a b",
        "--numbers -1 --numbers 0 --names a --numbers 0.5 --names b --rows 2",
    ):
        app(line.split(), standalone_mode=False)
    assert kept == [{"numbers": [-1, 0, 0.5], "names": ["a", "b"], "rows": 2}] * 2


@pytest.mark.parametrize(("encoding", "arguments"), [("cp1252", []), ("ascii", ["--json"])])
def test_a_stream_that_is_not_utf8_gets_all_of_the_text(
    encoding: str, arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Characters outside the encoding become escapes; JSON stays JSON, and the trace is written."""
    out, err, trace = io.BytesIO(), io.BytesIO(), tmp_path / "trace.jsonl"
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(out, encoding))
    monkeypatch.setattr("sys.stderr", io.TextIOWrapper(err, encoding))
    line = "--max-new-tokens 40 --temperature 2 --trace"
    assert shell.main(["generate", "naïve 日本語 🎉", *line.split(), str(trace), *arguments]) == 0
    text = Run.load(trace).text
    assert any(ord(each) > 255 for each in text)
    printed = out.getvalue().decode(encoding)
    if arguments:
        assert json.loads(printed)["text"] == text
    else:
        escaped = text.encode(encoding, "backslashreplace").decode(encoding)
        assert printed.replace("\r\n", "\n") == f"{escaped}\n"


def test_standard_output_that_cannot_be_written_is_status_1(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk is one sentence; a pipe whose reader has gone is silent."""
    for arguments in (["methods"], ["generate", "hello", "--max-new-tokens", "3"]):
        with open("/dev/full", "w", encoding="utf-8") as full:
            monkeypatch.setattr("sys.stdout", full)
            assert shell.main(arguments) == 1
        printed = capsys.readouterr().err
        assert printed.count("specviz: ") == 1
        assert "Traceback" not in printed
        read, write = os.pipe()
        os.close(read)
        with suppress(BrokenPipeError), open(write, "w", encoding="utf-8") as gone:
            monkeypatch.setattr("sys.stdout", gone)
            assert shell.main(arguments) == 1
        assert "specviz: " not in capsys.readouterr().err


def test_a_terminal_gets_colours_and_no_escape_sequences_of_the_model(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    write_token("a\x1b[2Jb\n", True)
    write_token("c", False)
    monkeypatch.setenv("NO_COLOR", "1")
    write_token("d", True)
    assert capsys.readouterr().out == "\x1b[38;5;33ma\\x1b[2Jb\n\x1b[0m\x1b[4;38;5;208mc\x1b[0md"


def test_serve_passes_the_class_on_and_a_sentence_of_the_server_is_status_1(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specviz.app.server.main", lambda for_class: sys.exit(f"Class: {for_class}."))
    assert shell.main(["serve", "--class"]) == 1
    assert capsys.readouterr().err == "specviz: Class: True.\n"


def test_lists_name_all_pairs_and_methods(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specviz.models.hub.reachable", lambda: False)
    for command, names in (("pairs", PAIRS), ("methods", METHODS)):
        assert shell.main([command]) == 0
        listed = capsys.readouterr().out
        assert [line.split()[0] for line in listed.splitlines()[1:]] == list(names)


def test_an_interrupt_ends_the_run_within_a_round_and_keeps_the_trace(
    pair: ModelPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law 6: Ctrl-C in the middle of a run without end."""
    endless = replace(pair, eos_token_ids=frozenset(), context_length=10**6)
    monkeypatch.setattr("specviz.models.loading.load_pair", lambda *_, **__: endless)
    written: list[str] = []

    def write(text: str, accepted: bool) -> None:
        written.append(text)
        if len(written) == 20:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("specviz.cli.generate.write_token", write)
    trace = tmp_path / "trace.jsonl"
    assert shell.main(["generate", "hello", "--max-new-tokens", "100000", "--trace", str(trace)]) == 130
    assert len(written) < 40
    assert Run.load(trace).stop_reason == "cancelled"
