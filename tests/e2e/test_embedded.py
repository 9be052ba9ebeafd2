"""The laws on the embedded pair: real weights, float32, where rounding is real too.

With packed weights and grouped attention a token has the same bits in a block of any length and in any batch, and
not one decision differs. Where a processor has other kernels, or SPECVIZ_PREPACK is "0", a coin that falls within rounding
of its boundary may land on the other side. Such a difference counts only where the deciding margin is below `MARGIN`;
each is printed, and their number is bounded.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from specviz.core.methods import METHODS, Distributions, Target
from specviz.core.sampling import ACCEPT, DRAFT, RESAMPLE, uniforms
from specviz.engine.engine import Engine
from specviz.runtime.cpu.packing import PackedLinear
from specviz.runtime.model_runner import ModelRunner
from specviz.schema.settings import Request
from specviz.schema.trace import Run

MARGIN = 1e-4
ROUNDED = 4
SEEDS = (0, 1)
LENGTHS = (1, 2, 3, 5, 8, 16, "auto")
TOKENS = 48

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


def margin(engine: Engine, request: Request, index: int) -> float:
    """How close the decision at token `index` was to going the other way, in logits or cumulative probability."""
    [run] = engine.generate(replace(request, return_logits=True, max_new_tokens=index + 1))
    position = run.tokens[index].position
    u = uniforms(request.seed, position, position + 1)[0]
    logits = [
        side[index].double() if side is not None else None
        for side in (run.drafter_logits, run.verifier_logits)
    ]
    if request.temperature == 0:
        return min(float(side.topk(2).values.diff().abs()) for side in logits if side is not None)
    drafter, verifier = (side if side is not None else logits[1 - i] for i, side in enumerate(logits))
    ruling = Target.of(
        METHODS[request.method], Distributions(drafter, verifier, request.temperature), run.lenience
    )
    margins = []
    if ruling.method.drafts:
        margins.append(_to_boundary(ruling.distributions.q, u[DRAFT]))
    if ruling.method.verifies:
        margins.append(_to_boundary(ruling.residual(), u[RESAMPLE]))
    if ruling.method.drafts and ruling.method.verifies:
        token = run.tokens[index]
        proposal = torch.tensor(token.draft.id if token.draft else token.id)
        margins.append(float((ruling.acceptance(proposal) - u[ACCEPT]).abs()))
    if ruling.score is not None:
        margins.append(float((ruling.score - ruling.threshold).abs().min()))
    return min(margins)


def _to_boundary(distribution: torch.Tensor, uniform: torch.Tensor) -> float:
    return float((distribution.cumsum(-1) - uniform).abs().min())


def first_difference(one: Run, other: Run) -> int | None:
    """Index of the first token in which two runs differ, in id or in verdict."""
    pairs = itertools.zip_longest(
        zip(one.token_ids, one.accepted, strict=True), zip(other.token_ids, other.accepted, strict=True)
    )
    return next((index for index, (a, b) in enumerate(pairs) if a != b), None)


def check_same(engine: Engine, request: Request, runs: Sequence[Run], names: Sequence[str]) -> set[int]:
    """All runs of a request are one text; returns the tokens at which some differed by rounding."""
    rounded = set()
    for run, name in zip(runs[1:], names[1:], strict=True):
        index = first_difference(runs[0], run)
        if index is not None:
            near = margin(engine, request, index)
            print(
                f"{request.method} seed {request.seed}: {name} leaves {names[0]} at token {index}, margin {near:.1e}"
            )
            assert near < MARGIN
            rounded.add(index)
    return rounded


def test_the_block_does_not_show(engine: Engine) -> None:
    """Law 2: nine methods, two seeds: one and the same text for K = 1, 2, 3, 5, 8, 16, and where K is chosen as it goes."""
    requests = [
        Request(prompt=PROMPTS[6], method=method, seed=seed, max_new_tokens=TOKENS)
        for method in METHODS
        for seed in SEEDS
    ]
    by_length = [engine.generate([replace(request, draft_length=k) for request in requests]) for k in LENGTHS]
    names = [f"K = {k}" for k in LENGTHS]
    rounded = sum(
        len(check_same(engine, request, [runs[index] for runs in by_length], names))
        for index, request in enumerate(requests)
    )
    print(
        f"{len(requests)} requests with {len(LENGTHS)} block lengths each: {rounded} decisions differ by rounding"
    )
    assert rounded <= ROUNDED


def test_a_token_has_the_same_bits_in_any_block_and_any_batch(engine: Engine) -> None:
    """Laws 2 and 3: both models' logits, for blocks of 1 to 16 tokens, alone and as one of five rows at other positions."""
    if not isinstance(engine.pair.verifier.get_output_embeddings(), PackedLinear):
        return  # plain weights round as they please
    torch.manual_seed(0)
    for model in (engine.pair.drafter, engine.pair.verifier):
        texts = torch.randint(1000, (5, 116))

        def logits(block: int, rows: int, model: Any = model, texts: torch.Tensor = texts) -> torch.Tensor:
            slot, starts = (
                ModelRunner(model, engine.pair.vocabulary_size),
                100 - 10 * torch.arange(rows)[:, None],
            )
            slot.admit(list(range(rows)), 116)
            positions = torch.arange(100).expand(rows, -1)
            slot.read(texts[:rows, :100], positions, visible=100, valid=positions < starts)
            parts = []
            for first in range(0, 16, block):
                at = starts + torch.arange(first, first + block)
                parts.append(slot.forward(texts[:rows].gather(1, at), at, visible=100 + first + block))
            return torch.cat(parts, 1)[0]

        with torch.inference_mode():
            alone = logits(1, 1)
            for block, rows in ((2, 1), (4, 1), (8, 1), (16, 1), (1, 5), (4, 5), (16, 5)):
                assert torch.equal(logits(block, rows), alone), (block, rows)


def test_neighbours_do_not_show(engine: Engine) -> None:
    """Law 3: nine methods, each alone, then all nine together, beside three different neighbours in turn."""
    requests = [
        Request(prompt=PROMPTS[7], method=method, seed=1, max_new_tokens=TOKENS // 2) for method in METHODS
    ]
    neighbours = {
        "a short greedy one": Request(prompt=PROMPTS[3], temperature=0, max_new_tokens=12),
        "a long one of K = 9": Request(prompt=PROMPTS[10], method="speed", draft_length=9, max_new_tokens=90),
        "a truncated one": Request(
            prompt=PROMPTS[19], method="cascade_chow", seed=5, top_p=0.9, draft_length=2
        ),
    }
    alone = [engine.generate(request)[0] for request in requests]
    together = [engine.generate([neighbour, *requests])[1:] for neighbour in neighbours.values()]
    names = ["alone", *(f"beside {name}" for name in neighbours)]
    rounded = sum(
        len(check_same(engine, request, [alone[index], *(runs[index] for runs in together)], names))
        for index, request in enumerate(requests)
    )
    print(
        f"{len(requests)} requests beside {len(neighbours)} neighbours: {rounded} decisions differ by rounding"
    )
    assert rounded <= ROUNDED


def transformers_greedy(engine: Engine, prompts: list[list[int]]) -> list[list[int]]:
    """What transformers' own `generate` adds to each prompt, up to its end; all in one batch, padded at the left."""
    width = max(map(len, prompts))
    device = engine.pair.device
    ids = torch.tensor([[0] * (width - len(own)) + own for own in prompts], device=device)
    mask = torch.tensor([[0] * (width - len(own)) + [1] * len(own) for own in prompts], device=device)
    written = engine.pair.verifier.generate(ids, attention_mask=mask, do_sample=False, max_new_tokens=TOKENS)[
        :, width:
    ].tolist()
    ends = engine.pair.eos_token_ids
    return [
        own[: next((number + 1 for number, token in enumerate(own) if token in ends), len(own))]
        for own in written
    ]


def test_greedy_is_greedy(engine: Engine) -> None:
    """Law 5 at T = 0: lossless speculative decoding, verifier_only and transformers' greedy `generate`, 20 prompts."""
    requests = [
        Request(prompt=prompt, method=method, lenience=0, temperature=0, max_new_tokens=TOKENS)
        for method in ("speed", "verifier_only")
        for prompt in PROMPTS
    ]
    runs = engine.generate(requests)
    rounded = 0
    written = transformers_greedy(engine, [run.prompt_ids for run in runs[:20]])
    for request, speculative, plain, theirs in zip(requests, runs[:20], runs[20:], written, strict=False):
        for name, ours in (("speed", speculative), ("verifier_only", plain)):
            if ours.token_ids != theirs:
                index = next(
                    i for i, (a, b) in enumerate(zip(ours.token_ids, theirs, strict=False)) if a != b
                )
                near = margin(engine, replace(request, method="verifier_only"), index)
                print(f"{request.prompt!r}: {name} leaves transformers at token {index}, margin {near:.1e}")
                assert near < MARGIN
                rounded += 1
    assert rounded <= 1


@pytest.mark.parametrize("method", METHODS)
def test_calls_are_rounds_not_tokens(engine: Engine, method: str) -> None:
    counts = {"drafter": 0, "verifier": 0}

    def count(name: str):
        return lambda *_: counts.update({name: counts[name] + 1})

    hooks = [getattr(engine.pair, name).base_model.register_forward_hook(count(name)) for name in counts]
    try:
        [run] = engine.generate(Request(prompt=PROMPTS[1], method=method, max_new_tokens=24))
    finally:
        for hook in hooks:
            hook.remove()
    rule_, drafted = METHODS[method], sum(len(r.proposals) for r in run.rounds)
    assert counts["verifier"] == (len(run.rounds) + 1 if rule_.verifies else 0)
    assert counts["drafter"] == (drafted + 1 if rule_.drafts else 0)


def test_text_is_what_the_tokenizer_decodes(engine: Engine) -> None:
    for run in engine.generate([Request(prompt=prompt, max_new_tokens=40) for prompt in PROMPTS[:4]]):
        assert run.text == engine.pair.tokenizer.decode(run.token_ids, skip_special_tokens=True)
        assert sum(run.accepted) not in (0, len(run.tokens))
