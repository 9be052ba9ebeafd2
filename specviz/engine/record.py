"""The record of a round: what was decided for each sequence, as the trace tells it.

Made after the round from the values that were read back, never from a second computation (law 7). Sequences that keep no
record get their token ids alone. Knows decisions and traces; runs no model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specviz.core.counterfactual import alternatives, counterfactuals, same_residual
from specviz.core.distributions import places
from specviz.core.examined import Examined, leading_of_three
from specviz.core.sampling import ACCEPT, leading, steps
from specviz.core.target import Values
from specviz.engine.accept import Decision
from specviz.engine.plan import first
from specviz.engine.sequence import Sequence
from specviz.errors import EngineError
from specviz.schema.trace import Draft, Likely, Proposal, Round, RuleTest, Token, Top, WhatIf


@dataclass(frozen=True)
class Seconds:
    """What a round took: the passes of both models, and everything."""

    drafter: float
    verifier: float
    total: float


@dataclass(frozen=True)
class Outcome:
    """What a round decided for one sequence.

    Attributes:
        token_ids: emitted, in order.
        drafted, examined, accepted: counts of draft tokens; examined are those up to the first rejection.
        confidences: of its draft tokens, where K was chosen while drafting.
        round: the record; None where the sequence keeps none.
        error: why the sequence cannot go on; nothing was emitted then.
    """

    sequence: Sequence
    token_ids: list[int]
    drafted: int = 0
    examined: int = 0
    accepted: int = 0
    confidences: tuple[float, ...] = ()
    round: Round | None = None
    error: Exception | None = None


def tensors(decisions: SequenceOf[Decision]) -> list[dict[str, Values]]:
    """What is read back of each decision of a round, by name: [B, ...] each.

    What explains draft tokens is of examined ones alone, [n, ...]; `explained` [B] says where each sequence's begin.
    """
    found = [_decided(decision) for decision in decisions]
    own = [index for index, decision in enumerate(decisions) if _inspects(decision)]
    parts, begins = zip(*(_examined(decisions[index]) for index in own), strict=True) if own else ((), ())
    count = max((_most(decisions[index]) for index in own), default=0)
    each = zip(own, begins, leading_of_three(parts, count), counterfactuals(parts), strict=True)
    for index, begin, (most, tokens), (others, flips) in each:
        found[index] |= {"explained": begin, "others": others, "flips": flips}
        found[index] |= {f"top_{name}": most[at] for at, name in enumerate(("q", "p", "pi"))}
        found[index] |= {f"top_{name}_ids": tokens[at] for at, name in enumerate(("q", "p", "pi"))}
    return found


def _inspects(decision: Decision) -> bool:
    """Whether its examined draft tokens are to be explained."""
    return decision.accepted is not None and decision.inputs.explains


def _most(decision: Decision) -> int:
    """How many most probable tokens are asked for, at most."""
    return max(sequence.request.inspect for sequence in decision.inputs.sequences)


def _decided(decision: Decision) -> dict[str, Values]:
    accepted, drafted, resampled = decision.accepted, decision.drafted, decision.resampled
    found: dict[str, Values] = {}
    if drafted is not None and decision.q is not None:
        found["draft"] = drafted
        if accepted is None:
            found["q"] = decision.q.gather(-1, drafted[..., None])
    if accepted is not None:
        found |= {
            "drafted": accepted.drafted,
            "accepted": accepted.verdict.accepted,
            "acceptance": accepted.verdict.acceptance,
        }
    if resampled is not None:
        found["resampled"] = resampled
        if accepted is None and decision.verified is not None:
            assert decision.verified.p is not None
            found["p"] = decision.verified.p.gather(-1, torch.as_tensor(resampled)[:, None, None])
    if decision.inputs.records:
        found |= _recorded(decision, found)
    return found


def _recorded(decision: Decision, known: dict[str, Values]) -> dict[str, Values]:
    """What only a record needs, beside what is known; q, p and pi of the draft tokens and of what was resampled: [B, K, m]."""
    q, accepted, resampled = decision.q, decision.accepted, decision.resampled
    if accepted is None:
        count = _most(decision)
        if decision.verified is not None and resampled is not None:
            p = decision.verified.p
            assert p is not None
            return {"pi": known["p"]} | _most_likely(count, p, "p", "pi")
        assert q is not None
        return {"pi": known["q"]} | _most_likely(count, q, "q", "pi")
    target, verdict = accepted.target, accepted.verdict
    assert verdict.probabilities is not None
    found = dict(zip(("q", "p", "pi"), verdict.probabilities, strict=True))
    if verdict.test is not None:
        found["score"], found["threshold"] = verdict.test
    if _inspects(decision):
        assert target is not None
        if (same := same_residual(target, torch.as_tensor(verdict.last))) is not None:
            found["same_residual"] = same
    return found


def _examined(decision: Decision) -> tuple[Examined, Values]:
    """The examined draft tokens of inspected sequences, and at which of them each sequence's begin, [B]."""
    accepted, tokens, inputs = decision.accepted, decision.drafted, decision.inputs
    assert accepted is not None
    assert accepted.target is not None
    assert tokens is not None
    count = tokens.shape[1]
    own = accepted.target, tokens, first(inputs.accept_coins, count)
    if not reads_freely(tokens):
        return Examined(*own, slice(0, tokens.numel())), steps(len(tokens), tokens.device) * count
    each, found = np.arange(count) <= np.asarray(accepted.verdict.last)[:, None], accepted.verdict.examined
    if not all(sequence.request.inspect for sequence in inputs.sequences):
        each, found = each & (inputs.inspected.numpy() > 0), None
    numbers = each.sum(1)
    return Examined(*own, places(np.flatnonzero(each)), found), numbers.cumsum() - numbers


def reads_freely(values: Tensor) -> bool:
    """Whether the host can look at values without a wait for their device."""
    return values.is_cpu


def _most_likely(count: int, distribution: Tensor, *names: str) -> dict[str, Values]:
    """The `count` most probable tokens of a distribution [B, K, V] that goes by some names, in the form of what explains draft tokens."""
    if not count:
        return {}
    most, tokens = leading(distribution, min(count, distribution.shape[-1]))
    found: dict[str, Values] = {
        "explained": steps(len(distribution), distribution.device) * distribution.shape[1]
    }
    for name in names:
        found |= {f"top_{name}": most.flatten(0, 1), f"top_{name}_ids": tokens.flatten(0, 1)}
    return found


@dataclass(frozen=True)
class DraftChoice:
    """How far a sequence drafted: K, and how sure the drafter was of its tokens where K was chosen while drafting."""

    draft_length: int = 0
    confidences: tuple[float, ...] = ()


def outcomes(
    decision: Decision,
    values: dict[str, Any],
    choices: dict[Sequence, DraftChoice],
    seconds: Seconds,
) -> list[Outcome]:
    """The outcome of each sequence of a decision, from the values of `tensors` that were read back."""
    found = []
    for row, sequence in enumerate(decision.inputs.sequences):
        try:
            readout = _Readout(decision, values, row, choices.get(sequence, DraftChoice()))
            found.append(readout.outcome(seconds))
        except Exception as error:  # this sequence fails alone
            found.append(Outcome(sequence, [], error=error))
    return found


class _Readout:
    """One sequence's part of what was read back."""

    def __init__(self, decision: Decision, values: dict[str, Any], row: int, choice: DraftChoice) -> None:
        self._decision, self._values, self._row, self._choice = decision, values, row, choice
        self._sequence: Sequence = decision.inputs.sequences[row]
        self._examines = decision.accepted is not None
        self._drafted = self._accepted = 0
        if decision.accepted is not None:
            self._drafted, self._accepted = int(self._number("drafted")), int(self._number("accepted"))
            if decision.accepted.is_ahead:  # a K-th draft token that is not examined does not count
                self._drafted = min(self._drafted, max(self._accepted + 1, self._drafted - 1))
        elif decision.drafted is not None:
            self._drafted = self._accepted = choice.draft_length

    def outcome(self, seconds: Seconds) -> Outcome:
        """Token ids, counts and, where the sequence keeps one, the record.

        Raises:
            EngineError: a model returned numbers that are not finite.
        """
        sequence = self._sequence
        ids: list[int] = []
        for step in range(min(self._accepted + 1, max(self._drafted, 1))):
            ids.append(
                int(self._number("draft", step) if step < self._accepted else self._number("resampled"))
            )
            if self._examines:
                self._number("acceptance", step)
            else:
                self._number("q" if self._drafted else "p", step, 0)
            if ids[-1] in sequence.eos_token_ids:
                break
        outcome = Outcome(
            sequence,
            ids,
            drafted=self._drafted,
            examined=len(ids) if self._examines else 0,
            accepted=min(self._accepted, len(ids)),
            confidences=self._choice.confidences if self._examines else (),
        )
        if sequence.records:
            outcome = replace(outcome, round=self._round(outcome, seconds))
        if sequence.request.return_logits:
            self._keep_logits(len(ids))
        return outcome

    def _round(self, outcome: Outcome, seconds: Seconds) -> Round:
        sequence, method = self._sequence, self._sequence.method
        index = len(sequence.run.rounds)
        tokens = [self._token(token, step, index) for step, token in enumerate(outcome.token_ids)]
        drafted = [
            (int(self._number("draft", step)), self._number("q", step, 0)) for step in range(self._drafted)
        ]
        return Round(
            index=index,
            draft_length=self._choice.draft_length,
            proposals=[Proposal(token, sequence.labels(token), q) for token, q in drafted],
            examined=outcome.examined,
            accepted=outcome.accepted,
            seconds=seconds.total,
            drafter_seconds=seconds.drafter if method.drafts else 0.0,
            verifier_seconds=seconds.verifier if method.verifies else 0.0,
            tokens=tokens,
        )

    def _token(self, token: int, step: int, index: int) -> Token:
        sequence, accepted = self._sequence, step < self._accepted
        position = len(sequence.ids) + step
        acceptance = self._optional("acceptance", step)
        own = 0 if accepted else -1  # with the draft tokens, or with what was resampled
        return Token(
            id=token,
            text=sequence.text_of(token, position),
            label=sequence.labels(token),
            position=position,
            round=index,
            accepted=accepted,
            special=token in sequence.labels.special,
            draft=None if accepted or not self._drafted else self._rejected(step),
            q=self._optional("q", step, own),
            p=self._optional("p", step, own),
            pi=self._number("pi", step, own),
            acceptance=acceptance,
            coin=None if acceptance is None else float(sequence.coins[position, ACCEPT]),
            rule=self._rule_test(step),
            top=self._top(step) if sequence.request.inspect else None,
            what_if=self._what_if(step, accepted) if sequence.run.alternatives else None,
        )

    def _rejected(self, step: int) -> Draft:
        token = int(self._number("draft", step))
        q, p, pi = (self._number(name, step, 0) for name in ("q", "p", "pi"))
        return Draft(token, self._sequence.labels(token), q, p, pi)

    def _rule_test(self, step: int) -> RuleTest | None:
        if "score" not in self._values:
            return None
        score, threshold = self._number("score", step), self._number("threshold", step)
        return RuleTest(score, threshold, score >= threshold)

    def _explained(self, name: str, step: int) -> Any:
        """What explains its draft token of that step, by name."""
        return self._values[name][int(self._values["explained"][self._row]) + step]

    def _top(self, step: int) -> Top:
        def most_likely(name: str) -> list[Likely] | None:
            if f"top_{name}" not in self._values:
                return None
            ids, values = (self._explained(f"top_{name}{part}", step) for part in ("_ids", ""))
            likely = list(zip(map(int, ids), values, strict=True))[: self._sequence.request.inspect]
            return [
                Likely(token, self._sequence.labels(token), value) for token, value in likely if value > 0
            ]

        return Top(most_likely("q"), most_likely("p"), most_likely("pi"))

    def _what_if(self, step: int, accepted: bool) -> WhatIf:
        others, found = (self._explained(name, step) for name in ("others", "flips"))
        resampled = not accepted and "same_residual" in self._values
        same = self._values["same_residual"][self._row] if resampled else None
        known = [method.solves for method in alternatives(self._sequence.method)]
        turns = [
            [flip for flip in pair if math.isfinite(flip)] if solves else None
            for pair, solves in zip(found, known, strict=True)
        ]
        return WhatIf(others, turns, same)

    def _keep_logits(self, count: int) -> None:
        decision = self._decision
        for name, logits in (
            ("drafter", decision.drafter_logits),
            ("verifier", None if decision.verified is None else decision.verified.logits),
        ):
            if logits is not None:
                self._sequence.logits[name].append(logits[self._row, :count].to("cpu", copy=True))

    def _number(self, name: str, *step: int) -> float:
        """A number by name, and by step where there is one per draft token.

        Raises:
            EngineError: it is not finite.
        """
        value: Any = self._values[name][self._row]
        for each in step:
            value = value[each]
        if not math.isfinite(value):
            raise EngineError(
                "A model returned numbers that are not finite: its weights are damaged or its precision is too low; "
                "load the pair with dtype float32."
            )
        return float(value)

    def _optional(self, name: str, *step: int) -> float | None:
        return self._number(name, *step) if name in self._values else None
