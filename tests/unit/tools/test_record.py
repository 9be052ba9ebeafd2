"""The recorded runs: one command records the project's again, as each says itself, and the race."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
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

PLAN = RacePlan(prompts=("Once", "Twice"), draft_lengths=(2, "auto"), repetitions=3, tokens=8)


@pytest.fixture
def _shelf(pair: ModelPair, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiny pair in place of any other; texts and race are short, and a comparison is of a pair that is not shipped."""
    served, load, shelf = recording._serve, Run.load, read_recorded_runs()

    def read(path: Path) -> Run:
        return replace(load(path), pair="another") if path.stem == "drafter-only" else load(path)

    other = Comparison("other", "Another pair", (RecordedPane("lossless"), RecordedPane("drafter-only")))
    shelf = replace(shelf, comparisons=(*shelf.comparisons, other))
    monkeypatch.setattr(Run, "load", read)
    monkeypatch.setattr(recording, "read_recorded_runs", lambda: shelf)
    monkeypatch.setattr(
        recording,
        "_serve",
        lambda pair, request: served(pair, replace(request, max_new_tokens=min(5, request.max_new_tokens))),
    )
    monkeypatch.setattr(recording, "record_race", partial(record_race, plan=PLAN))
    monkeypatch.setattr(recording, "_REPETITIONS", 1)
    monkeypatch.setattr("specviz.models.loading.load_pair", lambda _: pair)


@pytest.mark.usefixtures("_shelf")
def test_the_command_records_all_of_them(
    pair: ModelPair, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A comparison of a pair that SpecViz does not ship stays as it is."""
    folder, shelf = tmp_path / "runs", read_recorded_runs()
    folder.mkdir()
    (folder / "forgotten.jsonl").write_text("")
    assert shell.main(["record", "--folder", str(folder)]) == 0
    recorded = read_recorded_runs(folder)
    assert not (folder / "forgotten.jsonl").exists()
    assert (recorded.runs, recorded.lessons) == (shelf.runs, shelf.lessons)
    assert any(recorded.branches("token-rule").values())
    assert recorded.race == Race(prompts=2, draft_lengths=2, repetitions=3)
    assert [each.key for each in recorded.comparisons] == [*(each.key for each in shelf.comparisons), "other"]
    assert all(pane.seconds for each in recorded.comparisons[:-1] for pane in each.panes)
    assert recorded.verifier_only_seconds_per_token > 0
    assert f"{len(shelf.runs)} runs" in capsys.readouterr().err
    monkeypatch.undo()
    for key in shelf.keys - {INSPECTED, *RACERS, "drafter-only"}:
        former, run = shelf.load(key), recorded.load(key)
        assert run.pair == pair.key
        assert (run.prompt, run.seed, run.inspect) == (former.prompt, former.seed, former.inspect)
        assert (run.method, run.lenience) == (former.method, former.lenience)


@pytest.mark.usefixtures("_shelf")
def test_nothing_is_written_if_a_recording_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise TraceError("no")

    monkeypatch.setattr(recording, "record_branches", fail)
    with pytest.raises(TraceError):
        recording.record(tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_the_request_of_a_run_makes_it_again(pair: ModelPair) -> None:
    request = Request("Once", method="cascade_opt", lenience=0.3, draft_length=4, seed=5, max_new_tokens=12)
    (run,) = Engine(pair).generate(request)
    (again,) = Engine(pair).generate(recording.request_of(run))
    assert again.continues is None
    assert again.token_ids == run.token_ids


def test_a_missing_folder_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="python -m specviz record"):
        read_recorded_runs(tmp_path)


def test_the_race_has_the_runs_of_median_time(pair: ModelPair, monkeypatch: pytest.MonkeyPatch) -> None:
    """And refuses two different texts."""
    served: list[Run] = []
    generate = Engine.generate

    def keep(self: Engine, *args: Any) -> list[Run]:
        served.extend(made := generate(self, *args))
        return made

    monkeypatch.setattr(Engine, "generate", keep)
    _, (alone, drafted, inspected) = record_race(pair, lambda _: None, PLAN)
    assert alone.token_ids == drafted.token_ids == inspected.token_ids
    assert all(token.top for token in inspected.tokens)
    for run, last in ((alone, served[-7:-1:2]), (drafted, served[-6:-1:2])):
        assert run.seconds == sorted(each.seconds for each in last)[1]

    def spoil(self: Engine, request: Request) -> list[Run]:
        return generate(self, replace(request, prompt="Else") if request.method == "speed" else request)

    monkeypatch.setattr(Engine, "generate", spoil)
    with pytest.raises(EngineError, match="wrote different texts"):
        record_race(pair, lambda _: None, PLAN)
