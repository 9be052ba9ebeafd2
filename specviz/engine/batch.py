"""A batch: sequences that are prefilled, then decoded together, one round after another.

Sequences may differ in method, lenience, K, length and seed; none of this changes another sequence's text (law 3). Knows sequences and the
two models' runners; does not know who waits for admission, nor why a sequence is removed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from collections.abc import Sequence as SequenceOf
from contextlib import suppress
from itertools import chain, pairwise

import torch

from specviz.engine.draft_length import best_draft_length
from specviz.engine.record import Outcome
from specviz.engine.round import run_round
from specviz.engine.sequence import Sequence
from specviz.errors import is_out_of_memory
from specviz.models.pair import ModelPair
from specviz.runtime.memory import give_back_memory, spare_memory, synchronize
from specviz.runtime.prefix_cache import LONGEST, SHORTEST, PrefixCache, common_length
from specviz.runtime.runner import Runner
from specviz.schema.settings import AUTO, MAX_DRAFT_LENGTH

log = logging.getLogger(__name__)

_ADMISSION_SHARE = 0.9
"""The share of a GPU's spare memory that newly admitted sequences may take."""
_ROUND_BYTES, _ROUND_BYTES_MORE = 48, 96
"""Bytes that a round takes per draft token and vocabulary entry: logits, distributions, cumulative sums. The larger number applies if
distributions are truncated, inspected or drawn from with shared noise."""


class Batch:
    """Sequences that share their forward passes."""

    def __init__(
        self, pair: ModelPair, prefixes: tuple[PrefixCache, PrefixCache] | None = None, *, apart: bool = False
    ) -> None:
        """An empty batch.

        Args:
            pair: the pair whose models run.
            prefixes: the drafter's and the verifier's prefix cache, which are read and updated; None to use none.
            apart: whether this is a short-lived batch beside another batch, whose workspaces it must not use.
        """
        self.pair = pair
        self._prefixes = prefixes
        self._gpu = None if apart else pair.verifier_model.gpu
        self.sequences: list[Sequence] = []
        self._drafter, self._verifier = pair.runners(apart=apart)

    @property
    def longest(self) -> int:
        """Number of positions that the longest sequence may need."""
        return max((sequence.length_limit for sequence in self.sequences), default=0)

    @property
    def is_invariant(self) -> bool:
        """Whether both models are batch-invariant: no bit depends on which sequences share a pass."""
        return self._drafter.is_invariant and self._verifier.is_invariant

    # ---- memory --------------------------------------------------------------------------------------------

    def room_for(self, sequences: list[Sequence], reading: SequenceOf[Sequence] = ()) -> int:
        """How many of `sequences`, counted from the first, fit into the GPU's memory beside the batch and the sequences in prefill.

        At least one if the batch and prefill are empty, since waiting would not help. All if the pair is not on a single GPU.

        Args:
            sequences: those that wait for admission, in order.
            reading: the sequences in prefill. Memory that they have already allocated counts twice.
        """
        if self._gpu is None:
            return len(sequences)
        spare = _ADMISSION_SHARE * spare_memory(self._gpu)
        for count in range(len(sequences), 0, -1):
            if self._bytes_needed([*reading, *sequences[:count]]) <= spare:
                return count
        if self.sequences or reading:
            return 0
        self.free_captures()
        return 1

    def _bytes_needed(self, sequences: list[Sequence]) -> int:
        """Bytes that admitting sequences would take: slots, buffers to prefill them in, and a round's distributions."""
        longest = max(sequence.length_limit for sequence in sequences)
        prompt = max(sequence.prompt_length for sequence in sequences)
        slots = 0
        for model, runs in ((self._drafter, "drafts"), (self._verifier, "verifies")):
            count = sum(getattr(sequence.method, runs) for sequence in sequences)
            slots += model.growth(count, max(longest, self.longest))
            slots += count * longest * model.position_bytes
            slots += count * min(model.chunk, prompt) * model.reading_bytes(longest)
        return slots + sum(map(_round_bytes, [*self.sequences, *sequences])) * self.pair.vocabulary_size

    def free_memory(self) -> bool:
        """Free the prefix caches or, if they are empty, captured passes (CUDA graphs). Returns whether anything was freed."""
        cleared = [cache.clear() for cache in self._prefixes or ()]
        if any(cleared):
            log.warning("memory ran out: prefix caches were cleared")
            give_back_memory()
            return True
        return self.free_captures()

    def free_captures(self) -> bool:
        """Free the pair's captured passes, and capture no passes until the batch is empty. Returns whether anything was freed."""
        freed = [model.free_memory() for model in (self.pair.drafter_model, self.pair.verifier_model)]
        if any(freed):
            log.warning("memory ran out: forward passes are not captured for a while")
            give_back_memory()
        return any(freed)

    # ---- prefill -------------------------------------------------------------------------------------------

    def read(self, sequences: list[Sequence]) -> Iterator[None]:
        """Prefill: admit sequences and read their prompts except for the last token, one chunk per pass.

        Chunks end at multiples of the runner's `chunk`, whatever else is in the batch (law 3).
        Yields after every pass, so that other work can be done in between.
        """
        if any(each.chooses_draft_length for each in sequences):
            self.pair.pass_times  # noqa: B018  # measured before slots are taken
        self.sequences += sequences
        drafting = [sequence for sequence in sequences if sequence.method.drafts]
        verifying = [sequence for sequence in sequences if sequence.method.verifies]
        of_drafter, of_verifier = self._prefixes or (None, None)
        passes = chain(
            _prefill(self._drafter, drafting, self.longest, of_drafter),
            _prefill(self._verifier, verifying, self.longest, of_verifier),
        )
        more = True
        while more:
            begin = time.perf_counter()
            with torch.inference_mode():
                more = next(passes, False)  # True after a pass, False at the end
            synchronize(self._verifier.device)
            for sequence in sequences:
                sequence.run.prefill_seconds += time.perf_counter() - begin
                sequence.run.seconds = sequence.run.prefill_seconds
            if more:
                yield

    def passes(self, sequences: list[Sequence]) -> int:
        """An estimate of the passes of `read`, from the longest prompt. Cached prefixes save passes; a common prefix may add one per model."""
        longest = max(sequence.prompt_length for sequence in sequences)
        return sum(-(-longest // model.chunk) for model in (self._drafter, self._verifier))

    # ---- membership ----------------------------------------------------------------------------------------

    @torch.inference_mode()
    def take(self, other: Batch) -> None:
        """Take over all sequences of another batch of the same pair, which is then empty."""
        try:
            self._drafter.merge(other._drafter)
            self._verifier.merge(other._verifier)
        except Exception:
            for sequence in other.sequences:
                self._drafter.release(sequence)
                self._verifier.release(sequence)
            raise
        self.sequences += other.sequences
        other.sequences = []

    @torch.inference_mode()
    def split(self) -> list[Batch]:
        """Move each sequence into a batch of its own; this batch is then empty."""
        alone = []
        for sequence in self.sequences:
            batch = Batch(self.pair, apart=True)
            batch.sequences = [sequence]
            batch._drafter.copy(sequence, self._drafter)
            batch._verifier.copy(sequence, self._verifier)
            alone.append(batch)
        self.clear()
        return alone

    @torch.inference_mode()
    def remove(self, sequence: Sequence, *, failed: bool = False) -> None:
        """Remove a sequence and free its slots, which may hold numbers that are not finite if it `failed`.

        Unless it failed, its run gets the logits that the request asked for, and its first `LONGEST` tokens go into the prefix caches of
        batch-invariant models. If memory runs out for the logits, the sequence is removed all the same, and the error is raised.
        """
        self.sequences.remove(sequence)
        failed = failed or sequence.run.stop_reason == "failed"
        try:
            if not failed:
                sequence.keep_logits()
                self._keep_prefix(sequence)
        finally:
            self._drafter.release(sequence, spoilt=failed)
            self._verifier.release(sequence, spoilt=failed)

    def _keep_prefix(self, sequence: Sequence) -> None:
        """Put a sequence's first tokens into the prefix caches, if memory allows."""
        read = sequence.ids[:-1][:LONGEST]
        with suppress(MemoryError, torch.OutOfMemoryError):
            for model, prefixes in zip((self._drafter, self._verifier), self._prefixes or (), strict=False):
                if model.is_invariant and sequence in model.owners and prefixes.wants(read):
                    prefixes.keep(read, model.save(model.owners.index(sequence), len(read)))

    def clear(self) -> None:
        """Remove all sequences and free all memory."""
        self.sequences = []
        self._drafter.clear()
        self._verifier.clear()

    # ---- decode --------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def step(self, *, short: bool = False) -> list[Outcome]:
        """Run one round for all sequences; finished and failed sequences leave the batch. If `short`, K is 1 where the engine chooses it.

        If memory runs out, the round is repeated as long as memory can be freed. If a forward pass fails, its error is raised and no
        sequence has changed, so the step can be tried again. If removing a sequence fails, its outcome has the error.
        """
        choosing = sum(each.chooses_draft_length for each in self.sequences)
        length = best_draft_length(self.pair.pass_times, choosing) if choosing and not short else 1
        while True:
            try:
                outcomes, seconds = run_round(self._drafter, self._verifier, length, self.pair.backend)
                break
            except Exception as error:
                if not (is_out_of_memory(error) and self.free_memory()):
                    raise
        found = [self._conclude(outcome, seconds.total) for outcome in outcomes]
        return sorted(found, key=lambda outcome: outcome.sequence.index)

    def _conclude(self, outcome: Outcome, seconds: float) -> Outcome:
        """Add a round to its sequence's run, and remove the sequence if it has ended or failed."""
        sequence, run = outcome.sequence, outcome.sequence.run
        if outcome.error is not None:
            self.remove(sequence, failed=True)
            return outcome
        run.seconds += seconds
        if outcome.round is not None:
            run.rounds.append(outcome.round)
        run.verifier_calls += sequence.method.verifies
        run.drafter_calls += outcome.drafted
        sequence.append(outcome.token_ids)
        try:
            if run.stop_reason:
                self.remove(sequence)
        except Exception as error:
            return Outcome(sequence, [], error=error)
        return outcome


def _round_bytes(sequence: Sequence) -> int:
    """Bytes per vocabulary entry that a round takes for one sequence."""
    asked = sequence.request.draft_length
    takes_more = sequence.sampling.truncates or sequence.request.inspect or sequence.method.shares_noise
    each = _ROUND_BYTES_MORE if takes_more else _ROUND_BYTES
    return each * (MAX_DRAFT_LENGTH if asked == AUTO else asked)


def _prefill(
    model: Runner, sequences: list[Sequence], length: int, prefixes: PrefixCache | None
) -> Iterator[bool]:
    """Admit sequences and read their prompts; a common prefix is read once, or restored from `prefixes`. Yields True after each pass.

    Args:
        length: most positions that a slot may need.
        prefixes: the prefix cache, which is read and updated; None to use none.
    """
    if not sequences:
        return
    slots = model.admit(list(sequences), length)
    counts = [sequence.prompt_length - 1 for sequence in sequences]
    prompts = [sequence.ids[:count] for sequence, count in zip(sequences, counts, strict=True)]
    shared = common_length(min(prompts), max(prompts))
    first, beginning = slots.start, prompts[0][:shared]
    saved, start = prefixes.find(beginning) if prefixes else (None, 0)
    if start:
        model.restore(first, saved, start)
    if len(sequences) > 1 and shared >= SHORTEST:
        yield from _read_chunks(model, prompts[:1], slice(first, first + 1), start, [shared])
        start = shared
    if len(sequences) > 1 and start:
        model.broadcast(slots, start)
    yield from _read_chunks(model, prompts, slots, start, counts)
    if prefixes and prefixes.wants(beginning):
        cached = beginning[:LONGEST]
        prefixes.keep(cached, model.save(first, len(cached)))


def _read_chunks(
    model: Runner, prompts: list[list[int]], slots: slice, start: int, counts: list[int]
) -> Iterator[bool]:
    """Prefill each prompt from position `start` up to its length in `counts`, one chunk per pass. Yields as `_prefill`."""
    end = max(counts)
    edges = [start, *range(start - start % model.chunk + model.chunk, end, model.chunk), end]
    for first, last in pairwise(edges if start < end else ()):
        rows = [ids[first : min(last, count)] for ids, count in zip(prompts, counts, strict=True)]
        tokens = torch.tensor([ids + [0] * (last - first - len(ids)) for ids in rows], device=model.device)
        positions = torch.arange(first, last, device=model.device).expand(len(prompts), -1)
        valid = None
        if min(counts) < last:
            valid = positions < torch.tensor(counts, device=model.device)[:, None]
        model.read(tokens, positions, visible=last, valid=valid, slots=slots)
        yield True
