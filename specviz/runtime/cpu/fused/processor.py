"""What the processor has for products of integers, as numba compiles for it."""

from __future__ import annotations

import ctypes
import sys
from enum import Enum
from functools import cache

from specviz.compat.numba import target_features

_ARCH_PRCTL, _REQUEST_PERMISSION, _TILES = 158, 0x1023, 18
"""Linux's numbers, on x86-64: its call, what to ask it for, and of what."""


class DotProducts(Enum):
    """How four products of bytes are summed into a 32-bit lane.

    VNNI_512, VNNI_256: one instruction of AVX-512-VNNI or AVX-VNNI, for 16 or 8 lanes.
    PAIRS: multiplication of 16-bit numbers and addition in pairs, which LLVM finds on any processor.
    """

    VNNI_512 = "AVX-512-VNNI"
    VNNI_256 = "AVX-VNNI"
    PAIRS = "AVX2"


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


@cache
def has_tiles() -> bool:
    """Whether there is a matrix unit for bytes, and this process may use it: Linux has to be asked once, for all threads."""
    if dot_products() is not DotProducts.VNNI_512 or not {"amx-tile", "amx-int8"} <= target_features():
        return False
    if sys.platform != "linux":
        return False
    return ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILES) == 0
