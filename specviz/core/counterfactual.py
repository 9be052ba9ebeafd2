"""Counterfactuals: what the other methods, or another lenience, would have decided about the same draft tokens and coins (uniforms).

Two halves. `readings` runs on the device: it reads the few numbers per position that rules need from the distributions. `what_if`
runs on the host: it computes acceptance probabilities and critical leniences from one position's numbers. At a critical lenience the
verdict (coin < acceptance) changes, and it stays changed until the next critical lenience. Knows no model, no trace and no page.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specviz.core.distributions import Distributions
from specviz.core.expression.solve import Bound, Readings, at_lenience, solve_ratio, solve_test, value_of
from specviz.core.method import Method
from specviz.core.methods import METHODS, PAPER
from specviz.core.sampling import at
from specviz.core.target import Target

_Q, _P = ("(v)", "q", 0), ("(v)", "p", 0)


@lru_cache
def alternatives(own: Method) -> list[Method]:
    """The methods with which a run of the method `own` is compared: the paper's nine, and `own`. Empty unless `own.is_compared`."""
    if not own.is_compared:
        return []
    nine = [METHODS[name] for name in PAPER]
    return nine if own.name in PAPER else [*nine, own]


def leniences(own: Method, lenience: float) -> dict[str, float]:
    """The lenience at which each alternative is evaluated, by name: `lenience` for `own`, and its default for every other method."""
    return {
        other.name: lenience if other.name == own.name else other.default_lenience
        for other in alternatives(own)
    }


@lru_cache(512)
def critical_lenience(method: Method) -> Bound | None:
    """(readings, value) -> the smallest lenience at which the score `value` passes the test, or the coin `value` is below the ratio.

    None if the method has neither an expression nor a ratio, or it cannot be solved for the lenience.
    """
    if method.ratio:
        return solve_ratio(method.trees["ratio"], method.lenience_range)
    return solve_test(method.trees["test"], method.lenience_range) if method.expression else None


# ---- on the device


def readings(own: Target, tokens: Tensor, coins: Tensor) -> dict[Any, Tensor]:
    """The values [n] that `what_if` reads, by key, at positions [n] with the draft tokens `tokens` [n] and their `coins` [n]."""
    b = own.distributions
    found: dict[Any, Tensor] = {key: b.reading(key, tokens) for key in _keys(own.method)}
    least = torch.finfo(torch.float64).tiny
    # An untrusted token is accepted while the mass of q on all untrusted tokens is above this.
    q, p = found[_Q].double(), found[_P].double()
    share = torch.where(p > 0, coins.double() * q / p.clamp_min(least), math.inf)
    for method in alternatives(own.method):
        if (score := _token_score(method)) is None:
            continue
        if method is not own.method:
            deferral = Target.of(method, b, method.default_lenience).deferral
            assert deferral is not None
            found["deferred", method.name] = deferral.deferred.squeeze(-1)
        if critical_lenience(method) and ("crossing", score) not in found:
            # The token is rejected once the threshold falls to this score.
            found["crossing", score] = _crossing(b, score[1], share, found[score])
    if own.deferral is not None and own.deferral.judges_tokens:
        # The largest score that is not trusted, and the smallest that is.
        score, below = own.deferral.score, own.deferral.score < own.deferral.threshold
        found["untrusted"] = score.where(below, -math.inf).amax(-1)
        found["trusted"] = score.where(~below, math.inf).amin(-1)
    return found


def _crossing(b: Distributions, scores: str, share: Tensor, own: Tensor) -> Tensor:
    """The smallest score [n], float64, above `own` [n] such that the mass of q on this score and all lower ones exceeds `share` [n].

    −inf where the mass on scores up to `own` already exceeds `share`; inf where even the total mass does not. `own` holds the scores of
    the draft tokens. `scores` names the distribution of `b`, [n, V], whose probabilities are the scores.
    """
    score, weights = getattr(b, scores), b.q
    least = torch.nextafter(own, torch.full_like(own, math.inf))
    below = b.backend.mass_below(score, least[:, None], weights).double()[:, 0]
    if score.is_cpu:  # Few tokens score higher. Finding them on a GPU would make the host wait.
        some = torch.from_numpy(np.flatnonzero((score.numpy() > own.numpy()[:, None]).any(0)))
        score, weights = score[:, some], weights[:, some]
    above = score > own[:, None]
    order = score.masked_fill(~above, -math.inf).sort(-1)
    mass = weights.double().masked_fill(~above, 0).gather(-1, order.indices).cumsum(-1) + below[:, None]
    crossed = torch.nn.functional.pad(order.values.double(), (0, 1), value=math.inf)
    found = at(crossed, torch.searchsorted(mass, share[:, None], right=True)[:, 0])
    return found.masked_fill(below > share, -math.inf)


@lru_cache
def _keys(own: Method) -> list[Any]:
    """Keys of q(v), p(v) and all values in the trees of those alternatives that can be solved for the lenience."""
    solved = (method for method in alternatives(own) if critical_lenience(method))
    trees = (tree for method in solved for tree in method.trees.values())
    leaves = (node for tree in trees for node in tree.walk() if not node.parts)
    return list({_Q, _P} | {node.key for node in leaves if node.name not in ("number", "a")})


def _token_score(method: Method) -> Any:
    """The key of the score in a test that judges each token; None if the method has no such test, or the test is no single comparison."""
    score = method.trees.get("score")
    return score.key if score is not None and score.name == "(v)" else None


# ---- on the host


def what_if(
    own: Method, read: Readings, acceptance: float, coin: float
) -> tuple[list[float], list[list[float] | None]]:
    """What the `alternatives` of a method would have decided about a draft token, given its coin and the method's own `acceptance`.

    Returns:
        Two lists, one entry per alternative: its acceptance probability; its critical leniences (ascending, at most two; None if unknown).
    """
    others = alternatives(own)
    found = [acceptance if method is own else _acceptance(method, read) for method in others]
    return found, [_flips(method, read, coin) for method in others]


def _acceptance(method: Method, read: Readings) -> float:
    """Acceptance probability under one of the paper's methods at its default lenience."""
    if not (method.drafts and method.verifies):
        return float(not method.verifies)
    if method.ratio:
        ratio = _at_default(method, "ratio")(read)
        return min(1.0, ratio) if ratio == ratio else 0.0
    trusted = _at_default(method, "score")(read) >= _at_default(method, "threshold")(read)
    deferred = read["deferred", method.name] if _token_score(method) else float(not trusted)
    q = read[_Q]
    return min(1.0, (q * trusted + read[_P] * deferred) / max(q, math.ulp(0.0)))


@lru_cache
def _at_default(method: Method, tree: str) -> Callable[[Readings], float]:
    return value_of(at_lenience(method.trees[tree], method.default_lenience))


def _flips(method: Method, read: Readings, coin: float) -> list[float] | None:
    """The leniences at which the verdict on the draft token changes; None where they are unknown.

    Every verdict has one shape: accepted below the lenience `until`, rejected from `until` to `since`, accepted from `since` on.
    Both may lie outside the method's range. If `until` is not below `since`, the verdict never changes.
    """
    if not (method.drafts and method.verifies and method.has_lenience):
        return []
    critical, token_score = critical_lenience(method), _token_score(method)
    if critical is None:
        return None
    if method.ratio:
        until, since = -math.inf, critical(read, coin)
    elif token_score:
        until, since = critical(read, read["crossing", token_score]), critical(read, read[token_score])
    else:
        score = method.trees["score"]
        until = math.inf if coin * read[_Q] < read[_P] else -math.inf
        since = critical(read, 0.0 if score.has_lenience else value_of(score)(read))
    low, high = method.lenience_range
    if not until < since:
        return []
    # A change at the low end does not count: no lenience lies below it.
    return [end + 0.0 for end in (until, since) if low < end <= high and math.isfinite(end)]


def same_residual(method: Method, read: Readings, lenience: float) -> list[float] | None:
    """The lenience range in which a rejection draws the same replacement; None if the replacement does not depend on the lenience.

    A token rule draws the same replacement as long as it trusts the same set of tokens. If this range is unknown, or the method
    has a `share`, both ends are the run's `lenience`.
    """
    judges_tokens = "trusted" in read
    if not method.has_lenience or not (judges_tokens or method.share):
        return None
    critical = critical_lenience(method)
    if not judges_tokens or critical is None:
        return [lenience, lenience]
    low, high = method.lenience_range
    ends = (min(max(critical(read, end), low), high) for end in (read["trusted"], read["untrusted"]))
    most = sys.float_info.max  # a record holds no infinity
    return [min(max(end, -most), most) + 0.0 for end in ends]
