"""The plan of a round: which sequences draft, how many tokens each, and which are decided together.

Knows sequences and their settings; runs no model and decides nothing.

A round of draft length K takes K drafter passes and one verifier pass over K tokens per sequence. It emits 1 + a + … + a^(K−1) tokens
per sequence, where a is the acceptance rate. If K is left to the engine ("auto"), the engine maximises tokens per second, from the pair's
pass times and one assumed acceptance rate. On a CPU, where the host can read a confidence without waiting, such a draft also ends after a
token of low confidence, as with transformers' `assistant_confidence_threshold`. K never changes a text, only its speed (law 2).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from specviz.core import gumbel
from specviz.core.method import Method
from specviz.core.methods import METHODS
from specviz.core.sampling import RESAMPLE
from specviz.engine.sequence import Sequence
from specviz.runtime.pass_times import PassTimes
from specviz.runtime.runner import Runner
from specviz.schema.settings import AUTO, MAX_DRAFT_LENGTH

ACCEPTANCE = 0.75
"""The acceptance rate assumed when the engine chooses K."""
UNVERIFIED = 8
"""The draft length if no verifier runs: long enough that a round's fixed cost does not matter."""


@dataclass(frozen=True)
class Plan:
    """What a round is going to do.

    Attributes:
        lengths: K of each sequence.
        found: the draft tokens that a lookup found for each sequence; None if a model drafts.
        drafter_slots, verifier_slots: slots of the sequences that draft, and of those that are verified. Drafters' are counted without
            sequences for which a lookup found nothing.
        noise: exponentials [K, V] of the next positions of sequences whose method shares noise.
    """

    lengths: dict[Sequence, int]
    found: dict[Sequence, list[int]] | None
    drafter_slots: dict[Sequence, int]
    verifier_slots: dict[Sequence, int]
    noise: dict[Sequence, np.ndarray]

    def groups(self) -> list[tuple[Method, list[Sequence]]]:
        """The sequences that are decided together: of one method and rule, and with greedy drafts or without.

        Those that sit the draft out are decided as verifier_only, with the noise of their own method.
        """
        members = defaultdict[Any, list[Sequence]](list)
        for each in self.lengths:
            drafts = each in self.drafter_slots
            method = METHODS["verifier_only"] if each.method.drafts and not drafts else each.method
            members[method, each.method.name, each.request.rule, each.greedy_drafts].append(each)
        return [(method, group) for (method, *_), group in members.items()]


def plan_round(drafter: Runner, verifier: Runner, automatic: int) -> Plan:
    """Plan the next round of all sequences that have slots. `automatic` is K where it is left to the engine."""
    sequences: list[Sequence] = list(dict.fromkeys([*verifier.owners, *drafter.owners]))
    lengths, found = _draft_lengths(sequences, automatic), None
    drafting: list[Sequence] = drafter.owners
    if drafter.looks_up:
        # Whether nothing is found at a position depends on the tokens before it alone, so K does not show there either (law 2).
        found = {each: drafter.propose(each.ids, lengths[each], each.banned) for each in drafting}
        lengths |= {each: max(1, len(tokens)) for each, tokens in found.items()}
        drafting = [each for each in drafting if found[each]]
    longest = max(lengths.values())
    noise = {
        each: gumbel.noise(each.next_uniforms(RESAMPLE, longest), drafter.vocabulary_size)
        for each in sequences
        if each.method.shares_noise
    }
    drafter_slots, verifier_slots = (
        {each: slot for slot, each in enumerate(owners)} for owners in (drafting, verifier.owners)
    )
    return Plan(lengths, found, drafter_slots, verifier_slots, noise)


def _draft_lengths(sequences: list[Sequence], automatic: int) -> dict[Sequence, int]:
    """K of each sequence. Unverified ones that leave K to the engine get the longest K of the others, which sets the number of passes."""

    def length(sequence: Sequence, automatic: int) -> int:
        asked = sequence.request.draft_length
        return min(automatic if asked == AUTO else asked, sequence.tokens_left)

    verified = [each for each in sequences if each.method.verifies]
    lengths = {each: length(each, automatic) for each in verified}
    longest = max((lengths[each] for each in verified if each.method.drafts), default=1)
    unverified = longest if verified else UNVERIFIED
    return lengths | {each: length(each, unverified) for each in sequences if not each.method.verifies}


# ---- the draft length


@lru_cache
def best_draft_length(times: PassTimes, sequences: int) -> int:
    """The K at which this many concurrent sequences emit the most tokens per second.

    At least 2 for a single sequence, which gains nothing from one draft token per round; pass times measured on a busy machine may say 1.
    """

    def speed(length: int) -> float:
        seconds = length * times.draft(sequences) + times.verify(sequences * length)
        return sequences * expected_tokens(ACCEPTANCE, length) / seconds

    return max(range(2 if sequences == 1 else 1, MAX_DRAFT_LENGTH + 1), key=speed)


def expected_tokens(acceptance: float, draft_length: int) -> float:
    """Tokens that a round of draft length K emits at a constant acceptance rate: 1 + a + … + a^(K−1)."""
    return sum(acceptance**step for step in range(draft_length))
