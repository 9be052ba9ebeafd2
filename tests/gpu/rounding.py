"""Laws where rounding is real: on a GPU a sum's order depends on what is computed beside it.

A uniform that falls within rounding of its boundary may land on the other side. Such a difference counts only where the deciding
margin is below `MARGIN`; each is printed.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from specviz.core.distributions import Distributions
from specviz.core.methods import METHODS
from specviz.core.sampling import ACCEPT, DRAFT, RESAMPLE, uniforms
from specviz.core.target import Target
from specviz.engine.engine import Engine
from specviz.schema.settings import Request
from specviz.schema.trace import Run

MARGIN = 1e-4


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
    if ruling.deferral is not None:
        margins.append(float((ruling.deferral.score - ruling.deferral.threshold).abs().min()))
    return min(margins)


def _to_boundary(distribution: torch.Tensor, uniform: torch.Tensor) -> float:
    return float((distribution.cumsum(-1) - uniform).abs().min())


def first_difference(one: Run, other: Run) -> int | None:
    """Index of the first token in which two runs differ, in id or in verdict."""
    pairs = itertools.zip_longest(
        zip(one.token_ids, one.accepted, strict=True), zip(other.token_ids, other.accepted, strict=True)
    )
    return next((index for index, (a, b) in enumerate(pairs) if a != b), None)


def differing(engine: Engine, requests: Sequence[Request], ways: Mapping[str, Sequence[Run]]) -> int:
    """The number of decisions in which ways to serve the requests differ; each must be a matter of rounding."""
    (first, expected), *others = ways.items()
    found = set()
    for name, runs in others:
        for number, (request, one, other) in enumerate(zip(requests, expected, runs, strict=True)):
            index = first_difference(one, other)
            if index is not None:
                near = margin(engine, request, index)
                told = f"{request.method} seed {request.seed}: {name} leaves {first} at token {index}"
                print(f"{told}, margin {near:.1e}")
                assert near < MARGIN
                found.add((number, index))
    return len(found)
