"""The rows that are written together: reading their prompts, and one round after another for all of them.

A round drafts K tokens a row with the drafter, scores all of them in one verifier forward, decides on the device,
and reads the record back once. Rows differ in method, lenience, K, length and seed; a row's text depends on none
of its neighbours. The last token of a row is always still unread by both models: it is the first input of the
next round, so an accepted block needs no extra "bonus" draw and a rejection no re-reading. Knows rows and rules; does
not know who waits for a row, nor why one leaves.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from specviz.cache import SlotModel
from specviz.errors import EngineError
from specviz.machine import synchronize
from specviz.methods import Beliefs, Ruling, rule
from specviz.pacing import UNVERIFIED, Costs, draft_length
from specviz.prefixes import LONGEST, SHORTEST, Prefixes, alike
from specviz.row import Row
from specviz.sampling import ACCEPT, DRAFT, RESAMPLE, Number, at, distribution, draw
from specviz.threads import budget, limited_to
from specviz.trace import (
    Draft,
    Likely,
    Proposal,
    Round,
    RuleTest,
    Token,
    Top,
    WhatIf,
)
from specviz.whatif import acceptances, flips, kept, places

if TYPE_CHECKING:
    from specviz.pairs import ModelPair

_MANY = 1 << 22
"""Numbers in a round's distributions from which on deciding takes more than one thread."""
PREFILL_CHUNK = 512
"""Prompt tokens read in one forward pass: bounds memory, and the time until a stop is noticed."""

CostTable = defaultdict[tuple[int, int], Costs]
"""What rounds took, by how many rows drafted and how many were verified, to the next power of two."""


class Batch:
    """Rows that share their forward passes."""

    rows: list[Row]

    def __init__(
        self, pair: ModelPair, costs: CostTable, known: tuple[Prefixes, Prefixes] | None = None
    ) -> None:
        """An empty batch; `known` is what drafter and verifier have read lately, to be looked up and added to."""
        self.pair = pair
        self._costs = costs
        self._known = known or (None, None)
        self.clear()

    @property
    def longest(self) -> int:
        """Positions the longest row may come to need."""
        return max((row.prompt_length + row.limit for row in self.rows), default=0)

    def read(self, rows: list[Row], chunk: int | None = None) -> Iterator[None]:
        """Seat rows and read all of their prompts but the last token, in passes of `chunk` tokens a row.

        Yields after every pass but the last: between two of them anything else may be done.
        """
        self.rows += rows
        passes = self._passes(rows, chunk or PREFILL_CHUNK)
        left = True
        while left:
            begin = time.perf_counter()
            with torch.inference_mode():
                left = next(passes, False)
            synchronize(self._verifier.device)
            for row in rows:
                row.run.prefill_seconds += time.perf_counter() - begin
                row.run.seconds = row.run.prefill_seconds
            if left:
                yield

    def _passes(self, rows: list[Row], chunk: int) -> Iterator[bool]:
        """Each step is one pass."""
        of_drafter, of_verifier = self._known
        drafting = [row for row in rows if row.method.drafts]
        yield from self._prefill(self._drafter, drafting, chunk, of_drafter)
        verifying = [row for row in rows if row.method.verifies]
        yield from self._prefill(self._verifier, verifying, chunk, of_verifier)

    def _prefill(
        self, model: SlotModel, rows: list[Row], chunk: int, known: Prefixes | None
    ) -> Iterator[bool]:
        if not rows:
            return
        places = model.admit(list(rows), self.longest)
        counts = [row.prompt_length - 1 for row in rows]
        shared = _common([row.ids[:count] for row, count in zip(rows, counts, strict=True)])
        first, begin = places.start, rows[0].ids[:shared]
        prefix, start = known.find(begin) if known else (None, 0)
        if prefix:
            model.restore(first, prefix.states, start)
        if len(rows) > 1 and shared >= SHORTEST:
            yield from self._read(model, rows[:1], slice(first, first + 1), start, [shared], chunk)
            start = shared
        if len(rows) > 1 and start:
            model.spread(places, start)
        yield from self._read(model, rows, places, start, counts, chunk)
        if known and known.wants(begin):
            kept = begin[:LONGEST]
            known.keep(kept, model.save(first, len(kept)))

    def _read(
        self, model: SlotModel, rows: list[Row], places: slice, start: int, counts: list[int], chunk: int
    ) -> Iterator[bool]:
        """Read the ids of rows from `start` on, as many as `counts` says in all."""
        for first in range(start, max(counts), chunk):
            last = min(first + chunk, max(counts))
            padded = [row.ids[first : min(last, count)] for row, count in zip(rows, counts, strict=True)]
            tokens = torch.tensor(
                [ids + [0] * (last - first - len(ids)) for ids in padded], device=model.device
            )
            positions = torch.arange(first, last, device=model.device).expand(len(rows), -1)
            limit = torch.tensor(counts, device=model.device)[:, None]
            valid = None if min(counts) >= last else positions < limit
            model.read(tokens, positions, visible=last, valid=valid, rows=places)
            yield True

    @torch.inference_mode()
    def take(self, other: Batch) -> None:
        """Let all rows of another batch of the same pair go on here; the other is empty then."""
        try:
            self._drafter.take(other._drafter)
            self._verifier.take(other._verifier)
        except Exception:
            for row in other.rows:
                self._drafter.drop(row)
                self._verifier.drop(row)
            raise
        self.rows += other.rows
        other.rows = []

    @torch.inference_mode()
    def split(self) -> list[Batch]:
        """Each row in a batch of its own; this one is empty then."""
        alone = []
        for row in self.rows:
            batch = Batch(self.pair, self._costs)
            batch.rows = [row]
            batch._drafter.copy(row, self._drafter)
            batch._verifier.copy(row, self._verifier)
            alone.append(batch)
        self.clear()
        return alone

    def clear(self) -> None:
        """Let all rows go, and all memory."""
        self.rows = []
        self._drafter = SlotModel(self.pair.drafter, self.pair.vocabulary_size)
        self._verifier = SlotModel(self.pair.verifier, self.pair.vocabulary_size)

    @torch.inference_mode()
    def step(self) -> list[tuple[Row, Round | Exception]]:
        """One round for every row: what it decided, or why the row cannot go on. Rows that are over leave the batch.

        A forward pass that fails raises what it raised, and all rows are as they were: the step can be tried again.
        """
        costs = self._costs[_bucket(len(self._drafter.owners)), _bucket(len(self._verifier.owners))]
        self._plan(costs)
        width = max(row.draft_length for row in self.rows)
        with limited_to(_deciding_threads(len(self.rows) * width * self.pair.vocabulary_size)):
            return self._round(costs)

    def _plan(self, costs: Costs) -> None:
        """How many tokens each row drafts. A step of the longest is a step for all: who is not verified keeps pace."""
        verified = [row for row in self.rows if row.method.verifies]
        paces = [row.pace for row in verified if row.is_paced]
        pace = draft_length(costs, paces) if paces else 1
        for row in verified:
            row.plan(pace)
        drafted = [row.draft_length for row in verified if row.method.drafts]
        longest = max(drafted, default=1 if verified else UNVERIFIED)
        for row in self.rows:
            if not row.method.verifies:
                row.plan(longest)

    def _round(self, costs: Costs) -> list[tuple[Row, Round | Exception]]:
        watch = _Stopwatch(self._verifier.device)
        drafted = self._draft()
        watch.mark()
        verifier_logits = self._verify(drafted)
        watch.mark()
        readback = _Readback()
        groups = []
        by_kind = sorted(self.rows, key=lambda row: (row.method.name, row.truncates))
        for _, members in groupby(by_kind, key=lambda row: (row.method.name, row.truncates)):
            groups.append(_Group(list(members), drafted, verifier_logits, self._verifier.owners, readback))
        readback.fetch()
        drafter_seconds, verifier_seconds, seconds = watch.read()
        if drafted.rows and self._verifier.owners:
            costs.note(drafted.proposals.shape[1], drafter_seconds, seconds - drafter_seconds)
        results: list[tuple[Row, Round | Exception]] = []
        for group in groups:
            for place, row in enumerate(group.rows):
                try:
                    round_ = group.round(place, row, drafter_seconds, verifier_seconds, seconds)
                except Exception as error:  # what it had recorded until then is of no use
                    self._drop(row)
                    results.append((row, error))
                else:
                    self._record(row, round_)
                    results.append((row, round_))
        return sorted(results, key=lambda result: result[0].index)

    def _record(self, row: Row, round_: Round) -> None:
        run = row.run
        run.rounds.append(round_)
        run.seconds += round_.seconds
        run.verifier_calls += row.method.verifies
        run.drafter_calls += len(round_.proposals)
        row.pace.note(round_.examined, round_.accepted)
        row.ids += [token.id for token in round_.tokens]
        emitted = len(row.ids) - row.prompt_length
        if row.ids[-1] in row.eos:
            run.stop_reason = "eos"
        elif emitted == row.limit:
            run.stop_reason = "length" if emitted == row.request.max_new_tokens else "context"
        if run.stop_reason:
            if row.request.return_logits:
                run.drafter_logits, run.verifier_logits = (
                    torch.cat(parts) if parts else None
                    for parts in (row.logits["drafter"], row.logits["verifier"])
                )
            self._drop(row)

    @torch.inference_mode()
    def dismiss(self) -> list[Row]:
        """Let rows go whose run was ended by whoever looks on; returns them."""
        ended = [row for row in self.rows if row.run.stop_reason]
        for row in ended:
            self._drop(row)
        return ended

    def _drop(self, row: Row) -> None:
        self.rows.remove(row)
        self._drafter.drop(row)
        self._verifier.drop(row)

    def _draft(self) -> _Drafted:
        """K steps of the drafter for the rows that draft."""
        model, rows = self._drafter, list(self._drafter.owners)
        if not rows:
            return _Drafted([], torch.empty(0), torch.empty(0), torch.empty(0))
        device = model.device
        counts = [row.draft_length for row in rows]
        starts = [len(row.ids) - 1 for row in rows]
        steps = max(counts)
        tokens = torch.tensor([row.ids[-1:] for row in rows], device=device)
        start = torch.tensor(starts, device=device)[:, None]
        limit = torch.tensor(counts, device=device)[:, None]
        coins = _coins(rows, steps, device)
        proposals, logits, qs = [], [], []
        for step in range(steps):
            valid = None if min(counts) > step else limit > step
            visible = max(s + min(step, c - 1) for s, c in zip(starts, counts, strict=True)) + 1
            step_logits = _forbid(rows, model.forward(tokens, start + step, visible=visible, valid=valid))
            q = _row_distribution(rows, step_logits)
            tokens = draw(q, coins[:, step : step + 1, DRAFT])
            proposals.append(tokens)
            logits.append(step_logits)
            qs.append(q)
        return _Drafted(rows, torch.cat(proposals, 1), torch.cat(logits, 1), torch.cat(qs, 1))

    def _verify(self, drafted: _Drafted) -> Tensor:
        """One forward of the verifier over each row's last token and all its proposals but the last."""
        model, rows = self._verifier, self._verifier.owners
        if not rows:
            return torch.empty(0)
        device = model.device
        counts = [row.draft_length if row.method.drafts else 1 for row in rows]
        starts = [len(row.ids) - 1 for row in rows]
        width = max(counts)
        tokens = torch.zeros(len(rows), width, dtype=torch.long, device=device)
        tokens[:, 0] = torch.tensor([row.ids[-1] for row in rows], device=device)
        if width > 1:
            drafting = [place for place, row in enumerate(rows) if row.method.drafts]
            proposals = drafted.of([rows[place] for place in drafting])[0].to(device)
            tokens[drafting, 1:] = proposals[:, : width - 1]
        positions = torch.tensor(starts, device=device)[:, None] + torch.arange(width, device=device)
        valid = None
        if min(counts) < width:
            valid = torch.arange(width, device=device) < torch.tensor(counts, device=device)[:, None]
        visible = max(s + c for s, c in zip(starts, counts, strict=True))
        return _forbid(rows, model.forward(tokens, positions, visible=visible, valid=valid))


@dataclass(frozen=True)
class _Drafted:
    """What the drafter did in a round, in the drafter's order of rows."""

    rows: list[Row]
    proposals: Tensor  # [D, K]
    logits: Tensor  # [D, K, V]
    q: Tensor  # [D, K, V]

    def of(self, rows: list[Row]) -> tuple[Tensor, Tensor, Tensor]:
        """Proposals, logits and q of some rows."""
        return tuple(_take(tensor, self.rows, rows) for tensor in (self.proposals, self.logits, self.q))  # type: ignore[return-value]


class _Group:
    """Rows of one method in a round: decides on the device, then tells each row's round on the host."""

    def __init__(
        self,
        rows: list[Row],
        drafted: _Drafted,
        verifier_logits: Tensor,
        verifying: list[Row],
        out: _Readback,
    ) -> None:
        self.rows = rows
        self.method = rows[0].method
        self._out = out
        self._seen: dict[str, int] = {}
        self._logits: dict[str, Tensor] = {}
        if self.method.drafts and self.method.verifies:
            self._examine(drafted, _take(verifier_logits, verifying, rows))
        elif self.method.drafts:
            proposals, logits, q = drafted.of(rows)
            self._logits = {"drafter": logits}
            self._keep(proposals=proposals, q=at(q, proposals), pi=at(q, proposals))
            self._keep(**self._most_likely(q=q, pi=q))
        else:
            self._write(_take(verifier_logits, verifying, rows)[:, :1])

    def _examine(self, drafted: _Drafted, verifier_logits: Tensor) -> None:
        """Judge all proposals at once; draw a replacement for the first one rejected."""
        rows = self.rows
        proposals, drafter_logits, q = (tensor.to(verifier_logits.device) for tensor in drafted.of(rows))
        steps = min(max(row.draft_length for row in rows), verifier_logits.shape[1])
        proposals, drafter_logits, q = proposals[:, :steps], drafter_logits[:, :steps], q[:, :steps]
        verifier_logits = verifier_logits[:, :steps]
        device = verifier_logits.device
        coins = _coins(rows, steps, device)
        counts = torch.tensor([row.draft_length for row in rows], device=device)
        beliefs = Beliefs(drafter_logits, verifier_logits, *_warp(rows, device), q=q)
        ruling = rule(self.method, beliefs, _agreed([row.run.lenience for row in rows], device))
        acceptance = ruling.acceptance(proposals)
        step = torch.arange(steps, device=device)
        passed = (coins[..., ACCEPT] < acceptance) & (step < counts[:, None])
        accepted = passed.cumprod(-1).sum(-1)
        # Where nothing was rejected the draw at the last place is made all the same, and not used.
        last = torch.minimum(accepted, counts - 1)
        ending = ruling.take(torch.arange(len(rows), device=device) * steps + last)
        redrawn = draw(ending.replacement(), at(coins[..., RESAMPLE], last))
        self._logits = {"drafter": drafter_logits, "verifier": verifier_logits}
        self._keep(
            proposals=proposals,
            q=at(beliefs.q, proposals),
            p=at(beliefs.p, proposals),
            pi=ruling.target(proposals),
            acceptance=acceptance,
            accepted=accepted,
            redrawn=redrawn,
            redrawn_q=at(ending.beliefs.q, redrawn),
            redrawn_p=at(ending.beliefs.p, redrawn),
            redrawn_pi=ending.target(redrawn),
        )
        if sides := ruling.test(proposals):
            self._keep(score=sides[0], threshold=sides[1].expand_as(sides[0]))
        if any(row.request.inspect for row in rows):
            asked = torch.tensor([row.request.inspect > 0 for row in rows], device=device)[:, None]
            self._explain(ruling, proposals, coins[..., ACCEPT], asked & (step <= last[:, None]))
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

    def _write(self, verifier_logits: Tensor) -> None:
        """The verifier alone: one token a row."""
        p = distribution(verifier_logits, *_warp(self.rows, verifier_logits.device))
        redrawn = draw(p, _coins(self.rows, 1, p.device)[..., RESAMPLE])[:, 0]
        self._logits = {"verifier": verifier_logits}
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
        drafted = row.draft_length if self.method.drafts else 0
        examining = self.method.drafts and self.method.verifies
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


@dataclass
class _Readback:
    """Tensors of a round, sent to the host in one transfer as float64 (ids and float32 fit exactly)."""

    _tensors: list[Tensor] = field(default_factory=list)
    _host: list[Any] = field(default_factory=list)

    def add(self, tensor: Tensor) -> int:
        """Queue a tensor; returns the key to find it by after `fetch`."""
        self._tensors.append(tensor)
        return len(self._tensors) - 1

    def fetch(self) -> None:
        """The round's only wait for the device."""
        packed = torch.cat([tensor.double().flatten() for tensor in self._tensors]).cpu()
        parts = packed.split([tensor.numel() for tensor in self._tensors])
        self._host = [
            part.view(tensor.shape).tolist() for part, tensor in zip(parts, self._tensors, strict=True)
        ]

    def get(self, key: int, *place: int) -> Any:
        """A number of the record, or a list of them where `place` stops short."""
        value = self._host[key]
        for index in place:
            value = value[index]
        return value


class _Stopwatch:
    """Seconds between marks, on the device's own clock where it has one."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._begin = time.perf_counter()
        self._marks: list[Any] = []
        self.mark()

    def mark(self) -> None:
        """Mark the end of a part."""
        if self._cuda:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._marks.append(event)
        else:
            self._marks.append(time.perf_counter())

    def read(self) -> tuple[float, float, float]:
        """Seconds of the first part, of the second, and of everything until now. Call after the readback."""
        first, second, third = self._marks
        total = time.perf_counter() - self._begin
        if self._cuda:
            return first.elapsed_time(second) / 1000, second.elapsed_time(third) / 1000, total
        return second - first, third - second, total


def _deciding_threads(numbers: int) -> int:
    """Threads for arithmetic on so many numbers: waking others takes longer than a few vocabularies."""
    return 1 if numbers < _MANY else budget()


def _bucket(rows: int) -> int:
    """The next power of two: batches of about a size cost about the same."""
    return 1 << (rows - 1).bit_length() if rows else 0


def _common(sequences: Sequence[list[int]]) -> int:
    """How many ids all sequences begin with alike."""
    return alike(min(sequences), max(sequences))


def _take(tensor: Tensor, order: list[Row], rows: list[Row]) -> Tensor:
    """`tensor` [len(order), ...] for `rows`, in their order; itself where that is the same."""
    if rows == order:
        return tensor
    where = {id(row): place for place, row in enumerate(order)}
    return tensor[[where[id(row)] for row in rows]]


def _coins(rows: list[Row], steps: int, device: torch.device) -> Tensor:
    """The rows' coins for their next `steps` positions, float64 [B, steps, 3]; zeros past a row's end."""
    coins = np.zeros((len(rows), steps, 3))
    for place, row in enumerate(rows):
        own = row.coins[len(row.ids) : len(row.ids) + steps]
        coins[place, : len(own)] = own
    return torch.from_numpy(coins).to(device)


def _forbid(rows: list[Row], logits: Tensor) -> Tensor:
    for place, row in enumerate(rows):
        if row.forbidden:
            logits[place, :, row.forbidden] = -math.inf
    return logits


def _agreed(values: Sequence[float], device: torch.device) -> Number:
    """One number where all rows agree; otherwise a tensor [B, 1], in double precision as Python's numbers are."""
    if len(set(values)) == 1:
        return values[0]
    return torch.tensor(values, device=device, dtype=torch.float64)[:, None]


def _warp(rows: list[Row], device: torch.device) -> tuple[Number, Any, Number]:
    """Temperature, top-k and top-p of rows, for `distribution` and `Beliefs`."""
    settings = ([getattr(row.request, name) for row in rows] for name in ("temperature", "top_k", "top_p"))
    temperature, top_k, top_p = (_agreed(values, device) for values in settings)
    return temperature, top_k, top_p


def _row_distribution(rows: list[Row], logits: Tensor) -> Tensor:
    """q of rows [B, n, V], sorting only the rows that truncate."""
    q = distribution(logits, _agreed([row.request.temperature for row in rows], logits.device))
    places = [place for place, row in enumerate(rows) if row.truncates]
    if places:
        q[places] = distribution(logits[places], *_warp([rows[place] for place in places], logits.device))
    return q
