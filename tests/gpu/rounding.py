"""Laws where rounding is real: on a GPU a sum's order depends on what is computed beside it.

A uniform that falls within rounding of its boundary may land on the other side. Such a difference counts only where the deciding
margin is below `MARGIN`; each is printed, and their number is bounded.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import torch

from specviz.core.distributions import Distributions
from specviz.core.methods import METHODS, PAPER
from specviz.core.sampling import ACCEPT, DRAFT, RESAMPLE, uniforms
from specviz.core.target import Target
from specviz.engine.engine import Engine
from specviz.schema.settings import Request
from specviz.schema.trace import Run
from tests.e2e.test_embedded import LENGTHS, PROMPTS

MARGIN = 1e-4
ROUNDED = 4
SEEDS = (0, 1)
TOKENS = 64


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
    token = run.tokens[index]
    proposal = torch.tensor(token.draft.id if token.draft else token.id)
    if ruling.method.verifies:
        margins.append(_to_boundary(ruling.residual(proposal), u[RESAMPLE]))
    if ruling.method.drafts and ruling.method.verifies:
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


def check_draft_lengths(engine: Engine) -> None:
    """Law 2: nine methods, two seeds: one and the same text for K = 1, 2, 3, 5, 8, 16, and the automatic K."""
    requests = [
        Request(prompt=PROMPTS[6], method=method, seed=seed, max_new_tokens=TOKENS)
        for method in PAPER
        for seed in SEEDS
    ]
    by_length = [engine.generate([replace(request, draft_length=k) for request in requests]) for k in LENGTHS]
    names = [f"K = {k}" for k in LENGTHS]
    rounded = sum(
        len(check_same(engine, request, [runs[index] for runs in by_length], names))
        for index, request in enumerate(requests)
    )
    print(
        f"{len(requests)} requests with {len(LENGTHS)} draft lengths each: {rounded} decisions differ by rounding"
    )
    assert rounded <= ROUNDED


def check_concurrent(engine: Engine) -> None:
    """Law 3: nine methods, each alone, then all nine together, beside three other requests in turn."""
    requests = [
        Request(prompt=PROMPTS[7], method=method, seed=1, max_new_tokens=TOKENS // 2) for method in PAPER
    ]
    others = {
        "a short greedy one": Request(prompt=PROMPTS[3], temperature=0, max_new_tokens=12),
        "a long one of K = 9": Request(prompt=PROMPTS[10], method="speed", draft_length=9, max_new_tokens=90),
        "a truncated one": Request(
            prompt=PROMPTS[19], method="cascade_chow", seed=5, top_p=0.9, draft_length=2
        ),
    }
    alone = [engine.generate(request)[0] for request in requests]
    together = [engine.generate([other, *requests])[1:] for other in others.values()]
    names = ["alone", *(f"beside {name}" for name in others)]
    rounded = sum(
        len(check_same(engine, request, [alone[index], *(runs[index] for runs in together)], names))
        for index, request in enumerate(requests)
    )
    print(f"{len(requests)} requests beside {len(others)} others: {rounded} decisions differ by rounding")
    assert rounded <= ROUNDED
