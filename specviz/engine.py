"""The generator: rounds of draft, verify, decide over a ragged batch of requests.

A round drafts K tokens a row with the drafter, scores all of them in one verifier forward, decides on the device,
and reads the record back once. Rows differ in method, lenience, K, length and seed; a row's text depends on none
of its neighbours. The last token of a row is always still unread by both models: it is the first input of the
next round, so an accepted block needs no extra "bonus" draw and a rejection no re-reading.

Knows requests, pairs and the rules; knows no page and no file.
"""

from __future__ import annotations

import math
import threading
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
from specviz.errors import EngineError, RequestError, is_out_of_memory
from specviz.machine import synchronize
from specviz.methods import Beliefs, Method, Ruling, get_method, rule
from specviz.pacing import UNVERIFIED, Costs, Pace, draft_length
from specviz.request import AUTO, Request
from specviz.sampling import ACCEPT, DRAFT, RESAMPLE, Number, at, distribution, draw, uniforms
from specviz.text import Detokenizer, Labels, encode_prompt, forbidden_ids
from specviz.threads import budget, limited_to
from specviz.trace import (
    Alternative,
    Draft,
    Likely,
    Proposal,
    Round,
    RuleTest,
    Run,
    Token,
    Top,
    WhatIf,
)
from specviz.whatif import acceptances, flips, kept, leniences, places

if TYPE_CHECKING:
    from specviz.pairs import ModelPair

_MANY = 1 << 22
"""Numbers in a round's distributions from which on deciding takes more than one thread."""
SHARED = 16
"""Where all prompts that join begin with at least so many equal tokens, these are read once."""
PREFILL_CHUNK = 512
"""Prompt tokens read in one forward pass: bounds memory, and the time until a stop is noticed."""


@dataclass(frozen=True)
class Started:
    """A request was admitted and its prompt read."""

    index: int
    run: Run


@dataclass(frozen=True)
class Decided:
    """A round of a request is over; `run` already holds it."""

    index: int
    run: Run
    round: Round


@dataclass(frozen=True)
class Finished:
    """A request is over; `run.stop_reason` says why."""

    index: int
    run: Run


Event = Started | Decided | Finished

_CostTable = defaultdict[tuple[int, int], Costs]
"""What rounds took, by how many rows drafted and how many were verified."""


class Engine:
    """Serves requests on one model pair."""

    def __init__(self, pair: ModelPair, *, max_rows: int = 32) -> None:
        """Serve up to `max_rows` requests at once; further ones wait for a row."""
        self.pair = pair
        self.max_rows = max_rows
        self._labels = Labels(pair.tokenizer)
        self._costs: _CostTable = defaultdict(Costs)

    def generate(
        self, requests: Request | Sequence[Request], *, stop: threading.Event | None = None
    ) -> list[Run]:
        """Serve all requests and return their runs in order. `stop` and errors are as for `stream`."""
        runs: dict[int, Run] = {}
        for event in self.stream(requests, stop=stop):
            if isinstance(event, Finished):
                runs[event.index] = event.run
        return [runs[index] for index in sorted(runs)]

    def stream(
        self, requests: Request | Sequence[Request], *, stop: threading.Event | None = None
    ) -> Iterator[Event]:
        """Serve requests as one batch, yielding what happens as it happens.

        Closing the iterator, or setting `stop`, ends all runs before the next round; with `stop` their
        `Finished` events still come, with stop_reason "cancelled". Either way all memory is freed. One run alone ends
        with its round when a `stop_reason` is set on it, between two events.

        Raises:
            RequestError: at once, before anything runs, if any request does not fit the pair.
            EngineError: memory ran out, or a model returned numbers that are not finite.
        """
        requests = [requests] if isinstance(requests, Request) else list(requests)
        rows = [_Row(index, request, self.pair, self._labels) for index, request in enumerate(requests)]
        return self._serve(rows, stop or threading.Event())

    def _serve(self, waiting: list[_Row], stop: threading.Event) -> Iterator[Event]:
        batch = _Batch(self.pair, self._costs)
        try:
            while waiting or batch.rows:
                if stop.is_set():
                    for row in [*batch.rows, *waiting]:
                        row.run.stop_reason = "cancelled"
                        yield Finished(row.index, row.run)
                    return
                free = self.max_rows - len(batch.rows)
                joining, waiting = waiting[:free], waiting[free:]
                if joining:
                    batch.admit(joining, stop)
                    yield from (Started(row.index, row.run) for row in joining)
                    continue
                for row, round_ in batch.step():
                    yield Decided(row.index, row.run, round_)
                    if row not in batch.rows:
                        yield Finished(row.index, row.run)
                yield from (Finished(row.index, row.run) for row in batch.dismiss())
        except Exception as error:
            if is_out_of_memory(error):
                raise EngineError(
                    f"Memory ran out with {len(batch.rows)} request(s) of up to {batch.longest} tokens at once: "
                    "ask for fewer tokens, a shorter prompt or fewer runs."
                ) from error
            raise


class _Row:
    """A request being served: its tokens so far, its coins, its decoder, its run."""

    def __init__(self, index: int, request: Request, pair: ModelPair, labels: Labels) -> None:
        prompt_ids = encode_prompt(pair.tokenizer, request)
        if outside := [i for i in prompt_ids if i >= pair.vocabulary_size]:
            raise RequestError(
                f"Token {outside[0]} is no id of this pair; ids run from 0 to {pair.vocabulary_size - 1}."
            )
        room = pair.context_length - len(prompt_ids)
        if room < 1:
            raise RequestError(
                f"The prompt has {len(prompt_ids)} tokens; this pair's context holds {pair.context_length}, and at "
                f"least one must be left for the answer: shorten the prompt to {pair.context_length - 1} tokens."
            )
        self.index = index
        self.request = request
        self.method: Method = get_method(request.method)
        self.labels = labels
        self.eos = pair.eos_token_ids
        self.ids = list(prompt_ids)
        self.prompt_length = len(prompt_ids)
        self.limit = min(request.max_new_tokens, room)
        self.coins = uniforms(request.seed, 0, self.prompt_length + self.limit).numpy()
        self.detokenizer = Detokenizer(pair.tokenizer, prompt_ids)
        self.forbidden = forbidden_ids(pair.tokenizer, request.forbidden_tokens, pair.vocabulary_size)
        if len(self.forbidden) == pair.vocabulary_size:
            raise RequestError("All tokens are forbidden: leave at least one to write with.")
        self.logits: dict[str, list[Tensor]] = {"drafter": [], "verifier": []}
        self.pace = Pace()
        self.draft_length = 0
        prompt = str(pair.tokenizer.decode(prompt_ids)) if request.prompt is None else request.prompt
        self.run = Run(
            pair=pair.key,
            drafter=pair.drafter_name,
            verifier=pair.verifier_name,
            device=str(pair.device),
            dtype=str(pair.dtype).removeprefix("torch."),
            method=request.method,
            lenience=float(request.lenience or 0.0),
            draft_length=None if request.draft_length == AUTO else request.draft_length,
            temperature=float(request.temperature),
            top_k=request.top_k,
            top_p=float(request.top_p),
            seed=request.seed,
            max_new_tokens=request.max_new_tokens,
            forbidden_tokens=self.forbidden,
            echo=request.echo,
            inspect=request.inspect,
            prompt=prompt,
            prompt_ids=list(prompt_ids),
            alternatives=self._alternatives(),
        )

    def _alternatives(self) -> list[Alternative]:
        if not (self.request.inspect and self.method.drafts and self.method.verifies):
            return []
        asked = leniences(self.method.name, float(self.request.lenience or 0.0))
        return [Alternative(name, lenience) for name, lenience in asked.items()]

    @property
    def left(self) -> int:
        """Tokens it may still emit."""
        return self.prompt_length + self.limit - len(self.ids)

    @property
    def is_paced(self) -> bool:
        """Whether its draft length is chosen round by round."""
        return self.request.draft_length == AUTO and self.method.drafts and self.method.verifies

    def plan(self, pace: int) -> None:
        """Set `draft_length`, the proposals of its next round, to `pace` if it is paced; never past the end."""
        wanted = self.request.draft_length
        if wanted == AUTO:
            wanted = pace if self.is_paced else UNVERIFIED
        self.draft_length = min(wanted, self.left)

    @property
    def truncates(self) -> bool:
        """Whether top-k or top-p is asked for."""
        return self.request.top_k > 0 or self.request.top_p < 1


class _Batch:
    """The rows being served now, and one round after another for all of them."""

    def __init__(self, pair: ModelPair, costs: _CostTable) -> None:
        self.pair = pair
        self.rows: list[_Row] = []
        self._costs = costs
        self._drafter = SlotModel(pair.drafter, pair.vocabulary_size)
        self._verifier = SlotModel(pair.verifier, pair.vocabulary_size)

    @property
    def longest(self) -> int:
        """Positions the longest row may come to need."""
        return max((row.prompt_length + row.limit for row in self.rows), default=0)

    @torch.inference_mode()
    def admit(self, rows: list[_Row], stop: threading.Event) -> None:
        """Seat rows and read all of their prompts but the last token."""
        begin = time.perf_counter()
        self.rows += rows
        self._prefill(self._drafter, [row for row in rows if row.method.drafts], stop)
        self._prefill(self._verifier, [row for row in rows if row.method.verifies], stop)
        synchronize(self._verifier.device)
        seconds = time.perf_counter() - begin
        for row in rows:
            row.run.prefill_seconds = row.run.seconds = seconds

    def _prefill(self, model: SlotModel, rows: list[_Row], stop: threading.Event) -> None:
        if not rows:
            return
        places = model.admit(list(rows), self.longest)
        counts = [row.prompt_length - 1 for row in rows]
        shared = _common([row.ids[:count] for row, count in zip(rows, counts, strict=True)])
        if len(rows) > 1 and shared >= SHARED:
            self._read(model, rows[:1], slice(places.start, places.start + 1), 0, [shared], stop)
            model.spread(places, shared)
        else:
            shared = 0
        self._read(model, rows, places, shared, counts, stop)

    def _read(
        self,
        model: SlotModel,
        rows: list[_Row],
        places: slice,
        start: int,
        counts: list[int],
        stop: threading.Event,
    ) -> None:
        """Read the ids of rows from `start` on, as many as `counts` says in all."""
        for first in range(start, max(counts), PREFILL_CHUNK):
            if stop.is_set():
                return
            last = min(first + PREFILL_CHUNK, max(counts))
            padded = [row.ids[first : min(last, count)] for row, count in zip(rows, counts, strict=True)]
            tokens = torch.tensor(
                [ids + [0] * (last - first - len(ids)) for ids in padded], device=model.device
            )
            positions = torch.arange(first, last, device=model.device).expand(len(rows), -1)
            limit = torch.tensor(counts, device=model.device)[:, None]
            valid = None if min(counts) >= last else positions < limit
            model.read(tokens, positions, visible=last, valid=valid, rows=places)

    @torch.inference_mode()
    def step(self) -> list[tuple[_Row, Round]]:
        """One round for every row. Rows that are over leave the batch."""
        costs = self._costs[len(self._drafter.owners), len(self._verifier.owners)]
        paces = [row.pace for row in self.rows if row.is_paced]
        pace = draft_length(costs, paces) if paces else 1
        for row in self.rows:
            row.plan(pace)
        width = max(row.draft_length for row in self.rows)
        with limited_to(_deciding_threads(len(self.rows) * width * self.pair.vocabulary_size)):
            return self._round(costs)

    def _round(self, costs: Costs) -> list[tuple[_Row, Round]]:
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
        results = []
        for group in groups:
            for place, row in enumerate(group.rows):
                round_ = group.round(place, row, drafter_seconds, verifier_seconds, seconds)
                self._record(row, round_)
                results.append((row, round_))
        return sorted(results, key=lambda result: result[0].index)

    def _record(self, row: _Row, round_: Round) -> None:
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
    def dismiss(self) -> list[_Row]:
        """Let rows go whose run was ended by whoever looks on; returns them."""
        ended = [row for row in self.rows if row.run.stop_reason]
        for row in ended:
            self._drop(row)
        return ended

    def _drop(self, row: _Row) -> None:
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

    rows: list[_Row]
    proposals: Tensor  # [D, K]
    logits: Tensor  # [D, K, V]
    q: Tensor  # [D, K, V]

    def of(self, rows: list[_Row]) -> tuple[Tensor, Tensor, Tensor]:
        """Proposals, logits and q of some rows."""
        return tuple(_take(tensor, self.rows, rows) for tensor in (self.proposals, self.logits, self.q))  # type: ignore[return-value]


class _Group:
    """Rows of one method in a round: decides on the device, then tells each row's round on the host."""

    def __init__(
        self,
        rows: list[_Row],
        drafted: _Drafted,
        verifier_logits: Tensor,
        verifying: list[_Row],
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
        self, place: int, row: _Row, drafter_seconds: float, verifier_seconds: float, seconds: float
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

    def _token(self, place: int, step: int, row: _Row, accepted: bool, index: int, position: int) -> Token:
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

    def _top(self, place: int, step: int, row: _Row) -> Top:
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


def _common(sequences: Sequence[list[int]]) -> int:
    """How many ids all sequences begin with alike."""
    first, last = min(sequences), max(sequences)
    alike = (place for place, (a, b) in enumerate(zip(first, last, strict=False)) if a != b)
    return next(alike, min(len(first), len(last)))


def _take(tensor: Tensor, order: list[_Row], rows: list[_Row]) -> Tensor:
    """`tensor` [len(order), ...] for `rows`, in their order; itself where that is the same."""
    if rows == order:
        return tensor
    where = {id(row): place for place, row in enumerate(order)}
    return tensor[[where[id(row)] for row in rows]]


def _coins(rows: list[_Row], steps: int, device: torch.device) -> Tensor:
    """The rows' coins for their next `steps` positions, float64 [B, steps, 3]; zeros past a row's end."""
    coins = np.zeros((len(rows), steps, 3))
    for place, row in enumerate(rows):
        own = row.coins[len(row.ids) : len(row.ids) + steps]
        coins[place, : len(own)] = own
    return torch.from_numpy(coins).to(device)


def _forbid(rows: list[_Row], logits: Tensor) -> Tensor:
    for place, row in enumerate(rows):
        if row.forbidden:
            logits[place, :, row.forbidden] = -math.inf
    return logits


def _agreed(values: Sequence[float], device: torch.device) -> Number:
    """One number where all rows agree; otherwise a tensor [B, 1], in double precision as Python's numbers are."""
    if len(set(values)) == 1:
        return values[0]
    return torch.tensor(values, device=device, dtype=torch.float64)[:, None]


def _warp(rows: list[_Row], device: torch.device) -> tuple[Number, Any, Number]:
    """Temperature, top-k and top-p of rows, for `distribution` and `Beliefs`."""
    settings = ([getattr(row.request, name) for row in rows] for name in ("temperature", "top_k", "top_p"))
    temperature, top_k, top_p = (_agreed(values, device) for values in settings)
    return temperature, top_k, top_p


def _row_distribution(rows: list[_Row], logits: Tensor) -> Tensor:
    """q of rows [B, n, V], sorting only the rows that truncate."""
    q = distribution(logits, _agreed([row.request.temperature for row in rows], logits.device))
    places = [place for place, row in enumerate(rows) if row.truncates]
    if places:
        q[places] = distribution(logits[places], *_warp([rows[place] for place in places], logits.device))
    return q
