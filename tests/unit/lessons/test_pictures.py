"""What steps show is what the traces recorded: places are chosen by rule, and rules judge as the engine did (law 7)."""

from __future__ import annotations

import pytest

from specviz.analysis.recorded_runs import read_recorded_runs
from specviz.lessons.pictures import CONTEXT, LINE, text_before
from specviz.lessons.places import ROUNDS, TOKENS, beside_favourite, examined, is_word, listed_by_both
from specviz.lessons.rulings import rulings_at
from specviz.schema.trace import Run

SHELF = read_recorded_runs()


@pytest.fixture(scope="module")
def lossless() -> Run:
    return SHELF.load("lossless")


def test_every_place_is_found_in_the_runs_that_lessons_show(lossless: Run) -> None:
    for rule in (*TOKENS.values(), *ROUNDS.values()):
        assert rule(lossless) is not None


def test_places_are_what_they_are_called(lossless: Run) -> None:
    tokens, rounds = lossless.tokens, lossless.rounds

    def at(name: str) -> int:
        index = TOKENS[name](lossless)
        assert index is not None
        return index

    assert tokens[at("first rejected")].draft
    nearest = tokens[at("nearest to the favourite")]
    assert nearest.draft
    words = [each for each in tokens if each.draft and is_word(each.draft.text) and each.draft.q >= 0.05]
    assert beside_favourite(nearest) == max(map(beside_favourite, words))
    doubtful = tokens[at("most doubtful coin")]
    sure = [each for each in tokens if is_word(examined(each).text) and (examined(each).q or 0) >= 0.05]
    assert doubtful.acceptance is not None
    assert abs(doubtful.acceptance - 0.5) == min(abs((each.acceptance or 1) - 0.5) for each in sure)
    assert len(listed_by_both(tokens[at("most shared")])) >= 2
    longest, mixed = (
        ROUNDS[name](lossless) for name in ("longest accepted block", "some kept, one rejected")
    )
    assert longest is not None
    assert mixed is not None
    assert rounds[longest].accepted == max(each.accepted for each in rounds)
    assert 0 < rounds[mixed].accepted < rounds[mixed].examined


def test_rules_judge_as_the_run_recorded_it() -> None:
    """Every examined place of the run for rules: trusted means kept for sure, and Chow and Diff else leave it to p."""
    run = SHELF.load("lesson-rules")
    asked = {one.method: one.lenience for one in run.alternatives if one.method.startswith("cascade_")}
    named = [one.method for one in run.alternatives]
    judged = 0
    for token in run.tokens:
        if token.what_if is None:
            continue
        for ruling in rulings_at(token, run, {name: a for name, a in asked.items() if name != "cascade_opt"}):
            recorded = token.what_if.acceptance[named.index(ruling["method"])]
            draft = examined(token)
            assert draft.q is not None
            assert draft.p is not None
            if ruling["trusted"]:
                assert recorded == pytest.approx(1.0, abs=1e-5), ruling
            elif ruling["method"] in ("cascade_chow", "cascade_diff"):
                assert recorded == pytest.approx(min(1.0, draft.p / draft.q), rel=1e-3), ruling
            judged += 1
        assert token.rule
        [own] = rulings_at(token, run, {"cascade_opt": run.lenience})
        assert (own["score"], own["threshold"]) == (token.rule.score, token.rule.threshold)
    assert judged > 50


def test_at_the_lenient_end_all_is_kept_and_at_the_same_coins_leniences_begin_alike() -> None:
    runs = [SHELF.load(key) for key in SHELF.lessons if key.startswith("lesson-lenience")]
    assert len(runs) >= 5
    assert runs[-1].lenience == 1
    assert runs[-1].acceptance_rate == 1
    assert all(token.accepted for token in runs[-1].tokens)
    assert len({(run.prompt, run.seed, run.method, run.temperature) for run in runs}) == 1


def test_the_two_drafted_stories_are_the_same_text() -> None:
    """Law 2, which the last step says of them."""
    five, sixteen = (SHELF.load(f"lesson-story-{name}") for name in ("five", "sixteen"))
    assert five.token_ids == sixteen.token_ids


def test_before_a_place_stands_the_end_of_the_text_in_few_lines() -> None:
    run = SHELF.load("lesson-rules")
    for count in range(len(run.tokens) + 1):
        whole = "".join(token.text for token in run.tokens[:count])
        shown = text_before(run, count)
        end = shown["before"]
        assert whole.endswith(end)
        assert shown["cut"] == (end != whole)
        assert len(end) + (LINE - 1) * end.count("\n") <= CONTEXT
        if shown["cut"]:  # and no shorter than need be
            more = whole[-len(end) - 1 :]
            assert len(more) + (LINE - 1) * more.count("\n") > CONTEXT
