"""Prompt lookup on the embedded verifier: fused passes, where not one decision may differ."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specviz.analysis.recorded_runs import read_recorded_runs
from specviz.engine.engine import Engine
from specviz.engine.pair import load_pair
from specviz.schema.settings import Request


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(load_pair("embedded-lookup", device="cpu"))


def test_an_editing_prompt_takes_fewer_calls_for_the_verifiers_own_text(engine: Engine) -> None:
    """Law 5: greedy, the draft decides only how many calls it takes."""
    prompt = read_recorded_runs().load("editing").prompt
    request = Request(prompt=prompt, method="speed", lenience=0.0, temperature=0.0, max_new_tokens=48)
    alone = engine.generate(replace(request, method="verifier_only"))[0]
    drafted = engine.generate(request)[0]
    assert drafted.token_ids == alone.token_ids
    assert drafted.verifier_calls < 0.6 * alone.verifier_calls
