"""The record of a round: what was decided for each sequence, in the form of the trace.

Made after the round from values read back from the device, never from a second computation (law 7). Sequences that keep no
records get their token ids only. Knows decisions and traces; runs no model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from specviz.core import block
from specviz.core.backend import Backend
from specviz.core.counterfactual import readings, same_residual, what_if
from specviz.core.distributions import Positions
from specviz.core.method import Method
from specviz.core.sampling import steps
from specviz.core.target import Target, Verdict, accepts_losslessly
from specviz.engine.events import Decided
from specviz.engine.sequence import Sequence
from specviz.errors import EngineError
from specviz.schema.trace import Draft, Likely, Proposal, Round, RuleTest, Token, Top, WhatIf


@dataclass(frozen=True)
class Seconds:
    """Duration of a round: of each model's passes, and in total."""

    drafter: float
    verifier: float
    total: float


@dataclass(frozen=True)
class Decision:
    """What a round decided for the sequences [B] of one method."""

    method: Method
    sequences: list[Sequence]
    lengths: list[int]  # draft tokens of each sequence; 0 without a drafter
    tokens: Tensor | None  # draft tokens [B, K]; None without a drafter
    drafter_logits: Tensor | None  # [B, K, V], where they are kept
    verifier_logits: Tensor | None  # [B, K, V]; None without a verifier
    target: Target  # the target of the method at these positions
    coins: Tensor  # a draft token is accepted if its coin is below its acceptance, float64 [B, K]
    verdict: Verdict | None  # of the draft tokens; None unless both models ran
    resampled: Tensor | None  # from the residual, or from p without a drafter, [B]; None without a verifier

    @property
    def inspect(self) -> int:
        """Number of most probable tokens to record per position; 0 for none."""
        return max(each.request.inspect * each.records for each in self.sequences)


@dataclass(frozen=True)
class Outcome:
    """What a round decided for one sequence."""

    sequence: Sequence
    token_ids: list[int]  # emitted, in order
    drafted: int = 0  # draft tokens
    round: Round | None = None  # the record; None where the sequence keeps none
    error: Exception | None = None  # why the sequence cannot go on; if set, nothing was emitted

    @property
    def decided(self) -> Decided:
        """The event for this outcome."""
        return Decided(self.sequence.index, self.sequence.run, self.round, self.token_ids)


def tensors(decision: Decision, backend: Backend) -> dict[Any, Tensor]:
    """The tensors of a decision that the host reads back, by name: [B, ...], or [B, K, ...] if each position has a value."""
    method, target, tokens = decision.method, decision.target, decision.tokens
    records = any(each.records for each in decision.sequences)
    found = dict[Any, Tensor]()
    candidates = list[Tensor]()  # at each position: the draft token, and the resampled token
    if tokens is not None:
        found["draft"] = tokens
        candidates.append(tokens)
    if decision.resampled is not None:
        found["resampled"] = decision.resampled
        again = decision.resampled[:, None]
        candidates.append(again if tokens is None else again.expand_as(tokens))
    if decision.verdict is not None:
        verdict = decision.verdict
        found |= {"accepted": verdict.accepted, "acceptance": verdict.acceptance, "coin": decision.coins}
    some = torch.stack(candidates, -1)
    if method.drafts:
        found["q"] = target.distributions.q.gather(-1, some)
    if method.verifies:
        found["p"] = target.distributions.p.gather(-1, some)
    if records:
        found["pi"] = target.pi(some)
        if tokens is not None and (test := target.deferral_test(tokens)) is not None:
            found["score"], found["threshold"] = test
        if decision.inspect:
            found |= _inspection(decision, backend)
            if decision.verdict is not None and method.ratio and not method.share:
                found["kept_by_block"] = _kept_by_block(decision)
    return found


def _inspection(decision: Decision, backend: Backend) -> dict[Any, Tensor]:
    """The most probable tokens of q, p and pi, and the values that `what_if` reads, at the examined positions of inspected sequences.

    All other positions hold 0. At temperature 0, q and p are one-hot, so the tokens of q1 and p1 are returned instead.
    """
    method, tokens, where = decision.method, decision.tokens, _examined(decision)
    part = decision.target.select(where)

    def leading(values: Tensor) -> tuple[Tensor, ...]:
        return backend.leading(values, min(decision.inspect, values.shape[-1]))

    most = {"pi": leading(part.pi())}
    greedy = torch.tensor([each.request.temperature == 0 for each in decision.sequences])
    for name, runs in (("q", method.drafts), ("p", method.verifies)):
        if runs:
            most[name] = leading(getattr(part.distributions, name))
            if greedy.any():  # q and p are one-hot there
                rows = greedy.to(where[0].device, non_blocking=True)[where[0], None]
                both = zip(leading(getattr(part.distributions, f"{name}1")), most[name], strict=True)
                most[name] = tuple(torch.where(rows, *each) for each in both)
    found: dict[Any, Tensor] = {}
    for name, (probabilities, ids) in most.items():
        found |= {f"top_{name}": probabilities, f"top_{name}_ids": ids}
    if tokens is not None and decision.verdict is not None:
        read = readings(part, tokens[where], decision.coins[where])
        found |= {("read", *read): torch.stack([*read.values()], -1)}
    shape = decision.coins.shape
    return {
        name: each.new_zeros(*shape, *each.shape[1:]).index_put_(where, each) for name, each in found.items()
    }


def _kept_by_block(decision: Decision) -> Tensor:
    """How many draft tokens block verification would keep, [B]; −1 where a sequence is not inspected or not decoded losslessly."""
    assert decision.tokens is not None
    tokens, coins, both = decision.tokens, decision.coins, decision.target.distributions
    found = torch.full_like(tokens[:, 0], -1)
    for row, (sequence, length) in enumerate(zip(decision.sequences, decision.lengths, strict=True)):
        if sequence.request.inspect and accepts_losslessly(sequence.method, sequence.lenience):
            own = row, slice(length)
            found[row] = block.kept(both.q[own], both.p[own], tokens[own], coins[own])
    return found


def _examined(decision: Decision) -> Positions:
    """The examined positions of inspected sequences; all positions if one model runs alone, or if the host would have to wait for a GPU."""
    if decision.verdict is None or not decision.coins.is_cpu:
        return every_position(decision)
    inspected = torch.tensor([each.request.inspect > 0 for each in decision.sequences])
    examined = steps(decision.coins.shape[1], decision.coins.device) <= decision.verdict.last[:, None]
    return (examined & inspected[:, None]).nonzero(as_tuple=True)


def every_position(decision: Decision) -> Positions:
    """All positions of a decision."""
    count, width = decision.coins.shape
    index = steps(count * width, decision.coins.device)
    return index // width, index % width


def download(groups: list[dict[Any, Tensor]]) -> list[dict[Any, Any]]:
    """Convert named tensors of one device to nested lists, in one transfer: a round's only wait for the device.

    All tensors are sent as float64, which holds token ids and float32 exactly. On a CPU nothing is sent.
    """
    tensors = [tensor for named in groups for tensor in named.values()]
    if all(each.is_cpu for each in tensors):
        lists = (each.tolist() for each in tensors)
    else:
        packed = torch.cat([tensor.double().flatten() for tensor in tensors]).cpu()
        parts = zip(packed.split([tensor.numel() for tensor in tensors]), tensors, strict=True)
        lists = (part.view(tensor.shape).tolist() for part, tensor in parts)
    return [{name: next(lists) for name in named} for named in groups]


def outcomes(decision: Decision, values: dict[Any, Any], seconds: Seconds) -> list[Outcome]:
    """The outcome of each sequence of a decision; `values` are its `tensors`, read back by `download`."""
    found = []
    for row, sequence in enumerate(decision.sequences):
        try:
            found.append(_Readout(decision, values, row).outcome(seconds))
        except Exception as error:  # this sequence fails alone
            found.append(Outcome(sequence, [], error=error))
    return found


class _Readout:
    """The values that were read back for one sequence."""

    def __init__(self, decision: Decision, values: dict[Any, Any], row: int) -> None:
        self._decision, self._row, self._sequence = decision, row, decision.sequences[row]
        self._values = {name: of_rows[row] for name, of_rows in values.items()}
        self._drafted = self._accepted = decision.lengths[row]
        if decision.verdict is not None:
            self._accepted = int(self._number("accepted"))
            # The last draft token counts only if it is examined.
            self._drafted = min(self._drafted, max(self._accepted + 1, self._drafted - 1))

    def outcome(self, seconds: Seconds) -> Outcome:
        """The outcome of the sequence, with a record if the sequence keeps records.

        Raises:
            EngineError: a model returned numbers that are not finite.
        """
        sequence = self._sequence
        ids: list[int] = []
        for step in range(min(self._accepted + 1, max(self._drafted, 1))):
            drawn = self._number("draft", step) if step < self._accepted else self._number("resampled")
            ids.append(int(drawn))
            for name in ("q", "p"):
                self._number(name, step, 0)  # raises where it is not finite
            if ids[-1] in sequence.eos_token_ids:
                break
        record = self._round(ids, seconds) if sequence.records else None
        if sequence.request.return_logits:
            self._keep_logits(len(ids))
        return Outcome(sequence, ids, self._drafted, record)

    def _round(self, ids: list[int], seconds: Seconds) -> Round:
        sequence, method = self._sequence, self._sequence.method
        kept = self._number("kept_by_block")  # by block verification: none after the end of the text
        if kept is not None:
            ends = (
                step + 1 for step in range(int(kept)) if self._number("draft", step) in sequence.eos_token_ids
            )
            kept = next(ends, int(kept)) if kept >= 0 else None
        drafted = [
            (int(self._number("draft", step)), self._number("q", step, 0)) for step in range(self._drafted)
        ]
        index = len(sequence.run.rounds)
        return Round(
            index=index,
            draft_length=self._decision.lengths[self._row],
            proposals=[Proposal(token, sequence.labels(token), q) for token, q in drafted],
            examined=len(ids) if self._decision.verdict is not None else 0,
            accepted=min(self._accepted, len(ids)),
            seconds=seconds.total,
            drafter_seconds=seconds.drafter if method.drafts else 0.0,
            verifier_seconds=seconds.verifier if method.verifies else 0.0,
            tokens=[self._token(token, step, index) for step, token in enumerate(ids)],
            kept_by_block=kept,
        )

    def _token(self, token: int, step: int, index: int) -> Token:
        sequence, accepted = self._sequence, step < self._accepted
        position = len(sequence.ids) + step
        coin, acceptance = self._number("coin", step), self._number("acceptance", step)
        score = self._number("score", step)
        own = 0 if accepted else -1  # index of the draft token's values, or of the resampled one's
        draft = rule = what_if = None
        if self._drafted and not accepted:
            rejected = int(self._number("draft", step))
            its = (self._number(name, step, 0) for name in ("q", "p", "pi"))
            draft = Draft(rejected, sequence.labels(rejected), *its)
        if score is not None:
            threshold = self._number("threshold", step)
            rule = RuleTest(score, threshold, score >= threshold)
        # A round in which a lookup found no draft token is not compared with other methods.
        if sequence.run.alternatives and acceptance is not None:
            what_if = self._what_if(step, acceptance, coin, accepted)
        return Token(
            id=token,
            text=sequence.text_of(token, position),
            label=sequence.labels(token),
            position=position,
            round=index,
            accepted=accepted,
            special=token in sequence.labels.special,
            draft=draft,
            q=self._number("q", step, own),
            p=self._number("p", step, own),
            pi=self._number("pi", step, own),
            acceptance=acceptance,
            coin=coin,
            rule=rule,
            top=Top(*(self._most_likely(name, step) for name in ("q", "p", "pi")))
            if sequence.request.inspect
            else None,
            what_if=what_if,
        )

    def _most_likely(self, name: str, step: int) -> list[Likely] | None:
        if f"top_{name}" not in self._values:
            return None
        ids, probabilities = (self._values[f"top_{name}{part}"][step] for part in ("_ids", ""))
        likely = list(zip(map(int, ids), probabilities, strict=True))[: self._sequence.request.inspect]
        return [Likely(token, self._sequence.labels(token), value) for token, value in likely if value > 0]

    def _what_if(self, step: int, acceptance: float, coin: float, accepted: bool) -> WhatIf:
        method = self._sequence.method
        [(keys, of_steps)] = ((name[1:], found) for name, found in self._values.items() if name[0] == "read")
        read = dict(zip(keys, of_steps[step], strict=True))
        others, flips = what_if(method, read, acceptance, coin)
        same = None if accepted else same_residual(method, read, self._sequence.lenience)
        return WhatIf(others, flips, same)

    def _keep_logits(self, count: int) -> None:
        decision = self._decision
        both = {"drafter": decision.drafter_logits, "verifier": decision.verifier_logits}
        if self._sequence.method.drafts and both["drafter"] is None and both["verifier"] is not None:
            both["drafter"] = torch.full_like(both["verifier"], -math.inf)  # nothing was proposed
        for name, logits in both.items():
            if logits is not None:
                self._sequence.logits[name].append(logits[self._row, :count].to("cpu", copy=True))

    def _number(self, name: str, *step: int) -> Any:
        """The number called `name`, at the indices `step` if it has dimensions; None if nothing was read back under this name.

        Raises:
            EngineError: the number is not finite.
        """
        if (value := self._values.get(name)) is None:
            return None
        for each in step:
            value = value[each]
        if not math.isfinite(value):
            raise EngineError(
                "A model returned numbers that are not finite: its weights are damaged or its precision is too low; "
                "load the pair with dtype float32."
            )
        return float(value)
