"""What the recorded runs of the lesson must be for its texts to be true, and the text before a token."""

from __future__ import annotations

from specviz.analysis.recorded_runs import read_recorded_runs
from specviz.lessons.pictures import CONTEXT, LINE, text_before

RUNS = read_recorded_runs()


def test_runs_that_differ_in_lenience_end_with_the_drafters_own_text() -> None:
    runs = [RUNS.load(key) for key in RUNS.lessons if key.startswith("lesson-lenience")]
    assert len(runs) >= 5
    assert runs[-1].lenience == 1
    assert all(token.accepted for token in runs[-1].tokens)
    assert len({(run.prompt, run.seed, run.method, run.temperature) for run in runs}) == 1


def test_the_two_drafted_stories_are_the_same_text() -> None:
    """Draft-length invariance, which the last step states."""
    five, sixteen = (RUNS.load(f"lesson-story-{name}") for name in ("five", "sixteen"))
    assert five.token_ids == sixteen.token_ids


def test_the_text_before_a_token_is_the_longest_end_that_fits() -> None:
    run = RUNS.load("lesson-rules")
    for count in range(len(run.tokens) + 1):
        whole = "".join(token.text for token in run.tokens[:count])
        shown = text_before(run, count)
        end = shown["before"]
        assert whole.endswith(end)
        assert shown["cut"] == (end != whole)
        assert len(end) + (LINE - 1) * end.count("\n") <= CONTEXT
        if shown["cut"]:
            more = whole[-len(end) - 1 :]
            assert len(more) + (LINE - 1) * more.count("\n") > CONTEXT
