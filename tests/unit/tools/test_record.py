"""The recorded runs: the project's are as their requests ask, and one command records them again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specviz import __main__ as shell
from specviz.analysis.recorded_runs import (
    INSPECTED,
    RACERS,
    Comparison,
    Race,
    RecordedPane,
    read_recorded_runs,
)
from specviz.engine.engine import Engine
from specviz.errors import EngineError, TraceError
from specviz.models.pair import ModelPair
from specviz.schema.settings import Request
from specviz.schema.trace import Run
from specviz.tools import record as recording
from specviz.tools.race import RacePlan, record_race
from specviz.tools.record import (
    COMPARED,
    COMPARISONS,
    LESSON_RECORDINGS,
    PAIRS_OF,
    RECORDINGS,
)
from tests.support.tiny import tiny_pair

KEYS = [INSPECTED, *RECORDINGS]
FILES = {*KEYS, *RACERS, *LESSON_RECORDINGS, *COMPARED}
ASKED = COMPARED | {
    key: (PAIRS_OF.get(key, "embedded"), request) for key, request in (RECORDINGS | LESSON_RECORDINGS).items()
}
"""Pair and request of every run that has one."""


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelPair:
    """The tiny pair that the shell loads in place of any other; its race and its texts are short."""
    pair, served = tiny_pair("llama", tmp_path), recording._serve

    def serve(pair: ModelPair, request: Request) -> Run:
        return served(pair, replace(request, max_new_tokens=min(5, request.max_new_tokens)))

    monkeypatch.setattr(recording, "_serve", serve)
    short = RacePlan(prompts=("Once", "Twice"), draft_lengths=(2, 4), repetitions=2, tokens=8)
    monkeypatch.setattr(recording, "RacePlan", lambda: short)
    monkeypatch.setattr(recording, "_REPETITIONS", 1)
    monkeypatch.setattr("specviz.models.loading.load_pair", lambda *_, **__: pair)
    return pair


def test_a_comparison_of_another_pair_outlives_a_new_recording(
    pair: ModelPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It needs only its files and its entry."""
    shelf = read_recorded_runs()
    other = Comparison("other", "Another pair", (RecordedPane("lossless"), RecordedPane("token-rule")))
    monkeypatch.setattr(recording, "read_recorded_runs", lambda _: replace(shelf, comparisons=(other,)))
    comparisons, runs = recording.record_comparisons(
        dict.fromkeys({name for name, _ in COMPARED.values()}, pair)
    )
    assert [each.key for each in comparisons] == [*COMPARISONS, "other"]
    assert set(runs) == {*COMPARED, "lossless", "token-rule"}
    assert runs["lossless"].token_ids == shelf.load("lossless").token_ids


def test_the_command_records_all_of_them(
    pair: ModelPair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    (folder / "forgotten.jsonl").write_text("")
    assert shell.main(["record", "--folder", str(folder)]) == 0
    recorded = read_recorded_runs(folder)
    assert [run.key for run in recorded.runs] == KEYS
    assert not (folder / "forgotten.jsonl").exists()
    assert recorded.verifier_only_seconds_per_token > 0
    assert recorded.runs == read_recorded_runs().runs
    assert any(recorded.branches("token-rule").values())
    assert recorded.race == Race(prompts=2, draft_lengths=2, repetitions=2)
    assert recorded.load(RACERS[0]).token_ids == recorded.load(RACERS[1]).token_ids
    assert recorded.lessons == tuple(LESSON_RECORDINGS)
    assert [each.key for each in recorded.comparisons] == list(COMPARISONS)
    assert all(pane.seconds and pane.quality for each in recorded.comparisons for pane in each.panes)
    for key, request in (RECORDINGS | LESSON_RECORDINGS).items():
        run = recorded.load(key)
        assert (run.method, run.pair) == (request.method, pair.key)
    assert f"{len(KEYS)} runs" in capsys.readouterr().err


def test_nothing_is_written_if_a_recording_fails(
    pair: ModelPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise TraceError("no")

    monkeypatch.setattr(recording, "record_branches", fail)
    with pytest.raises(TraceError):
        recording.record(pair, tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_a_missing_folder_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="python -m specviz record"):
        read_recorded_runs(tmp_path)


def test_the_race_has_the_runs_of_median_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[Run] = []
    generate = Engine.generate

    def keep(self: Engine, *args: Any) -> list[Run]:
        served.extend(made := generate(self, *args))
        return made

    monkeypatch.setattr(Engine, "generate", keep)
    plan = RacePlan(prompts=("Once", "Twice"), draft_lengths=(2, "auto"), repetitions=3, tokens=12)
    race, (alone, drafted, inspected) = record_race(tiny_pair("llama", tmp_path), plan, lambda _: None)
    assert (race.prompts, race.draft_lengths, race.repetitions) == (2, 2, 3)
    assert alone.token_ids == drafted.token_ids == inspected.token_ids
    assert all(token.top for token in inspected.tokens)
    assert {run.neighbours for run in served} == {0}
    for run, last in ((alone, served[-7:-1:2]), (drafted, served[-6:-1:2])):
        assert run.seconds == sorted(each.seconds for each in last)[1]


@pytest.mark.parametrize(("cut", "words"), [(0, "part at token 12"), (3, "ends sooner")])
def test_two_different_texts_are_no_race(
    cut: int, words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    generate = Engine.generate

    def spoil(self: Engine, *args: Any) -> list[Run]:
        (run,) = generate(self, *args)
        if run.method == "speed":
            *most, last = run.rounds
            tokens = last.tokens[:-1] if cut else [*last.tokens[:-1], replace(last.tokens[-1], id=0)]
            run.rounds = [*most, replace(last, tokens=tokens)]
        return [run]

    monkeypatch.setattr(Engine, "generate", spoil)
    plan = RacePlan(prompts=("Once",), draft_lengths=(2,), repetitions=1, tokens=12)
    with pytest.raises(EngineError, match=words):
        record_race(tiny_pair("llama", tmp_path), plan, lambda _: None)
