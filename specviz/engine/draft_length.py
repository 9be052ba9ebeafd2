"""How many tokens to draft in a round, where a request leaves that to the engine.

A round of K proposals takes K − 1 drafter passes and one verification, and another pass where all these proposals are
accepted. It emits 1 + a + a·b + a·b² + … tokens (K terms), where a is the chance that its first proposal is accepted and b
that one after an accepted one is. Both chances come from the request's own rounds, the costs from the engine's; K is what
makes tokens per second largest. Where it costs nothing to look at what was drafted, the drafter goes on for as long as it is
sure enough, by how often proposals of which it was as sure were accepted. Requests that are served together share their
rounds, and so K. Never changes a text, only its speed (law 2 of README). Knows no model and no token.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from math import prod
from statistics import median

from specviz.schema.settings import MAX_DRAFT_LENGTH

_MEMORY = 0.97
"""How much of an observed acceptance is left one observation later: about thirty count."""
_FIRST_GUESS, _GUESS_WEIGHT = 0.5, 2.0
"""The acceptance expected before there is any, and for how many observations it counts; it is forgotten like them."""
_SURE_BINS, _SURE_GUESS, _SURE_WEIGHT = 4, (0.3, 1.7), 8.0
"""Into how many classes proposals are sorted by their q1; the acceptance expected at q1 = 0 and 1, in units of that of all
first proposals, and how much that weighs."""
_RECENT = 32
"""Rounds whose times are kept: a slow one is forgotten after so many."""
_USUAL_SLOPE, _SLOPE_WEIGHT = 0.03, 4.0
"""What one more token is expected to add to a verification, as a share of it, and how much that expectation weighs."""
_OPENING = (4, 2)
"""Lengths of the first rounds of all, which say what drafting and verifying cost."""

UNVERIFIED = 8
"""The draft length where nobody verifies: enough for a round's own cost not to matter."""


class Costs:
    """What rounds took lately: seconds of a drafter pass, and of the rest by the tokens verified."""

    def __init__(self) -> None:
        self.rounds_seen = 0
        self._passes: deque[float] = deque(maxlen=_RECENT)
        self._rests: deque[tuple[int, float]] = deque(maxlen=_RECENT)

    def note(self, width: int, passes: int, drafter_seconds: float, rest_seconds: float) -> None:
        """A round that verified `width` tokens after so many drafter passes; `rest_seconds` are all but those passes."""
        self.rounds_seen += 1
        self._passes.append(drafter_seconds / passes)
        self._rests.append((width, rest_seconds))

    def one_pass(self) -> float:
        """Expected seconds of a drafter pass."""
        return median(self._passes)

    def rests(self) -> list[float]:
        """Expected seconds of all but drafting in a round of 1, 2, … MAX_DRAFT_LENGTH proposals: they grow evenly."""
        found: defaultdict[int, list[float]] = defaultdict(list)
        for width, seconds in list(self._rests):
            found[width].append(seconds)
        points = [(length, median(seconds), len(seconds)) for length, seconds in found.items()]
        total = sum(weight for *_, weight in points)
        middle = sum(weight * length for length, _, weight in points) / total
        level = sum(weight * seconds for _, seconds, weight in points) / total
        rise = sum(weight * (length - middle) * (seconds - level) for length, seconds, weight in points)
        spread = sum(weight * (length - middle) ** 2 for length, _, weight in points)
        slope = max(0.0, (rise + _SLOPE_WEIGHT * _USUAL_SLOPE * level) / (spread + _SLOPE_WEIGHT))
        least = min(seconds for _, seconds, _ in points)
        return [max(level + slope * (n - middle), least / 2) for n in range(1, MAX_DRAFT_LENGTH + 1)]


class Chance:
    """A probability, estimated from what happened lately."""

    def __init__(self, weight: float = _GUESS_WEIGHT) -> None:
        """Nothing has happened; a guess counts as `weight` observations."""
        self._hits = self._seen = 0.0
        self._weight = weight

    def note(self, hit: bool) -> None:
        """It came true, or not."""
        self._hits, self._seen = _MEMORY * self._hits + hit, _MEMORY * self._seen + 1
        self._weight *= _MEMORY

    def estimate(self, guess: float) -> float:
        """The share of hits, drawn towards `guess` while little has been seen."""
        return (self._hits + self._weight * guess) / (self._seen + self._weight)


class Pace:
    """How well the drafter does on one request."""

    def __init__(self) -> None:
        self._first, self._later = Chance(), Chance()
        self._sure = [Chance(_SURE_WEIGHT) for _ in range(_SURE_BINS)]

    def note(self, examined: int, accepted: int, sure: Sequence[float] = ()) -> None:
        """A round examined so many proposals and accepted so many; `sure` are their q1, as far as they are known."""
        for place in range(examined):
            (self._later if place else self._first).note(place < accepted)
        for place, q1 in enumerate(sure[:examined]):
            self._sure[_class(q1)].note(place < accepted)

    def first(self) -> float:
        """The chance that a first proposal is accepted."""
        return self._first.estimate(_FIRST_GUESS)

    def later(self) -> float:
        """The chance that a proposal after an accepted one is accepted."""
        return self._later.estimate(self.first())

    def of(self, q1: float) -> float:
        """The chance that a proposal is accepted to which the drafter gave `q1`, in [0, 1]."""
        middle, (low, high) = (_class(q1) + 0.5) / _SURE_BINS, _SURE_GUESS
        return self._sure[_class(q1)].estimate(min(1.0, self.first() * (low + (high - low) * middle)))

    def tokens(self) -> list[float]:
        """Tokens that a round of 1, 2, … proposals is expected to emit."""
        expected, survival, later = [1.0], self.first(), self.later()
        for _ in range(MAX_DRAFT_LENGTH - 1):
            expected.append(expected[-1] + survival)
            survival *= later
        return expected


def _class(q1: float) -> int:
    return min(int(q1 * _SURE_BINS), _SURE_BINS - 1)


def expected_tokens(acceptance: float, draft_length: int) -> float:
    """Tokens that a round of K proposals emits, each accepted with the same chance: 1 + a + … + a^(K−1)."""
    return sum(acceptance**step for step in range(draft_length))


def expected_passes(acceptance: float, draft_length: int) -> float:
    """Drafter passes of such a round, whose last is made only where all before were of use: K − 1 + a^(K−1)."""
    return draft_length - 1 + acceptance ** (draft_length - 1)


class Stride:
    """How far the next round of some requests drafts. Served together, they share its passes, and so K."""

    def __init__(self, costs: Costs, paces: Sequence[Pace], asks: bool = True) -> None:
        """Find the best K to fix beforehand; `asks`: whether the last pass is left out where no request has a use for it."""
        self._paces = paces
        self._opening = costs.rounds_seen < len(_OPENING)
        if self._opening:
            self.length = _OPENING[costs.rounds_seen]
            return
        each = [pace.tokens() for pace in paces]
        self._one_pass, self._rests = costs.one_pass(), costs.rests()
        speeds = []
        for length, rest in enumerate(self._rests, 1):
            passes = float(length)
            if asks and length > 1:
                passes -= prod(1 - (tokens[length - 1] - tokens[length - 2]) for tokens in each)
            speeds.append(sum(tokens[length - 1] for tokens in each) / (passes * self._one_pass + rest))
        self._speed = max(speeds)
        self.length = 1 + speeds.index(self._speed)

    def settle(self, sure: Sequence[Sequence[float]]) -> int | None:
        """K, once enough was drafted for the verification; None where one more proposal before it will pay.

        Args:
            sure: of each request q1 of what was drafted so far.

        A proposal pays if it brings tokens faster than rounds do in the mean.
        """
        drafted = len(sure[0])
        if drafted == MAX_DRAFT_LENGTH - 1:
            return MAX_DRAFT_LENGTH
        if self._opening:
            return self.length if drafted >= self.length - 1 else None
        alive = [prod(map(pace.of, own)) for pace, own in zip(self._paces, sure, strict=True)]
        idle = prod(1 - chance for chance in alive)
        wider, widest = (self._rests[drafted + n] - self._rests[drafted + n - 1] for n in (0, 1))
        if drafted == 1 and sum(alive) < self._speed * (self._one_pass * (1 - idle) + wider):
            return 1
        further = [chance * pace.later() for chance, pace in zip(alive, self._paces, strict=True)]
        more = self._one_pass * (1 + idle - prod(1 - chance for chance in further)) + widest
        return None if sum(further) > self._speed * more else drafted + 1
