"""How good a drafter is: acceptance rate, cost and sample texts, on prompts held out. Knows pairs; knows no training."""

from __future__ import annotations

import statistics
import threading
import time
from typing import Any

import torch

from specviz.engine.engine import Engine
from specviz.models.pair import ModelPair
from specviz.schema.settings import Request
from specviz.tools.distill.prompts import held_out_prompts
from specviz.tools.distill.settings import raise_if_stopped

_CASCADE = "cascade_tokenV3, lenience 0.5, T = 1"
EVALUATIONS: dict[str, dict[str, Any]] = {
    "lossless, T = 1": {"method": "speed", "lenience": 0.0, "temperature": 1.0},
    "lossless, T = 0.7": {"method": "speed", "lenience": 0.0, "temperature": 0.7},
    "lossless, T = 0": {"method": "speed", "lenience": 0.0, "temperature": 0.0},
    _CASCADE: {"method": "cascade_tokenV3", "lenience": 0.5, "temperature": 1.0},
}
"""The settings at which a drafter's acceptance rate is measured."""
BEFORE_TRAINING = {"lossless, T = 1": EVALUATIONS["lossless, T = 1"]}


def acceptance_rates(
    pair: ModelPair, evaluations: dict[str, dict[str, Any]], stop: threading.Event
) -> dict[str, float]:
    """Accepted / examined draft tokens over all held-out prompts, for each of `evaluations`.

    Which are examined is the same for every draft length; a short one wastes little on a drafter that knows nothing yet.

    Raises:
        StoppedError: `stop` was set.
    """
    rates = {}
    for name, options in evaluations.items():
        requests = [
            Request(prompt=prompt, seed=seed, max_new_tokens=96, draft_length=2, **options)
            for seed, prompt in enumerate(held_out_prompts())
        ]
        runs = Engine(pair).generate(requests, stop=stop)
        raise_if_stopped(stop)
        rounds = [each for run in runs for each in run.rounds]
        rates[name] = round(sum(r.accepted for r in rounds) / sum(r.examined for r in rounds), 4)
    return rates


@torch.inference_mode()
def drafter_cost(pair: ModelPair, repetitions: int = 120, position: int = 128) -> float:
    """Seconds of one drafter forward over one verifier forward: one token each, medians of interleaved runs."""
    models = pair.runners()
    for model in models:
        model.admit([model], position + 1)
    ids = torch.tensor([[position]], device=pair.device)  # any token, at this position
    seconds: list[list[float]] = [[], []]
    for _ in range(repetitions):
        for model, spent in zip(models, seconds, strict=True):
            begun = time.perf_counter()
            model.forward(ids, ids, visible=position + 1).sum().item()
            spent.append(time.perf_counter() - begun)
    return round(statistics.median(seconds[0][20:]) / statistics.median(seconds[1][20:]), 4)


def samples(pair: ModelPair, count: int = 3, tokens: int = 80) -> list[dict[str, str]]:
    """Texts of verifier_only and of a lenient cascade with the same seeds."""
    held_out = held_out_prompts()
    chosen = [held_out[i * len(held_out) // count] for i in range(count)]
    verifier_only: dict[str, Any] = {"method": "verifier_only", "temperature": 1.0}
    requests = [
        Request(prompt=prompt, seed=seed, max_new_tokens=tokens, **options)
        for seed, prompt in enumerate(chosen)
        for options in (verifier_only, EVALUATIONS[_CASCADE])
    ]
    texts = iter(run.text for run in Engine(pair).generate(requests))
    return [{"prompt": p, "verifier_only": next(texts), "cascade_tokenV3": next(texts)} for p in chosen]
