"""What is kept for a real GPU, rehearsed with tiny models: stages go on where they were, and a wrong number is seen."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from specviz.cli.main import main
from specviz.errors import StoppedError
from specviz.progress import silent
from specviz.tools.distill.texts import Texts
from specviz.tools.gpu import correctness, drafter, job, own_tests, review, rounds, speed, stages
from specviz.tools.gpu.job import TINY, Job, environment
from specviz.tools.gpu.passes import Passes
from specviz.tools.gpu.record import Record
from tests.support.pretend_gpu import PretendGpu, takes_torch_s_attention


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """A rehearsal on the CPU, of one pair."""
    monkeypatch.setattr(job, "TINY", TINY[1:2] * 2)
    monkeypatch.setattr(review, "bandwidth", lambda _: 1e9)
    monkeypatch.setattr(rounds, "bandwidth", lambda _: 1e9)
    return Job.of(tmp_path / "out", "cpu", tiny=True)


def record_of(job: Job, seconds: float = 600.0) -> Record:
    return Record(job.out / "record.json", job.device, seconds, silent)


# ---- the record ------------------------------------------------------------------------------------------


def test_a_stage_goes_on_where_it_was(tiny: Job) -> None:
    first, calls = record_of(tiny), list[str]()

    def work(name: str) -> dict[str, Any]:
        calls.append(name)
        if calls.count(name) == 1 and name == "b":
            raise RuntimeError("out of luck\nand more")
        return {"value": len(calls)}

    for name in "abc":
        first.step(name, lambda name=name: work(name))
    assert first.steps["b"]["error"] == "RuntimeError: out of luck"
    assert not first.is_complete
    second = record_of(tiny)
    for name in "abc":
        second.step(name, lambda name=name: work(name))
    assert calls == ["a", "b", "c", "b"]
    assert second.is_complete
    assert json.loads((tiny.out / "record.json").read_text())["complete"]


def test_no_step_begins_that_would_not_end_in_time(tiny: Job) -> None:
    record = record_of(tiny, seconds=0.0)
    assert record.step("late", lambda: pytest.fail("it was begun")) is None
    assert (record.left, record.is_complete) == (["late"], False)


def test_an_unknown_stage_or_no_gpu_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["gpu", "--out", str(tmp_path), "--device", "cpu"]
    assert main([*command, "--stage", "1"]) == 2
    assert main([*command, "--stage", "7", "--tiny"]) == 2
    assert "There is no GPU here" in capsys.readouterr().err


# ---- the stages ------------------------------------------------------------------------------------------


def test_every_measurement_that_was_foreseen_is_taken(tiny: Job) -> None:
    record = record_of(tiny)
    review.measure(tiny, record)
    assert record.is_complete, record.steps
    assert record.steps.keys() == review.EXPECTED.keys()
    assert len(review.table(record.steps)) == 1 + len(review.EXPECTED)


def test_right_numbers_are_right_and_wrong_ones_are_not(tiny: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    record = record_of(tiny)
    correctness.measure(tiny, record)
    assert record.is_complete, record.steps
    assert {row[-1] for row in correctness.table(record.steps)[1:]} == {"yes"}
    captured = Passes.captured

    def off(self: Passes, *given: Any) -> torch.Tensor:
        return captured(self, *given) * 1.001

    monkeypatch.setattr(Passes, "captured", off)
    names = TINY[1]
    plain, tuned = tiny.of_shapes(names)
    found = correctness._logits(tuned.verifier_model, plain.verifier, tuned.vocabulary_size)
    assert not found["right"]


@takes_torch_s_attention
def test_half_precision_on_a_gpu_is_compared_with_float64_on_the_cpu(gpu: PretendGpu, tiny: Job) -> None:
    there = Job.of(tiny.out, "cuda", tiny=True)
    plain, tuned = there.of_shapes(TINY[1])
    found = correctness._logits(tuned.verifier_model, plain.verifier, tuned.vocabulary_size)
    assert there.dtype == torch.bfloat16
    assert found["right"], found
    assert found["ours"] > 1e-4  # of bfloat16
    assert gpu.replays > 0


def test_rounds_have_a_floor(tiny: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    record = record_of(tiny)
    rounds.measure(tiny, record)
    assert record.is_complete, record.steps
    assert len(rounds.table(record.steps)) == 1 + 2 * len(rounds._TINY_ROWS)


def test_a_benchmark_that_is_there_is_not_run_again(tiny: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "_ALL", ("speed",))
    monkeypatch.setattr(speed, "_OURS", ("speed",))
    record = record_of(tiny)
    speed.measure(tiny, record)
    assert record.is_complete, record.steps
    assert main(["bench", "--from", str(tiny.out / speed._FILE)]) == 0
    again = record_of(tiny, seconds=0.0)
    speed.measure(tiny, again)
    assert again.is_complete
    assert len(speed.table(again.steps)) == 4


def test_tests_that_have_passed_are_known_from_what_was_printed() -> None:
    printed = (
        "tests/gpu/test_cuda.py::test_a PASSED [ 10%]\ntests/gpu/test_cuda.py::test_b[1 2] FAILED\nsome noise\n"
        "tests/gpu/test_cuda.py::test_c "
    )
    found = own_tests._outcomes(printed)
    assert [it["outcome"] for it in found.values()] == ["PASSED", "FAILED"]
    assert list(found) == ["tests/gpu/test_cuda.py::test_a", "tests/gpu/test_cuda.py::test_b[1 2]"]


def test_texts_travel_in_small_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafter, "_PACKED_TOKENS", 7)
    texts, out, elsewhere = (tmp_path / name for name in ("texts", "out", "elsewhere"))
    for folder in (texts, out, elsewhere):
        folder.mkdir()
    for number in range(3):
        Texts([[1, 2, 60_000], [4, number]], [1, 0]).save(texts / f"texts-{number:05d}.safetensors")
    assert drafter.pack(texts, out) == 3 * 4
    assert len(list(out.iterdir())) == 3
    drafter.unpack(out, elsewhere)
    for path in texts.iterdir():
        assert Texts.load(elsewhere / path.name) == Texts.load(path)


def test_a_distillation_goes_on_on_another_machine(tiny: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the verifier wrote comes back as small files; the end leaves the drafter and its curve."""

    class Distillation:
        """Writes one file of texts a call; the second one finds the first's."""

        def __init__(self, settings: Any, directory: Path, **_: Any) -> None:
            self.texts, self.student = directory / "texts", directory / "student"

        def run(self) -> dict[str, Any]:
            number = len(list(self.texts.iterdir()))
            Texts([[1, 2, 3]], [1]).save(self.texts / f"texts-{number:05d}.safetensors")
            if number == 0:
                raise StoppedError("Stopped.")
            self.student.mkdir()
            (self.student / "config.json").write_text("{}")
            found = {"tokens": 4, "start": {}, "held_out": {"lossless, T = 1": 0.4}, "cost": 0.1}
            return found | {"agreement_every_50_steps": [0.1, 0.2]}

    monkeypatch.setattr(drafter, "Distillation", Distillation)
    for machine, words in (("one", "2 tokens of text; Stopped."), ("another", "0.400")):
        monkeypatch.setenv("SPECVIZ_CACHE", str(tiny.out / machine))
        record = record_of(tiny)
        drafter.measure(tiny, record)
        assert drafter.table(record.steps)[-1][-1] == words
    assert record.is_complete
    assert (tiny.out / "drafter" / "config.json").is_file()
    learned = drafter._TINY["batch_tokens"] * drafter._CURVE_STEPS / 1e6
    assert record.steps["distillation"]["curve"] == [(0.0, 0.1), (learned, 0.2)]


def test_stages_are_told_by_number(tiny: Job) -> None:
    table, record = stages.run(tiny, 5, 0.0, silent)
    assert (len(table), record.is_complete) == (1, False)
    assert json.loads((tiny.out / "5-rounds.json").read_text())["left"] == ["bandwidth"]


def test_what_is_measured_is_switched_only_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECVIZ_GRAPHS", "1")
    with environment(graphs=False, kernels=False):
        assert (os.environ["SPECVIZ_GRAPHS"], os.environ["SPECVIZ_GPU_RUNNER"]) == ("0", "torch")
    assert os.environ["SPECVIZ_GRAPHS"] == "1"
    assert "SPECVIZ_GPU_RUNNER" not in os.environ
