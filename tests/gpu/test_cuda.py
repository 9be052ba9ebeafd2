"""The engine on a real GPU: the laws, captured passes against plain ones, waits, and memory.

The laws are those of the end-to-end tests, on the engine of this folder. What a CPU can show of this path is in
`tests/unit/runtime/test_graphs.py`, on a pretended GPU.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from specviz.core.methods import PAPER
from specviz.engine.engine import Engine
from specviz.models.loading import load_pair
from specviz.models.registry import DEFAULT_PAIR
from specviz.runtime.cuda.workspace import workspace
from specviz.runtime.memory import give_back_memory
from specviz.schema.settings import Request
from specviz.serving.shared_engine import SharedEngine
from tests.e2e.test_embedded import PROMPTS, test_greedy_is_greedy  # noqa: F401  (collected here once more)
from tests.gpu.rounding import check_blocks, check_neighbours, check_same


def mixed(count: int) -> list[Request]:
    """Requests of all methods and many lengths."""
    methods = list(PAPER)
    return [
        Request(
            prompt=PROMPTS[i % len(PROMPTS)],
            method=methods[i % len(methods)],
            temperature=(0.0, 0.7, 1.0)[i % 3],
            seed=i,
            max_new_tokens=8 + 37 * i % 90,
            draft_length=("auto", 1, 3, 5)[i % 4],
            inspect=5 * (i % 5 == 0),
        )
        for i in range(count)
    ]


def test_captured_passes_write_the_text_of_plain_ones(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = mixed(9)
    captured = [engine.generate(request)[0] for request in requests * 3][-9:]
    for model in (engine.pair.drafter, engine.pair.verifier):
        kept = workspace(model)
        assert kept is not None
        assert len(kept.graphs) > 0
    monkeypatch.setenv("SPECVIZ_GRAPHS", "0")
    for request, run in zip(requests, captured, strict=True):
        check_same(engine, request, [run, engine.generate(request)[0]], ["captured", "plain"])


def test_captures_come_back_after_buffers_have_grown(engine: Engine) -> None:
    """A ninth row and 1,025 positions move the buffers: what was captured is freed, and captured again."""
    kept = workspace(engine.pair.verifier)
    assert kept is not None
    short, many = Request(prompt=PROMPTS[1], max_new_tokens=40), mixed(9)
    for asked in ([short] * 2, many, [replace(short, max_new_tokens=1200)], [short] * 2):
        for _ in range(2):
            engine.generate(asked)
        assert kept.graphs.enabled
        assert len(kept.graphs) > 0


def test_the_block_does_not_show(engine: Engine) -> None:
    """Law 2, but for rounding."""
    check_blocks(engine)


def test_neighbours_do_not_show(engine: Engine) -> None:
    """Law 3, but for rounding."""
    check_neighbours(engine)


def test_a_round_waits_for_the_device_once(engine: Engine) -> None:
    """After everything is captured: as many waits as rounds, and a few more to read the prompt."""
    request = Request(prompt=PROMPTS[1], method="cascade_tokenV3", draft_length=3, max_new_tokens=40, seed=1)
    for _ in range(4):
        engine.generate(request)
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            [run] = engine.generate(request)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    waits = [str(each.message) for each in caught if "synchroniz" in str(each.message)]
    assert len(waits) <= len(run.rounds) + 8, waits[:5]


def test_two_hundred_requests_leave_memory_where_it_was(engine: Engine) -> None:
    def allocated() -> int:
        gc.collect()
        give_back_memory()
        return torch.cuda.memory_allocated()

    def serve() -> None:
        for first in range(0, 200, 40):
            engine.generate(mixed(40))
            for request in mixed(200)[first : first + 5]:
                engine.generate(request)

    serve()
    serve()  # every shape has come up by now: buffers and captures are kept
    before = allocated()
    serve()
    assert allocated() <= before * 1.02


@pytest.fixture
def shared(engine: Engine) -> Iterator[SharedEngine]:
    one = SharedEngine(engine.pair, max_sequences=8)
    yield one
    one.close()


def test_a_shared_engine_writes_what_each_gets_alone(engine: Engine, shared: SharedEngine) -> None:
    """Law 3: neighbours do not show."""
    requests = mixed(18)
    shared.warm_up(lambda fraction, text: None)
    for request, run in zip(requests, shared.generate(requests), strict=True):
        check_same(engine, request, [engine.generate(request)[0], run], ["alone", "in company"])


def test_half_precision_runs() -> None:
    engine = Engine(load_pair(DEFAULT_PAIR, device="cuda", dtype="bfloat16"))
    for run in engine.generate([replace(request, max_new_tokens=24) for request in mixed(9)]):
        assert run.stop_reason in ("eos", "length")
