"""The rows that are written together: reading their prompts, and one round after another for all of them.

A round drafts up to K tokens a row with the drafter, scores all of them in one verifier forward, and decides
(`specviz.engine.step`). Rows differ in method, lenience, K, length and seed; a row's text depends on none
of its neighbours. The last token of a row is always still unread by both models: it is the first input of the
next round, so an accepted block needs no extra "bonus" draw and a rejection no re-reading. Knows rows and rules; does
not know who waits for a row, nor why one leaves.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch

from specviz.engine.draft_length import UNVERIFIED, Costs, Stride
from specviz.engine.sequence import Row
from specviz.engine.step import Step, asks
from specviz.runtime.cpu.threads import budget, limited_to
from specviz.runtime.cuda.workspace import single_gpu, workspace
from specviz.runtime.kv_cache import power
from specviz.runtime.machine import give_back_memory, spare_memory, synchronize
from specviz.runtime.model_runner import SlotModel
from specviz.runtime.prefix_cache import LONGEST, SHORTEST, Prefixes, alike
from specviz.schema.settings import AUTO, MAX_DRAFT_LENGTH
from specviz.schema.trace import Round

if TYPE_CHECKING:
    from specviz.models.pairs import ModelPair

log = logging.getLogger(__name__)

_WARM_LENGTH, _WARM_WIDTHS = 512, (1, 2, 4, 8, 16)
"""Positions, and tokens verified at once, of the passes that are captured ahead: those of one visitor's short text."""
_AHEAD, _AHEAD_ROWS, _AHEAD_LENGTH = 0.1, (8, 4, 2, 1), 1024
"""Of the memory that is spare on a GPU, what buffers may take before anybody asks; and for how many rows of what length,
since captures are lost when buffers grow."""
_SHARE = 0.9
"""Of the memory that is spare on a GPU, what rows may be promised."""
_WORK, _MORE_WORK = 48, 96
"""Bytes that a round takes for each token of the vocabulary at each proposal: logits, distributions, running sums; and where
they are sorted or inspected."""
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
        self,
        pair: ModelPair,
        costs: CostTable,
        known: tuple[Prefixes, Prefixes] | None = None,
        *,
        apart: bool = False,
    ) -> None:
        """An empty batch.

        Args:
            pair: whose models it runs.
            costs: what rounds have taken, to be looked up and added to.
            known: what drafter and verifier have read lately, likewise.
            apart: it is one beside another, which is there to last: it leaves the models' workspaces alone.
        """
        self.pair = pair
        self._costs = costs
        self._known = known or (None, None)
        self._gpu = None if apart else single_gpu(pair.verifier)
        self.rows = []
        self._drafter, self._verifier = (
            SlotModel(model, pair.vocabulary_size, None if apart else workspace(model))
            for model in (pair.drafter, pair.verifier)
        )

    @property
    def longest(self) -> int:
        """Positions the longest row may come to need."""
        return max((row.prompt_length + row.limit for row in self.rows), default=0)

    def room_for(self, rows: Sequence[Row]) -> int:
        """How many of `rows`, the first ones, the GPU's memory has room for beside those here.

        At least one where nobody is here, for then waiting is of no use. All of them off a single GPU.
        """
        if self._gpu is None:
            return len(rows)
        spare = _SHARE * spare_memory(self._gpu)
        for count in range(len(rows), 0, -1):
            if self._need(rows[:count]) <= spare:
                return count
        if self.rows:
            return 0
        self.economise()
        return 1

    def _need(self, rows: Sequence[Row]) -> int:
        """Bytes that seating rows would take: buffers here, buffers to read them in, and a round's distributions."""
        longest = max(row.prompt_length + row.limit for row in rows)
        stretch = min(PREFILL_CHUNK, max(row.prompt_length for row in rows))
        drafting, verifying = (
            sum(getattr(row.method, name) for row in rows) for name in ("drafts", "verifies")
        )
        seats = 0
        for model, count in ((self._drafter, drafting), (self._verifier, verifying)):
            seats += model.growth(count, max(longest, self.longest))
            seats += count * (longest * model.position_bytes + stretch * model.reading_bytes(longest))
        return seats + sum(map(_work, [*self.rows, *rows])) * self.pair.vocabulary_size

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
            valid = None
            if min(counts) < last:
                valid = positions < torch.tensor(counts, device=model.device)[:, None]
            model.read(tokens, positions, visible=last, valid=valid, rows=places)
            yield True

    @torch.inference_mode()
    def warm_up(self) -> Iterator[None]:
        """Capture ahead, on a GPU, what one short text needs; yields after each pass. Only while nobody is here."""
        if self.rows or self._gpu is None:
            return
        models, most = (self._drafter, self._verifier), _AHEAD * spare_memory(self._gpu)
        for rows in _AHEAD_ROWS:
            if sum(model.growth(rows, _AHEAD_LENGTH) for model in models) <= most:
                for model in models:
                    model.reserve(rows, _AHEAD_LENGTH)
                break
        for model, widths in zip(models, ((1,), _WARM_WIDTHS), strict=True):
            yield from model.warm_up(1, _WARM_LENGTH, widths)

    def economise(self) -> bool:
        """Make room in a GPU's memory at the cost of speed: no captured passes until this is empty. Whether there were any."""
        kept = [workspace(model) for model in (self.pair.drafter, self.pair.verifier)]
        found = [each.save() for each in kept if each]
        if any(found):
            log.warning("memory ran out: forward passes are not captured for a while")
            give_back_memory()
        return any(found)

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
            batch = Batch(self.pair, self._costs, apart=True)
            batch.rows = [row]
            batch._drafter.copy(row, self._drafter)
            batch._verifier.copy(row, self._verifier)
            alone.append(batch)
        self.clear()
        return alone

    def clear(self) -> None:
        """Let all rows go, and all memory."""
        self.rows = []
        self._drafter.clear()
        self._verifier.clear()

    @torch.inference_mode()
    def step(self) -> list[tuple[Row, Round | Exception]]:
        """One round for every row: what it decided, or why the row cannot go on. Rows that are over leave the batch.

        A forward pass that fails raises what it raised, and all rows are as they were: the step can be tried again.
        """
        seated = len(self._drafter.owners), len(self._verifier.owners)
        costs = self._costs[power(seated[0]), power(seated[1])]
        stride = self._plan(costs)
        width = stride.length if stride else max(row.draft_length for row in self.rows)
        with limited_to(_deciding_threads(len(self.rows) * width * self.pair.vocabulary_size)):
            return self._round(costs, stride)

    def _plan(self, costs: Costs) -> Stride | None:
        """How many tokens each row drafts; a stride where that can still change while they are drafted.

        A step of the longest is a step for all: who is not verified keeps pace.
        """
        verified = [row for row in self.rows if row.method.verifies]
        drafting = self._drafter.owners
        asked = asks(self._drafter.device) and asks(self._verifier.device)
        paced = [row for row in drafting if row.is_paced]
        stride = Stride(costs, [row.pace for row in paced], asked) if paced else None
        pace = stride.length if stride else 1
        if not (asked and len(paced) == len(drafting)):
            stride = None
        for row in verified:
            row.plan(MAX_DRAFT_LENGTH if stride else pace)
        drafted = [row.draft_length for row in verified if row.method.drafts]
        longest = max(drafted, default=1 if verified else UNVERIFIED)
        for row in self.rows:
            if not row.method.verifies:
                row.plan(longest)
        return stride

    def _round(self, costs: Costs, stride: Stride | None) -> list[tuple[Row, Round | Exception]]:
        slow = self._unsettled
        step = Step(self.rows, self._drafter, self._verifier, stride)
        step.run()
        if step.width and step.passes and slow == self._unsettled:
            rest = step.seconds - step.drafter_seconds
            costs.note(step.width, step.passes, step.drafter_seconds, rest)
        results = list(step.rounds())
        for row, outcome in results:
            if isinstance(outcome, Exception):
                self._drop(row)
            else:
                self._record(row, outcome)
        return sorted(results, key=lambda result: result[0].index)

    @property
    def _unsettled(self) -> int:
        """Passes so far that say nothing of what others will take."""
        return self._drafter.unsettled + self._verifier.unsettled

    def _record(self, row: Row, round_: Round) -> None:
        run = row.run
        run.rounds.append(round_)
        run.seconds += round_.seconds
        run.verifier_calls += row.method.verifies
        run.drafter_calls += len(round_.proposals)
        row.pace.note(round_.examined, round_.accepted, row.sure)
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


def _deciding_threads(numbers: int) -> int:
    """Threads for arithmetic on so many numbers: waking others takes longer than a few vocabularies."""
    return 1 if numbers < _MANY else budget()


def _work(row: Row) -> int:
    """Bytes that a row's part of a round takes, for each token of the vocabulary."""
    asked = row.request.draft_length
    each = _MORE_WORK if row.truncates or row.request.inspect else _WORK
    return each * (MAX_DRAFT_LENGTH if asked == AUTO else asked)


def _common(sequences: Sequence[list[int]]) -> int:
    """How many ids all sequences begin with alike."""
    return alike(min(sequences), max(sequences))
