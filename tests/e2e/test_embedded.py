"""The laws on the embedded pair: real weights and fused passes, where not one decision may differ."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer

from specviz.core.methods import METHODS, PAPER
from specviz.engine.engine import Engine
from specviz.engine.pair import Pair, load_pair
from specviz.models import smollm2
from specviz.schema.settings import Request
from specviz.schema.trace import Run

MARGIN = 0.03
"""Of two logits: how much 16-bit activations may change against transformers in float32."""
TOKENS = 16

PROMPTS = (
    "What is the capital of France?",
    "Why is the sky blue?",
    "Who wrote Romeo and Juliet?",
    "How many days are in a leap year?",
    "What do bees make?",
    "Name three colours of the rainbow.",
    "Write a short story about a lighthouse keeper.",
    "Tell me about a dragon who is afraid of fire.",
    "Describe a quiet morning in a small town.",
    "Write a poem about the sea.",
    "Write a Python function that adds two numbers.",
    "How do I read a file in Python?",
    "Write a loop that prints the numbers from 1 to 10.",
    "What is 12 plus 30?",
    "If I have 5 apples and eat 2, how many are left?",
    "A train travels 60 miles in 1.5 hours. What is its average speed?",
    "List the planets of the solar system.",
    "Rewrite politely: give me the book.",
    "Translate 'good morning' into French.",
    "Summarise why sleep is important.",
)


def decisions(runs: list[Run]) -> list[tuple[list[int], list[bool]]]:
    """Token ids and verdicts of runs."""
    return [(run.token_ids, run.accepted) for run in runs]


def test_draft_length_does_not_change_the_text(engine: Engine) -> None:
    """Law 2: for every method one and the same text for K = 1 and another K; tests/unit/engine has every method with every K."""
    requests = [Request(prompt=PROMPTS[6], method=method, max_new_tokens=8) for method in METHODS]
    first = engine.generate([replace(request, draft_length=1) for request in requests])
    for run in first:
        assert run.text == engine.pair.tokenizer.decode(run.token_ids, skip_special_tokens=True)
    for start, length in enumerate((3, "auto", 5, 16)):
        own: Any = {"draft_length": length, "inspect": 2 * (length == 5)}
        runs = engine.generate([replace(request, **own) for request in requests[start::4]])
        assert decisions(runs) == decisions(first[start::4]), length


def test_gumbel_coupling_writes_the_same_texts_with_any_drafter(engine: Engine) -> None:
    """Token for token: with the drafter, with half of its layers, and with what is found in the text."""
    asked = [
        Request(
            prompt=prompt,
            method="gumbel_coupling",
            seed=seed,
            temperature=(0.7, 1.0)[seed % 2],
            draft_length=3,
            max_new_tokens=TOKENS,
        )
        for seed, prompt in enumerate(PROMPTS[::5])
    ]
    others = (Engine(load_pair(key, device="cpu")) for key in ("embedded-skip", "embedded-lookup"))
    wanted, *found = (each.generate(asked) for each in (engine, *others))
    for runs in found:
        assert [run.token_ids for run in runs] == [run.token_ids for run in wanted]
        assert [run.verifier_calls for run in runs] != [run.verifier_calls for run in wanted]


def test_greedy_drafts_are_the_drafter_s_favourites_in_fused_passes_too(engine: Engine) -> None:
    """Law 2, and q is one-hot: for plain and truncated distributions."""
    for cut in ({}, {"top_k": 20, "top_p": 0.9}):
        common: dict[str, Any] = {"prompt": PROMPTS[6], "method": "speed", "max_new_tokens": 8, **cut}
        runs = engine.generate(
            [Request(**common, greedy_drafts=True, draft_length=k) for k in (1, 3, "auto")]
        )
        assert len({tuple(run.token_ids) for run in runs}) == 1
        for token in (token for run in runs for token in run.tokens):
            rejected = token.draft
            assert (rejected.q if rejected else token.q) == 1
            assert token.acceptance == pytest.approx(rejected.p if rejected else token.p, abs=1e-6)


def test_a_token_has_the_same_bits_in_any_block_and_any_batch(engine: Engine) -> None:
    """Laws 2 and 3: both models' logits, for blocks of 1 to 16 tokens, alone and as one of five rows at other positions."""
    torch.manual_seed(0)
    for model in (engine.pair.drafter_model, engine.pair.verifier_model):
        texts = torch.randint(1000, (5, 56))

        def logits(block: int, rows: int, model: Any = model, texts: torch.Tensor = texts) -> torch.Tensor:
            slot, starts = model.runner(49152), 40 - 9 * torch.arange(rows)[:, None]
            slot.admit(list(range(rows)), 56)
            positions = torch.arange(40).expand(rows, -1)
            slot.read(texts[:rows, :40], positions, visible=40, valid=positions < starts)
            parts = []
            for first in range(0, 16, block):
                at = starts + torch.arange(first, first + block)
                parts.append(slot.forward(texts[:rows].gather(1, at), at, visible=40 + first + block))
            return torch.cat(parts, 1)[0]

        with torch.inference_mode():
            alone = logits(1, 1)
            for block, rows in ((4, 1), (16, 1), (1, 5), (4, 5), (16, 5)):
                assert torch.equal(logits(block, rows), alone), (block, rows)


def test_concurrent_sequences_do_not_change_a_text(engine: Engine) -> None:
    """Law 3: nine methods, each alone, then all nine in one batch with others."""
    requests = [Request(prompt=PROMPTS[7], method=method, seed=1, max_new_tokens=8) for method in PAPER]
    others = [
        Request(prompt=PROMPTS[10], method="speed", draft_length=9, max_new_tokens=12),
        Request(
            prompt=PROMPTS[19], method="cascade_chow", seed=5, top_p=0.9, draft_length=2, max_new_tokens=6
        ),
    ]
    alone = decisions([engine.generate(request)[0] for request in requests])
    assert decisions(engine.generate([*others, *requests])[2:]) == alone


def margin(engine: Engine, request: Request, index: int) -> float:
    """How far apart the verifier's two highest logits are at token `index` of its own greedy text."""
    asked = replace(request, method="verifier_only", return_logits=True, max_new_tokens=index + 1)
    logits: Any = engine.generate(asked)[0].verifier_logits
    return float(logits[index].topk(2).values.diff().abs())


def transformers_greedy(engine: Engine, prompts: list[list[int]], penalty: float) -> list[list[int]]:
    """What transformers' `generate` adds to each prompt, in one batch padded at the left.

    A repetition penalty counts padding too, so prompts are padded with their own first token.
    """
    width = max(map(len, prompts))
    device = engine.pair.device
    ids = torch.tensor([own[:1] * (width - len(own)) + own for own in prompts], device=device)
    mask = torch.tensor([[0] * (width - len(own)) + [1] * len(own) for own in prompts], device=device)
    written = engine.pair.verifier.generate(
        ids, attention_mask=mask, do_sample=False, repetition_penalty=penalty, max_new_tokens=TOKENS
    )[:, width:].tolist()
    ends = engine.pair.eos_token_ids
    return [
        own[: next((number + 1 for number, token in enumerate(own) if token in ends), len(own))]
        for own in written
    ]


@pytest.mark.parametrize(("penalty", "count"), [(1.0, 3), (1.1, 2)])
def test_greedy_is_greedy(engine: Engine, penalty: float, count: int) -> None:
    """Law 5 at T = 0: lossless speculative decoding, verifier_only and transformers' greedy `generate`."""
    settings: dict[str, Any] = {"temperature": 0, "max_new_tokens": TOKENS, "repetition_penalty": penalty}
    requests = [
        Request(prompt=prompt, method=method, lenience=0, **settings)
        for method in ("speed", "verifier_only")
        for prompt in PROMPTS[:count]
    ]
    runs = engine.generate(requests)
    rounded = 0
    written = transformers_greedy(engine, [run.prompt_ids for run in runs[:count]], penalty)
    for request, run, theirs in zip(requests, runs, written * 2, strict=True):
        if run.token_ids != theirs:
            pairs = zip(run.token_ids, theirs, strict=False)
            index = next(i for i, (ours, other) in enumerate(pairs) if ours != other)
            near = margin(engine, request, index)
            print(f"{run.prompt!r}: {run.method} leaves transformers at token {index}, margin {near:.1e}")
            assert near < MARGIN
            rounded += 1
    assert rounded <= 4


def test_the_tokenizer_is_the_one_that_transformers_finds(embedded: Pair) -> None:
    found = AutoTokenizer.from_pretrained(str(smollm2.SHIPPED), local_files_only=True)
    assert type(found) is type(embedded.tokenizer)
    assert found.backend_tokenizer.to_str() == embedded.tokenizer.backend_tokenizer.to_str()
    assert found.special_tokens_map == embedded.tokenizer.special_tokens_map
    assert found.chat_template == embedded.tokenizer.chat_template
