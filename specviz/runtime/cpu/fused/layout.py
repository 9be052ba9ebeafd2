"""Weights in the order in which the fused pass reads them.

Outputs are in groups of sixteen lanes; a group is stored in blocks of 32 inputs. Q4_1: a block has four words per lane, each of eight
4-bit levels (in word u, low halves of bytes are inputs 8u … 8u + 3, high halves 8u + 4 … 8u + 7), then scales, then minima. Q8_0: blocks
are in pairs: for each block eight words per lane, of four bytes that are stored 128 too large; then both blocks' scales. Floats: input by
input. No value is rounded.
"""

from __future__ import annotations

import numpy as np

from specviz.runtime.cpu.fused.memory import CACHE_LINE
from specviz.runtime.cpu.fused.products import BLOCK, Format
from specviz.runtime.cpu.fused.vectors import LANES

Bytes = np.ndarray
"""uint8 [outputs, bytes]: the rows of a matrix, in blocks of GGUF or as floats."""

_LOW, _SIGNS = np.uint32(0x0F0F0F0F), np.uint32(0x80808080)
"""Masks: the low halves of four bytes, and their highest bits."""
ROW_BYTES = {Format.Q4_1: 20 / 32, Format.Q8_0: 34 / 32, Format.BF16: 2.0, Format.F16: 2.0, Format.F32: 4.0}
"""Bytes per weight, as published."""


def inputs(weights: Bytes, kind: Format) -> int:
    """Number of inputs of a matrix."""
    return int(weights.shape[1] / ROW_BYTES[kind])


def arrange(weights: Bytes, kind: Format, found: np.ndarray) -> None:
    """Write a matrix to `found`, uint8 [groups, bytes]; the last group is padded with outputs of zeros."""
    missing = -len(weights) % LANES
    if missing:
        weights = np.concatenate([weights, np.zeros((missing, weights.shape[1]), np.uint8)])
    lanes = np.ascontiguousarray(weights).reshape(-1, LANES, weights.shape[1])
    write = {Format.Q4_1: _q4_1, Format.Q8_0: _q8_0}.get(kind, _floats)
    write(lanes, found, inputs(weights, kind))


def _q4_1(lanes: np.ndarray, found: np.ndarray, count: int) -> None:
    groups, blocks = len(lanes), count // BLOCK
    found = found.reshape(groups, blocks, -1)
    # Four bytes at once. GGUF has inputs 0 … 15 of a block in the low halves of its bytes, 16 … 31 in the high ones.
    packed = lanes.view(np.uint32).reshape(groups, LANES, blocks, 5)[..., 1:]
    high = np.ascontiguousarray(packed.transpose(0, 2, 3, 1))
    low = high & _LOW
    high >>= np.uint32(4)
    high &= _LOW
    words = found[..., : 16 * LANES].view(np.uint32).reshape(groups, blocks, 2, 2, LANES)
    for index, part in enumerate((low, high)):
        np.left_shift(part[:, :, 1::2], np.uint32(4), out=words[:, :, index])
        words[:, :, index] |= part[:, :, ::2]
    sides = lanes.view(np.uint16).reshape(groups, LANES, blocks, 10)[..., :2]
    own = found[..., 16 * LANES :].view(np.uint16).reshape(groups, blocks, 2, LANES)
    own[:] = sides.transpose(0, 2, 3, 1)


def _q8_0(lanes: np.ndarray, found: np.ndarray, count: int) -> None:
    shape = len(lanes), LANES, count // (2 * BLOCK), 2
    found = found.reshape(shape[0], shape[2], -1)
    blocks = lanes.reshape(*shape, 34)
    # Four bytes at once here too, although GGUF aligns them to even addresses only.
    words = np.ndarray((*shape, 8), np.uint32, blocks.data, 2, (*blocks.strides[:4], 4))
    levels = found[..., : 64 * LANES].view(np.uint32).reshape(shape[0], shape[2], 2, 8, LANES)
    levels[:] = words.transpose(0, 2, 3, 4, 1)
    levels ^= _SIGNS
    scales = found[..., 64 * LANES :].view(np.uint16).reshape(shape[0], shape[2], 2, LANES)
    scales[:] = blocks.view(np.uint16)[..., 0].transpose(0, 2, 3, 1)


def _floats(lanes: np.ndarray, found: np.ndarray, count: int) -> None:
    own = lanes.reshape(len(lanes), LANES, count, -1)
    found.reshape(len(lanes), count, LANES, -1)[:] = own.transpose(0, 2, 1, 3)


def adjacent_pairs(heads: int, size: int) -> np.ndarray:
    """Order of a matrix's outputs that makes the two outputs of each rotated pair adjacent; in transformers they are half a head
    apart. Scores stay the same, because queries and keys are reordered alike.
    """
    own = np.arange(size).reshape(2, size // 2).T.reshape(-1)
    return (np.arange(heads)[:, None] * size + own).reshape(-1)


def aligned(size: int) -> np.ndarray:
    """Zeros, uint8 [size], aligned to a cache line."""
    memory = np.zeros(size + CACHE_LINE, np.uint8)
    return memory[-memory.ctypes.data % CACHE_LINE :][:size]
