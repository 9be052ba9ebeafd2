"""Forks of a run: what they write is what a whole run would have written, and the trace says where they began."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specviz.core.methods import METHODS, OWN_RULE, PAPER
from specviz.engine.engine import Engine
from specviz.errors import RequestError
from specviz.models.pair import ModelPair
from specviz.schema.settings import Request
from specviz.schema.trace import Run, Token, parse_trace
from tests.support.tiny import Pairs

PROMPT = "The quick brown fox jumps over"


@pytest.fixture(scope="module")
def pair(pairs: Pairs) -> ModelPair:
    return replace(pairs("llama"), eos_token_ids=frozenset())


def one(engine: Engine, **settings: Any) -> Run:
    settings = {"prompt": PROMPT, "max_new_tokens": 24, "seed": 5} | settings
    [run] = engine.generate(Request(**settings))
    return run


def decision(token: Token) -> tuple[Any, ...]:
    """What was decided at a token, and by which coin."""
    draft = token.draft.id if token.draft else None
    return token.id, token.text, token.position, token.accepted, token.coin, draft


def test_a_fork_writes_what_the_whole_run_wrote(engine: Engine) -> None:
    """Laws 2 and 3: wherever a run is forked, and whatever K was and is, the same tokens for the same reasons."""
    settings: dict[str, Any] = {"prompt": PROMPT, "seed": 5, "max_new_tokens": 24, "draft_length": 3}
    settings["repetition_penalty"] = 1.2  # a fork counts its run's tokens as seen
    runs = engine.generate(
        [
            Request(method=method, temperature=(0.0, 0.7, 1.0)[number % 3], inspect=2, **settings)
            for number, method in enumerate((*PAPER, "cactus", OWN_RULE, "cascade_tokenV3"))
        ]
    )
    forked = [(run, place) for run in runs for place in (0, 7, 23)]
    forks = engine.generate([run.fork(place, draft_length=5) for run, place in forked])
    for (run, place), fork in zip(forked, forks, strict=True):
        assert [decision(token) for token in fork.tokens] == [decision(token) for token in run.tokens[place:]]
        assert fork.text == run.text
        assert fork.prompt == run.prompt


def test_a_chosen_token_is_gone_on_from_as_from_a_prompt_that_ends_with_it(engine: Engine) -> None:
    run = one(engine, inspect=3)
    taken = run.tokens[6].id
    other = next(each.id for each in run.tokens[6].top.p if each.id != taken)  # type: ignore[union-attr]
    [fork] = engine.generate(run.fork(6, chosen=other))
    ids = [*run.prompt_ids, *run.token_ids[:6], other]
    [plain] = engine.generate(Request(token_ids=ids, seed=5, max_new_tokens=24 - 7))
    assert fork.token_ids == plain.token_ids
    assert fork.prompt_ids == ids
    assert fork.continues is not None
    assert (fork.continues.tokens, fork.continues.chosen) == (7, other)
    whole = engine.pair.tokenizer.decode([*run.prompt_ids, *run.token_ids[:6], other, *fork.token_ids])
    assert whole.rstrip("\ufffd").endswith(fork.text.rstrip("\ufffd"))
    # A fork of a fork knows the first run's prompt, and all that was kept.
    [second] = engine.generate(fork.fork(4))
    assert second.text == fork.text
    assert second.continues is not None
    assert (second.continues.prompt, second.continues.tokens) == (run.prompt, 11)


def test_the_trace_of_a_fork_says_where_it_began(engine: Engine, tmp_path: Path) -> None:
    run = one(engine)
    [fork] = engine.generate(run.fork(9, chosen=run.token_ids[0]))
    fork.save(tmp_path / "fork.jsonl")
    read = Run.load(tmp_path / "fork.jsonl")
    assert read.continues == fork.continues
    assert read.text == fork.text
    assert '"continues"' not in next(run.lines())  # others have no word of it
    assert parse_trace(run.lines()).continues is None


def test_another_method_comes_with_its_own_lenience(engine: Engine) -> None:
    run = one(engine, method="cascade_tokenV3", lenience=0.25)
    assert run.fork(3).lenience == 0.25
    assert run.fork(3, method="cascade_chow").lenience == METHODS["cascade_chow"].default_lenience
    assert run.fork(3, method="cascade_chow", lenience=0.75).lenience == 0.75
    assert run.fork(3).draft_length == "auto"
    own = one(engine, method=OWN_RULE, rule="q1(v) >= 0.2")
    assert own.fork(3).rule == own.rule
    assert own.fork(3, method="cascade_chow").rule == ""


@pytest.mark.parametrize("tokens", [-1, 25, 1.5, True])
def test_a_run_can_be_forked_only_where_it_has_tokens(engine: Engine, tokens: Any) -> None:
    with pytest.raises(RequestError, match="can be forked after 0 to 24 tokens"):
        one(engine).fork(tokens)


def test_a_fork_needs_something_to_write(engine: Engine) -> None:
    run = one(engine)
    for settings in ({"tokens": 24}, {"tokens": 23, "chosen": 0}):
        with pytest.raises(RequestError, match="Nothing is left to write here"):
            run.fork(**settings)
    assert len(engine.generate(run.fork(24, max_new_tokens=4))[0].tokens) == 4


def test_nothing_follows_the_end_of_a_text(engine: Engine, pair: ModelPair) -> None:
    """Law 6: neither one that the models wrote, nor one that somebody chose."""
    run = one(engine)
    ending = Engine(replace(pair, eos_token_ids=frozenset(run.token_ids[8:9])))
    ended = one(ending)
    last = len(ended.tokens)
    assert ended.stop_reason == "eos"
    with pytest.raises(RequestError, match=f"after 0 to {last - 1} tokens"):
        ended.fork(last)
    with pytest.raises(RequestError, match="ends the text"):
        ending.stream(run.fork(2, chosen=run.token_ids[8]))
