"""Weights in the order in which the fused pass reads them.

Sixteen outputs stand side by side, and what they need for 32 inputs lies together: for Q4_1 four words a lane of eight 4-bit levels
(low halves of their bytes are inputs 8u … 8u + 3, high halves 8u + 4 … 8u + 7), then scales, then minima; for Q8_0 eight
words of four bytes, 128 too large, two blocks at a time, then their scales; for floats the inputs one after another. Values are
never changed. Knows arrays; knows no model.
"""

from __future__ import annotations

import numpy as np

from specviz.runtime.cpu.fused.products import BLOCK, Format
from specviz.runtime.cpu.fused.vectors import LANES

Bytes = np.ndarray
"""uint8 [outputs, bytes]: a matrix row by row, in GGUF's blocks or as floats."""

_LOW = np.uint32(0x0F0F0F0F)
"""The low halves of four bytes."""
_ROW_BYTES = {Format.Q4_1: 20 / 32, Format.Q8_0: 34 / 32, Format.BF16: 2.0, Format.F16: 2.0, Format.F32: 4.0}


def inputs(weights: Bytes, kind: Format) -> int:
    """Number of inputs of a matrix."""
    return int(weights.shape[1] / _ROW_BYTES[kind])


def arrange(weights: Bytes, kind: Format) -> np.ndarray:
    """uint8 [groups, bytes] of a matrix; outputs are filled up to a multiple of 16 with zeros."""
    missing = -len(weights) % LANES
    if missing:
        weights = np.concatenate([weights, np.zeros((missing, weights.shape[1]), np.uint8)])
    lanes = weights.reshape(len(weights) // LANES, LANES, weights.shape[1])
    groups = len(lanes)
    if kind is Format.Q4_1:
        return _q4_1(lanes).reshape(groups, -1)
    if kind is Format.Q8_0:
        return _q8_0(lanes).reshape(groups, -1)
    size = int(_ROW_BYTES[kind])
    return np.ascontiguousarray(lanes.reshape(groups, LANES, -1, size).transpose(0, 2, 1, 3)).reshape(
        groups, -1
    )


def _q4_1(lanes: np.ndarray) -> np.ndarray:
    groups, count = len(lanes), lanes.shape[2] // 20
    found = np.empty((groups, count, 20 * LANES), np.uint8)
    # Four bytes at once. GGUF has inputs 0 … 15 of a block in the low halves of its bytes, 16 … 31 in the high ones.
    packed = lanes.view(np.uint32).reshape(groups, LANES, count, 5)[..., 1:]
    words = found[..., : 16 * LANES].view(np.uint32).reshape(groups, count, 4, LANES)
    even, odd = packed[..., ::2], packed[..., 1::2]
    words[:, :, :2] = (even & _LOW | (odd & _LOW) << 4).transpose(0, 2, 3, 1)
    words[:, :, 2:] = (even >> 4 & _LOW | odd & ~_LOW).transpose(0, 2, 3, 1)
    sides = lanes.view(np.uint16).reshape(groups, LANES, count, 10)[..., :2]
    found[..., 16 * LANES :].view(np.uint16).reshape(groups, count, 2, LANES)[:] = sides.transpose(0, 2, 3, 1)
    return found


def _q8_0(lanes: np.ndarray) -> np.ndarray:
    groups, count = len(lanes), lanes.shape[2] // 34
    blocks = lanes.reshape(groups, LANES, count, 34)
    words = (blocks[..., 2:] ^ 0x80).reshape(groups, LANES, count, 8, 4).transpose(0, 2, 3, 1, 4)
    parts = [words.reshape(groups, count // 2, -1), _side(blocks[..., :2]).reshape(groups, count // 2, -1)]
    return np.concatenate(parts, axis=-1)


def _side(scales: np.ndarray) -> np.ndarray:
    """[groups, lanes, blocks, 2] -> [groups, blocks, lanes · 2]."""
    groups, lanes, count, _ = scales.shape
    return scales.transpose(0, 2, 1, 3).reshape(groups, count, lanes * 2)


def adjacent_pairs(heads: int, size: int) -> np.ndarray:
    """Order of a matrix's outputs that brings together the two that rotary positions turn: transformers has them half a head
    apart. Keys and queries ordered alike have the same products.
    """
    own = np.arange(size).reshape(2, size // 2).T.reshape(-1)
    return (np.arange(heads)[:, None] * size + own).reshape(-1)


class Room:
    """One block of memory, handed out in parts that begin at cache lines. One, so that the system may map it in large pages: with
    small ones the pass reads at a third of the memory's speed.
    """

    def __init__(self, size: int) -> None:
        """Room for `size` bytes, what is lost between parts included."""
        self._bytes = np.empty(size + LINE, np.uint8)
        self._used = -self._bytes.ctypes.data % LINE

    def take(self, size: int) -> np.ndarray:
        """The next `size` bytes, uint8."""
        part = self._bytes[self._used : self._used + size]
        self._used += -(-size // LINE) * LINE
        return part


LINE = 64
"""Bytes of a cache line."""


def arranged_bytes(outputs: int, inputs: int, kind: Format) -> int:
    """Bytes of a matrix in this layout."""
    return -(-outputs // LANES) * inputs // BLOCK * kind.block_bytes
