"""The number of threads: measured, remembered, and never left behind."""

from __future__ import annotations

import threading
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


def test_a_pass_takes_the_threads_chosen_and_gives_them_back(tmp_path: Path) -> None:
    model = tiny_model("llama", 60, 0, tmp_path)
    assert threads.chosen(model) is None
    before, seen = torch.get_num_threads(), []
    threads.choose(model)
    assert torch.get_num_threads() == before
    found = threads.chosen(model)
    assert found is not None
    assert found.all == threads.budget()
    assert 1 <= found.few <= threads.budget()
    threads._chosen[model] = threads.Threads(few=1, more=2, all=3)
    model.register_forward_hook(lambda *_: seen.append(torch.get_num_threads()))
    slot = ModelRunner(model, 60)
    slot.admit([0], 128)
    for count in (1, 8, 9, 64, 65):
        slot.forward(torch.zeros(1, count, dtype=torch.long), torch.arange(count)[None], visible=count)
    assert seen == [1, 1, 2, 2, 3]
    assert torch.get_num_threads() == before


def test_a_thread_that_starts_while_another_is_limited_still_knows_the_budget(tmp_path: Path) -> None:
    model, found = tiny_model("llama", 60, 0, tmp_path), []

    def load() -> None:
        threads.choose(model)
        found.append(threads.chosen(model))

    with threads.limited_to(1):
        loader = threading.Thread(target=load)
        loader.start()
        loader.join()
    assert found[0].all == threads.budget()
