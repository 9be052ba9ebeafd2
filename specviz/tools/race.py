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


def record_race(pair: ModelPair, plan: RacePlan, on_start: Callable[[str], None]) -> tuple[Race, list[Run]]:
    """Choose a prompt and a draft length, then time both contenders in turn.

    Returns three runs: the verifier's of median time, the drafted one of median time, and the latter repeated with inspection. `on_start`
    is called with the name of each stage.

    Raises:
        EngineError: the texts differ, or inspection changed a decision.
    """
    engine = Engine(pair)

    def serve(prompt: str, **settings: Any) -> Run:
        # At temperature 0 lossless decoding writes the verifier's own text.
        settings |= {"temperature": 0.0, "max_new_tokens": plan.tokens}
        return engine.generate(Request(prompt=prompt, **settings))[0]

    def drafted(prompt: str, draft_length: int | Literal["auto"], **more: Any) -> Run:
        return serve(prompt, method="speed", lenience=0.0, draft_length=draft_length, **more)

    on_start("The race: choosing its prompt")
    prompt = max(plan.prompts, key=lambda one: _promise(drafted(one, _TRIED_LENGTH), plan.tokens))
    on_start("The race: choosing its draft length")
    times: dict[int | Literal["auto"], list[float]] = {length: [] for length in plan.draft_lengths}
    for _ in range(plan.repetitions):
        for length, seconds in times.items():
            seconds.append(drafted(prompt, length).seconds)
    chosen = min(times, key=lambda length: statistics.median(times[length]))
    on_start("The race: timing it")
    both = [(serve(prompt, method="verifier_only"), drafted(prompt, chosen)) for _ in range(plan.repetitions)]
    alone, raced = (_median(list(runs)) for runs in zip(*both, strict=True))
    _check_same_text(alone, raced)
    inspected = drafted(prompt, chosen, inspect=_INSPECT)
    # Law 2: with K automatic the rounds may differ, but the decisions do not.
    if _decisions(inspected) != _decisions(raced):
        raise EngineError("The race is not recorded: with inspection its decisions are others.")
    return Race(len(plan.prompts), len(plan.draft_lengths), plan.repetitions), [alone, raced, inspected]


def _decisions(run: Run) -> list[tuple[int, bool, int | None]]:
    return [(token.id, token.accepted, token.draft.id if token.draft else None) for token in run.tokens]


def _promise(run: Run, tokens: int) -> tuple[bool, float]:
    """Sort key for prompts: whether the text is long enough and has a rejection, then tokens per verifier call."""
    rejects = any(token.draft for token in run.tokens)
    return rejects and 2 * len(run.tokens) >= tokens, run.block_efficiency or 0.0


def _median(runs: list[Run]) -> Run:
    return sorted(runs, key=lambda run: run.seconds)[len(runs) // 2]


def _check_same_text(alone: Run, drafted: Run) -> None:
    if alone.token_ids == drafted.token_ids:
        return
    pairs = zip(alone.token_ids, drafted.token_ids, strict=False)
    same = next((at for at, (one, other) in enumerate(pairs) if one != other), None)
    place = "one of them ends sooner" if same is None else f"they part at token {same + 1}"
    raise EngineError(
        f"The race is not recorded: verifier only and speculative decoding wrote different texts ({place})."
    )
