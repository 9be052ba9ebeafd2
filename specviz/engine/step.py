"""One round of all rows: drafts, one verification of all of them, the decision, and its record.

Of its K > 1 proposals a row drafts the last one only when the others are known to be accepted: the verifier reads only
those, and yet tells the p of all K places. Where no row is that far the pass is left out.

Whatever the device needs is sent before it begins, and the record is read at its end, once; between the two the host only
queues work. Knows rows, slot models and rules; seats nobody, and ends no run.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

import torch
from torch import Tensor

from specviz.core.counterfactual import acceptances, flips, kept, places
from specviz.core.methods import Beliefs, Ruling, rule
from specviz.core.sampling import ACCEPT, DRAFT, RESAMPLE, at, distribution, draw
from specviz.engine.draft_length import Stride
from specviz.engine.sequence import Row
from specviz.engine.transfer import Parcel, Readback
from specviz.errors import EngineError
from specviz.runtime.model_runner import SlotModel
from specviz.schema.trace import (
    Draft,
    Likely,
    Proposal,
    Round,
    RuleTest,
    Token,
    Top,
    WhatIf,
)


class Step:
    """A round of all rows of two slot models."""

    def __init__(
        self, rows: list[Row], drafter: SlotModel, verifier: SlotModel, stride: Stride | None = None
    ) -> None:
        """Gather all that the round needs; nothing runs yet.

        How much each row drafts is planned already; with a `stride`, which all that draft share, it changes with what is
        drafted.
        """
        self._watch = _Stopwatch(verifier.device)
        parcels = {model.device: Parcel(model.device) for model in (drafter, verifier)}
        for_drafter, for_verifier = parcels[drafter.device], parcels[verifier.device]
        self._drafting = _Drafting(drafter, for_drafter, stride)
        self._verifying = _Verifying(verifier, self._drafting, for_drafter, for_verifier)
        by_kind = sorted(rows, key=lambda row: (row.method.name, row.truncates))
        self._groups = [
            _Group(list(members), self._drafting, self._verifying, for_drafter, for_verifier)
            for _, members in groupby(by_kind, key=lambda row: (row.method.name, row.truncates))
        ]
        self._asking = [group for group in self._groups if group.method.drafts]
        asked = [row for group in self._asking for row in group.rows]
        self._in_order = for_drafter.taking(self._drafting.rows, asked)
        self._asks = asks(verifier.device)
        self.drafter_seconds = self.verifier_seconds = self.seconds = 0.0

    @property
    def width(self) -> int:
        """Tokens that the verifier read of a row; 0 where it does not run."""
        return self._verifying.width

    @property
    def passes(self) -> int:
        """Passes of the drafter."""
        return self._drafting.passes

    def run(self) -> None:
        """Draft, verify and decide on the device, and read the record back."""
        drafted = self._drafting.run()
        self._watch.mark("drafter")
        verifier_logits = self._verifying.run(drafted)
        self._watch.mark("verifier")
        for group in self._groups:
            group.verified(drafted, verifier_logits)
        if self._drafting.waits:
            wanted = self._in_order(torch.cat([group.wants_last(drafted) for group in self._asking]))
            if not self._asks or wanted.any():
                self._watch.mark()
                drafted = self._drafting.finish(drafted, wanted)
                self._watch.mark("drafter")
        readback = Readback()
        for group in self._groups:
            group.decide(drafted, readback)
        readback.fetch()
        spent, self.seconds = self._watch.read()
        self.drafter_seconds, self.verifier_seconds = spent["drafter"], spent["verifier"]

    def rounds(self) -> Iterator[tuple[Row, Round | Exception]]:
        """Each row's round, or why it has none."""
        for group in self._groups:
            for place, row in enumerate(group.rows):
                try:
                    outcome: Round | Exception = group.round(
                        place, row, self.drafter_seconds, self.verifier_seconds, self.seconds
                    )
                except Exception as error:  # what it had recorded until then is of no use
                    outcome = error
                yield row, outcome


def asks(device: torch.device) -> bool:
    """Whether a round asks if a last proposal is wanted before it drafts it: not where that means to wait for the device."""
    return device.type == "cpu"


@dataclass(frozen=True)
class _Drafted:
    """What the drafter did in a round, in the drafter's order of rows; zeros where a row has drafted less than others."""

    counts: Tensor  # [D]
    proposals: Tensor  # [D, K]
    logits: Tensor  # [D, K, V]
    q: Tensor  # [D, K, V]


class _Drafting:
    """The drafter's part of a round: what the verifier is to read, and each row's last proposal after that."""

    def __init__(self, model: SlotModel, parcel: Parcel, stride: Stride | None) -> None:
        self.rows = rows = list(model.owners)
        self._stride = stride
        self._judged = any(row.method.verifies for row in rows)
        self._plan()
        self.passes = 0
        if not rows:
            return
        self._model = model
        self._starts = [len(row.ids) - 1 for row in rows]
        self._tokens = parcel.add([row.ids[-1:] for row in rows])
        self._start = parcel.add([[start] for start in self._starts])
        self._limit = parcel.add([[count] for count in self._early])
        self._last = parcel.add([[count - 1] for count in self._counts])
        self._coins = parcel.coins(rows, max(self._counts))
        self._forbid = parcel.forbidding(rows)
        self._temperature = parcel.agreed([row.request.temperature for row in rows])
        truncating = [row for row in rows if row.truncates]
        self._plain = not truncating and all(row.request.temperature == 1 for row in rows)
        self._truncating = parcel.add([place for place, row in enumerate(rows) if row.truncates])
        self._warp = parcel.warp(truncating) if truncating else None

    def _plan(self) -> None:
        self._counts = [row.draft_length for row in self.rows]
        self._early = [max(1, count - 1) if self._judged else count for count in self._counts]
        self.waits = self._early != self._counts
        self._steps = max(self._early, default=0)

    def run(self) -> _Drafted:
        """Draft what the verifier is to read; the first proposal in any case."""
        if not self.rows:
            return _Drafted(*(torch.empty(0) for _ in range(4)))
        tokens, start, limit = self._tokens(), self._start(), self._limit()
        for row in self.rows:
            row.sure = []
        parts: list[tuple[Tensor, Tensor, Tensor]] = []
        while (step := len(parts)) < self._steps:
            valid = None if min(self._early) > step else limit > step
            ends = (s + min(step, c - 1) for s, c in zip(self._starts, self._early, strict=True))
            coins = self._coins()[:, step : step + 1]
            parts.append(self._propose(tokens, start + step, coins, max(ends) + 1, valid))
            tokens = parts[-1][0]
            if self._stride and (length := self._stride.settle([row.sure for row in self.rows])):
                for row in self.rows:
                    row.plan(min(length, row.draft_length))
                self._plan()
        drafted = (torch.cat(part, 1) for part in zip(*parts, strict=True))
        return _Drafted(limit[:, 0].clamp_max(self._steps), *drafted)

    def finish(self, drafted: _Drafted, wanted: Tensor) -> _Drafted:
        """Draft the last proposal of the rows [D] that want it and have not drafted it yet."""
        last = self._last().clamp_max(max(self._counts) - 1)
        rows, wanted = torch.arange(len(last), device=last.device), wanted & (last[:, 0] >= drafted.counts)
        tokens = drafted.proposals.gather(1, (last - 1).clamp_min(0))
        visible = max(s + c for s, c in zip(self._starts, self._counts, strict=True))
        coins = self._coins()[rows, last[:, 0]][:, None]
        proposed = self._propose(tokens, self._start() + last, coins, visible, wanted[:, None])

        def with_last(before: Tensor, values: Tensor) -> Tensor:
            whole = before.new_zeros(len(before), max(self._counts), *before.shape[2:])
            whole[:, : self._steps] = before
            mine = wanted.view(-1, *[1] * (before.dim() - 2))
            whole[rows, last[:, 0]] = torch.where(mine, values[:, 0], whole[rows, last[:, 0]])
            return whole

        before = drafted.proposals, drafted.logits, drafted.q
        return _Drafted(drafted.counts + wanted, *map(with_last, before, proposed))

    def _propose(
        self, tokens: Tensor, positions: Tensor, coins: Tensor, visible: int, valid: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """One pass: what each row proposes after its token [D, 1], with logits and q [D, 1, V]."""
        logits = self._forbid(self._model.forward(tokens, positions, visible=visible, valid=valid))
        self.passes += 1
        q = self._distribution(logits)
        proposals = draw(q, coins[..., DRAFT])
        if self._stride:
            # NaN is reported after the round.
            q1 = at(q if self._plain else distribution(logits), proposals)
            for row, sure in zip(self.rows, q1[:, 0].nan_to_num().tolist(), strict=True):
                row.sure.append(sure)
        return proposals, logits, q

    def _distribution(self, logits: Tensor) -> Tensor:
        """q of all rows [B, n, V], sorting only the rows that truncate."""
        q = distribution(logits, self._temperature())
        if self._warp is not None:
            places = self._truncating()
            q[places] = distribution(logits[places], *self._warp())
        return q


class _Verifying:
    """The verifier's part of a round: one forward over each row's last token and all its proposals but the last."""

    def __init__(
        self, model: SlotModel, drafting: _Drafting, for_drafter: Parcel, for_verifier: Parcel
    ) -> None:
        self.rows = rows = list(model.owners)
        self.width = 0
        if not rows:
            return
        self._model = model
        self._starts = [len(row.ids) - 1 for row in rows]
        self._last = for_verifier.add([row.ids[-1] for row in rows])
        self._start = for_verifier.add([[start] for start in self._starts])
        self._limit = for_verifier.add([[count] for count in self._counts])
        self._forbid = for_verifier.forbidding(rows)
        drafted = [row for row in rows if row.method.drafts]
        self._take_drafted = for_drafter.taking(drafted, drafting.rows)
        self._drafted = for_verifier.add([place for place, row in enumerate(rows) if row.method.drafts])

    @property
    def _counts(self) -> list[int]:
        return [row.draft_length if row.method.drafts else 1 for row in self.rows]

    def run(self, drafted: _Drafted) -> Tensor:
        """Logits [V, n, vocabulary]."""
        if not self.rows:
            return torch.empty(0)
        device, counts = self._model.device, self._counts
        self.width = width = max(counts)
        tokens = torch.zeros(len(self.rows), width, dtype=torch.long, device=device)
        tokens[:, 0] = self._last()
        if width > 1:
            proposals = self._take_drafted(drafted.proposals).to(device)
            tokens[self._drafted(), 1:] = proposals[:, : width - 1]
        steps = torch.arange(width, device=device)
        valid = steps < self._limit() if min(counts) < width else None
        visible = max(s + c for s, c in zip(self._starts, counts, strict=True))
        return self._forbid(self._model.forward(tokens, self._start() + steps, visible=visible, valid=valid))


@dataclass(frozen=True)
class _Judged:
    """What became of the proposals of a group's rows."""

    drafted: _Drafted
    counts: Tensor  # [B]
    proposals: Tensor  # [B, K]
    ruling: Ruling
    acceptance: Tensor  # [B, K]
    accepted: Tensor  # [B]
    logits: Tensor  # [B, K, V]


class _Group:
    """Rows of one method in a round: decides on the device, then tells each row's round on the host."""

    def __init__(
        self,
        rows: list[Row],
        drafting: _Drafting,
        verifying: _Verifying,
        for_drafter: Parcel,
        for_verifier: Parcel,
    ) -> None:
        self.rows = rows
        self.method = rows[0].method
        self._seen: dict[str, int] = {}
        self._logits: dict[str, Tensor] = {}
        if self.method.drafts:
            self._take_drafted = for_drafter.taking(rows, drafting.rows)
        if self.method.verifies:
            self._steps = max(row.draft_length for row in rows) if self.method.drafts else 1
            self._take_verified = for_verifier.taking(rows, verifying.rows)
            self._coins = for_verifier.coins(rows, self._steps)
            self._asked = for_verifier.add([[row.request.inspect] for row in rows])
            self._warp = for_verifier.warp(rows)
            self._lenience = for_verifier.agreed([row.run.lenience for row in rows])

    def verified(self, drafted: _Drafted, verifier_logits: Tensor) -> None:
        """Take note of what the verifier says, and judge what was drafted until then."""
        if self.method.verifies:
            self._verifier_logits = self._take_verified(verifier_logits)[:, : self._steps]
            self._p = distribution(self._verifier_logits, *self._warp())
        if self.method.drafts and self.method.verifies:
            self._judged = self._judge(drafted)

    def wants_last(self, drafted: _Drafted) -> Tensor:
        """Whether each row [B] has accepted all that it has drafted, so that its last proposal will be examined."""
        if not self.method.verifies:
            return torch.ones_like(self._take_drafted(drafted.counts), dtype=torch.bool)
        return (self._judged.accepted == self._judged.counts).to(drafted.counts.device)

    def decide(self, drafted: _Drafted, out: Readback) -> None:
        """Judge what was drafted, draw on the device, and queue the record in `out`."""
        self._out = out
        if self.method.drafts and self.method.verifies:
            self._examine(self._judged if self._judged.drafted is drafted else self._judge(drafted))
        elif self.method.drafts:
            proposals, logits, q = map(self._take_drafted, (drafted.proposals, drafted.logits, drafted.q))
            self._logits = {"drafter": logits}
            self._keep(proposals=proposals, q=at(q, proposals), pi=at(q, proposals))
            self._keep(**self._most_likely(q=q, pi=q))
        else:
            self._write()

    def _judge(self, drafted: _Drafted) -> _Judged:
        """Judge all proposals at once."""
        device = self._verifier_logits.device
        counts = self._take_drafted(drafted.counts).to(device)
        proposals, logits, q = (
            self._take_drafted(tensor).to(device)[:, : self._steps]
            for tensor in (drafted.proposals, drafted.logits, drafted.q)
        )
        steps = proposals.shape[1]
        beliefs = Beliefs(logits, self._verifier_logits[:, :steps], *self._warp(), q=q, p=self._p[:, :steps])
        ruling = rule(self.method, beliefs, self._lenience())
        acceptance = ruling.acceptance(proposals)
        passed = self._coins()[:, :steps, ACCEPT] < acceptance
        passed &= torch.arange(steps, device=device) < counts[:, None]
        return _Judged(drafted, counts, proposals, ruling, acceptance, passed.cumprod(-1).sum(-1), logits)

    def _examine(self, judged: _Judged) -> None:
        """Draw a replacement for the first proposal of each row that was rejected."""
        ruling, beliefs, proposals = judged.ruling, judged.ruling.beliefs, judged.proposals
        counts, accepted, device = judged.counts, judged.accepted, proposals.device
        steps = proposals.shape[1]
        coins, step = self._coins()[:, :steps], torch.arange(steps, device=device)
        # Where nothing was rejected the draw at the last place is made all the same, and not used.
        last = torch.minimum(accepted, counts - 1)
        ending = ruling.take(torch.arange(len(last), device=device) * steps + last)
        redrawn = draw(ending.replacement(), at(coins[..., RESAMPLE], last))
        self._logits = {"drafter": judged.logits, "verifier": self._verifier_logits}
        self._keep(
            drafted=counts,
            proposals=proposals,
            q=at(beliefs.q, proposals),
            p=at(beliefs.p, proposals),
            pi=ruling.target(proposals),
            acceptance=judged.acceptance,
            accepted=accepted,
            redrawn=redrawn,
            redrawn_q=at(ending.beliefs.q, redrawn),
            redrawn_p=at(ending.beliefs.p, redrawn),
            redrawn_pi=ending.target(redrawn),
        )
        if sides := ruling.test(proposals):
            self._keep(score=sides[0], threshold=sides[1].expand_as(sides[0]))
        if any(row.request.inspect for row in self.rows):
            examined = (self._asked() > 0) & (step <= last[:, None])
            self._explain(ruling, proposals, coins[..., ACCEPT], examined)
            if (same := kept(ending)) is not None:
                self._keep(kept=same)

    def _explain(self, ruling: Ruling, proposals: Tensor, coins: Tensor, examined: Tensor) -> None:
        """What inspection shows of the places examined: the most probable tokens, and what else might have been."""
        where = places(examined)
        seen = ruling.take(where)
        tokens, coins = (values.flatten()[where] for values in (proposals, coins))
        found = self._most_likely(q=seen.beliefs.q, p=seen.beliefs.p, pi=seen.target())
        found |= {"others": acceptances(seen, tokens), "flips": flips(seen.beliefs, tokens, coins)}
        for name, values in found.items():
            whole = values.new_zeros(examined.numel(), *values.shape[1:])
            whole[where] = values
            self._keep(**{name: whole.unflatten(0, examined.shape)})

    def _write(self) -> None:
        """The verifier alone: one token a row."""
        p, self._logits = self._p, {"verifier": self._verifier_logits}
        redrawn = draw(p, self._coins()[..., RESAMPLE])[:, 0]
        self._keep(redrawn=redrawn, redrawn_p=at(p[:, 0], redrawn), redrawn_pi=at(p[:, 0], redrawn))
        self._keep(**self._most_likely(p=p, pi=p))

    def _keep(self, **tensors: Tensor) -> None:
        for name, tensor in tensors.items():
            self._seen[name] = self._out.add(tensor)

    def _most_likely(self, **distributions: Tensor) -> dict[str, Tensor]:
        """The most probable tokens, gathered on the device and only for rows that asked."""
        found: dict[str, Tensor] = {}
        if count := max(row.request.inspect for row in self.rows):
            for name, values in distributions.items():
                top = values.topk(min(count, values.shape[-1]), dim=-1)
                found |= {f"top_{name}": top.values, f"top_{name}_ids": top.indices}
        return found

    def _value(self, name: str, *place: int) -> float | None:
        """One number of the record; None where the method has no such number."""
        if name not in self._seen:
            return None
        value: float = self._out.get(self._seen[name], *place)
        if not math.isfinite(value):
            raise EngineError(
                "A model returned numbers that are not finite: its weights are damaged or its precision is too low; "
                "load the pair with dtype float32."
            )
        return value

    def round(
        self, place: int, row: Row, drafter_seconds: float, verifier_seconds: float, seconds: float
    ) -> Round:
        """The round of row number `place`, cut where the text ends."""
        index, position = len(row.run.rounds), len(row.ids)
        examining = self.method.drafts and self.method.verifies
        drafted = row.draft_length if self.method.drafts else 0
        if examining:
            drafted = self._id("drafted", place)
        accepted = self._id("accepted", place) if examining else drafted
        tokens = []
        for step in range(min(accepted + 1, max(drafted, 1))):
            tokens.append(self._token(place, step, row, step < accepted, index, position + step))
            if tokens[-1].id in row.eos:
                break
        proposals = [
            Proposal(
                token := self._id("proposals", place, step), row.labels(token), self._real("q", place, step)
            )
            for step in range(drafted)
        ]
        for name, logits in self._logits.items():
            if row.request.return_logits:
                row.logits[name].append(logits[place, : len(tokens)].to("cpu", copy=True))
        return Round(
            index=index,
            draft_length=row.draft_length if self.method.drafts else 0,
            proposals=proposals,
            examined=len(tokens) if examining else 0,
            accepted=sum(token.accepted for token in tokens),
            seconds=seconds,
            drafter_seconds=drafter_seconds if self.method.drafts else 0.0,
            verifier_seconds=verifier_seconds if self.method.verifies else 0.0,
            tokens=tokens,
        )

    def _real(self, name: str, *place: int) -> float:
        value = self._value(name, *place)
        assert value is not None, name
        return value

    def _id(self, name: str, *place: int) -> int:
        return int(self._real(name, *place))

    def _token(self, place: int, step: int, row: Row, accepted: bool, index: int, position: int) -> Token:
        drafts = self.method.drafts
        token = self._id("proposals", place, step) if accepted else self._id("redrawn", place)
        at = (place, step) if accepted else (place,)
        prefix = "" if accepted else "redrawn_"
        draft = None
        if drafts and not accepted:
            proposal = self._id("proposals", place, step)
            draft = Draft(
                proposal, row.labels(proposal), *(self._real(name, place, step) for name in ("q", "p", "pi"))
            )
        acceptance = self._value("acceptance", place, step)
        test = None
        if "score" in self._seen:
            score, threshold = self._real("score", place, step), self._real("threshold", place, step)
            test = RuleTest(score, threshold, score >= threshold)
        return Token(
            id=token,
            text=row.detokenizer.push(token),
            label=row.labels(token),
            position=position,
            round=index,
            accepted=accepted,
            special=token in row.labels.special,
            draft=draft,
            q=self._value(f"{prefix}q", *at),
            p=self._value(f"{prefix}p", *at),
            pi=self._real(f"{prefix}pi", *at),
            acceptance=acceptance,
            coin=None if acceptance is None else float(row.coins[position, ACCEPT]),
            rule=test,
            top=self._top(place, step, row) if row.request.inspect else None,
            what_if=self._what_if(place, step, accepted) if row.run.alternatives else None,
        )

    def _what_if(self, place: int, step: int, accepted: bool) -> WhatIf:
        others, found = (self._out.get(self._seen[name], place, step) for name in ("others", "flips"))
        drawn = not accepted and "kept" in self._seen
        same = self._out.get(self._seen["kept"], place) if drawn else None
        return WhatIf(others, [[flip for flip in pair if math.isfinite(flip)] for pair in found], same)

    def _top(self, place: int, step: int, row: Row) -> Top:
        def most_likely(name: str) -> list[Likely] | None:
            if f"top_{name}" not in self._seen:
                return None
            ids, values = (
                self._out.get(self._seen[f"top_{name}{part}"], place, step) for part in ("_ids", "")
            )
            likely = list(zip(map(int, ids), values, strict=True))[: row.request.inspect]
            return [Likely(token, row.labels(token), value) for token, value in likely if value > 0]

        return Top(most_likely("q"), most_likely("p"), most_likely("pi"))


class _Stopwatch:
    """Seconds between marks, on the device's own clock where it has one."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._cuda = device.type == "cuda"
        self._begin = time.perf_counter()
        self._marks: list[tuple[str, Any]] = []
        self.mark()

    def mark(self, part: str = "") -> None:
        """Mark the end of a part of that name."""
        now: Any = time.perf_counter()
        if self._cuda:
            now = torch.cuda.Event(enable_timing=True)
            now.record(torch.cuda.current_stream(self._device))
        self._marks.append((part, now))

    def read(self) -> tuple[dict[str, float], float]:
        """Seconds of the parts of each name, and of everything until now. Call after the readback."""
        total, spent = time.perf_counter() - self._begin, defaultdict[str, float](float)
        for (_, begin), (part, end) in pairwise(self._marks):
            spent[part] += begin.elapsed_time(end) / 1000 if self._cuda else end - begin
        return spent, total
