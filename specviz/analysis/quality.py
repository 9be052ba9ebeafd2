"""Quality of texts as measured by the verifier: log-probabilities, and the distance of a method's distribution from the verifier's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from specviz.core.backend import backend_for
from specviz.core.methods import get_method
from specviz.core.sampling import SamplingParameters, at, bounded, distribution
from specviz.core.target import target_under
from specviz.models.pair import ModelPair
from specviz.schema.trace import Run

_CHUNK = 128
"""Maximum tokens per forward pass; bounds the memory of logits."""


def _call(function: Callable[[], Any]) -> Any:
    return function()


def read_logits(
    pair: ModelPair,
    model: Literal["drafter", "verifier"],
    prompt_ids: Sequence[int],
    token_ids: Sequence[int],
    call: Callable[[Callable[[], Any]], Any] = _call,
) -> Iterator[Tensor]:
    """Run one of a pair's models over a finished text; yields logits [n, V] at the positions that predict `token_ids`.

    Yields one chunk per forward pass, in order, on the model's device. Together they have one row per token.

    Args:
        pair: the models.
        model: which of the two.
        prompt_ids: ids of the prompt, at least one.
        token_ids: ids of the text after the prompt. All but the last are also inputs.
        call: runs each pass. `SharedEngine.call` lets the engine's steps run in between.
    """
    passes = _passes(pair, model, prompt_ids, token_ids)
    while (logits := call(partial(next, passes, None))) is not None:
        if len(logits):
            yield logits


@torch.inference_mode()
def _passes(
    pair: ModelPair, model: str, prompt_ids: Sequence[int], token_ids: Sequence[int]
) -> Iterator[Tensor]:
    """As `read_logits`, but also yields empty logits [0, V] after each pass over the prompt."""
    if not token_ids:
        return
    reader = getattr(pair, f"{model}_model").runner(pair.vocabulary_size, apart=True)
    ids = torch.tensor([[*prompt_ids, *token_ids[:-1]]], device=reader.device)
    positions = torch.arange(ids.shape[1], device=reader.device)[None]
    start, end = len(prompt_ids) - 1, ids.shape[1]
    reader.admit([ids], end)
    for first in range(0, start, _CHUNK):
        last = min(first + _CHUNK, start)
        reader.read(ids[:, first:last], positions[:, first:last], visible=last)
        yield torch.empty(0, pair.vocabulary_size)
    for first in range(start, end, _CHUNK):
        last = min(first + _CHUNK, end)
        logits = reader.forward(ids[:, first:last], positions[:, first:last], visible=last)[0]
        # Half precision has three digits, too few for a mean of small differences.
        yield logits.to(torch.promote_types(logits.dtype, torch.float32))


def mean_log_probability(
    pair: ModelPair,
    prompt_ids: Sequence[int],
    token_ids: Sequence[int],
    call: Callable[[Callable[[], Any]], Any] = _call,
) -> float | None:
    """Mean natural log-probability per token under the verifier; None for an empty text. The distribution excludes padding ids."""
    scores: list[float] = []
    for logits in read_logits(pair, "verifier", prompt_ids, token_ids, call):
        wanted = torch.tensor(token_ids[len(scores) : len(scores) + len(logits)], device=logits.device)
        scores += _log_likelihoods(logits, wanted).tolist()
    return sum(scores) / len(scores) if scores else None


@torch.inference_mode()
def fidelity(run: Run, pair: ModelPair) -> dict[str, Any]:
    """Measure a finished run that has its logits (`Request.return_logits`). If it ran without the verifier, the verifier reads the text.

    Returns fields of a `specviz.analysis.sweep.results.Sample`: "distance", "log_probability" and "greedy", and for a run of one model
    also "confidence" and "least_confidence". They are rounded to six decimals, since a sum's last digits depend on the processor.
    """
    method = get_method(run.method, run.rule)
    tokens = torch.tensor(run.token_ids)
    drafter: Tensor | None = run.drafter_logits
    verifier: Tensor | None = run.verifier_logits
    if not method.verifies:
        read = list(read_logits(pair, "verifier", run.prompt_ids, run.token_ids))
        verifier = torch.cat([logits.cpu() for logits in read]) if read else None
    if verifier is None:
        return {"distance": 0.0, "log_probability": 0.0, "greedy": 0}
    found: dict[str, Any] = {"distance": 0.0}
    if drafter is not None:
        asked, lenience = SamplingParameters(*run.warp).computable(), bounded(run.lenience)
        backend = backend_for(verifier.device, drafter.dtype, verifier.dtype)
        if method.truncates:  # and decodes losslessly towards the truncated p
            settings = method.sampling(asked, lenience), asked
            pi, p = (distribution(verifier, *each, backend=backend) for each in settings)
        else:
            drafted = ~drafter.isneginf().all(-1)  # a lookup finds nothing at other positions, where pi is p
            both = drafter[drafted], verifier[drafted]
            target = target_under(method, *both, asked, lenience, run.greedy_drafts)
            pi, p = target.pi(), target.distributions.p
        found["distance"] = float(backend.excess(pi, p).double().sum())
    found["log_probability"] = float(_log_likelihoods(verifier, tokens).sum())
    found["greedy"] = int((verifier.argmax(-1) == tokens).sum())
    if not (method.drafts and method.verifies):
        alone = verifier if drafter is None else drafter
        sure = alone.double().softmax(-1).amax(-1)
        found |= {"confidence": float(sure.mean()), "least_confidence": float(sure.min())}
    return {name: round(value, 6) for name, value in found.items()}


def _log_likelihoods(logits: Tensor, tokens: Tensor) -> Tensor:
    """Natural log-probability [n] of `tokens` [n] under logits [n, V].

    In float64: float32 sums over a vocabulary have errors of 1e-5 that depend on the processor.
    """
    return at(logits, tokens).double() - logits.double().logsumexp(-1)
