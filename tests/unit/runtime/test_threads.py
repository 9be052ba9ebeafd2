"""The number of threads of a pass: measured, remembered, and never left behind."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from specviz.runtime.cpu import threads
from specviz.runtime.model_runner import ModelRunner
from tests.support.tiny import tiny_model


@pytest.mark.parametrize(("seconds", "best"), [((1.0, 0.95, 1.4), 1), ((9.0, 5.0, 4.9), 2)])
def test_the_fastest_number_is_taken_if_it_is_worth_its_threads(
    seconds: tuple[float, ...], best: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]

    def run(count: int) -> None:
        clock[0] += seconds[count - 1]

    monkeypatch.setattr(threads.time, "perf_counter", lambda: clock[0])
    assert threads.quickest(run, [1, 2, 3]) == best


def test_a_pass_takes_the_threads_chosen_and_restores_the_number(tmp_path: Path) -> None:
    model, seen = tiny_model("llama", 60, 0, tmp_path), list[int]()
    before = torch.get_num_threads()
    threads.choose(model)
    found = threads.chosen(model)
    assert found is not None
    assert 1 <= found.few <= found.all == threads.budget()
    threads._chosen[model] = threads.Threads(few=1, more=2, all=3)
    model.register_forward_hook(lambda *_: seen.append(torch.get_num_threads()))
    runner = ModelRunner(model, 60)
    runner.admit([0], 128)
    for count in (1, 8, 9, 64, 65):
        runner.forward(torch.zeros(1, count, dtype=torch.long), torch.arange(count)[None], visible=count)
    assert seen == [1, 1, 2, 2, 3]
    assert torch.get_num_threads() == before
