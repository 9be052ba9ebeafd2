"""Loops over a vocabulary, compiled by numba: softmax, draws, residuals, sums and leading tokens of float32 rows.

Rows [n] of tokens [size] come as their addresses, so that none need be copied; all else are C-contiguous arrays. `kernels` says
when they are used, and the torch code beside each use says what they mean.
Every sum is taken in float64 and in an order that depends on the row's length alone, so that a row gets the same bits
whatever is beside it (laws 2 and 3). Knows no method but the paper's nine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit, types

from specviz.compat.numba import array_at, array_part, compiled_for_python
from specviz.core import compiling

Array = np.ndarray

BLOCK = 512
"""Tokens whose weights are summed first; a draw finds its block before its token."""
_f4, _i4 = np.float32, np.int32
_LOG2E, _LN2_HIGH, _LN2_LOW = _f4(1.44269504), _f4(0.693359375), _f4(-2.12194440e-4)
_ROUND = _f4(12582912.0)
"""Adding this rounds a small float32 to a whole number, which is then in its lowest bits."""
_EXP = tuple(map(_f4, (1.9875691e-4, 1.3981999e-3, 8.3334519e-3, 4.1665795e-2, 1.6666665e-1, 5.0000001e-1)))
"""Coefficients of (exp(x) - 1 - x) / x² around 0, from the highest (Cephes)."""
_LEAST = _f4(-88.0)
"""Where 2 to the power of x / log 2 has the exponent of 0: exp is 0 from a little before on, where normal numbers end."""
_ZERO, _ONE, _LEAST_NORMAL = _f4(0), _f4(1), np.finfo(np.float64).tiny
_SPEED, _CHOW, _OPT, _TOKEN_V1, _TOKEN_V3 = 2, 3, 5, 6, 8
"""Places among the paper's nine."""


_SIGNATURES: dict[str, tuple[Callable[..., Any], str]] = {}
"""The loops that Python calls, and their types, by name."""
FIRST = ("decide", "nine", "leading_of_three", "leading", "neighbours", "draw", "largest", "softmax")
"""What texts of the paper's nine methods need, explained ones too, beside the two loops of the draft pass."""


def _compile(signature: str) -> Callable[[Callable[..., Any]], Any]:
    """For what Python calls: compiled for this signature when it is first asked for, see `__getattr__`."""

    def decorate(function: Callable[..., Any]) -> Any:
        _SIGNATURES[function.__name__] = function, signature
        return function

    return decorate


def __getattr__(name: str) -> Any:
    """A loop, compiled or read from the cache."""
    if name not in _SIGNATURES:
        raise AttributeError(f"there is no loop {name}")
    function, signature = _SIGNATURES[name]
    with compiling.alone(f"loop-{name}"):
        loop = compiled_for_python(
            function,
            signature,
            name=f"loop-{name}",
            source=compiling.sources(),
            folder=compiling.compiled_directory(),
            nogil=True,
            error_model="numpy",
        )
    globals()[name] = loop
    return loop


_INNER: dict[str, Any] = {"error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
_helper = njit(**_INNER)
"""For what compiled functions alone call: compiled with the first of them, for the types that it is called with."""


_row, _tokens = array_at(types.float32), array_at(types.int64)
"""(address, size) -> the numbers there."""


@_helper
def _fill(row: Array, value: Any) -> None:
    """Sets all numbers. A slice that is assigned to takes a second to compile."""
    for j in range(row.size):
        row[j] = value


@_helper
def _most(values: Array) -> Any:
    """The largest of a few values that are not NaN."""
    found = _f4(-np.inf)
    for value in values:
        found = np.fmax(value, found)
    return found


@_helper
def _largest(row: Array) -> Any:
    """The largest value that is not NaN."""
    lanes = np.empty(BLOCK, _f4)
    _fill(lanes, -np.inf)
    for start in range(0, row.size, BLOCK):
        block = array_part(row, start, BLOCK)
        for j in range(block.size):
            lanes[j] = np.fmax(block[j], lanes[j])  # a conditional expression would not become vector code
    return _most(lanes)


@_helper
def _block_largest(block: Array, lanes: Array) -> Any:
    """The largest of up to BLOCK values; `lanes` [BLOCK / 2] is overwritten."""
    if block.size < BLOCK:
        return _most(block)
    left, right = array_part(block, 0, 256), array_part(block, 256, 256)
    for j in range(256):
        lanes[j] = np.fmax(left[j], right[j])
    for width in (128, 64, 32, 16):
        more = array_part(lanes, width, width)
        for j in range(width):
            lanes[j] = np.fmax(lanes[j], more[j])
    return _most(array_part(lanes, 0, 16))


@_helper
def _block_sum(block: Array, lanes: Array) -> float:
    """The sum of up to BLOCK values; `lanes` [BLOCK / 2] is overwritten."""
    if block.size < BLOCK:
        rest = 0.0
        for j in range(block.size):
            rest += block[j]
        return rest
    left, right = array_part(block, 0, 256), array_part(block, 256, 256)
    for j in range(256):
        lanes[j] = np.float64(left[j]) + np.float64(right[j])
    for width in (128, 64, 32, 16):
        more = array_part(lanes, width, width)
        for j in range(width):
            lanes[j] += more[j]
    found = 0.0
    for j in range(16):
        found += lanes[j]
    return found


# Fused products and sums are exacter, and the same at every place.
@njit(**_INNER, fastmath={"contract"})
def _exponentials(row: Array, top: Any, scale: Any, out: Array) -> None:
    """exp((x - top) · scale), for x up to `top`."""
    for i in range(row.size):
        x = (row[i] - top) * scale
        bounded = _LEAST if x < _LEAST else x  # keeps NaN
        shifted = bounded * _LOG2E + _ROUND
        whole = shifted - _ROUND
        r = (bounded - whole * _LN2_HIGH) - whole * _LN2_LOW
        series = _EXP[0]
        series = series * r + _EXP[1]
        series = series * r + _EXP[2]
        series = series * r + _EXP[3]
        series = series * r + _EXP[4]
        series = series * r + _EXP[5]
        series = series * (r * r) + r + _ONE
        power = _i4((_f4(shifted).view(_i4) + 127) << 23)
        out[i] = series * _i4(power).view(_f4)


@_helper
def _first(row: Array, top: Any) -> int:
    """Index of the first NaN, or else of the first `top`, the largest; torch's argmax."""
    for start in range(0, row.size, BLOCK):
        block = array_part(row, start, BLOCK)
        found = _i4(0)
        for j in range(block.size):
            found |= _i4(not block[j] < top)
        if found:
            for j in range(block.size):
                if not block[j] < top:
                    return start + j
    return 0


@_helper
def _weigh(row: Array, top: Any, temperature: float, lanes: Array, out: Array) -> Any:
    """exp((x - top) / temperature), for x up to `top`; returns what makes them probabilities. `lanes` [BLOCK] is overwritten."""
    scale = _f4(1 / temperature)
    _fill(lanes, _ZERO)
    for start in range(0, row.size, BLOCK):
        block = array_part(out, start, BLOCK)
        _exponentials(array_part(row, start, BLOCK), top, scale, block)
        for j in range(block.size):
            lanes[j] += block[j]
    total = 0.0
    for j in range(BLOCK):
        total += lanes[j]
    return _f4(1 / total)


@_helper
def _softmax(row: Array, top: Any, temperature: float, lanes: Array, out: Array) -> Any:
    """One row of `softmax`, whose largest logit is `top`; returns the largest probability. `lanes` [BLOCK] is overwritten."""
    if temperature == 0:
        _fill(out, _ZERO)
        out[_first(row, top)] = _ONE
        return _ONE
    scale = _weigh(row, top, temperature, lanes, out)
    for j in range(row.size):
        out[j] *= scale
    return scale


@_compile("void(i8[::1], f8[::1], f4[:,::1])")
def softmax(logits: Array, temperature: Array, out: Array) -> None:
    """Probabilities [n, V] of `logits` [n, V] at temperatures [n]; one-hot at the first argmax where that is 0."""
    lanes = np.empty(BLOCK, _f4)
    for i in range(len(logits)):
        row = _row(logits[i], out.shape[1])
        _softmax(row, _largest(row), temperature[i], lanes, out[i])


@_helper
def _weigh_known(
    row: Array, known: Array, top: Any, temperature: float, lanes: Array, some: Array, out: Array
) -> Any:
    """`_weigh` of logits of the `known` tokens alone, ascending, for `out` [V]: 0 elsewhere; to the bit what it makes of `spread`.

    `some` [m] is overwritten.
    """
    _fill(lanes, _ZERO)
    _fill(out, _ZERO)
    _exponentials(array_part(row, 0, known.size), top, _f4(1 / temperature), some)
    for j in range(known.size):
        token = known[j]
        lanes[token % BLOCK] += some[j]
        out[token] = some[j]
    total = 0.0
    for j in range(BLOCK):
        total += lanes[j]
    return _f4(1 / total)


@_compile("void(i8, i8, i8, i8, i8)")
def spread(logits: int, known: int, count: int, out: int, size: int) -> None:
    """A row of logits as one of all `size` tokens: -inf for those that are not known. Arguments as for `sample`."""
    row, found, tokens = _row(logits, count if count else size), _row(out, size), _tokens(known, count)
    if count == 0:
        for j in range(size):
            found[j] = row[j]
        return
    _fill(found, -np.inf)
    for j in range(count):
        found[tokens[j]] = row[j]


@_helper
def _cumulate(row: Array, blocks: Array, lanes: Array) -> float:
    """Writes the cumulative weight of each block; returns that of all."""
    total = 0.0
    for block in range(blocks.size):
        total += _block_sum(array_part(row, block * BLOCK, BLOCK), lanes)
        blocks[block] = total
    return total


@_helper
def _draw(row: Array, blocks: Array, uniform: float) -> int:
    """The first token whose cumulative weight exceeds the uniform's share of all; `blocks` is as `_cumulate` writes it."""
    # Nothing lies beyond the total, which rounding must not reach.
    threshold = min(uniform * blocks[-1], np.nextafter(blocks[-1], 0.0))
    block = 0
    while block < blocks.size - 1 and not blocks[block] > threshold:
        block += 1
    cumulative = blocks[block - 1] if block else 0.0
    found = row.size - 1  # only NaN, and no weight at all, get that far
    for j in range(block * BLOCK, min((block + 1) * BLOCK, row.size)):
        cumulative += row[j]
        if row[j] > 0:
            found = j
            if cumulative > threshold:
                break
    return found


@_compile("Tuple((i8, f4))(i8, i8, i8, i8, i8, f8, f8, b1)")
def sample(
    logits: int, known: int, count: int, out: int, size: int, temperature: float, uniform: float, sure: bool
) -> tuple[int, Any]:
    """`softmax` of a row of logits to a row of `size`, and a `draw` from it: the token, and its `sampling.confidence` where wanted.

    Rows come as addresses. Logits are of `count` known tokens, ascending int64, or of all where that is 0.
    """
    lanes, halves, blocks = np.empty(BLOCK, _f4), np.empty(BLOCK // 2), np.empty(-(-size // BLOCK))
    row, found, tokens = _row(logits, count if count else size), _row(out, size), _tokens(known, count)
    top, total, scale = _largest(row), 0.0, _ONE
    if temperature > 0 or sure:
        heat = temperature if temperature > 0 else 1.0
        if count:
            scale = _weigh_known(row, tokens, top, heat, lanes, np.empty(count, _f4), found)
        else:
            scale = _weigh(row, top, heat, lanes, found)
    if temperature == 0:
        best = _first(row, top)
        token = tokens[best] if count else best
        _fill(found, _ZERO)
        found[token] = _ONE
        return token, scale
    for block in range(blocks.size):
        own = array_part(found, block * BLOCK, BLOCK)
        for j in range(own.size):
            own[j] *= scale
        total += _block_sum(own, halves)
        blocks[block] = total
    token = _draw(found, blocks, uniform)
    return token, found[token]


@_compile("void(i8[::1], i8, f8[::1], i8[::1])")
def draw(weights: Array, size: int, uniform: Array, tokens: Array) -> None:
    """Inverse-CDF draws [n] from `weights` [n] at uniforms [n]: first the block, then the token in it."""
    lanes, blocks = np.empty(BLOCK // 2), np.empty(-(-size // BLOCK))
    for i in range(len(weights)):
        row = _row(weights[i], size)
        _cumulate(row, blocks, lanes)
        tokens[i] = _draw(row, blocks, uniform[i])


@_helper
def _mixture(q: Array, p: Array, score: Array, threshold: Any, deferred: Any, out: Array) -> None:
    """q where score [V] or [1] >= threshold, and p times `deferred`: pi of a cascade."""
    if score.size == 1:
        trusted = _ONE if score[0] >= threshold else _ZERO
        for j in range(q.size):
            out[j] = trusted * q[j] + p[j] * deferred
    else:
        for j in range(q.size):
            out[j] = (q[j] if score[j] >= threshold else _ZERO) + p[j] * deferred


@_compile("void(i8[::1], i8[::1], i8[::1], i8, f4[::1], f4[::1], f4[:,::1])")
def mixture(
    q: Array, p: Array, score: Array, scores: int, threshold: Array, deferred: Array, out: Array
) -> None:
    """`_mixture` of each row of q and p [n], score [n] of so many `scores` (all tokens', or 1), threshold, deferred [n]."""
    for i in range(len(q)):
        own, other = _row(q[i], out.shape[1]), _row(p[i], out.shape[1])
        _mixture(own, other, _row(score[i], scores), threshold[i], deferred[i], out[i])


@_helper
def _draw_residual(
    q: Array,
    p: Array,
    score: Array,
    threshold: Any,
    deferred: Any,
    uniform: float,
    row: Array,
    blocks: Array,
    lanes: Array,
) -> int:
    """A draw by what `_mixture` has more of than q, or by the mixture where it has nothing more; the last three are overwritten."""
    total = 0.0
    for block in range(blocks.size):  # all of it while the block is in the nearest cache
        start = block * BLOCK
        less, more = array_part(q, start, BLOCK), array_part(row, start, BLOCK)
        judged = array_part(score, start if score.size > 1 else 0, BLOCK)
        _mixture(less, array_part(p, start, BLOCK), judged, threshold, deferred, more)
        for j in range(more.size):
            rest = more[j] - less[j]
            more[j] = _ZERO if rest < 0 else rest
        total += _block_sum(more, lanes)
        blocks[block] = total
    if total <= 0:
        _mixture(q, p, score, threshold, deferred, row)
        _cumulate(row, blocks, lanes)
    return _draw(row, blocks, uniform)


@_compile("void(i8[::1], i8[::1], i8, i8[::1], i8, f4[::1], f4[::1], i8[::1], f8[:,:], i8[::1])")
def draw_residual(
    q: Array,
    p: Array,
    size: int,
    score: Array,
    scores: int,
    threshold: Array,
    deferred: Array,
    last: Array,
    uniform: Array,
    tokens: Array,
) -> None:
    """`_draw_residual` [b] at one step of each sequence: `last` [b] of its n / b steps, at uniforms [b, n / b or more]."""
    lanes, blocks = np.empty(BLOCK // 2), np.empty(-(-size // BLOCK))
    row, steps = np.empty(size, _f4), len(q) // len(last)
    for i in range(len(last)):
        n, coin = i * steps + last[i], uniform[i, last[i]]
        own, other, judged = _row(q[n], size), _row(p[n], size), _row(score[n], scores)
        tokens[i] = _draw_residual(own, other, judged, threshold[n], deferred[n], coin, row, blocks, lanes)


@_helper
def _mass_below(score: Array, threshold: Any, weight: Array, part: Array, lanes: Array) -> float:
    """The weight of tokens whose score is below a threshold; `part` [BLOCK] and `lanes` [BLOCK / 2] are overwritten."""
    total = 0.0
    for start in range(0, score.size, BLOCK):
        block, own = array_part(score, start, BLOCK), array_part(weight, start, BLOCK)
        for j in range(own.size):
            part[j] = own[j] if block[j] < threshold else _ZERO
        total += _block_sum(array_part(part, 0, own.size), lanes)
    return total


@_compile("void(i8[::1], f4[::1], i8[::1], i8, f4[::1])")
def mass_below(scores: Array, thresholds: Array, weights: Array, size: int, out: Array) -> None:
    """The weight [n] of tokens whose score [n] is below a threshold [n]."""
    part, lanes = np.empty(BLOCK, _f4), np.empty(BLOCK // 2)
    for i in range(len(weights)):
        out[i] = _mass_below(_row(scores[i], size), thresholds[i], _row(weights[i], size), part, lanes)


@_helper
def _excess(left: Array, right: Array, part: Array, lanes: Array) -> float:
    """The sum of max(0, left - right); `part` [BLOCK] and `lanes` [BLOCK / 2] are overwritten."""
    total = 0.0
    for start in range(0, left.size, BLOCK):
        block, other = array_part(left, start, BLOCK), array_part(right, start, BLOCK)
        for j in range(block.size):
            more = block[j] - other[j]
            part[j] = _ZERO if more < 0 else more
        total += _block_sum(array_part(part, 0, block.size), lanes)
    return total


@_compile("void(i8[::1], i8[::1], i8, f4[::1])")
def excess(left: Array, right: Array, size: int, out: Array) -> None:
    """The sum [n] of max(0, left - right), each [n]."""
    part, lanes = np.empty(BLOCK, _f4), np.empty(BLOCK // 2)
    for i in range(len(left)):
        out[i] = _excess(_row(left[i], size), _row(right[i], size), part, lanes)


@_helper
def _kappa(q: Array, p: Array, scale: Any, floor: Any, less: Array, more: Array, lanes: Array) -> Any:
    """The mass of q that is rejected with 1 - min(1, p / max(scale · q, floor)), over that of max(0, p - q).

    Where decoding is lossless they are the same. `less`, `more` [BLOCK] and `lanes` [BLOCK / 2] are overwritten.
    """
    if scale == _ONE:
        return _ONE
    rejected, excess, inverse, small = 0.0, 0.0, _ONE / scale, _ONE / floor
    for start in range(0, q.size, BLOCK):
        own, other = array_part(q, start, BLOCK), array_part(p, start, BLOCK)
        for j in range(own.size):
            kept = other[j] * (own[j] * small if scale * own[j] < floor else inverse)
            lack, difference = own[j] - kept, other[j] - own[j]
            less[j] = _ZERO if lack < 0 else lack
            more[j] = _ZERO if difference < 0 else difference
        rejected += _block_sum(array_part(less, 0, own.size), lanes)
        excess += _block_sum(array_part(more, 0, own.size), lanes)
    return _f4(rejected / (excess if excess > 0 else 1.0))


@_helper
def _speed(
    q: Array, p: Array, scale: Any, floor: Any, less: Array, more: Array, lanes: Array, out: Array
) -> None:
    """pi of `speed`: q · min(1, p / max(scale · q, floor)) + kappa · max(0, p - q). `less`, `more`, `lanes` as for `_kappa`."""
    share = _kappa(q, p, scale, floor, less, more, lanes)
    inverse, small = _ONE / scale, _ONE / floor
    for j in range(q.size):
        kept = p[j] * (q[j] * small if scale * q[j] < floor else inverse)
        difference = p[j] - q[j]
        out[j] = (q[j] if kept > q[j] else kept) + share * (_ZERO if difference < 0 else difference)


@_compile("void(i8[::1], i8[::1], f4[::1], f4, f4[:,::1])")
def speed(q: Array, p: Array, scale: Array, floor: Any, out: Array) -> None:
    """`_speed` of each row of q and p [n] at a scale [n]."""
    less, more, lanes = np.empty(BLOCK, _f4), np.empty(BLOCK, _f4), np.empty(BLOCK // 2)
    for i in range(len(q)):
        own, other = _row(q[i], out.shape[1]), _row(p[i], out.shape[1])
        _speed(own, other, scale[i], floor, less, more, lanes, out[i])


@_helper
def _sift(keys: Array, values: Array, at: int, stop: int) -> None:
    """Lets a pair sink to its place in a heap of the first `stop`."""
    while 2 * at + 1 < stop:
        child = 2 * at + 1
        if child + 1 < stop and keys[child + 1] > keys[child]:
            child += 1
        if not keys[child] > keys[at]:
            return
        keys[at], keys[child] = keys[child], keys[at]
        values[at], values[child] = values[child], values[at]
        at = child


@_helper
def _sort(keys: Array, values: Array, count: int) -> None:
    """Sort the first `count` of `keys`, and `values` with them."""
    for at in range(count // 2 - 1, -1, -1):
        _sift(keys, values, at, count)
    for stop in range(count - 1, 0, -1):
        keys[0], keys[stop] = keys[stop], keys[0]
        values[0], values[stop] = values[stop], values[0]
        _sift(keys, values, 0, stop)


@_helper
def _count_up_to(keys: Array, count: int, limit: float) -> int:
    """How many of the first `count` of `keys`, ascending, are at most `limit`."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if keys[middle] <= limit:
            low = middle + 1
        else:
            high = middle
    return low


@_helper
def _emit(
    q: Array, p: Array, tokens: Array, lost: Array, shares: Array, part: Array, lanes: Array, out: Array
) -> None:
    """`target._emitted` of all tokens: what is drawn from max(0, share(x) · p - q), each as often as x is `lost`, proposed and rejected.

    q is 0 beside `tokens` [m], of which `lost` and `shares` [m] are. `part` [BLOCK] and `lanes` [BLOCK / 2] are overwritten.
    """
    keys, rates, count, never = np.empty(tokens.size), np.empty(tokens.size), 0, 0.0
    for j in range(tokens.size):
        if lost[j] > 0:
            keys[count], rates[count] = shares[j], lost[j]
            count += 1
    _sort(keys, rates, count)
    for start in range(0, q.size, BLOCK):
        own, other = array_part(q, start, BLOCK), array_part(p, start, BLOCK)
        for j in range(own.size):
            part[j] = _ZERO if own[j] > 0 else other[j]
        never += _block_sum(array_part(part, 0, own.size), lanes)
    first, less, more = np.empty(tokens.size, np.int64), np.zeros(count + 1), np.zeros(count + 1)
    for j in range(tokens.size):
        own_q, own_p = np.float64(q[tokens[j]]), np.float64(p[tokens[j]])
        first[j] = _count_up_to(keys, count, own_q / own_p if own_p > 0 else np.inf)
        if own_q > 0:
            less[first[j]] += own_q
            more[first[j]] += own_p
    below_q, below_p = 0.0, never
    for k in range(count):
        below_q += less[k]
        below_p += more[k]
        mass = keys[k] * below_p - below_q
        rates[k] = rates[k] / mass if mass > 0 else 0.0
    less[count] = more[count] = 0.0
    for k in range(count - 1, -1, -1):  # from here on sums of all from a share on
        less[k] = less[k + 1] + rates[k]
        more[k] = more[k + 1] + keys[k] * rates[k]
    for j in range(out.size):
        out[j] = p[j] * more[0]
    for j in range(tokens.size):
        token = tokens[j]
        drawn = p[token] * more[first[j]] - q[token] * less[first[j]]
        out[token] = _ZERO if drawn < 0 else drawn


@_compile("i8(i8[::1], i8, i8[::1])")
def anywhere(mass: Array, size: int, tokens: Array) -> int:
    """Writes those of `size` tokens that have `mass` [n] in any row, ascending; returns how many."""
    some, count = np.empty(BLOCK, _i4), 0
    for start in range(0, size, BLOCK):
        width = min(BLOCK, size - start)
        _fill(some, _i4(0))
        for i in range(len(mass)):
            block = array_part(_row(mass[i], size), start, BLOCK)
            for j in range(block.size):
                some[j] |= _i4(block[j] != 0)
        for j in range(width):
            tokens[count] = start + j
            count += some[j]
    return count


@_compile("void(i8[::1], i8[::1], i8[::1], f4[:,::1], f4[:,::1], f4, f4[:,::1])")
def by_weight(
    q: Array, p: Array, tokens: Array, weights: Array, shares: Array, tiny: Any, out: Array
) -> None:
    """pi [n, V] of methods that accept v with min(1, weight / q(v)) and draw what replaces it from max(0, share · p - q).

    q is 0 beside `tokens` [m], of which `weights` [n, m] are, and `shares`; these are [n, 0] where they are 1.
    """
    part, lanes = np.empty(BLOCK, _f4), np.empty(BLOCK // 2)
    kept, lost = np.empty(tokens.size, _f4), np.empty(tokens.size, _f4)
    for i in range(len(q)):
        own, other, row, accepted = _row(q[i], out.shape[1]), _row(p[i], out.shape[1]), out[i], 0.0
        for j in range(tokens.size):
            mass = own[tokens[j]]
            ratio = weights[i, j] / (tiny if mass < tiny else mass)
            kept[j] = mass * (_ONE if ratio > _ONE else ratio)
            lost[j] = mass - kept[j]
        # One after another: tokens that have mass in other rows alone change no bit.
        for j in range(tokens.size):
            accepted += kept[j]
        if shares.shape[1]:
            _emit(own, other, tokens, lost, shares[i], part, lanes, row)
        else:
            lack = _excess(other, own, part, lanes)
            rate = _f4((1.0 - accepted) / (lack if lack > 0 else 1.0))
            for j in range(row.size):
                more = other[j] - own[j]
                row[j] = rate * (_ZERO if more < 0 else more)
        for j in range(tokens.size):
            row[tokens[j]] += kept[j]


@_helper
def _by_rule(q: Any, p: Any, score: Any, threshold: Any, deferred: Any, tiny: Any) -> Any:
    """pi and acceptance of a token in a cascade."""
    pi = (q if score >= threshold else _ZERO) + p * deferred
    ratio = pi / (tiny if q < tiny else q)
    return pi, _ONE if ratio > _ONE else ratio


@_helper
def _by_ratio(q: Any, p: Any, scale: Any, floor: Any, share: Any) -> Any:
    """pi and acceptance of a token in `speed`; `share` is `_kappa`."""
    asked, difference = scale * q, p - q
    ratio = p / (floor if asked < floor else asked)
    accepted = _ONE if ratio > _ONE else ratio
    return q * accepted + share * (_ZERO if difference < 0 else difference), accepted


@_helper
def _threshold(method: int, lenience: float, best: Any, distance: Any) -> Any:
    """What a score is compared with in a cascade, by its place among the nine; `best` is max p1."""
    if method == _CHOW:
        return _f4(1 - lenience)
    if method == _TOKEN_V3:
        return _f4(1 - lenience) * best
    return best - (_f4(lenience) * distance if method == _OPT else _f4(lenience))


@_helper
def _test(
    method: int,
    lenience: float,
    q: Array,
    p: Array,
    q1: Array,
    best: Any,
    score: Array,
    part: Array,
    lanes: Array,
) -> Any:
    """Threshold and deferred mass of a cascade at one position, by its place among the nine; `best` is max p1.

    Writes the `score` [1] of a rule that judges the drafter as a whole; of the others it is q1 or p1. The last two are overwritten.
    """
    distance = _f4(_excess(q, p, part, lanes)) if method == _OPT else _ZERO
    threshold = _threshold(method, lenience, best, distance)
    if method < _TOKEN_V1:
        score[0] = _largest(q1)
        return threshold, _ONE if score[0] < threshold else _ZERO
    return threshold, _f4(_mass_below(score, threshold, q, part, lanes))


@_compile(
    "void(i8, f8[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8, i8[::1], f8[::1], b1, i8[::1], i8, f4[::1], f4[::1], f4, f4, b1, "
    "i8[:,:], i8[:], f8[:,:], f8[:,:], f4[:,:,:,::1], i8[:,::1])"
)
def decide(
    method: int,
    lenience: Array,
    q: Array,
    p: Array,
    q1: Array,
    p1: Array,
    size: int,
    logits: Array,
    heat: Array,
    finds_p1: bool,
    score: Array,
    scores: int,
    threshold: Array,
    deferred: Array,
    floor: Any,
    tiny: Any,
    records: bool,
    tokens: Array,
    counts: Array,
    accept_coins: Array,
    resample_coins: Array,
    out: Array,
    found: Array,
) -> None:
    """`Target.decide` for `counts` [b] of `tokens` [b, K]; n is b · K.

    By the place of a `method` among the nine, at leniences [n]: `speed`, or a cascade whose test is made where draft tokens are examined,
    and written to threshold and deferred mass [n] where there is room, and to `score` [n] if it has one for all tokens. Where it is 0
    they are given, or the verifier alone decides.
    Where there are `logits` [n], p of examined draft tokens is found from them at temperatures `heat` [n], and if `finds_p1` p1 too. Without
    rows [n] of their own p and p1 are not kept, q1 is q, and p1 is p unless `finds_p1`.
    Writes q of draft tokens, p, pi, acceptance, score and threshold of examined ones, and the first four of what replaces the last of
    these, to `out` [6, b, K, 2]; pi of `speed` only if `records`. To `found` [3, b] how many are accepted, the last that is examined, and
    what replaces it.
    """
    less, more, lanes = np.empty(BLOCK, _f4), np.empty(BLOCK, _f4), np.empty(BLOCK // 2)
    row, blocks, steps = np.empty(size, _f4), np.empty(-(-size // BLOCK)), tokens.shape[1]
    whole, p_room = np.zeros(1, _f4), np.empty(0 if p.size else size, _f4)
    p1_room = np.empty(size if finds_p1 and not p1.size else 0, _f4)
    for i in range(len(counts)):
        accepted, step, share, limit, mass = 0, 0, _ZERO, _f4(np.inf), _ONE
        for each in range(steps):
            out[0, i, each, 0] = _row(q[i * steps + each], size)[tokens[i, each]]
        while True:
            n, token, at = i * steps + step, tokens[i, step], out[:, i, step, 0]
            own, other = _row(q[n], size), _row(p[n] if p.size else p_room.ctypes.data, size)
            own_1, other_1 = _row(q1[n], size) if q1.size else own, other
            if finds_p1:
                other_1 = _row(p1[n] if p1.size else p1_room.ctypes.data, size)
            judged = _row(score[n], scores) if score.size else whole
            if method >= _TOKEN_V1:
                judged = own_1 if method == _TOKEN_V1 else other_1
            if logits.size:
                scored = _row(logits[n], size)
                top = _largest(scored)
                best = _softmax(scored, top, heat[n], less, other)
                if finds_p1:
                    best = _softmax(scored, top, 1.0, less, other_1)
                if method > _SPEED:
                    limit, mass = _test(method, lenience[n], own, other, own_1, best, judged, less, lanes)
            if threshold.size:
                if method:
                    threshold[n], deferred[n] = limit, mass
                else:
                    limit, mass = threshold[n], deferred[n]
            at[1] = other[token]
            if method == _SPEED:
                scale = _f4(1 - lenience[n])
                share = _kappa(own, other, scale, floor, less, more, lanes) if records else _ZERO
                at[2], at[3] = _by_ratio(at[0], at[1], scale, floor, share)
            else:
                at[4], at[5] = judged[token if judged.size > 1 else 0], limit
                at[2], at[3] = _by_rule(at[0], at[1], at[4], limit, mass, tiny)
            if not accept_coins[i, step] < at[3]:
                break
            accepted += 1
            if accepted == counts[i]:
                break
            step += 1
        if accepted < counts[i]:
            coin, at = resample_coins[i, step], out[:, i, step, 1]
            token = _draw_residual(own, other, judged, limit, mass, coin, row, blocks, lanes)
            at[0], at[1] = own[token], other[token]
            if method == _SPEED:
                at[2], at[3] = _by_ratio(at[0], at[1], _f4(1 - lenience[n]), floor, share)
            else:
                own_score = judged[token if judged.size > 1 else 0]
                at[2], at[3] = _by_rule(at[0], at[1], own_score, limit, mass, tiny)
        found[0, i], found[1, i], found[2, i] = accepted, step, token


@_helper
def _select(
    score: Array, weight: Array, tokens: Array, spare: Array, count: int, below: float, share: float
) -> float:
    """The smallest score among the first `count` of `tokens` up to which weights exceed `share`, `below` being that of others.

    Quickselect: around the score in the middle, again and again in the part that has the answer. `tokens` is overwritten.
    """
    first, stop, pivot = 0, count, np.inf
    while first < stop:
        pivot = score[tokens[(first + stop) // 2]]
        less, more, left, right = 0.0, 0.0, first, stop
        for i in range(first, stop):
            token = tokens[i]
            if score[token] < pivot:
                less += weight[token]
                spare[left] = token
                left += 1
            elif score[token] > pivot:
                right -= 1
                spare[right] = token
            else:
                more += weight[token]
        if below + less > share:
            stop = left
        elif below + less + more > share:
            return pivot
        else:
            below += less + more
            first = right
        for i in range(first, stop):
            tokens[i] = spare[i]
    return pivot


@_helper
def _crossing(
    score: Array,
    weight: Array,
    share: float,
    own: Any,
    tokens: Array,
    spare: Array,
    part: Array,
    lanes: Array,
) -> float:
    """See `crossing`; the last four, two of them as long as the row, are overwritten."""
    below, above, count = 0.0, 0.0, 0
    for start in range(0, score.size, BLOCK):
        block, weights = array_part(score, start, BLOCK), array_part(weight, start, BLOCK)
        some = _i4(0)
        for j in range(block.size):
            part[j] = _ZERO if block[j] > own else weights[j]
            some |= _i4(block[j] > own)
        below += _block_sum(array_part(part, 0, block.size), lanes)
        for j in range(block.size if some else 0):
            if block[j] > own:
                above += weights[j]
                tokens[count] = start + j
                count += 1
    if not share < below + above:
        return np.inf
    if below > share:
        return -np.inf
    return _select(score, weight, tokens, spare, count, below, share)


@_compile("void(i8[::1], i8[::1], i8, f8[::1], f4[::1], f8[::1])")
def crossing(scores: Array, weights: Array, size: int, share: Array, own: Array, out: Array) -> None:
    """The smallest score [n] above `own` [n] up to which weights exceed `share` [n].

    -inf where those up to `own` already do, inf where all together do not.
    """
    part, lanes = np.empty(BLOCK, _f4), np.empty(BLOCK // 2)
    tokens, spare = np.empty(size, np.int64), np.empty(size, np.int64)
    for i in range(len(scores)):
        score, weight = _row(scores[i], size), _row(weights[i], size)
        out[i] = _crossing(score, weight, share[i], own[i], tokens, spare, part, lanes)


@_helper
def _lenience_at(method: int, score: float, best: float, distance: float) -> float:
    """The lenience at which a score is the threshold of a cascade, by its place among the nine; `best` is max p1."""
    if method == _CHOW:
        return 1 - score
    if method == _TOKEN_V3:
        return 1 - score / best
    if method != _OPT:
        return best - score
    lack = best - score
    if distance > 0:
        return lack / distance
    return np.inf if lack > 0 else -np.inf


@_compile(
    "void(i8[::1], i8[::1], i8[::1], i8[::1], i8, i8[::1], f8[::1], f8[:,::1], f8[:,::1], f8, f4, f4[:,::1], f8[:,:,::1])"
)
def nine(
    q: Array,
    p: Array,
    q1: Array,
    p1: Array,
    size: int,
    tokens: Array,
    coins: Array,
    leniences: Array,
    ranges: Array,
    floor: float,
    tiny: Any,
    acceptances: Array,
    flips: Array,
) -> None:
    """What the paper's nine methods, in their order, make of draft tokens [n] with their coins at leniences [n, 9].

    Writes acceptances [n, 9] and flips [n, 9, 2], as `Counterfactual` has them; `ranges` [2, 9] are the methods' lenience ranges.
    """
    part, lanes = np.empty(BLOCK, _f4), np.empty(BLOCK // 2)
    some, spare = np.empty(size, np.int64), np.empty(size, np.int64)
    for i in range(len(tokens)):
        token, coin = tokens[i], coins[i]
        row_q, row_p = _row(q[i], size), _row(p[i], size)
        row_q1, row_p1 = _row(q1[i], size), _row(p1[i], size)
        own_q, own_p = row_q[token], row_p[token]
        wide_q, wide_p = np.float64(own_q), np.float64(own_p)
        surest, best = _largest(row_q1), _largest(row_p1)
        distance = _f4(_excess(row_q, row_p, part, lanes))
        # An untrusted token is accepted while the mass of q on all untrusted tokens exceeds this.
        share = coin * wide_q / max(wide_p, _LEAST_NORMAL) if wide_p > 0 else np.inf
        crossed = 0.0
        for method in range(leniences.shape[1]):
            lenience, until, since = leniences[i, method], np.inf, np.inf
            if method < _SPEED:
                acceptances[i, method] = _f4(1 - method)
            elif method == _SPEED:
                acceptances[i, method] = _by_ratio(own_q, own_p, _f4(1 - lenience), _f4(floor), _ZERO)[1]
                until = -np.inf
                if wide_p > coin * floor:
                    since = 1 - wide_p / max(coin * wide_q, _LEAST_NORMAL)
            else:
                threshold = _threshold(method, lenience, best, distance)
                if method < _TOKEN_V1:
                    score, deferred = surest, _ONE if surest < threshold else _ZERO
                    if not coin * wide_q < wide_p:
                        until = -np.inf
                else:
                    scores = row_q1 if method == _TOKEN_V1 else row_p1
                    score, deferred = scores[token], _f4(_mass_below(scores, threshold, row_q, part, lanes))
                    if method <= _TOKEN_V1 + 1:
                        crossed = _crossing(scores, row_q, share, score, some, spare, part, lanes)
                    until = _lenience_at(method, crossed, np.float64(best), np.float64(distance))
                since = _lenience_at(method, np.float64(score), np.float64(best), np.float64(distance))
                acceptances[i, method] = _by_rule(own_q, own_p, score, threshold, deferred, tiny)[1]
            low, high = ranges[0, method], ranges[1, method]
            first = until if until < since and low < until <= high and np.isfinite(until) else np.inf
            second = since if until < since and low < since <= high and np.isfinite(since) else np.inf
            flips[i, method, 0], flips[i, method, 1] = min(first, second), max(first, second)


@_compile("void(i8[::1], i8, f4[::1])")
def largest(values: Array, size: int, out: Array) -> None:
    """The largest [n] of `values` [n]."""
    for i in range(len(values)):
        out[i] = _largest(_row(values[i], size))


@_compile("void(i8[::1], i8, f4[::1], f4[:,::1])")
def neighbours(scores: Array, size: int, thresholds: Array, out: Array) -> None:
    """The lowest of `scores` [n] at or above a threshold [n], and the highest below it, [n, 2]; infinite where there is none."""
    above, below = np.empty(BLOCK, _f4), np.empty(BLOCK, _f4)
    for i in range(len(scores)):
        judged, threshold = _row(scores[i], size), thresholds[i]
        _fill(above, np.inf)
        _fill(below, -np.inf)
        for start in range(0, size, BLOCK):
            block = array_part(judged, start, BLOCK)
            for j in range(block.size):
                score = block[j]
                higher = score if score >= threshold else _f4(np.inf)
                lower = score if score < threshold else _f4(-np.inf)
                above[j] = np.fmin(higher, above[j])
                below[j] = np.fmax(lower, below[j])
        lowest, highest = _f4(np.inf), _f4(-np.inf)
        for j in range(BLOCK):
            lowest, highest = np.fmin(above[j], lowest), np.fmax(below[j], highest)
        out[i, 0], out[i, 1] = lowest, highest


@_helper
def _nth_largest(values: Array, tops: Array) -> Any:
    """The n-th largest of `values`; `tops` [n] becomes the n largest, in order."""
    last = tops.size - 1
    for j in range(tops.size):
        tops[j] = -np.inf
    for value in values:
        place = tops.size
        while place and value > tops[place - 1]:
            if place <= last:
                tops[place] = tops[place - 1]
            place -= 1
        if place <= last:
            tops[place] = value
    return tops[last]


@_helper
def _leading(row: Array, blocks: Array, lanes: Array, tops: Array, most: Array, tokens: Array) -> None:
    """One row of `leading`; `blocks`, `lanes` [BLOCK / 2] and `tops` [k] are overwritten."""
    last = most.size - 1
    for j in range(last + 1):
        most[j], tokens[j] = _ZERO, 0
    for block in range(blocks.size):
        blocks[block] = _block_largest(array_part(row, block * BLOCK, BLOCK), lanes)
    # As many blocks reach this as values are wanted, so no lower value is.
    least = _nth_largest(blocks, tops) if last < blocks.size else _ZERO
    for block in range(blocks.size):
        if not (blocks[block] > 0 and blocks[block] >= least and blocks[block] > most[last]):
            continue
        for j in range(block * BLOCK, min((block + 1) * BLOCK, row.size)):
            value = row[j]
            if value < least or not value > most[last]:
                continue
            place = last
            while place and value > most[place - 1]:
                most[place], tokens[place] = most[place - 1], tokens[place - 1]
                place -= 1
            most[place], tokens[place] = value, j


@_compile("void(i8[::1], i8, f4[:,::1], i8[:,::1])")
def leading(values: Array, size: int, most: Array, tokens: Array) -> None:
    """The largest positive values [n, k] of `values` [n] and their tokens, in order, the first of equals first; else 0."""
    blocks = np.empty(-(-size // BLOCK), _f4)
    lanes, tops = np.empty(BLOCK // 2, _f4), np.empty(most.shape[1], _f4)
    for i in range(len(values)):
        _leading(_row(values[i], size), blocks, lanes, tops, most[i], tokens[i])


@_compile(
    "void(i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], f4[::1], f4[::1], i8, f4, f4[:,:,::1], i8[:,:,::1])"
)
def leading_of_three(
    q: Array,
    p: Array,
    pi: Array,
    score: Array,
    scores: Array,
    threshold: Array,
    deferred: Array,
    size: int,
    floor: Any,
    most: Array,
    tokens: Array,
) -> None:
    """`leading` of q, p and pi [n], [3, n, k] each.

    pi is given where it is not 0. Elsewhere it is that of a cascade, by `score` [n] of so many `scores` (all tokens', or 1), threshold and
    deferred mass [n]; or of `speed`, where there are no scores, at the scale that is in the threshold's place.
    """
    blocks, row = np.empty(-(-size // BLOCK), _f4), np.empty(size, _f4)
    less, more, lanes = np.empty(BLOCK, _f4), np.empty(BLOCK, _f4), np.empty(BLOCK // 2)
    halves, tops = np.empty(BLOCK // 2, _f4), np.empty(most.shape[2], _f4)
    for i in range(len(q)):
        own, other, emitted = _row(q[i], size), _row(p[i], size), row
        if pi[i]:
            emitted = _row(pi[i], size)
        elif scores[i]:
            _mixture(own, other, _row(score[i], scores[i]), threshold[i], deferred[i], emitted)
        else:
            _speed(own, other, threshold[i], floor, less, more, lanes, emitted)
        _leading(own, blocks, halves, tops, most[0, i], tokens[0, i])
        _leading(other, blocks, halves, tops, most[1, i], tokens[1, i])
        _leading(emitted, blocks, halves, tops, most[2, i], tokens[2, i])


ALL = tuple(_SIGNATURES)
for _name in ALL:
    del globals()[_name]  # so that it is asked of `__getattr__`
