"""Recorded runs: what lies on the shelf is sound and tells its story, and can be made anew in one go."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from specviz import __main__ as shell
from specviz.errors import TraceError
from specviz.models.pairs import ModelPair
from specviz.tools import record as recording
from specviz.tools.record import RECORDINGS, SHELF, YARDSTICK, open_shelf
from tests.support.tiny import tiny_pair

KEYS = [each.key for each in RECORDINGS]


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelPair:
    """The tiny pair that the shell loads in place of any other."""
    pair = tiny_pair("llama", tmp_path)
    monkeypatch.setattr("specviz.models.pairs.load_pair", lambda *_, **__: pair)
    return pair


def test_every_run_on_the_shelf_is_sound_small_and_as_asked_for() -> None:
    shelf = open_shelf()
    assert len(shelf.runs) >= 6
    assert [run.key for run in shelf.runs] == KEYS
    assert {file.name for file in SHELF.iterdir()} == {"index.json", *(f"{key}.jsonl" for key in KEYS)}
    for each in RECORDINGS:
        run = shelf.load(each.key)
        for name in ("method", "lenience", "draft_length", "temperature", "seed", "inspect", "prompt"):
            assert getattr(run, name) == getattr(each.request, name), (each.key, name)
        assert run.tokens
        assert run.pair == shelf.pair
        assert (SHELF / f"{each.key}.jsonl").stat().st_size <= 150_000


def test_every_story_has_two_sentences_and_no_number_that_a_drafter_could_change() -> None:
    for each in open_shelf().runs:
        assert len(re.findall(r"[.?!](?:\s|$)", each.story)) == 2, each.story
        numbers = set(re.findall(r"\d+", each.story.replace("Token V3", "")))
        assert numbers <= {"0", "1"}, each.story
    assert [(run.title, run.story) for run in open_shelf().runs] == [(r.title, r.story) for r in RECORDINGS]


def test_the_lossless_runs_of_one_prompt_and_seed_share_their_text() -> None:
    shelf = open_shelf()
    lossless, long_block, yardstick = (shelf.load(key) for key in ("lossless", "long-block", YARDSTICK))
    assert lossless.text == long_block.text
    assert lossless.prompt == yardstick.prompt


def test_the_yardstick_is_the_measured_median_of_the_verifiers_rounds() -> None:
    shelf = open_shelf()
    times = sorted(each.seconds for each in shelf.load(YARDSTICK).rounds)
    assert times[0] <= shelf.verifier_only_seconds_per_token <= times[-1]
    below = sum(each <= shelf.verifier_only_seconds_per_token + 1e-6 for each in times)
    assert below >= len(times) / 2
    assert re.fullmatch(r"\d+ CPU cores?|.*\D.*", shelf.machine)


def test_the_command_makes_all_of_them_anew(
    pair: ModelPair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "shelf"
    folder.mkdir()
    (folder / "forgotten.jsonl").write_text("")
    assert shell.main(["record", "--folder", str(folder)]) == 0
    shelf = open_shelf(folder)
    assert [run.key for run in shelf.runs] == KEYS
    assert not (folder / "forgotten.jsonl").exists()
    assert shelf.verifier_only_seconds_per_token > 0
    for each in RECORDINGS:
        run = shelf.load(each.key)
        assert (run.method, run.pair) == (each.request.method, pair.key)
    assert f"{len(KEYS)} runs" in capsys.readouterr().err


def test_nothing_is_written_where_a_recording_fails(
    pair: ModelPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = recording._serve

    def fail_at_the_last(pair: ModelPair, request: recording.Request) -> recording.Run:
        if request is RECORDINGS[-1].request:
            raise TraceError("no")
        return served(pair, request)

    monkeypatch.setattr(recording, "_serve", fail_at_the_last)
    with pytest.raises(TraceError):
        recording.record(pair, tmp_path / "shelf")
    assert not (tmp_path / "shelf").exists()


def test_a_missing_shelf_and_a_missing_run_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="python -m specviz record"):
        open_shelf(tmp_path)
    with pytest.raises(TraceError, match="no recorded run of that name"):
        open_shelf().load("../secret")
