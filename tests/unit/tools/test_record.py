"""Recorded runs: those of the project are valid and tell their stories, and can be recorded again in one go."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from specviz import __main__ as shell
from specviz.analysis.recorded_runs import FOLDER, INSPECTED, RACERS, Race, branch_file, read_recorded_runs
from specviz.analysis.sweep.grid import LENIENCES
from specviz.errors import TraceError
from specviz.models.pair import ModelPair
from specviz.schema.settings import Request
from specviz.schema.trace import Run
from specviz.tools import record as recording
from specviz.tools.race import RacePlan
from specviz.tools.record import BASELINE, LESSON_RECORDINGS, RECORDINGS
from tests.support.tiny import tiny_pair

KEYS = [INSPECTED, *RECORDINGS]
FILES = {*KEYS, *RACERS, *LESSON_RECORDINGS}


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelPair:
    """The tiny pair that the shell loads in place of any other; its race and its texts are short."""
    pair, served = tiny_pair("llama", tmp_path), recording._serve

    def serve(pair: ModelPair, request: Request) -> Run:
        return served(pair, replace(request, max_new_tokens=min(16, request.max_new_tokens)))

    monkeypatch.setattr(recording, "_serve", serve)
    short = RacePlan(prompts=("Once", "Twice"), draft_lengths=(2, 4), repetitions=2, tokens=8)
    monkeypatch.setattr(recording, "RacePlan", lambda: short)
    monkeypatch.setattr("specviz.models.loading.load_pair", lambda *_, **__: pair)
    return pair


def test_every_recorded_run_is_valid_small_and_as_asked_for() -> None:
    recorded = read_recorded_runs()
    assert len(recorded.runs) >= 6
    assert [run.key for run in recorded.runs] == KEYS
    branches = {
        branch_file(key, each)
        for key in KEYS
        for each, run in recorded.branches(key).items()
        if run is not None
    }
    names = {file.name for file in FOLDER.iterdir()}
    assert names == {"index.json", *(f"{key}.jsonl" for key in FILES), *branches}
    assert recorded.lessons == tuple(LESSON_RECORDINGS)
    for key, request in (RECORDINGS | LESSON_RECORDINGS).items():
        run = recorded.load(key)
        for name in ("method", "lenience", "draft_length", "temperature", "seed", "inspect", "prompt"):
            assert getattr(run, name) == getattr(request, name), (key, name)
        assert run.tokens
        assert run.pair == recorded.pair
        assert (FOLDER / f"{key}.jsonl").stat().st_size <= 150_000


def test_the_branches_of_a_recorded_run_go_on_with_its_first_tokens_at_other_leniences() -> None:
    """Seven leniences with the run's own; each branch is small, because it has only the tokens after the fork."""
    recorded, parted = read_recorded_runs(), 0
    for told in recorded.runs:
        run, branches = recorded.load(told.key), recorded.branches(told.key)
        asked = () if told.key == INSPECTED else LENIENCES.get(run.method, ())
        assert set(branches) == set(asked) - {run.lenience}
        for lenience, branch in branches.items():
            if branch is None:
                continue
            parted += 1
            assert branch.continues
            kept = branch.continues.tokens
            assert (branch.method, branch.lenience, branch.seed) == (run.method, lenience, run.seed)
            assert branch.prompt_ids == [*run.prompt_ids, *run.token_ids[:kept]]
            assert branch.token_ids[0] != [*run.token_ids, None][kept]
            assert (FOLDER / branch_file(told.key, lenience)).stat().st_size <= 1000 * (
                len(branch.tokens) + 2
            )
    assert parted >= 10


def test_the_race_is_two_lossless_greedy_runs_of_one_text_in_which_something_is_rejected() -> None:
    recorded = read_recorded_runs()
    assert recorded.race
    assert recorded.race.repetitions >= 3
    alone, drafted, inspected = map(recorded.load, (*RACERS, INSPECTED))
    assert (alone.method, drafted.method, drafted.lenience) == ("verifier_only", "speed", 0)
    assert alone.temperature == drafted.temperature == 0
    assert (alone.prompt_ids, alone.token_ids) == (drafted.prompt_ids, drafted.token_ids)
    assert alone.verifier_calls == len(alone.tokens) > drafted.verifier_calls
    assert any(token.draft for token in drafted.tokens)
    assert alone.neighbours == drafted.neighbours == 0
    assert (alone.inspect, drafted.inspect) == (0, 0)
    for one, other in zip(drafted.tokens, inspected.tokens, strict=True):
        assert other.top
        assert (one.id, one.accepted, one.draft) == (other.id, other.accepted, other.draft)


def test_every_story_has_two_sentences_and_no_number_that_a_drafter_could_change() -> None:
    for each in read_recorded_runs().runs:
        assert len(re.findall(r"[.?!](?:\s|$)", each.story)) == 2, each.story
        numbers = set(re.findall(r"\d+", each.story.replace("Token V3", "")))
        assert numbers <= {"0", "1"}, each.story


def test_the_lossless_runs_of_one_prompt_and_seed_share_their_text() -> None:
    recorded = read_recorded_runs()
    lossless, long_block, baseline = (recorded.load(key) for key in ("lossless", "long-block", BASELINE))
    assert lossless.text == long_block.text
    assert lossless.prompt == baseline.prompt


def test_the_baseline_is_the_measured_median_of_the_verifiers_steps() -> None:
    recorded = read_recorded_runs()
    times = sorted(each.seconds for each in recorded.load(BASELINE).rounds)
    assert times[0] <= recorded.verifier_only_seconds_per_token <= times[-1]
    below = sum(each <= recorded.verifier_only_seconds_per_token + 1e-6 for each in times)
    assert below >= len(times) / 2
    assert re.fullmatch(r"\d+ CPU cores?|.*\D.*", recorded.machine)


def test_the_command_makes_all_of_them_anew(
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
    for key, request in (RECORDINGS | LESSON_RECORDINGS).items():
        run = recorded.load(key)
        assert (run.method, run.pair) == (request.method, pair.key)
    assert f"{len(KEYS)} runs" in capsys.readouterr().err


def test_nothing_is_written_where_a_recording_fails(
    pair: ModelPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = recording._serve

    def fail_at_the_last(pair: ModelPair, request: Request) -> Run:
        if request is list(RECORDINGS.values())[-1]:
            raise TraceError("no")
        return served(pair, request)

    monkeypatch.setattr(recording, "_serve", fail_at_the_last)
    with pytest.raises(TraceError):
        recording.record(pair, tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_a_missing_folder_and_a_missing_run_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="python -m specviz record"):
        read_recorded_runs(tmp_path)
    with pytest.raises(TraceError, match="no recorded run of that name"):
        read_recorded_runs().load("../secret")
