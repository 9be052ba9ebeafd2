"""The draft length K of a round, where a request leaves it to the engine ("auto").

A round of draft length K takes K drafter passes and one verifier pass; K − 1, where the K-th waits to be needed and the first K − 1
draft tokens are not all accepted. It emits 1 + a + a·b + a·b² + … tokens (K terms), where a is the probability that its first
draft token is accepted and b that one after an accepted one is. Both are estimated from the sequence's own rounds, costs
from the engine's; K maximises tokens per second. Where reading draft probabilities costs nothing (CPU), drafting goes on
for as long as the drafter is confident enough, judged by how often draft tokens of that confidence were accepted in all texts of
such settings. Sequences of a batch share their rounds, and so one K, unless a drafter draws in one go: then each stops where its own next
draft token does not pay. K never changes a text, only its speed (law 2). Knows no model and no token.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from itertools import accumulate, pairwise
from math import prod

from specviz.engine.round_costs import BatchCosts, RoundCosts
from specviz.runtime.stopping import Stopping
from specviz.schema.settings import MAX_DRAFT_LENGTH

_DECAY = 0.97
"""What remains of an observation's weight one observation later: about thirty count."""
_PRIOR_ACCEPTANCE, _PRIOR_WEIGHT = 0.5, 2.0
"""The acceptance expected before the first observation, and how many observations that counts for; it decays like them."""
_CONFIDENCE_BINS, _CONFIDENCE_PRIOR, _CONFIDENCE_WEIGHT, _CONFIDENCE_DECAY = 16, (0.25, 1.0), 8.0, 0.999
"""Classes that draft tokens are sorted into by the drafter's confidence; the acceptance expected at confidences 0 and 1, about as the
embedded pair has it at all temperatures; the weight of that expectation; and of what has been observed, what remains one later."""
_FIRST_LENGTHS = (4, 2)
"""Draft lengths of an engine's first rounds, from which drafting and verifying costs are estimated."""
_FIRST_OF_SEVERAL = 2
"""The draft length of a first round of several sequences: there one draft token more of each is dear, and tells enough."""

UNVERIFIED = 8
"""The draft length where no verifier runs: long enough for a round's own cost not to matter."""


class DecayingRate:
    """A probability, estimated from recent outcomes."""

    def __init__(self) -> None:
        self._hits = self._seen = 0.0
        self._prior_weight = _PRIOR_WEIGHT

    def update(self, hit: bool) -> None:
        """Add an outcome."""
        self._hits, self._seen = _DECAY * self._hits + hit, _DECAY * self._seen + 1
        self._prior_weight *= _DECAY

    def estimate(self, prior: float) -> float:
        """The share of hits, drawn towards `prior` while few outcomes have been seen."""
        return (self._hits + self._prior_weight * prior) / (self._seen + self._prior_weight)


class AcceptanceByConfidence:
    """How often draft tokens are accepted, by the drafter's confidence.

    Attributes:
        rates: of each class of confidences, from 0 to 1.
    """

    def __init__(self) -> None:
        low, high = _CONFIDENCE_PRIOR
        self.rates = [low + (high - low) * (own + 0.5) / _CONFIDENCE_BINS for own in range(_CONFIDENCE_BINS)]
        self._hits = [_CONFIDENCE_WEIGHT * rate for rate in self.rates]
        self._seen = [_CONFIDENCE_WEIGHT] * _CONFIDENCE_BINS

    def update(self, confidences: Sequence[float], accepted: int) -> None:
        """Add the examined draft tokens of a round, of which the first `accepted` were."""
        for index, confidence in enumerate(confidences):
            own = _class(confidence)
            self._hits[own] = _CONFIDENCE_DECAY * self._hits[own] + (index < accepted)
            self._seen[own] = _CONFIDENCE_DECAY * self._seen[own] + 1
            self.rates[own] = self._hits[own] / self._seen[own]

    def at(self, confidence: float) -> float:
        """The probability that a draft token of that confidence, in [0, 1], is accepted."""
        return self.rates[_class(confidence)]


def _class(confidence: float) -> int:
    return min(int(confidence * _CONFIDENCE_BINS), _CONFIDENCE_BINS - 1)


class AcceptanceHistory:
    """How often one sequence's draft tokens are accepted: the first of a round, and later ones."""

    def __init__(self) -> None:
        self._first, self._later = DecayingRate(), DecayingRate()

    def update(self, examined: int, accepted: int) -> None:
        """Add a round: draft tokens examined and accepted."""
        for index in range(examined):
            (self._later if index else self._first).update(index < accepted)

    def first(self) -> float:
        """The probability that a round's first draft token is accepted."""
        return self._first.estimate(_PRIOR_ACCEPTANCE)

    def later(self) -> float:
        """The probability that a draft token after an accepted one is accepted."""
        return self._later.estimate(self.first())

    def expected_tokens(self) -> list[float]:
        """Tokens that a round of draft length 1, 2, … MAX_DRAFT_LENGTH is expected to emit."""
        expected, survival, later = [1.0], self.first(), self.later()
        for _ in range(MAX_DRAFT_LENGTH - 1):
            expected.append(expected[-1] + survival)
            survival *= later
        return expected


Kind = tuple[int, int, bool, bool]
"""Of rounds: how many sequences drafted and how many were verified, to the next power of two; whether a rule decided, and draft tokens
were explained, of any of them."""


class DraftingStatistics:
    """What an engine has seen of drafting.

    Attributes:
        costs, batch_costs: of rounds, by their kind.
        acceptance: of draft tokens, by settings of a request.
    """

    def __init__(self) -> None:
        self.costs: defaultdict[Kind, RoundCosts] = defaultdict(RoundCosts)
        self.batch_costs: defaultdict[Kind, BatchCosts] = defaultdict(BatchCosts)
        self.acceptance: defaultdict[Hashable, AcceptanceByConfidence] = defaultdict(AcceptanceByConfidence)


def expected_tokens(acceptance: float, draft_length: int) -> float:
    """Tokens that a round of draft length K emits at a constant acceptance: 1 + a + … + a^(K−1)."""
    return sum(acceptance**step for step in range(draft_length))


def expected_passes(acceptance: float, draft_length: int) -> float:
    """Drafter passes of such a round, whose K-th draft token is drafted only if all others are accepted: K − 1 + a^(K−1)."""
    return draft_length - 1 + acceptance ** (draft_length - 1)


class AdaptiveDraftLength:
    """The draft length of the next round of some sequences that share it."""

    def __init__(
        self,
        costs: RoundCosts,
        histories: Sequence[AcceptanceHistory],
        by_confidence: Sequence[AcceptanceByConfidence],
        holds_back: bool = False,
    ) -> None:
        """Find the best K to fix beforehand, `length`.

        Args:
            costs: of recent rounds.
            histories: of the sequences that draft.
            by_confidence: of texts of their settings.
            holds_back: whether the K-th draft token is drafted after the verifier pass, if any sequence needs it then.
        """
        self._histories, self._by_confidence, self._holds_back = histories, by_confidence, holds_back
        self._exploring = costs.rounds_seen < len(_FIRST_LENGTHS)
        if self._exploring:
            self.length = _FIRST_LENGTHS[costs.rounds_seen]
            return
        each = [history.expected_tokens() for history in histories]
        self._drafter_pass, self._remaining = costs.estimates()
        self._speed = 0.0
        for length, remaining in enumerate(self._remaining, 1):
            passes = float(length)
            if holds_back and length > 1:
                passes -= prod(1 - (tokens[length - 1] - tokens[length - 2]) for tokens in each)
            speed = sum(tokens[length - 1] for tokens in each) / (passes * self._drafter_pass + remaining)
            if speed > self._speed:
                self.length, self._speed = length, speed

    def stopping(self) -> Stopping | None:
        """What `stop` goes by where a drafter draws one sequence's draft tokens in one go; None where K is fixed beforehand."""
        if self._exploring:
            return None
        needed = [
            self._speed * (self._drafter_pass + (after - before))
            for before, after in pairwise(self._remaining)
        ]
        return Stopping([True], needed, [each.rates for each in self._by_confidence])

    def stop(self, confidences: Sequence[Sequence[float]]) -> int | None:
        """K, once enough is drafted for the verifier pass; None where another draft token before it will pay.

        A draft token pays if it brings tokens faster than rounds do on average.

        Args:
            confidences: of each sequence's draft tokens so far.
        """
        drafted, later = len(confidences[0]), int(self._holds_back)
        if drafted == MAX_DRAFT_LENGTH - later:
            return MAX_DRAFT_LENGTH
        if self._exploring:
            return self.length if drafted >= self.length - later else None
        known = zip(self._by_confidence, confidences, strict=True)
        survival = [prod(map(rates.at, own)) for rates, own in known]
        wider = self._remaining[drafted] - self._remaining[drafted - 1]
        if not self._holds_back:
            return None if sum(survival) > self._speed * (self._drafter_pass + wider) else drafted
        none_survives = prod(1 - chance for chance in survival)
        widest = self._remaining[drafted + 1] - self._remaining[drafted]
        if drafted == 1 and sum(survival) < self._speed * (self._drafter_pass * (1 - none_survives) + wider):
            return 1
        further = [chance * own.later() for chance, own in zip(survival, self._histories, strict=True)]
        seconds = self._drafter_pass * (1 + none_survives - prod(1 - chance for chance in further)) + widest
        return None if sum(further) > self._speed * seconds else drafted + 1


class OwnDraftLengths:
    """The draft lengths of the next round of several sequences, each with its own, for a drafter that draws in one go."""

    def __init__(
        self,
        costs: BatchCosts,
        chooses: Sequence[bool],
        histories: Sequence[AcceptanceHistory],
        by_confidence: Sequence[AcceptanceByConfidence],
        others: tuple[int, int],
    ) -> None:
        """Find how fast rounds are with the best K of each to fix beforehand; `length` is the largest of these.

        Args:
            costs: of recent rounds.
            chooses: whether K is left to the engine, of each sequence that drafts.
            histories: of those of which it is.
            by_confidence: of texts of their settings.
            others: how many other sequences there are, and the tokens that the verifier reads of them.
        """
        self._chooses, self._by_confidence = chooses, by_confidence
        self._exploring = costs.rounds_seen == 0
        if self._exploring:
            self.length = _FIRST_OF_SEVERAL
            return
        sequences, rest = len(histories) + others[0], len(histories) + others[1]
        seconds, self._token, self._pass = costs.estimates(sequences)
        expected = [history.expected_tokens() for history in histories]
        tokens, seconds = float(sequences), seconds + self._token * rest
        self.length, self._speed = 1, tokens / seconds
        for length in range(2, MAX_DRAFT_LENGTH + 1):  # each brings less than the one before
            gains = sorted((each[length - 1] - each[length - 2] for each in expected), reverse=True)
            totals = [
                (tokens + gain, seconds + self._pass + self._token * count)
                for count, gain in enumerate(accumulate(gains), 1)
            ]
            tokens, seconds = max(totals, key=lambda both: both[0] / both[1])
            if tokens / seconds <= self._speed:
                break
            self.length, self._speed = length, tokens / seconds

    def stopping(self) -> Stopping | None:
        """When a sequence stops: where its next draft token brings fewer tokens a second than rounds do, or all next ones together, with
        the drafter's pass that they take; None where K is `length`.
        """
        if self._exploring:
            return None
        needed = [self._speed * self._token] * (MAX_DRAFT_LENGTH - 1)
        rates = [each.rates for each in self._by_confidence]
        return Stopping(self._chooses, needed, rates, self._speed * self._pass)


class OneDraftToken:
    """K is 1, of whom it is left to the engine: for a round that is to be over soon."""

    length = 1

    def stopping(self) -> None:
        """K is fixed beforehand."""

    def stop(self, confidences: Sequence[Sequence[float]]) -> int:
        """K."""
        return self.length
