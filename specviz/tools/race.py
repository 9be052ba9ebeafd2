"""Records the page's opening race: one text, written by the verifier alone and by speculative decoding."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from specviz.analysis.recorded_runs import Race
from specviz.engine.engine import Engine
from specviz.errors import EngineError
from specviz.models.pair import ModelPair
from specviz.schema.settings import AUTO, Request
from specviz.schema.trace import Run

_PROMPTS = (
    "Write a Python class for a stack with push, pop and peek.",
    "Write a Python function that checks whether a word is a palindrome.",
    "Write a Python function that returns the factorial of a number.",
    "Write a Python function that adds two numbers.",
    "Write a Python program that prints the numbers from 1 to 10.",
    "Write a for loop in JavaScript that prints the numbers from 1 to 10.",
    "Write an HTML page with a heading and a list of three fruits.",
    "Write a JSON object that describes a person.",
    "List the planets of the solar system in order.",
    "List the days of the week, then the months of the year.",
    "Count from 1 to 30.",
    "Why is the sky blue?",
)


@dataclass(frozen=True)
class RacePlan:
    """The candidates of a race.

    Attributes:
        prompts: candidates, of which the one with the most tokens per verifier call is chosen.
        draft_lengths: candidates, of which the one with the shortest median time is chosen.
        repetitions: number of timed runs per contender.
        tokens: maximum length of the text.
    """

    prompts: tuple[str, ...] = _PROMPTS
    draft_lengths: tuple[int | Literal["auto"], ...] = (3, 4, 5, 6, 7, 8, 12, AUTO)
    repetitions: int = 5
    tokens: int = 56


_TRIED_LENGTH = 8
"""The draft length at which prompts are compared."""
_INSPECT = 5
"""Number of most probable tokens to record, as in the other recorded runs."""


def record_race(
    pair: ModelPair, on_start: Callable[[str], None], plan: RacePlan = RacePlan()
) -> tuple[Race, list[Run]]:
    """Choose a prompt and a draft length, then time both contenders in turn.

    Returns three runs: the verifier's of median time, the drafted one of median time, and the latter repeated with inspection. `on_start`
    is called with the name of each stage.

    Raises:
        EngineError: the texts differ.
    """
    engine = Engine(pair)

    def serve(prompt: str, **settings: Any) -> Run:
        # At temperature 0 lossless decoding writes the verifier's own text.
        request = Request(prompt, temperature=0.0, max_new_tokens=plan.tokens, lenience=0.0, **settings)
        return engine.generate(request)[0]

    def promise(prompt: str) -> tuple[bool, float]:
        """Whether the text is long enough and has a rejection, then tokens per verifier call."""
        run = serve(prompt, method="speed", draft_length=_TRIED_LENGTH)
        rejects = any(token.draft for token in run.tokens)
        return rejects and 2 * len(run.tokens) >= plan.tokens, run.block_efficiency or 0.0

    on_start("The race: choosing its prompt")
    prompt = max(plan.prompts, key=promise)
    on_start("The race: choosing its draft length")
    turns = [
        [serve(prompt, method="speed", draft_length=length).seconds for length in plan.draft_lengths]
        for _ in range(plan.repetitions)
    ]
    medians = [statistics.median(times) for times in zip(*turns, strict=True)]
    drafted = {"method": "speed", "draft_length": plan.draft_lengths[medians.index(min(medians))]}
    on_start("The race: timing it")
    both = [
        (serve(prompt, method="verifier_only"), serve(prompt, **drafted)) for _ in range(plan.repetitions)
    ]
    timed = [sorted(runs, key=lambda run: run.seconds) for runs in zip(*both, strict=True)]
    runs = [*(each[plan.repetitions // 2] for each in timed), serve(prompt, **drafted, inspect=_INSPECT)]
    if len({tuple(run.token_ids) for run in runs}) > 1:
        raise EngineError(
            "The race is not recorded: verifier only and speculative decoding wrote different texts."
        )
    return Race(len(plan.prompts), len(plan.draft_lengths), plan.repetitions), runs
