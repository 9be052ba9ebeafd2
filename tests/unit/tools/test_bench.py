"""The benchmark: a whole one on tiny models, beside other libraries and on a pretended GPU. No figure is judged."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from specviz import __main__ as shell
from specviz.errors import EngineError
from specviz.models.pair import ModelPair
from specviz.progress import silent
from specviz.tools.bench import benchmark, contenders
from specviz.tools.bench.benchmark import Benchmark, BenchmarkOptions, Turn, load_bed, measure
from specviz.tools.bench.contenders import GENERATE, VERIFIER_ALONE, Bed, Measured
from tests.support.tiny import tiny_pair

_TINY_TOKENS = [[5, 6, 7], [8, 9]]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> ModelPair:
    """One vocabulary and no padding, as assisted generation and flashspec need it."""
    sizes: Any = {"drafter_padding": 0, "verifier_padding": 0, "dtype": torch.float32}
    return tiny_pair("llama", tmp_path_factory.mktemp("pair"), **sizes)


@pytest.fixture
def bed(pair: ModelPair) -> Bed:
    return Bed(pair, pair, threads=1, draft_length=2, others=_TINY_TOKENS)


def _options(**changes: Any) -> BenchmarkOptions:
    return BenchmarkOptions(**{"prompts": 2, "tokens": 6, "draft_length": 2} | changes)


def test_a_whole_benchmark_is_printed_and_written(
    bed: Bed, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lossless contenders write the verifier's greedy text; who cannot take part is left out with a sentence."""
    monkeypatch.setattr(benchmark, "load_bed", lambda _options, _progress: bed)
    monkeypatch.setitem(sys.modules, "flashspec", None)
    files = [tmp_path / "bench.json", tmp_path / "bench.md"]
    outputs = ["--json", str(files[0]), "--markdown", str(files[1])]
    assert shell.main(["bench", "--tokens", "6", "--prompts", "2", *outputs]) == 0
    printed = capsys.readouterr().out
    assert "Left out: flashspec, K = 2. flashspec is not installed." in printed
    found = json.loads(files[0].read_text(encoding="utf-8"))
    assert found["complete"]
    head, *rows = found["table"]
    by_title = {row[1]: dict(zip(head, row, strict=True)) for row in rows if row[0] == "0"}
    lossless = (VERIFIER_ALONE, "lossless", "lossless, K = 2", "lossless, 3 sequences", GENERATE)
    for title in (*lossless, "transformers assisted, K = 2"):
        assert by_title[title]["greedy texts equal"] == "2 of 2", title
    assert [len(turn["runs"]) for turn in found["turns"]] == [len(by_title)] * 2 * 2
    report = files[1].read_text(encoding="utf-8")
    assert all(" | ".join(row) in report for row in rows)


def test_ratios_are_taken_between_runs_of_one_prompt_temperature_and_repetition(bed: Bed) -> None:
    """Medians of ratios, not ratios of medians; acceptance pools all draft tokens."""
    first, second = (Measured(8, seconds, [1, 2]) for seconds in (2.0, 8.0))
    turns = [
        Turn(0, 0.0, 0, {VERIFIER_ALONE: first, "lossless": Measured(8, 1.0, [1, 2], None, 10, 1)}),
        Turn(1, 0.0, 0, {VERIFIER_ALONE: second, "lossless": Measured(8, 1.0, [1, 3], None, 2, 2)}),
        Turn(2, 0.0, 0, {"lossless": Measured(8, 1e-6, [1, 2])}),
    ]
    found = Benchmark(contenders.contenders(bed), {}, turns)
    row = dict(zip(found.rows()[0], found.rows()[2], strict=True))
    assert row[f"÷ {VERIFIER_ALONE}"] == "5.00 (3.50–6.50)"
    assert row[f"÷ {GENERATE}"] == "–"
    assert (row["accepted"], row["greedy texts equal"]) == ("0.25", "1 of 2")


def test_others_that_fail_are_left_out_and_our_own_failure_is_raised(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: Any) -> Any:
        raise EngineError("no more\nand a second line")

    monkeypatch.setattr(contenders, "_generate", breaks)
    found = measure(_options(contenders=("verifier_only", "generate")), bed)
    assert found.complete
    assert all(turn.runs.keys() == {VERIFIER_ALONE} for turn in found.turns)
    assert found.notes[0].startswith(f"Left out: {GENERATE}. no more")
    monkeypatch.setattr(contenders, "_ours", breaks)
    with pytest.raises(EngineError):
        measure(_options(contenders=("verifier_only",)), bed)


def test_a_stop_keeps_what_was_measured(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, original = [], contenders._ours

    def ours(*given: Any) -> Measured:
        calls.append(given)
        if len(calls) == 5:  # the first two warm up
            raise KeyboardInterrupt
        return original(*given)

    monkeypatch.setattr(contenders, "_ours", ours)
    found = measure(_options(contenders=("verifier_only",)), bed)
    assert (found.complete, sum(len(turn.runs) for turn in found.turns)) == (False, 2)


def test_pairs_of_shapes_have_the_same_weights_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours runs what transformers runs."""
    monkeypatch.setenv("SPECVIZ_PREPACK", "0")  # packed weights could not be compared
    bed = load_bed(BenchmarkOptions(shape=("tiny", "tiny"), device="cpu", dtype="float32"), silent)
    plain, ours = (list(pair.verifier.parameters()) for pair in (bed.plain, bed.ours))
    assert all(torch.equal(one, other) for one, other in zip(plain, ours, strict=True))
