"""The acceptance rate of a drafter on held-out prompts."""

from __future__ import annotations

import threading
from typing import Any

from specviz.engine.engine import Engine
from specviz.models.pair import ModelPair
from specviz.schema.settings import Request
from specviz.tools.distill.prompts import held_out_prompts
from specviz.tools.distill.settings import raise_if_stopped

_EVALUATIONS: dict[str, tuple[str, float, float]] = {
    "lossless, T = 1": ("speed", 0.0, 1.0),
    "lossless, T = 0.7": ("speed", 0.0, 0.7),
    "lossless, T = 0": ("speed", 0.0, 0.0),
    "cascade_tokenV3, lenience 0.5, T = 1": ("cascade_tokenV3", 0.5, 1.0),
}
"""Method, lenience and temperature at which a drafter's acceptance rate is measured."""


def acceptance_rates(pair: ModelPair, stop: threading.Event) -> dict[str, float]:
    """Accepted / examined draft tokens over all held-out prompts, at each of several settings.

    Raises:
        StoppedError: `stop` was set.
    """
    rates = {}
    for name, (method, lenience, temperature) in _EVALUATIONS.items():
        settings: dict[str, Any] = {"method": method, "lenience": lenience, "temperature": temperature}
        # The rate does not depend on the draft length. A short one is faster while the drafter is poor.
        settings |= {"max_new_tokens": 96, "draft_length": 2}
        requests = [Request(prompt, seed=seed, **settings) for seed, prompt in enumerate(held_out_prompts())]
        runs = Engine(pair).generate(requests, stop=stop)
        raise_if_stopped(stop)
        rounds = [each for run in runs for each in run.rounds]
        rates[name] = round(sum(r.accepted for r in rounds) / sum(r.examined for r in rounds), 4)
    return rates
