"""The compiled loops of `loops`, for tensors: on a CPU, in float32, where numba is installed and works.

Each function here has a definition in torch beside its caller, which serves everywhere else: `serve` tells which of the two
it is. Both give the same numbers but for rounding. numba is imported when a tensor first asks. Knows no method and no model.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

log = logging.getLogger(__name__)


@cache
def loops() -> Any:
    """The module of compiled loops; None where numba is missing, broken or off. The first call compiles or loads its `FIRST`."""
    try:
        import numba

        from specviz.core import loops as compiled

        if not numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
            for name in reversed(compiled.FIRST):  # `compiling`'s other process begins at the other end
                getattr(compiled, name)
    except Exception as error:
        log.warning("numba cannot be used (%s): rounds take a millisecond or two more on a CPU", error)
        return None
    return None if numba.config.DISABLE_JIT else compiled  # type: ignore[attr-defined]


def serve(values: Tensor) -> bool:
    """Whether the functions of this module serve such values [..., V]."""
    return (
        values.dtype is torch.float32 and values.is_cpu and not values.requires_grad and loops() is not None
    )


def rows(values: Tensor) -> np.ndarray:
    """Addresses [n] of the rows of values [..., V], wherever they lie; valid as long as the values live."""
    *lead, size = values.shape
    assert size == 1 or values.stride(-1) == 1
    first = values.data_ptr()
    if lead.count(1) == len(lead):
        return np.array([first])
    return first + _offsets(tuple(lead), values.stride()[:-1])


@lru_cache
def _offsets(lead: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    """Bytes from the first row to each, in order."""
    places = zip(np.indices(lead), strides, strict=True)
    return sum((place * (4 * stride) for place, stride in places), np.zeros(lead, np.int64)).reshape(-1)


def _each(
    setting: float | Tensor | np.ndarray, lead: tuple[int, ...], dtype: type = np.float32
) -> np.ndarray:
    """A number, or what broadcasts to [*lead], as one number a row: [n]."""
    if isinstance(setting, float | int):
        return _constant(setting, math.prod(lead), dtype)
    each: np.ndarray = np.empty(lead, dtype)
    each[...] = setting.numpy() if isinstance(setting, Tensor) else setting
    return each.reshape(-1)


@lru_cache
def _constant(number: float, count: int, dtype: type) -> np.ndarray:
    return np.full(count, number, dtype)


def softmax(logits: Tensor, temperature: float | Tensor, out: Tensor | None = None) -> Tensor:
    """As `sampling.distribution` without truncation; in `out` where that is contiguous."""
    if out is None or not out.is_contiguous():
        out = torch.empty(logits.shape)
    _softmax(rows(logits), _each(temperature, logits.shape[:-1], np.float64), out)
    return out


def softmax_of_some(addresses: np.ndarray, size: int) -> Tensor:
    """`softmax` at temperature 1 of rows of logits that come as addresses [n], as `rows` gives them: [n, size]."""
    out = torch.empty(len(addresses), size)
    _softmax(addresses, _constant(1.0, len(addresses), np.float64), out)
    return out


def _softmax(addresses: np.ndarray, heat: np.ndarray, out: Tensor) -> None:
    loops().softmax(addresses, heat, out.numpy().reshape(-1, out.shape[-1]))


def spread(logits: Tensor, tokens: Tensor, size: int) -> Tensor:
    """As `runner._spread` of fused passes."""
    out = torch.empty(*logits.shape[:-1], size)
    for row, found in zip(rows(logits), rows(out), strict=True):
        loops().spread(row, tokens.data_ptr(), len(tokens), found, size)
    return out


def draw(weights: Tensor, uniform: Tensor) -> Tensor:
    """As `sampling.draw`."""
    tokens = np.empty(weights.shape[:-1], np.int64)
    loops().draw(
        rows(weights), weights.shape[-1], _each(uniform, tokens.shape, np.float64), tokens.reshape(-1)
    )
    return torch.from_numpy(tokens)


def _rule(
    lead: tuple[int, ...], score: Tensor | None, threshold: Tensor | None, deferred: Tensor | None
) -> tuple[np.ndarray, int, np.ndarray, np.ndarray]:
    """Rows of scores [n] and how many each has, threshold and deferred mass [n], of positions [*lead]; those of a verifier that decides
    alone where they are None.
    """
    if score is None or threshold is None or deferred is None:
        count = math.prod(lead)
        zeros = _constant(_ZERO.data_ptr(), count, np.int64)
        return zeros, 1, _constant(np.inf, count, np.float32), _constant(1.0, count, np.float32)
    limit, mass = (_each(each.numpy()[..., 0], lead) for each in (threshold, deferred))
    return rows(score), score.shape[-1], limit, mass


_ZERO = torch.zeros(1)


def draw_residual(
    q: Tensor,
    p: Tensor,
    score: Tensor | None,
    threshold: Tensor | None,
    deferred: Tensor | None,
    last: Tensor,
    uniform: Tensor,
) -> Tensor:
    """As `target.Target.draw_replacement`."""
    tokens, rule = np.empty(last.shape, np.int64), _rule(tuple(q.shape[:-1]), score, threshold, deferred)
    loops().draw_residual(rows(q), rows(p), q.shape[-1], *rule, last.numpy(), uniform.numpy(), tokens)
    return torch.from_numpy(tokens)


def decide(
    place: int,
    lenience: float | Tensor,
    q: Tensor,
    p: Tensor | None,
    q1: Tensor | None,
    p1: Tensor | None,
    pending: Pending | None,
    rule: tuple[Tensor | None, Tensor | None, Tensor | None],
    floor: float,
    tokens: Tensor,
    counts: Tensor,
    accept_coins: Tensor,
    resample_coins: Tensor,
    records: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """As `target.Target.decide`: q, p, pi, acceptance, score and threshold of draft tokens, and the first four of replacing ones,
    [6, B, K, 2]; how many are accepted, the last that is examined, and what replaces it, [3, B].

    Args:
        place: of the method among the paper's nine, where it is `speed` or a cascade whose test is still to be made; 0 where that has
            been, or the verifier alone decides.
        lenience: a number or [B, 1].
        p, p1: [B, K, V], written where they are pending; None where they need not be kept then.
        q1: where the test that is to be made reads it; None where that is q.
        pending: what is still to be found of p and p1.
        rule: score, threshold and deferred mass, written where the test is to be made, and contiguous then; None where they need not be
            kept, or there are none.
    """
    count, steps = tokens.shape
    unread: tuple[np.ndarray, np.ndarray, bool] = _NO_ROWS, _NO_HEAT, False
    if pending is not None:
        logits = pending.logits if pending.logits.shape[1] == steps else pending.logits[:, :steps]
        unread = rows(logits), _each(pending.temperature, (count, steps), np.float64), pending.finds_p1
    score, threshold, deferred = rule
    sides: tuple[np.ndarray, int, np.ndarray, np.ndarray] = _NO_ROWS, 1, _NONE, _NONE
    if threshold is not None and deferred is not None and score is not None:
        if pending is None:
            sides = _rule((count, steps), score, threshold, deferred)
        else:
            written = threshold.numpy().reshape(-1), deferred.numpy().reshape(-1)
            sides = rows(score) if score.shape[-1] == 1 else _NO_ROWS, 1, *written
    out, found = np.zeros((6, count, steps, 2), np.float32), np.empty((3, count), np.int64)
    some = tokens.numpy(), counts.numpy(), accept_coins.numpy(), resample_coins.numpy()
    each = (_NO_ROWS if values is None else rows(values) for values in (q, p, q1, p1))
    how = place, _each(lenience, (count, steps), np.float64)
    loops().decide(*how, *each, q.shape[-1], *unread, *sides, floor, _TINY, records, *some, out, found)
    return out, found


@dataclass(frozen=True)
class Pending:
    """p, and p1 if `finds_p1`, are found from `logits` [B, K, V] where draft tokens are examined."""

    logits: Tensor
    temperature: float | Tensor
    finds_p1: bool


_NO_ROWS, _NO_HEAT = np.empty(0, np.int64), np.empty(0)
_TINY, _NONE = np.finfo(np.float32).tiny, np.empty(0, np.float32)


def mixture(
    q: Tensor, p: Tensor, score: Tensor | None, threshold: Tensor | None, deferred: Tensor | None
) -> Tensor:
    """As `target.Target._mixture`, over the whole vocabulary."""
    out, rule = np.empty(q.shape, np.float32), _rule(tuple(q.shape[:-1]), score, threshold, deferred)
    loops().mixture(rows(q), rows(p), *rule, out.reshape(-1, q.shape[-1]))
    return torch.from_numpy(out)


def mass_below(score: Tensor, threshold: Tensor, weights: Tensor) -> Tensor:
    """As `target._mass_below`."""
    out = np.empty((*weights.shape[:-1], 1), np.float32)
    limits = _each(threshold, out.shape)
    loops().mass_below(rows(score), limits, rows(weights), weights.shape[-1], out.reshape(-1))
    return torch.from_numpy(out)


def excess(left: Tensor, right: Tensor) -> Tensor:
    """As `distributions.excess`."""
    out = np.empty((*left.shape[:-1], 1), np.float32)
    loops().excess(rows(left), rows(right), left.shape[-1], out.reshape(-1))
    return torch.from_numpy(out)


def speed(q: Tensor, p: Tensor, scale: float | Tensor, floor: float) -> Tensor:
    """As `target.Target.pi` of `speed`."""
    out, scales = np.empty(q.shape, np.float32), _each(scale, (*q.shape[:-1], 1))
    loops().speed(rows(q), rows(p), scales, floor, out.reshape(-1, q.shape[-1]))
    return torch.from_numpy(out)


def anywhere(mass: Tensor) -> Tensor:
    """As `target._anywhere`."""
    tokens = np.empty(mass.shape[-1], np.int64)
    count = loops().anywhere(rows(mass), len(tokens), tokens)
    return torch.from_numpy(tokens[:count]).expand(*mass.shape[:-1], -1)


def by_weight(q: Tensor, p: Tensor, tokens: Tensor, weights: Tensor, shares: Tensor | None) -> Tensor:
    """As `target.Target.pi` of methods with a weight, at positions [n].

    Args:
        q, p: [..., V]; q is 0 beside `tokens`, which are the same at all positions, [..., m].
        weights, shares: of these; shares are 1 where they are None.
    """
    out, count = np.empty(q.shape, np.float32), math.prod(q.shape[:-1])
    each = weights.numpy(), np.empty((count, 0)) if shares is None else shares.numpy()
    own = (np.ascontiguousarray(values.reshape(count, -1), np.float32) for values in each)
    known = tokens.numpy()[(0,) * (tokens.dim() - 1)]
    loops().by_weight(rows(q), rows(p), known, *own, _TINY, out.reshape(count, -1))
    return torch.from_numpy(out)


def crossing(scores: Tensor, weights: Tensor, share: Tensor, own: Tensor) -> Tensor:
    """As `counterfactual._crossing`."""
    out = np.empty(share.shape)
    limits = _each(share, share.shape, np.float64), _each(own, share.shape)
    loops().crossing(rows(scores), rows(weights), scores.shape[-1], *limits, out.reshape(-1))
    return torch.from_numpy(out)


def nine(
    addresses: Sequence[np.ndarray],
    size: int,
    tokens: np.ndarray,
    coins: np.ndarray,
    leniences: np.ndarray,
    ranges: np.ndarray,
    floor: float,
) -> tuple[np.ndarray, np.ndarray]:
    """As `counterfactual.Counterfactual` of the paper's nine methods: acceptances [n, 9] and flips [n, 9, 2] of draft tokens [n].

    Args:
        addresses: of q, p, q1 and p1, [n] each, as `rows` gives them, of so many tokens.
        leniences: [n, 9].
        ranges: the methods' lenience ranges, [2, 9].
    """
    acceptances, flips = np.empty(leniences.shape, np.float32), np.empty((*leniences.shape, 2))
    loops().nine(*addresses, size, tokens, coins, leniences, ranges, floor, _TINY, acceptances, flips)
    return acceptances, flips


def largest(values: Tensor) -> Tensor:
    """As `distributions.largest`."""
    out = np.empty((*values.shape[:-1], 1), np.float32)
    loops().largest(rows(values), values.shape[-1], out.reshape(-1))
    return torch.from_numpy(out)


def neighbours(score: Tensor, threshold: Tensor, where: Tensor) -> tuple[Tensor, Tensor]:
    """As `counterfactual._neighbours`."""
    some, out = where.numpy(), np.empty((len(where), 2), np.float32)
    limits = _each(threshold[..., 0], score.shape[:-1])
    loops().neighbours(rows(score)[some], score.shape[-1], limits[some], out)
    lowest, highest = torch.from_numpy(out).unbind(-1)
    return lowest, highest


def leading(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest positive values [..., count] of each row and their tokens, as `Tensor.topk` gives them; else zeros."""
    shape, size = (*values.shape[:-1], count), values.shape[-1]
    most, tokens = np.empty(shape, np.float32), np.empty(shape, np.int64)
    loops().leading(rows(values), size, most.reshape(-1, count), tokens.reshape(-1, count))
    return torch.from_numpy(most), torch.from_numpy(tokens)


class PiRows(NamedTuple):
    """What pi of some positions [n] is made of: see `loops.leading_of_three`."""

    pi: np.ndarray
    score: np.ndarray
    scores: np.ndarray
    threshold: np.ndarray
    deferred: np.ndarray

    @staticmethod
    def known(pi: Tensor) -> PiRows:
        """Of pi itself, [n, V]."""
        none, some = np.zeros(len(pi), np.int64), np.zeros(len(pi), np.float32)
        return PiRows(rows(pi), none, none, some, some)

    @staticmethod
    def speed(scale: float | Tensor, lead: tuple[int, ...]) -> PiRows:
        """Of `speed` at all positions [*lead]."""
        none, scales = np.zeros(math.prod(lead), np.int64), _each(scale, lead)
        return PiRows(none, none, none, scales, scales)

    @staticmethod
    def rule(score: Tensor, threshold: Tensor, deferred: Tensor, lead: tuple[int, ...]) -> PiRows:
        """Of a cascade at all positions [*lead]."""
        addresses, count, *sides = _rule(lead, score, threshold, deferred)
        return PiRows(np.zeros_like(addresses), addresses, np.full_like(addresses, count), *sides)


def leading_of_three(
    q: np.ndarray, p: np.ndarray, pi: PiRows, size: int, count: int, floor: float
) -> tuple[np.ndarray, np.ndarray]:
    """`leading` of q, p and pi, [3, n, count] each, of rows of so many tokens that come as addresses [n]."""
    most, tokens = np.empty((3, len(q), count), np.float32), np.empty((3, len(q), count), np.int64)
    loops().leading_of_three(q, p, *pi, size, floor, most, tokens)
    return most, tokens
