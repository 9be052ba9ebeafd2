"""The draft length K of a round, where a request leaves it to the engine ("auto").

A round of draft length K takes K drafter passes and one verifier pass; K − 1, where the K-th waits to be needed and the first K − 1
draft tokens are not all accepted. It emits 1 + a + a·b + a·b² + … tokens (K terms), where a is the probability that its first
draft token is accepted and b that one after an accepted one is. Both are estimated from the sequence's own rounds, costs
from the engine's; K maximises tokens per second. Where reading draft probabilities costs nothing (CPU), drafting goes on
for as long as the drafter is confident enough, judged by how often draft tokens of that confidence were accepted in all texts of
such settings. Sequences of a batch share their rounds, and so one K. K never changes a text, only its speed (law 2). Knows no model
and no token.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable, Iterable, Sequence
from math import prod

from specviz.runtime.stopping import Stopping
from specviz.schema.settings import MAX_DRAFT_LENGTH

_DECAY = 0.97
"""What remains of an observation's weight one observation later: about thirty count."""
_PRIOR_ACCEPTANCE, _PRIOR_WEIGHT = 0.5, 2.0
"""The acceptance expected before the first observation, and how many observations that counts for; it decays like them."""
_CONFIDENCE_BINS, _CONFIDENCE_PRIOR, _CONFIDENCE_WEIGHT, _CONFIDENCE_DECAY = 16, (0.25, 1.0), 8.0, 0.999
"""Classes that draft tokens are sorted into by the drafter's confidence; the acceptance expected at confidences 0 and 1, about as the
embedded pair has it at all temperatures; the weight of that expectation; and of what has been observed, what remains one later."""
_RECENT, _YOUNG, _REFRESHED = 128, 32, 16
"""Rounds whose times are kept, so that a slow one is forgotten; and after how many estimates are made anew no more after each, and how often
then.
"""
_USUAL_SLOPE, _SLOPE_WEIGHT = 0.03, 4.0
"""Expected cost of one more token in a verifier pass, as a share of the pass, and the weight of what is expected beside what was seen."""
_SLOW = 3.0
"""Rounds that took so many times as long as most, by the round and by the token, were held up: they say nothing of what drafting costs."""
_TOLD, _FORGOTTEN = 3, 0.1
"""Rounds of a length from which on it is believed; how much of what was found is forgotten with each estimate that finds only one such
length, and so nothing of what another costs.
"""
_FIRST_LENGTHS = (4, 2)
"""Draft lengths of an engine's first rounds, from which drafting and verifying costs are estimated."""

UNVERIFIED = 8
"""The draft length where no verifier runs: long enough for a round's own cost not to matter."""


class RoundCosts:
    """Recent costs of rounds: seconds of drafting by passes, and of the rest of a round by its draft length."""

    def __init__(self) -> None:
        self.rounds_seen = 0
        self._drafting: deque[tuple[int, float]] = deque(maxlen=_RECENT)
        self._remaining: deque[tuple[int, float]] = deque(maxlen=_RECENT)
        self._estimates: tuple[float, list[float]] | None = None
        self._slope: float | None = None  # of one more token, as lengths that were believed had it

    def update(
        self, draft_length: int, passes: int, drafter_seconds: float, remaining_seconds: float
    ) -> None:
        """Add a round: its draft length, its drafter passes, their seconds, and the seconds of all else."""
        self.rounds_seen += 1
        self._drafting.append((passes, drafter_seconds))
        self._remaining.append((draft_length, remaining_seconds))
        if self.rounds_seen <= _YOUNG or self.rounds_seen % _REFRESHED == 0:
            self._estimates = None

    def estimates(self) -> tuple[float, list[float]]:
        """Expected seconds of one more drafter pass, and of all else in a round of draft length 1, 2, … MAX_DRAFT_LENGTH, from the recent
        ones; kept for a few rounds, since making them takes time too.

        The first pass after the verifier's finds its weights in memory, those after it in the caches: what it takes longer belongs
        to all else.
        """
        if (found := self._estimates) is None:
            drafting, others = _undisturbed(self._drafting), _undisturbed(self._remaining)
            one = _middle(seconds / passes for passes, seconds in drafting)
            first, more = _line(_grouped(drafting), one)
            if more > one:
                first, more = 0.0, one
            found = self._estimates = more, [first + each for each in self._by_length(others)]
        return found

    def _by_length(self, observed: list[tuple[int, float]]) -> list[float]:
        """Seconds of a round without its drafting, of each length, from the most frequent one on: what those of a length took, drawn towards
        what the length beside it leads to expect while few have been seen.
        """
        times = _grouped(observed)
        common = max(times, key=lambda length: len(times[length]))
        told = {length for length, each in times.items() if len(each) >= _TOLD}
        usual = _USUAL_SLOPE * _middle(times[common])
        _, slope = _line(times, usual if self._slope is None else self._slope)
        if len(told) > 1:
            self._slope = slope
        elif self._slope is not None:
            self._slope += _FORGOTTEN * (usual - self._slope)

        def drawn(length: int, expected: float) -> float:
            own = times.get(length)
            if not own:
                return expected
            return (len(own) * _middle(own) + _SLOPE_WEIGHT * expected) / (len(own) + _SLOPE_WEIGHT)

        found, step, least = {common: _middle(times[common])}, slope, min(map(min, times.values())) / 2
        for length in range(common + 1, MAX_DRAFT_LENGTH + 1):
            found[length] = max(found[length - 1], drawn(length, found[length - 1] + step))
            if length in told:
                step = found[length] - found[length - 1]  # a pass grows dearer with each token
        for length in range(common - 1, 0, -1):
            found[length] = max(least, min(found[length + 1], drawn(length, found[length + 1] - slope)))
        return [found[length] for length in range(1, MAX_DRAFT_LENGTH + 1)]


def _undisturbed(observed: Iterable[tuple[int, float]]) -> list[tuple[int, float]]:
    """Those that were not held up, by what the faster of them take."""
    each = list(observed)
    usual, a_token = (
        sorted(times)[len(each) // 4] for times in ([y for _, y in each], [y / x for x, y in each])
    )
    return [(x, y) for x, y in each if y <= _SLOW * usual or y / x <= _SLOW * a_token]


def _grouped(observed: Iterable[tuple[int, float]]) -> dict[int, list[float]]:
    found: defaultdict[int, list[float]] = defaultdict(list)
    for x, y in observed:
        found[x].append(y)
    return found


def _middle(values: Iterable[float]) -> float:
    """Their median, the higher one of two."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


def _line(observed: dict[int, list[float]], usual_slope: float) -> tuple[float, float]:
    """Level at 0 and slope of a line through the medians at each x; the slope, at least 0, is drawn towards the usual one."""
    points = [(x, _middle(each), len(each)) for x, each in observed.items()]
    total = sum(weight for *_, weight in points)
    mean = sum(weight * x for x, _, weight in points) / total
    level = sum(weight * y for _, y, weight in points) / total
    covariance = sum(weight * (x - mean) * (y - level) for x, y, weight in points)
    variance = sum(weight * (x - mean) ** 2 for x, _, weight in points)
    slope = max(0.0, (covariance + _SLOPE_WEIGHT * usual_slope) / (variance + _SLOPE_WEIGHT))
    return level - slope * mean, slope


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


class DraftingStatistics:
    """What an engine has seen of drafting.

    Attributes:
        costs: of rounds, by how many sequences drafted and how many were verified, to the next power of two; and by whether a rule
            decided, and draft tokens were explained, of any of them.
        acceptance: of draft tokens, by settings of a request.
    """

    def __init__(self) -> None:
        self.costs: defaultdict[tuple[int, int, bool, bool], RoundCosts] = defaultdict(RoundCosts)
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

    def stopping(self) -> Stopping:
        """What `stop` goes by, for a drafter that draws in one go."""
        if self._exploring:
            return Stopping(self.length)
        accepted = [each.rates for each in self._by_confidence]
        return Stopping(0, self._drafter_pass, self._speed, self._remaining, accepted)

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
