"""Compiled loops over a vocabulary: softmax, draws, sums, the largest values of float32 rows. They know no method.

Importing this module compiles them, or reads them from the cache. `backend` is the only caller from Python; fused drafting calls
`sample` and `spread` from compiled code, with addresses. Sums are in float64; softmax first makes BLOCK partial sums in float32 ("lanes").
The order of summation depends only on the row's length, so a row gets the same bits whatever is computed beside it (laws 2 and 3).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit, types

from specviz.compat.numba import array_at, compiled_for_python, digest

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
"""Smaller x are raised to this. Already below about -87.7 the exponent bits of the power of 2 are 0, so exp(x) is computed as 0."""
_ZERO, _ONE = _f4(0), _f4(1)


def _compile(signature: str) -> Callable[[Callable[..., Any]], Any]:
    """Decorator of loops that Python calls: compiles them for this signature, or reads them from the cache."""

    def decorate(function: Callable[..., Any]) -> Any:
        name = f"loop-{function.__name__}"
        return compiled_for_python(
            function, signature, name=name, sources=_SOURCES, nogil=True, error_model="numpy"
        )

    return decorate


_INNER: dict[str, Any] = {"error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
_helper = njit(**_INNER)
"""Decorator of functions that only compiled functions call. numba compiles them with their first caller, for its argument types."""


_row, _tokens = array_at(types.float32), array_at(types.int64)
"""(address, size) -> the array of `size` numbers at the address, without a copy."""


@_helper
def _fill(row: Array, value: Any) -> None:
    """Sets all numbers. Assigning to a slice instead would take a second to compile."""
    for j in range(row.size):
        row[j] = value


@_helper
def _largest(row: Array) -> Any:
    """The largest value, ignoring NaN."""
    lanes = np.empty(BLOCK, _f4)
    _fill(lanes, -np.inf)
    for start in range(0, row.size, BLOCK):
        block = row[start : start + BLOCK]
        for j in range(block.size):
            lanes[j] = np.fmax(block[j], lanes[j])  # a conditional expression would not become vector code
    found = _f4(-np.inf)
    for lane in lanes:
        found = np.fmax(lane, found)
    return found


@_helper
def _block_sum(block: Array, lanes: Array) -> float:
    """The sum of up to BLOCK values; `lanes` [BLOCK / 2] is overwritten."""
    if block.size < BLOCK:
        rest = 0.0
        for j in range(block.size):
            rest += block[j]
        return rest
    left, right = block[:256], block[256:]
    for j in range(256):
        lanes[j] = np.float64(left[j]) + np.float64(right[j])
    for width in (128, 64, 32, 16):
        more = lanes[width : 2 * width]
        for j in range(width):
            lanes[j] += more[j]
    found = 0.0
    for j in range(16):
        found += lanes[j]
    return found


# Fused multiply-adds are more exact, and round alike in every lane.
@njit(**_INNER, fastmath={"contract"})
def _exponentials(row: Array, top: Any, scale: Any, out: Array) -> None:
    """Writes exp((x - top) · scale) for each x of `row`; no x may exceed `top`."""
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
    """Index of the first value that equals `top`, the largest value, or is NaN. Without NaN, this is torch's argmax."""
    for start in range(0, row.size, BLOCK):
        block = row[start : start + BLOCK]
        found = _i4(0)
        for j in range(block.size):
            found |= _i4(not block[j] < top)
        if found:
            for j in range(block.size):
                if not block[j] < top:
                    return start + j
    return 0


@_helper
def _one_hot(row: Array, top: Any, out: Array) -> int:
    """Writes 1 at the first value that equals `top`, the largest, else 0; NaN everywhere if a value is NaN or +inf. Returns the index."""
    unfit = _i4(not top < np.inf)
    for j in range(row.size):
        unfit |= _i4(row[j] != row[j])
    _fill(out, np.nan if unfit else 0.0)
    token = _first(row, top)
    if not unfit:
        out[token] = _ONE
    return token


@_helper
def _weigh(row: Array, top: Any, temperature: float, lanes: Array, out: Array) -> Any:
    """Writes exp((x - top) / temperature) for each x; returns the factor that normalises the results. `lanes` [BLOCK] is overwritten."""
    scale = _f4(1 / temperature)
    _fill(lanes, _ZERO)
    for start in range(0, row.size, BLOCK):
        block = out[start : start + BLOCK]
        _exponentials(row[start : start + BLOCK], top, scale, block)
        for j in range(block.size):
            lanes[j] += block[j]
    total = 0.0
    for j in range(BLOCK):
        total += lanes[j]
    return _f4(1 / total)


@_compile("void(f4[:,::1], f8[::1], f4[:,::1])")
def softmax(logits: Array, temperature: Array, out: Array) -> None:
    """Probabilities [n, V] of `logits` [n, V] at temperatures [n]; where the temperature is 0, one-hot at the first argmax."""
    lanes = np.empty(BLOCK, _f4)
    for i in range(len(logits)):
        row, probabilities = logits[i], out[i]
        top = _largest(row)
        if temperature[i] == 0:
            _one_hot(row, top, probabilities)
            continue
        scale = _weigh(row, top, temperature[i], lanes, probabilities)
        for j in range(row.size):
            probabilities[j] *= scale


@_helper
def _spread(logits: int, known: int, count: int, found: Array) -> None:
    tokens, some = _tokens(known, count), _row(logits, count if count else found.size)
    _fill(found, -np.inf)
    for j in range(some.size):
        found[tokens[j] if count else j] = some[j]


@_compile("void(i8, i8, i8, i8, i8)")
def spread(logits: int, known: int, count: int, out: int, size: int) -> None:
    """Expands a row of logits to all `size` tokens, with -inf for tokens that are not in `known`. Arguments as for `sample`."""
    _spread(logits, known, count, _row(out, size))


@_helper
def _cumulate(row: Array, blocks: Array, lanes: Array) -> float:
    """Writes to `blocks` the cumulative weight up to each block's end; returns the total weight."""
    total = 0.0
    for block in range(blocks.size):
        total += _block_sum(row[block * BLOCK : (block + 1) * BLOCK], lanes)
        blocks[block] = total
    return total


@_helper
def _draw(row: Array, blocks: Array, uniform: float) -> int:
    """The first token whose cumulative weight exceeds `uniform` times the total weight; `_cumulate` has written `blocks`."""
    # Rounding must not raise the threshold to the total, which no cumulative weight exceeds.
    threshold = min(uniform * blocks[-1], np.nextafter(blocks[-1], 0.0))
    block = 0
    while block < blocks.size - 1 and not blocks[block] > threshold:
        block += 1
    cumulative = blocks[block - 1] if block else 0.0
    found = row.size - 1  # stays if the weights are NaN or all 0
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
    """Write the `softmax` of a row of logits to `out`, and `draw` a token. Returns it and, if `confident`, its `sampling.confidence`.

    `logits`, `known` and `out` are addresses. `known` holds the `count` tokens that have logits, ascending int64; if `count` is 0, all
    `size` tokens have logits.
    """
    lanes, halves, blocks = np.empty(BLOCK, _f4), np.empty(BLOCK // 2), np.empty(-(-size // BLOCK))
    row, found = _row(logits, size), _row(out, size)
    if count:
        row = np.empty(size, _f4)
        _spread(logits, known, count, row)
    top, total, scale = _largest(row), 0.0, _ONE
    if temperature > 0 or confident:
        scale = _weigh(row, top, temperature if temperature > 0 else 1.0, lanes, found)
    if temperature == 0:
        return _one_hot(row, top, found), scale
    for block in range(blocks.size):
        own = found[block * BLOCK : (block + 1) * BLOCK]
        for j in range(own.size):
            own[j] *= scale
        total += _block_sum(own, halves)
        blocks[block] = total
    token = _draw(found, blocks, uniform)
    return token, found[token]


@_compile("void(f4[:,::1], f8[::1], i8[::1])")
def draw(weights: Array, uniform: Array, tokens: Array) -> None:
    """Inverse-CDF draws [n] from `weights` [n, V] at uniforms [n]: first the block, then the token in it."""
    lanes, blocks = np.empty(BLOCK // 2), np.empty(-(-weights.shape[1] // BLOCK))
    for i in range(len(weights)):
        _cumulate(weights[i], blocks, lanes)
        tokens[i] = _draw(weights[i], blocks, uniform[i])


@_compile("void(f4[:,::1], f4[:,::1], f8[::1], i8[::1])")
def draw_residual(weights: Array, q: Array, uniform: Array, tokens: Array) -> None:
    """As `draw`, from the residual max(0, weights - q) [n, V], or from `weights` where the residual has no mass."""
    size = weights.shape[1]
    residual, lanes, blocks = np.empty(size, _f4), np.empty(BLOCK // 2), np.empty(-(-size // BLOCK))
    for i in range(len(weights)):
        more, less = weights[i], q[i]
        for j in range(size):
            rest = more[j] - less[j]
            residual[j] = _ZERO if rest < 0 else rest
        if _cumulate(residual, blocks, lanes) <= 0:
            for j in range(size):
                residual[j] = more[j]
            _cumulate(residual, blocks, lanes)
        tokens[i] = _draw(residual, blocks, uniform[i])


@_compile("void(f4[:,::1], f4[::1])")
def total(values: Array, out: Array) -> None:
    """The sum [n] of `values` [n, V]."""
    lanes = np.empty(BLOCK // 2)
    for i in range(len(values)):
        found = 0.0
        for start in range(0, values.shape[1], BLOCK):
            found += _block_sum(values[i][start : start + BLOCK], lanes)
        out[i] = found


@_compile("void(f4[:,::1], f8[::1], f4[:,::1], f4[::1])")
def mass_below(scores: Array, thresholds: Array, weights: Array, out: Array) -> None:
    """Total weight [n] of the tokens whose score in `scores` [n, V] is below the row's threshold."""
    part, lanes = np.empty(BLOCK, _f4), np.empty(BLOCK // 2)
    for i in range(len(weights)):
        threshold, found = _f4(thresholds[i]), 0.0
        for start in range(0, weights.shape[1], BLOCK):
            block, own = scores[i][start : start + BLOCK], weights[i][start : start + BLOCK]
            for j in range(own.size):
                part[j] = own[j] if block[j] < threshold else _ZERO
            found += _block_sum(part[: own.size], lanes)
        out[i] = found


@_compile("void(f4[:,::1], f4[:,::1], i8[:,::1])")
def leading(values: Array, most: Array, tokens: Array) -> None:
    """Writes the k largest positive values of each row, [n, k], and their tokens: descending, ties by token id, 0 if there are fewer."""
    last = most.shape[1] - 1
    for i in range(len(values)):
        row = values[i]
        _fill(most[i], _ZERO)
        _fill(tokens[i], 0)
        for token in range(row.size):
            if not row[token] > most[i, last]:
                continue
            index = last
            while index and row[token] > most[i, index - 1]:
                most[i, index], tokens[i, index] = most[i, index - 1], tokens[i, index - 1]
                index -= 1
            most[i, index], tokens[i, index] = row[token], token
