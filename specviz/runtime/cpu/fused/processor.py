"""What the processor has for products of integers, and how it reads weights fastest, as numba compiles for it."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache

from specviz.compat.numba import target_features, target_name

_ARCH_PRCTL, _REQUEST_PERMISSION, _TILES = 158, 0x1023, 18
"""Linux's numbers, on x86-64: its call, what to ask it for, and of what."""


class DotProducts(Enum):
    """How four products of bytes are summed into a 32-bit lane.

    VNNI_512, VNNI_256: one instruction of AVX-512-VNNI or AVX-VNNI, for 16 or 8 lanes.
    PAIRS: multiplication of 16-bit numbers and addition in pairs, which LLVM finds on any processor.
    NIBBLES: AVX2's own of bytes, in half the time. Its sums have 16 bits, which only weights of 4 bits leave room in.
    """

    VNNI_512 = "AVX-512-VNNI"
    VNNI_256 = "AVX-VNNI"
    PAIRS = "AVX2"
    NIBBLES = "AVX2, 4-bit weights"


def dot_products() -> DotProducts | None:
    """The best there is; None on a processor on which the fused pass does not pay: without AVX2 and FMA."""
    features = target_features()
    if not {"avx2", "fma", "f16c"} <= features:
        return None
    if {"avx512vnni", "avx512bw"} <= features:
        return DotProducts.VNNI_512
    if "avxvnni" in features or {"avx512vnni", "avx512vl"} <= features:
        return DotProducts.VNNI_256
    return DotProducts.PAIRS


def has_wide_registers() -> bool:
    """Whether a register takes sixteen lanes, rather than eight."""
    return "avx512f" in target_features()


@dataclass(frozen=True)
class Reading:
    """How a product of a few rows reads its weights from memory.

    Attributes:
        groups: of 16 outputs at once, for two to six rows: 2 makes one activation do for 32 outputs.
        ahead: bytes that are prefetched beyond those multiplied, for each group at once.
        nearness: of the cache that they are prefetched to, as LLVM counts: 3 the nearest, 2 the next, 0 past all of them.
    """

    groups: int
    ahead: int
    nearness: int


USUAL = Reading(groups=2, ahead=8192, nearness=2)
"""As it was found on Intel processors and on Zen 4. The distance is an Intel one's (Cascade Lake): with 16 KB, more is read past the end of a
thread's share.
"""
ZEN_5 = Reading(groups=1, ahead=8192, nearness=3)
"""Weights that are prefetched to the second cache only make passes of two to four rows take a quarter longer there."""
ZEN_5_PAST = replace(ZEN_5, nearness=0)
"""Of weights that no cache keeps from pass to pass: read past the last one, they leave it to the drafter's, and to all that a round needs
beside weights.
"""
_FITS = 32 << 20
"""Bytes of weights that a last-level cache may keep."""


def reading(size: int) -> Reading:
    """The fastest for so many bytes of weights on the processor at hand, as far as it was measured."""
    if target_name() != "znver5":
        return USUAL
    return ZEN_5 if size <= _FITS else ZEN_5_PAST


@cache
def has_tiles() -> bool:
    """Whether there is a matrix unit for bytes, and this process may use it: Linux has to be asked once, for all threads."""
    if dot_products() is not DotProducts.VNNI_512 or not {"amx-tile", "amx-int8"} <= target_features():
        return False
    if sys.platform != "linux":
        return False
    return ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILES) == 0
