"""The recorded runs: one command records the project's again, as each says itself, and the race."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from specviz import __main__ as shell
from specviz.analysis.recorded_runs import RACERS, read_recorded_runs
from specviz.errors import EngineError, TraceError
from specviz.models.pair import ModelPair
from specviz.schema.settings import Request
from specviz.schema.trace import Run
from specviz.tools import record as recording


@pytest.fixture
def _shelf(pair: ModelPair, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiny pair in place of any other; all texts are short."""
    served = recording._serve
    monkeypatch.setattr(
        recording,
        "_serve",
        lambda pair, request: served(pair, replace(request, max_new_tokens=min(5, request.max_new_tokens))),
    )
    monkeypatch.setattr(recording, "_REPETITIONS", 1)
    monkeypatch.setattr("specviz.models.loading.load_pair", lambda _: pair)


@pytest.mark.usefixtures("_shelf")
def test_the_command_records_all_of_them(
    pair: ModelPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, shelf = tmp_path / "runs", read_recorded_runs()
    folder.mkdir()
    (folder / "somebodys.jsonl").write_text("")
    assert shell.main(["record", "--folder", str(folder)]) == 0
    recorded = read_recorded_runs(folder)
    assert (folder / "somebodys.jsonl").exists()
    assert (recorded.runs, recorded.lessons) == (shelf.runs, shelf.lessons)
    assert any(recorded.branches("token-rule").values())
    assert recorded.race == shelf.race
    assert [each.key for each in recorded.comparisons] == [each.key for each in shelf.comparisons]
    assert all(pane.seconds for each in recorded.comparisons for pane in each.panes)
    assert recorded.verifier_only_seconds_per_token > 0
    for key in shelf.keys:
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


@pytest.mark.usefixtures("_shelf")
def test_runs_that_are_no_longer_recorded_go_from_the_projects_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "forgotten.jsonl").write_text("")
    monkeypatch.setattr(recording, "FOLDER", tmp_path)
    recording._write(replace(read_recorded_runs(), folder=tmp_path), {})
    assert [path.name for path in tmp_path.iterdir()] == ["index.json"]


@pytest.mark.usefixtures("_shelf")
def test_the_race_has_the_runs_of_median_time(
    pair: ModelPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And refuses two different texts."""
    served, serve = [], recording._serve

    def keep(pair: ModelPair, request: Request) -> Run:
        other = replace(request, prompt="Else") if request.method == "speed" and request.prompt else request
        served.append(serve(pair, other))
        return served[-1]

    monkeypatch.setattr(recording, "_REPETITIONS", 3)
    monkeypatch.setattr(recording, "_serve", keep)
    found = recording.medians(read_recorded_runs(), lambda _: pair, RACERS)
    for index, run in enumerate(found.values()):
        assert run.seconds == sorted(each.seconds for each in served[index::2])[1]
    with pytest.raises(EngineError):
        recording.record(tmp_path / "runs")
