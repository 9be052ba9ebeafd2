"""The acceptance rate of a drafter on held-out prompts, and its answers to held-out questions of its skills."""

from __future__ import annotations

import random
from typing import Any

from specviz.analysis.sweep.items import Item, Items
from specviz.engine.engine import Engine
from specviz.models.pair import ModelPair
from specviz.schema.settings import Request
from specviz.tools.distill.prompts import held_out_prompts
from specviz.tools.distill.skills import SKILLS, draw_question

_EVALUATIONS: dict[str, tuple[str, float, float]] = {
    "lossless, T = 1": ("speed", 0.0, 1.0),
    "lossless, T = 0.7": ("speed", 0.0, 0.7),
    "lossless, T = 0": ("speed", 0.0, 0.0),
    "cascade_tokenV3, lenience 0.5, T = 1": ("cascade_tokenV3", 0.5, 1.0),
}
"""Method, lenience and temperature at which a drafter's acceptance rate is measured."""
QUESTIONS = 50
"""Number of questions per skill."""


def acceptance_rates(pair: ModelPair) -> dict[str, float]:
    """The acceptance rate (accepted / examined draft tokens) over all held-out prompts, by setting."""
    rates = {}
    for name, (method, lenience, temperature) in _EVALUATIONS.items():
        settings: dict[str, Any] = {"method": method, "lenience": lenience, "temperature": temperature}
        # The rate does not depend on the draft length. A short one is faster while the drafter is poor.
        settings |= {"max_new_tokens": 96, "draft_length": 2, "repetition_penalty": 1.0}
        requests = [Request(prompt, seed=seed, **settings) for seed, prompt in enumerate(held_out_prompts())]
        runs = Engine(pair).generate(requests)
        rounds = [each for run in runs for each in run.rounds]
        rates[name] = round(sum(r.accepted for r in rounds) / sum(r.examined for r in rounds), 4)
    return rates


def skill_rates(pair: ModelPair) -> dict[str, dict[str, float]]:
    """Share of each skill's `QUESTIONS` held-out questions that each model alone answers right, at temperature 0."""
    draw = random.Random(0)
    asked = [draw_question(draw, skill, "test") for skill in SKILLS for _ in range(QUESTIONS)]
    items = Items("", tuple(Item(str(n), one.skill, one.prompt, one.right) for n, one in enumerate(asked)))
    rates: dict[str, dict[str, float]] = {skill: {} for skill in SKILLS}
    settings: dict[str, Any] = {"temperature": 0.0, "max_new_tokens": 40, "repetition_penalty": 1.0}
    for model in ("drafter", "verifier"):
        requests = [Request(one.prompt, method=f"{model}_only", **settings) for one in asked]
        runs = Engine(pair).generate(requests)
        scores = [items.score(number, run.text) or 0.0 for number, run in enumerate(runs)]
        for index, skill in enumerate(SKILLS):
            own = scores[index * QUESTIONS : (index + 1) * QUESTIONS]
            rates[skill][model] = round(sum(own) / QUESTIONS, 4)
    return rates
