"""Recording the race: two runs of one text, chosen for what they show and refused where the texts are not the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from specviz.engine.engine import Engine
from specviz.errors import EngineError
from specviz.models.pair import ModelPair
from specviz.schema.trace import Run
from specviz.tools.race import RacePlan, record_race
from tests.support.tiny import tiny_pair

PLAN = RacePlan(prompts=("Once", "Twice", "Never"), draft_lengths=(2, 3, "auto"), repetitions=3, tokens=12)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> ModelPair:
    return tiny_pair("llama", tmp_path_factory.mktemp("pair"))


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """Every run that an engine made, in order."""
    runs: list[Run] = []
    generate = Engine.generate

    def keep(self: Engine, *args: object, **more: object) -> list[Run]:
        made = generate(self, *args, **more)  # type: ignore[arg-type]
        runs.extend(made)
        return made

    monkeypatch.setattr(Engine, "generate", keep)
    return runs


def test_both_texts_are_the_same_and_of_each_the_run_of_median_time_is_kept(
    pair: ModelPair, served: list[Run]
) -> None:
    said: list[str] = []
    race, kept = record_race(pair, PLAN, said.append)
    assert (race.prompts, race.draft_lengths, race.repetitions) == (3, 3, 3)
    alone, drafted, inspected = kept
    assert alone.token_ids == drafted.token_ids == inspected.token_ids
    assert drafted.accepted == inspected.accepted
    assert (alone.inspect, drafted.inspect) == (0, 0)
    assert all(token.top for token in inspected.tokens)
    assert len(said) == 3
    for run, last in ((alone, served[-7:-1:2]), (drafted, served[-6:-1:2])):
        assert len({each.method for each in last}) == 1
        assert run.seconds == sorted(each.seconds for each in last)[1]
    assert (alone.method, drafted.method) == ("verifier_only", "speed")


def test_the_prompt_is_the_one_with_most_tokens_for_a_call(pair: ModelPair, served: list[Run]) -> None:
    drafted = record_race(pair, PLAN, lambda _: None)[1][1]
    tried = {run.prompt: run for run in served[: len(PLAN.prompts)]}
    fitting = [run for run in tried.values() if any(t.draft for t in run.tokens) and len(run.tokens) >= 6]
    assert drafted.prompt in tried
    if fitting:
        best = max(run.block_efficiency or 0 for run in fitting)
        assert tried[drafted.prompt].block_efficiency == best


def test_all_runs_of_the_race_are_made_one_at_a_time(pair: ModelPair, served: list[Run]) -> None:
    record_race(pair, PLAN, lambda _: None)
    assert {run.neighbours for run in served} == {0}
    assert {run.temperature for run in served} == {0.0}


@pytest.mark.parametrize(("cut", "words"), [(0, "part at token 12"), (3, "ends sooner")])
def test_texts_that_differ_are_no_race(
    pair: ModelPair, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cut: int, words: str
) -> None:
    generate = Engine.generate

    def spoil(self: Engine, *args: object, **more: object) -> list[Run]:
        (run,) = generate(self, *args, **more)  # type: ignore[arg-type]
        if run.method == "speed":
            *most, last = run.rounds
            tokens = last.tokens[:-1] if cut else [*last.tokens[:-1], replace(last.tokens[-1], id=0)]
            run.rounds = [*most, replace(last, tokens=tokens)]
        return [run]

    monkeypatch.setattr(Engine, "generate", spoil)
    with pytest.raises(EngineError, match=words):
        record_race(pair, PLAN, lambda _: None)
