"""Compiled loops over a vocabulary: softmax, draws, sums, the largest values of float32 rows. They know no method.

`compiled` is the one caller from Python; drafting calls `sample` and `spread` from compiled code. Rows [n] of V tokens come as their
addresses, so that strided rows need no copy; all else are C-contiguous arrays. Every sum is taken in float64 and in an order
that depends on the row's length alone, so that a row gets the same bits whatever is beside it (laws 2 and 3).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit, types

from specviz.compat.numba import array_at, array_part, compiled_for_python, digest

Array = np.ndarray
_SOURCES = digest(Path(__file__))

BLOCK = 512
"""Block size of the two-level cumulative sum used to draw a token."""
_f4, _i4 = np.float32, np.int32
_LOG2E, _LN2_HIGH, _LN2_LOW = _f4(1.44269504), _f4(0.693359375), _f4(-2.12194440e-4)
_ROUND = _f4(12582912.0)
"""Adding this rounds a small float32 to a whole number, which is then in its lowest bits."""
_EXP = tuple(map(_f4, (1.9875691e-4, 1.3981999e-3, 8.3334519e-3, 4.1665795e-2, 1.6666665e-1, 5.0000001e-1)))
"""Coefficients of (exp(x) - 1 - x) / x² around 0, from the highest (Cephes)."""
_LEAST = _f4(-88.0)
"""Where 2 to the power of x / log 2 has the exponent of 0: exp is 0 from a little before on, where normal numbers end."""
_ZERO, _ONE = _f4(0), _f4(1)

_SIGNATURES: dict[str, tuple[Callable[..., Any], str]] = {}
"""The loops that Python calls, and their types, by name."""
FIRST = (
    "crossing",
    "leading",
    "draw_residual",
    "draw",
    "mass_below",
    "excess",
    "largest",
    "nearest",
    "softmax",
)
"""What rounds need beside the two loops of the draft pass."""


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
    loop = compiled_for_python(
        function, signature, name=f"loop-{name}", sources=_SOURCES, nogil=True, error_model="numpy"
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


# Fused products and sums are exacter, and the same in every lane.
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


@_compile("void(i8[::1], f8[::1], f4[:,::1])")
def softmax(logits: Array, temperature: Array, out: Array) -> None:
    """Probabilities [n, V] of `logits` [n] at temperatures [n]; one-hot at the first argmax where that is 0."""
    lanes = np.empty(BLOCK, _f4)
    for i in range(len(logits)):
        row, probabilities = _row(logits[i], out.shape[1]), out[i]
        top = _largest(row)
        if temperature[i] == 0:
            _fill(probabilities, _ZERO)
            probabilities[_first(row, top)] = _ONE
            continue
        scale = _weigh(row, top, temperature[i], lanes, probabilities)
        for j in range(row.size):
            probabilities[j] *= scale


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
    logits: int,
    known: int,
    count: int,
    out: int,
    size: int,
    temperature: float,
    uniform: float,
    confident: bool,
) -> tuple[int, Any]:
    """`softmax` of a row of logits to a row of `size`, and a `draw` from it: the token, and its `sampling.confidence` where wanted.

    Rows come as addresses. Logits are of `count` known tokens, ascending int64, or of all where that is 0.
    """
    lanes, halves, blocks = np.empty(BLOCK, _f4), np.empty(BLOCK // 2), np.empty(-(-size // BLOCK))
    row, found, tokens = _row(logits, count if count else size), _row(out, size), _tokens(known, count)
    top, total, scale = _largest(row), 0.0, _ONE
    if temperature > 0 or confident:
        divisor = temperature if temperature > 0 else 1.0
        if count:
            scale = _weigh_known(row, tokens, top, divisor, lanes, np.empty(count, _f4), found)
        else:
            scale = _weigh(row, top, divisor, lanes, found)
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


@_compile("void(i8[:,::1], i8, f4[::1], f4[::1], f8[::1], i8[::1])")
def draw_residual(
    rows: Array, size: int, threshold: Array, share: Array, uniform: Array, tokens: Array
) -> None:
    """Draws [n] by max(0, m - q), or by the mixture m where that has no mass, m = q where score >= threshold, and share · p more.

    `rows` [n, 3] are those of q, p and score; threshold, share and uniform are [n].
    """
    lanes, blocks, weights = np.empty(BLOCK // 2), np.empty(-(-size // BLOCK)), np.empty(size, _f4)
    for i in range(len(rows)):
        q, p, score = _row(rows[i, 0], size), _row(rows[i, 1], size), _row(rows[i, 2], size)
        for subtracted in (_ONE, _ZERO):
            total = 0.0
            for block in range(blocks.size):  # all of it while the block is in the nearest cache
                start = block * BLOCK
                less, more = array_part(q, start, BLOCK), array_part(weights, start, BLOCK)
                other, judged = array_part(p, start, BLOCK), array_part(score, start, BLOCK)
                for j in range(more.size):
                    kept = less[j] if judged[j] >= threshold[i] else _ZERO
                    rest = (kept + other[j] * share[i]) - subtracted * less[j]
                    more[j] = _ZERO if rest < 0 else rest
                total += _block_sum(more, lanes)
                blocks[block] = total
            if not total <= 0:
                break
        tokens[i] = _draw(weights, blocks, uniform[i])


@_compile("void(i8[::1], f4[::1], i8[::1], i8, f4[::1])")
def mass_below(scores: Array, thresholds: Array, weights: Array, size: int, out: Array) -> None:
    """The weight [n] of tokens whose score [n] is below a threshold [n]."""
    part, lanes = np.empty(BLOCK, _f4), np.empty(BLOCK // 2)
    for i in range(len(weights)):
        score, weight, threshold, total = _row(scores[i], size), _row(weights[i], size), thresholds[i], 0.0
        for start in range(0, size, BLOCK):
            block, own = array_part(score, start, BLOCK), array_part(weight, start, BLOCK)
            for j in range(own.size):
                part[j] = own[j] if block[j] < threshold else _ZERO
            total += _block_sum(array_part(part, 0, own.size), lanes)
        out[i] = total


@_compile("void(i8[::1], i8[::1], i8, f4[::1])")
def excess(left: Array, right: Array, size: int, out: Array) -> None:
    """The sum [n] of max(0, left - right), each [n]."""
    part, lanes = np.empty(BLOCK, _f4), np.empty(BLOCK // 2)
    for i in range(len(left)):
        own, other, total = _row(left[i], size), _row(right[i], size), 0.0
        for start in range(0, size, BLOCK):
            block, less = array_part(own, start, BLOCK), array_part(other, start, BLOCK)
            for j in range(block.size):
                more = block[j] - less[j]
                part[j] = _ZERO if more < 0 else more
            total += _block_sum(array_part(part, 0, block.size), lanes)
        out[i] = total


@_helper
def _select(
    score: Array, weight: Array, tokens: Array, spare: Array, count: int, below: float, share: float
) -> float:
    """The smallest score among the first `count` of `tokens` up to which weights exceed `share`; `below` is the weight of others.

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


@_compile("void(i8[::1], i8[::1], i8, f8[::1], f4[::1], f8[::1])")
def crossing(scores: Array, weights: Array, size: int, shares: Array, own: Array, out: Array) -> None:
    """The smallest score [n] above `own` [n] up to which weights exceed `shares` [n].

    -inf where those up to `own` already do, inf where all together do not.
    """
    part, lanes = np.empty(BLOCK, _f4), np.empty(BLOCK // 2)
    tokens, spare = np.empty(size, np.int64), np.empty(size, np.int64)
    for i in range(len(scores)):
        score, weight, share = _row(scores[i], size), _row(weights[i], size), shares[i]
        below, above, count = 0.0, 0.0, 0
        for start in range(0, size, BLOCK):
            block, weighed = array_part(score, start, BLOCK), array_part(weight, start, BLOCK)
            some = _i4(0)
            for j in range(block.size):
                part[j] = _ZERO if block[j] > own[i] else weighed[j]
                some |= _i4(block[j] > own[i])
            below += _block_sum(array_part(part, 0, block.size), lanes)
            for j in range(block.size if some else 0):
                if block[j] > own[i]:
                    above += weighed[j]
                    tokens[count] = start + j
                    count += 1
        if not share < below + above:
            out[i] = np.inf
        elif below > share:
            out[i] = -np.inf
        else:
            out[i] = _select(score, weight, tokens, spare, count, below, share)


@_compile("void(i8[::1], i8, f4[::1])")
def largest(values: Array, size: int, out: Array) -> None:
    """The largest [n] of `values` [n]."""
    for i in range(len(values)):
        out[i] = _largest(_row(values[i], size))


@_compile("void(i8[::1], i8, f4[::1], f4[:,::1])")
def nearest(values: Array, size: int, limits: Array, out: Array) -> None:
    """The largest of `values` [n] below a limit [n], and the smallest from it on: [n, 2]."""
    low, high = np.empty(BLOCK, _f4), np.empty(BLOCK, _f4)
    for i in range(len(values)):
        row, limit = _row(values[i], size), limits[i]
        _fill(low, -np.inf)
        _fill(high, -np.inf)
        for start in range(0, size, BLOCK):
            block = array_part(row, start, BLOCK)
            for j in range(block.size):
                below = block[j] < limit
                low[j] = np.fmax(block[j] if below else _f4(-np.inf), low[j])
                high[j] = np.fmax(_f4(-np.inf) if below else -block[j], high[j])
        out[i, 0], out[i, 1] = _most(low), -_most(high)


@_helper
def _insert(start: int, block: Array, most: Array, tokens: Array) -> None:
    """Let the values of a block, which begins at `start`, into the largest so far and their tokens."""
    last = most.size - 1
    for j in range(block.size):
        if not block[j] > most[last]:
            continue
        index = last
        while index and block[j] > most[index - 1]:
            most[index], tokens[index] = most[index - 1], tokens[index - 1]
            index -= 1
        most[index], tokens[index] = block[j], start + j


@_compile("void(i8[::1], i8, f4[:,::1], i8[:,::1])")
def leading(values: Array, size: int, most: Array, tokens: Array) -> None:
    """The largest positive values [n, k] of `values` [n] and their tokens, in order, the first of equals first; else 0."""
    lanes = np.empty(BLOCK // 2, _f4)
    for i in range(len(values)):
        row = _row(values[i], size)
        _fill(most[i], _ZERO)
        _fill(tokens[i], 0)
        for start in range(0, size, BLOCK):
            block = array_part(row, start, BLOCK)
            if _block_largest(block, lanes) > most[i, -1]:
                _insert(start, block, most[i], tokens[i])


ALL = tuple(_SIGNATURES)
for _name in ALL:
    del globals()[_name]  # so that it is asked of `__getattr__`
