"""Will it pay: whole measurements of tiny pairs from their folders. No time is judged."""

from __future__ import annotations

import json
import shutil
import threading
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from specviz import __main__ as shell
from specviz.analysis.fit import LONGEST, block_positions
from specviz.analysis.sweep.results import Estimate
from specviz.errors import PairError
from specviz.models.pair import ModelPair
from specviz.progress import silent
from specviz.tools.fit.candidates import candidates
from specviz.tools.fit.measuring import ALONE, Fit, FitOptions
from specviz.tools.fit.report import AtTemperature, Kind, Row, verdict
from tests.support.tiny import tiny_pair, tiny_tokenizer

SHORT = ["--tokens", "8", "--kind", "code", "--limit", "2", "--temperatures", "0", "1", "--device", "cpu"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pair")
    tiny_pair("llama", folder, dtype=torch.float32)
    return folder


def test_at_temperature_0_the_calls_of_every_draft_length_are_foretold_exactly(pair: ModelPair) -> None:
    """One reading of the verifier's text says how many verifier calls lossless decoding takes, whatever K is."""
    lengths = (1, 2, 3, 5, LONGEST)
    options = FitOptions(kind="code", limit=2, tokens=20, temperatures=(0.0,), draft_lengths=lengths)
    fit = Fit(pair, options, options.items(), silent, threading.Event())
    fit.measure()
    for k in lengths:
        foretold = [block_positions(text.kept, k)[:, 0].sum() for text in fit.texts[0.0]]
        assert foretold == [turn[k]["calls"] for turn in fit.runs[0.0]], k
    assert [turn[ALONE]["calls"] for turn in fit.runs[0.0]] == [len(text.kept) for text in fit.texts[0.0]]


def test_a_measurement_is_reported_unless_it_is_stopped(
    folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    models, out = [str(folders / name) for name in ("drafter", "verifier")], ["--out", str(tmp_path)]
    assert shell.main(["fit", *models, *SHORT, *out]) == 0
    printed = capsys.readouterr().out
    report = tmp_path / "report.md"
    [found] = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["pairs"]
    assert found["verdict"] in printed
    assert found["verdict"] in report.read_text(encoding="utf-8")
    assert "padded differently" in found["tokenizers"]
    for at in found["temperatures"]:
        assert sum(row["measured"] is not None for row in at["rows"]) == 3
        assert 0 < at["acceptance"]["value"] < 1
    report.unlink()
    stop = threading.Event()
    stop.set()
    monkeypatch.setattr("specviz.cli.fit.interrupt", lambda: nullcontext(stop))
    assert shell.main(["fit", *models, *SHORT, *out]) == 130
    assert not report.exists()


def test_of_several_drafters_a_broken_one_is_left_out_and_one_prompt_has_no_interval(
    folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    shutil.copytree(folders / "drafter", tmp_path / "broken")
    (tmp_path / "broken" / "model.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0{}")
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "hello"}\n', encoding="utf-8")
    drafters = [str(tmp_path / "broken"), str(folders / "drafter"), str(folders / "verifier")]
    more = ["--prompts", str(prompts), "--tokens", "8", "--temperatures", "0", "--device", "cpu"]
    assert shell.main(["fit", *drafters, str(folders / "verifier"), *more]) == 0
    printed = capsys.readouterr().out
    assert "broken was left out. " in printed
    assert "One prompt says nothing of others" in printed
    assert printed.count("Drafting ") == 2
    assert shell.main(["fit", drafters[0], str(folders / "verifier"), *more]) == 1


def test_models_that_do_not_fit_are_refused_with_why(
    folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    other = shutil.copytree(folders / "drafter", tmp_path / "other")
    tiny_tokenizer(other, lines=("other words, other merges",))
    assert shell.main(["fit", str(other), str(folders / "verifier"), *SHORT]) == 1
    assert "have different tokenizers" in capsys.readouterr().err
    with pytest.raises(PairError, match="drafts for SmolLM2-135M-Instruct only"):
        candidates(["embedded", str(folders / "verifier")])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere"], "Name a drafter"),
        (["embedded", "--prompts", "no/such/file"], "cannot be read"),
        (["embedded", "--kind", "poems"], "'poems'"),
        (["embedded", "--draft-lengths", "3", "9"], "from 1 to 8"),
        (["embedded", "--temperatures", "nan"], "Temperature is nan"),
        (["embedded", "embedded-lookup", "embedded"], "nothing to predict"),
    ],
)
def test_asked_wrongly_is_a_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture
) -> None:
    assert shell.main(["fit", *arguments]) == 2
    assert sentence in capsys.readouterr().err


def test_the_verdict_follows_from_the_intervals() -> None:
    def at(temperature: float, speed: Estimate, break_even: float | None = 0.55) -> AtTemperature:
        faster, slower = Estimate(1.2, 1.1, 1.3), Estimate(1.1, 1.0, 1.2)
        lucky = Row(2, 1.3, None, slower, 1.0, None, Estimate(9.0, 8.0, 10.0))
        row = Row(3, 1.5, None, faster, 1.0, None, speed)
        kinds = {"code": Kind(None, Estimate(1.9, 1.9, 1.9))}
        return AtTemperature(temperature, Estimate(0.31, 0.3, 0.32), [], 0.4, break_even, [lucky, row], kinds)

    wins, doubts, loses = Estimate(1.32, 1.25, 1.38), Estimate(1.02, 0.97, 1.05), Estimate(0.8, 0.7, 0.9)
    unsure = Estimate(0.9, 0.7, 1.1)
    foretold = replace(at(0, unsure), rows=[Row(3, 1.5, None, loses, 1.0, None, unsure)])
    for found, start in (
        ([at(0, wins), at(1, wins)], "Drafting pays: K = 3, 1.32 (1.25–1.38) × at T = 0; "),
        ([at(0, wins), at(1, doubts)], "Drafting pays at T = 0, not surely at 1: K = 3, 1.32"),
        ([at(0, wins), at(1, loses)], "Drafting pays at T = 0, not at 1: K = 3, 1.32"),
        ([at(0, doubts)], "It cannot be told whether drafting pays: at best K = 3, 1.02"),
        ([at(0, loses)], "Drafting does not pay: at best K = 3, 0.80 (0.70–0.90) × at T = 0"),
        ([foretold], "Drafting does not pay: at best K = 3, 0.90"),
    ):
        assert verdict(found).startswith(start)
    assert "0.55" in verdict([at(0, loses)])
    assert "even if all were" in verdict([at(0, loses, None)])
