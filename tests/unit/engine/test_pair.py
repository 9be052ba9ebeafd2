"""A pair that generates: what it is given decides what it returns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.tiny import tiny_pair

CHAT = [{"role": "user", "content": "hello"}]


@pytest.mark.parametrize("prompt", ["hello", CHAT])
def test_one_prompt_gives_one_run(prompt: Any, tmp_path: Path) -> None:
    pair = tiny_pair("llama", tmp_path, chat=True)
    run = pair.generate(prompt, max_new_tokens=4, method="verifier_only")
    assert not isinstance(run, list)
    assert run.method == "verifier_only"


@pytest.mark.parametrize("prompts", [["hello", "world"], [CHAT, CHAT], ["hello", CHAT], ["one"], []])
def test_several_prompts_give_a_run_each_in_order(prompts: Any, tmp_path: Path) -> None:
    pair = tiny_pair("llama", tmp_path, chat=True)
    runs: Any = pair.generate(prompts, max_new_tokens=4, seed=3)
    alone: list[Any] = [pair.generate(prompt, max_new_tokens=4, seed=3) for prompt in prompts]
    assert [run.prompt_ids for run in runs] == [run.prompt_ids for run in alone]
