"""A comparison on tiny models: every pane writes what it writes alone, and the table is measured, not made up."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
import torch

from specviz.analysis.metrics import table
from specviz.analysis.quality import mean_log_probability
from specviz.engine.engine import Engine
from specviz.engine.events import Waiting
from specviz.models.pair import ModelPair
from specviz.schema.settings import Request
from specviz.schema.trace import parse_trace
from specviz.serving.lines import side_by_side, together

PROMPT = "The quick brown fox"
METHODS = ("verifier_only", "speed", "cascade_tokenV3", "drafter_only")


def requests(*methods: str, **settings: Any) -> list[Request]:
    options = {"prompt": PROMPT, "seed": 3, "max_new_tokens": 24, "inspect": 2} | settings
    return [Request(method=method, **options) for method in methods]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_every_pane_writes_what_it_writes_alone_and_the_table_says_so(
    pair: ModelPair, temperature: float
) -> None:
    """Law 3: batch invariance, also where panes have engines of their own, whose runs come in turn."""
    asked = requests(*METHODS, temperature=temperature)
    shared, own = Engine(pair), Engine(pair)
    events = together([shared, own, shared, own], asked, lambda engine, some: engine.stream(some))
    entries = [json.loads(line) for line in side_by_side(events, 4) if line]
    assert entries[0] == {"type": "compare", "panes": 4}
    panes = ([json.dumps(entry) for entry in entries if entry.get("pane") == pane] for pane in range(4))
    runs = [*map(parse_trace, panes)]
    alone = [Engine(pair).generate(request)[0] for request in asked]
    assert [run.token_ids for run in runs] == [run.token_ids for run in alone]
    (told,) = (entry for entry in entries if entry["type"] == "table")
    for row, known in zip(told["rows"], table(runs), strict=True):
        for name in ("tokens", "acceptance_rate", "verifier_calls", "parts_at"):
            assert row[name] == known[name], name


def test_the_mean_log_probability_is_that_of_a_full_reading(
    pair: ModelPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In pieces, with a cache, as one plain forward pass of the verifier with its padding ids cut gives them."""
    monkeypatch.setattr("specviz.analysis.quality._CHUNK", 7)
    run = Engine(pair).generate(Request(prompt=PROMPT, method="drafter_only", max_new_tokens=20, seed=5))[0]
    prompt, text = run.prompt_ids, run.token_ids
    ids = torch.tensor([[*prompt, *text]])
    logits = pair.verifier(input_ids=ids, use_cache=False).logits[..., : pair.vocabulary_size]
    whole = logits.log_softmax(-1)[0, len(prompt) - 1 : -1].gather(-1, torch.tensor(text)[:, None])[:, 0]
    assert mean_log_probability(pair, prompt, text) == pytest.approx(whole.mean().item(), abs=1e-9)
    assert mean_log_probability(pair, prompt, []) is None


def test_first_rounds_ask_to_be_shown_at_once_and_positions_stop_with_the_first_run(pair: ModelPair) -> None:
    """After the first round of every pane comes an empty line; `Waiting` after a start is one, too."""
    events: list[Any] = list(Engine(pair).stream(requests("speed", "verifier_only")))
    events = [Waiting(0, 3), *events[:3], Waiting(0, 0), *events[3:]]
    lines = [json.loads(line) if line else None for line in side_by_side(events, 2)]
    waiting = [line for line in lines if line and line["type"] == "waiting"]
    assert waiting == [{"type": "waiting", "queue_position": 3}]
    assert lines.count(None) == 2 + 2
    shown = [line.get("pane") for line, after in pairwise(lines) if line and after is None]
    assert {0, 1} <= {*shown}
