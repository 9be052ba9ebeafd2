"""The engine on a GPU: the laws of the end-to-end tests, captured passes against plain ones, waits, and memory.

`tests/unit/runtime/test_graphs.py` and `test_decoder.py` show what a CPU can show of captured passes and of the kernels.
"""

from __future__ import annotations

import copy
import gc
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from specviz.core.methods import PAPER
from specviz.engine.engine import Engine
from specviz.models.loading import load_pair
from specviz.models.registry import DEFAULT_PAIR
from specviz.runtime.cuda.decoder import Decoder, decoder_of, serves
from specviz.runtime.cuda.workspace import workspace
from specviz.runtime.kv_cache import KVCache
from specviz.runtime.memory import give_back_memory
from specviz.schema.settings import Request
from specviz.schema.trace import Run
from specviz.serving.shared_engine import SharedEngine
from tests.e2e.test_embedded import (
    PROMPTS,
    test_greedy_is_greedy,  # noqa: F401  (collected here once more)
)
from tests.gpu.rounding import differing

LENGTHS = (1, 2, 3, 5, 8, 16, "auto")
ROUNDED = 4
"""At most so many decisions may differ by rounding in float32."""
REPEATED = [
    Request(prompt=PROMPTS[6], method=method, seed=seed, max_new_tokens=64)
    for method in PAPER
    for seed in (0, 1)
]


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


def alone(engine: Engine, requests: list[Request]) -> list[Run]:
    """Each request's run by itself."""
    return [engine.generate(request)[0] for request in requests]


def by_length(engine: Engine) -> dict[str, list[Run]]:
    """The repeated requests' runs for each draft length."""
    return {
        f"K = {k}": engine.generate([replace(request, draft_length=k) for request in REPEATED])
        for k in LENGTHS
    }


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
    differing(engine, requests, {"captured": captured, "plain": alone(engine, requests)})


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


def test_draft_length_invariance(engine: Engine) -> None:
    """Law 2, but for rounding: nine methods, two seeds, every K."""
    assert differing(engine, REPEATED, by_length(engine)) <= ROUNDED


def test_batch_invariance(engine: Engine) -> None:
    """Law 3, but for rounding: nine methods, each alone, then all together, beside other requests in turn."""
    requests = [Request(prompt=PROMPTS[7], method=method, seed=1, max_new_tokens=32) for method in PAPER]
    others = {
        "beside a short greedy one": Request(prompt=PROMPTS[3], temperature=0, max_new_tokens=12),
        "beside a long one": Request(prompt=PROMPTS[10], method="speed", draft_length=9, max_new_tokens=90),
        "beside a truncated one": Request(prompt=PROMPTS[19], method="cascade_chow", top_p=0.9),
    }
    beside = {name: engine.generate([other, *requests])[1:] for name, other in others.items()}
    assert differing(engine, requests, {"alone": alone(engine, requests)} | beside) <= ROUNDED


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


@pytest.fixture(scope="module")
def half() -> Engine:
    """The embedded pair in bfloat16, by kernels of ours."""
    pair = load_pair(DEFAULT_PAIR, device="cuda", dtype="bfloat16")
    assert decoder_of(pair.drafter) is not None
    assert decoder_of(pair.verifier) is not None
    return Engine(pair)


def decisions(runs: list[Run]) -> list[tuple[list[int], list[bool]]]:
    """The tokens and the verdicts of runs."""
    return [(run.token_ids, run.accepted) for run in runs]


def test_in_bfloat16_draft_length_invariance_holds_to_the_bit(half: Engine) -> None:
    """Law 2, to the bit: nine methods, two seeds, every K."""
    first, *others = map(decisions, by_length(half).values())
    assert others == [first] * len(others)


def test_in_bfloat16_batch_invariance_holds_to_the_bit(half: Engine, shared_half: SharedEngine) -> None:
    """Law 3, to the bit: each alone, all together, and coming and going in a shared engine."""
    requests = mixed(18)
    shared_half.warm_up()
    own = decisions(alone(half, requests))
    assert decisions(half.generate(requests)) == own
    assert decisions(list(shared_half.generate(requests))) == own


@pytest.fixture
def shared_half(half: Engine) -> Iterator[SharedEngine]:
    one = SharedEngine(half.pair, max_sequences=8)
    yield one
    one.close()


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_kernels_are_as_near_to_float64_as_transformers(family: str) -> None:
    """And have the same bits for any number of tokens at once."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        family, hidden_size=640, num_hidden_layers=3, num_attention_heads=10, num_key_value_heads=2,
        intermediate_size=1696, vocab_size=3001, head_dim=64, pad_token_id=None,
    )  # fmt: skip
    with torch.device("cuda"):
        model: Any = (
            AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval().requires_grad_(False)
        )
        tokens = torch.randint(3001, (3, 300))
    for weight in model.parameters():
        if weight.dim() == 1:
            weight.add_(torch.randn_like(weight) * 0.2)
    assert serves(model)
    decoder, cache, positions = Decoder(model), KVCache(), torch.arange(300, device="cuda").expand(3, -1)
    cache.reserve(3, 400)
    decoder.prepare(cache)
    with torch.inference_mode():
        theirs = model(tokens).logits.double()
        exact = copy.deepcopy(model).double()(tokens).logits
        ours = decoder.logits(decoder.read(tokens, positions, positions, cache, slice(0, 3), 300), 3001)
        assert (ours - exact).square().mean() <= (theirs - exact).square().mean()
        for count in (1, 2, 5, 16, 17, 40, 64, 65, 100, 200):
            last = tokens[1:2, -count:], positions[1:2, -count:], positions[1:2, -count:]
            again = decoder.logits(decoder.read(*last, cache, slice(1, 2), 300 + count), 3001)
            assert torch.equal(again[0], ours[1, -count:]), count
