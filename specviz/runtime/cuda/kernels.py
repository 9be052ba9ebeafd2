"""Triton kernels of a decoder's pass over a few tokens: norms, products with what follows them, and attention in parts.

In transformers a layer is some fifty kernels, whose launches take longer than reading its weights; here it is eight.
Tokens are the columns of a product and weights its rows, summed in the same steps whatever the number of tokens, so that a
token's bits do not depend on what else a pass reads. Sums are float32. The kernels take pointers and sizes, no model.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def normalize(x, weight, out, hidden, epsilon, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Root-mean-square norm (Zhang and Sennrich 2019, equation 4) of tokens x [T, hidden]: out [T, hidden]."""
    k = tl.arange(0, BLOCK)
    own = tl.program_id(0).to(tl.int64) * hidden + k
    values = tl.load(x + own, mask=k < hidden, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values, 0) / hidden + epsilon)
    turned = values * scale * tl.load(weight + k, mask=k < hidden, other=0.0).to(tl.float32)
    tl.store(out + own, turned.to(out.dtype.element_ty), mask=k < hidden)


@triton.jit
def _columns(x, t, tokens, k, width):  # type: ignore[no-untyped-def]
    """A tile [BK, BT] of tokens x [T, width], as columns; zeros outside x."""
    seen = (t < tokens)[None, :] & (k < width)[:, None]
    return tl.load(x + t.to(tl.int64)[None, :] * width + k[:, None], mask=seen, other=0.0)


@triton.jit
def _rows(weight, rows, valid, k, width):  # type: ignore[no-untyped-def]
    """A tile [BN, BK] of a weight [N, width]; zeros outside it."""
    seen = valid[:, None] & (k < width)[None, :]
    return tl.load(weight + rows.to(tl.int64)[:, None] * width + k[None, :], mask=seen, other=0.0)


@triton.jit
def _two_products(  # type: ignore[no-untyped-def]
    x, t, tokens, one, rows, other, other_rows, valid,
    WIDTH: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, BT: tl.constexpr,
):  # fmt: skip
    """BN rows of each of two weights, times BT of the tokens x [T, WIDTH]: two tiles, float32 [BN, BT]."""
    first = tl.zeros([BN, BT], tl.float32)
    second = tl.zeros([BN, BT], tl.float32)
    for start in range(0, WIDTH, BK):
        k = start + tl.arange(0, BK)
        tile = _columns(x, t, tokens, k, WIDTH)
        first = tl.dot(_rows(one, rows, valid, k, WIDTH), tile, first)
        second = tl.dot(_rows(other, other_rows, valid, k, WIDTH), tile, second)
    return first, second


@triton.jit
def project_heads(  # type: ignore[no-untyped-def]
    x, q_weight, k_weight, v_weight, q_bias, k_bias, v_bias, q_norm, k_norm,
    cosines, sines, positions, index, queries, keys, values,
    tokens, columns, epsilon, slot_step, head_step,
    WIDTH: tl.constexpr, HEADS: tl.constexpr, KEY_HEADS: tl.constexpr, SIZE: tl.constexpr, BIASED: tl.constexpr, NORMED: tl.constexpr,
    HALF: tl.constexpr, BK: tl.constexpr, BT: tl.constexpr,
):  # fmt: skip
    """Queries, keys and values of normalized tokens x [T, WIDTH]; keys and values go to the KV cache.

    A program computes rows i and i + SIZE / 2 of a head, which rotary positions rotate together.

    Args:
        q_weight, k_weight, v_weight: [heads · SIZE, WIDTH], and their biases [heads · SIZE], where BIASED.
        q_norm, k_norm: [SIZE], where NORMED (Qwen3).
        cosines, sines: float32 [positions, SIZE / 2].
        positions, index: int64 [T], each token's position, and the index at which its key and value are written.
        queries: [T, HEADS, SIZE], written. keys, values: [slots, KEY_HEADS, length, SIZE], written.
        columns: number of tokens of each slot: token t is in slot t // columns.
        slot_step, head_step: elements from one slot's keys to the next slot's, and from one head's to the next head's.
        HALF: rows of each half that a program computes; SIZE / 2 where NORMED.
    """
    blocks: tl.constexpr = SIZE // 2 // HALF
    head, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    low = block * HALF + tl.arange(0, HALF)
    if head < HEADS:
        weight, bias, own, turn = q_weight, q_bias, head, q_norm
    elif head < HEADS + KEY_HEADS:
        weight, bias, own, turn = k_weight, k_bias, head - HEADS, k_norm
    else:
        weight, bias, own, turn = v_weight, v_bias, head - HEADS - KEY_HEADS, k_norm
    t = tl.program_id(1) * BT + tl.arange(0, BT)
    real = t < tokens
    rows = own * SIZE + low
    every = low >= 0
    first, second = _two_products(
        x, t, tokens, weight, rows, weight, rows + SIZE // 2, every, WIDTH, HALF, BK, BT
    )
    if BIASED:
        first += tl.load(bias + own * SIZE + low).to(tl.float32)[:, None]
        second += tl.load(bias + own * SIZE + SIZE // 2 + low).to(tl.float32)[:, None]
    if head < HEADS + KEY_HEADS:
        if NORMED:
            again = tl.rsqrt((tl.sum(first * first, 0) + tl.sum(second * second, 0)) / SIZE + epsilon)[
                None, :
            ]
            first *= again * tl.load(turn + low).to(tl.float32)[:, None]
            second *= again * tl.load(turn + SIZE // 2 + low).to(tl.float32)[:, None]
        where = tl.load(positions + t, mask=real, other=0)
        turned = where[None, :] * (SIZE // 2) + low[:, None]
        cosine, sine = tl.load(cosines + turned), tl.load(sines + turned)
        first, second = first * cosine - second * sine, second * cosine + first * sine
    if head < HEADS:
        target = queries
        to = t.to(tl.int64) * (HEADS * SIZE) + own * SIZE
    else:
        target = values
        if head < HEADS + KEY_HEADS:
            target = keys
        written = tl.load(index + t, mask=real, other=0)
        to = (t // columns).to(tl.int64) * slot_step + own * head_step + written * SIZE
    target += to[None, :] + low[:, None]
    tl.store(target, first.to(target.dtype.element_ty), mask=real[None, :])
    tl.store(target + SIZE // 2, second.to(target.dtype.element_ty), mask=real[None, :])


@triton.jit
def attend(  # type: ignore[no-untyped-def]
    queries, keys, values, positions, mixed, largest, sums,
    tokens, columns, scale, slot_step, head_step,
    HEADS: tl.constexpr, KEY_HEADS: tl.constexpr, SIZE: tl.constexpr, PART: tl.constexpr, BQ: tl.constexpr,
):  # fmt: skip
    """Attention of the queries of one slot and key-value head to one part of the positions; parts that no query sees are skipped.

    Args:
        queries: [T, HEADS, SIZE]. keys, values, columns, slot_step, head_step: as in `project_heads`.
        positions: int64 [T]: a query sees positions at or before its own.
        mixed: float32 [parts, T, HEADS, SIZE], written: the sum of values, weighted by exp(score − largest score).
        largest, sums: float32 [parts, T, HEADS], written: the largest score, and the sum of the exponentials.
    """
    sharing: tl.constexpr = HEADS // KEY_HEADS
    pair, part = tl.program_id(0), tl.program_id(2)
    slot, group = pair // KEY_HEADS, pair % KEY_HEADS
    query = tl.program_id(1) * BQ + tl.arange(0, BQ)
    real = query < columns * sharing
    t = slot * columns + query // sharing
    head = t.to(tl.int64) * HEADS + group * sharing + query % sharing
    where = tl.load(positions + t, mask=real, other=-1)
    if part * PART <= tl.max(where, 0):
        d = tl.arange(0, SIZE)
        seen = part * PART + tl.arange(0, PART)
        readable = seen * SIZE < head_step
        at = slot.to(tl.int64) * slot_step + group * head_step + seen.to(tl.int64) * SIZE
        q = tl.load(queries + head[:, None] * SIZE + d[None, :], mask=real[:, None], other=0.0)
        k = tl.load(keys + at[None, :] + d[:, None], mask=readable[None, :], other=0.0)
        score = tl.where(seen[None, :] <= where[:, None], tl.dot(q, k) * scale, -float("inf"))
        top = tl.max(score, 1)
        share = tl.exp(score - tl.maximum(top, -1e30)[:, None])
        v = tl.load(values + at[:, None] + d[None, :], mask=readable[:, None], other=0.0)
        found = tl.dot(share.to(v.dtype), v)
        own = part.to(tl.int64) * tokens * HEADS + head
        tl.store(largest + own, top, mask=real)
        tl.store(sums + own, tl.sum(share, 1), mask=real)
        tl.store(mixed + own[:, None] * SIZE + d[None, :], found, mask=real[:, None])


@triton.jit
def join_parts(  # type: ignore[no-untyped-def]
    mixed, largest, sums, positions, out, tokens,
    HEADS: tl.constexpr, SIZE: tl.constexpr, PART: tl.constexpr,
):  # fmt: skip
    """Combine the parts that `attend` wrote for one head of one token, in their order: out [T, HEADS, SIZE]."""
    own = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, SIZE)
    parts = tl.load(positions + own // HEADS) // PART + 1
    top = tl.load(largest + own)
    total = tl.load(sums + own)
    result = tl.load(mixed + own * SIZE + d)
    at, part = own, 1
    while part < parts:  # one after another, so that bits do not depend on how many parts follow
        at += tokens * HEADS
        part += 1
        score = tl.load(largest + at)
        higher = tl.maximum(top, score)
        before, now = tl.exp(top - higher), tl.exp(score - higher)
        total = total * before + tl.load(sums + at) * now
        result = result * before + tl.load(mixed + at * SIZE + d) * now
        top = higher
    tl.store(out + own * SIZE + d, (result / total).to(out.dtype.element_ty))


@triton.jit
def product(  # type: ignore[no-untyped-def]
    x, weight, out, tokens, outputs,
    WIDTH: tl.constexpr, ADDS: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, BT: tl.constexpr,
):  # fmt: skip
    """out [T, outputs] = x [T, WIDTH] times weight [outputs, WIDTH], or += where ADDS."""
    rows = tl.program_id(0) * BN + tl.arange(0, BN)
    valid = rows < outputs
    t = tl.program_id(1) * BT + tl.arange(0, BT)
    total = tl.zeros([BN, BT], tl.float32)
    for start in range(0, WIDTH, BK):
        k = start + tl.arange(0, BK)
        total = tl.dot(_rows(weight, rows, valid, k, WIDTH), _columns(x, t, tokens, k, WIDTH), total)
    written = valid[:, None] & (t < tokens)[None, :]
    target = out + t.to(tl.int64)[None, :] * outputs + rows[:, None]
    if ADDS:
        total += tl.load(target, mask=written, other=0.0).to(tl.float32)
    tl.store(target, total.to(out.dtype.element_ty), mask=written)


@triton.jit
def gated_product(  # type: ignore[no-untyped-def]
    x, gate, up, out, tokens, inner,
    WIDTH: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, BT: tl.constexpr,
):  # fmt: skip
    """out [T, inner] = silu(x gate) · (x up), of normalized tokens x [T, WIDTH] (SwiGLU, Shazeer 2020)."""
    rows = tl.program_id(0) * BN + tl.arange(0, BN)
    valid = rows < inner
    t = tl.program_id(1) * BT + tl.arange(0, BT)
    first, second = _two_products(x, t, tokens, gate, rows, up, rows, valid, WIDTH, BN, BK, BT)
    result = first / (1 + tl.exp(-first)) * second
    target = out + t.to(tl.int64)[None, :] * inner + rows[:, None]
    tl.store(target, result.to(out.dtype.element_ty), mask=valid[:, None] & (t < tokens)[None, :])
