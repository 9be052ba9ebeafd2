"""The processor that numba compiles for: its dot-product instructions for integers, and its fastest way to read weights."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from specviz.compat.numba import target_features, target_name


class DotProducts(Enum):
    """How four products of bytes are added to a 32-bit lane.

    VNNI_512, VNNI_256: one instruction of AVX-512-VNNI or AVX-VNNI, for 16 or 8 lanes.
    PAIRS: 16-bit products that are added in pairs, for which LLVM selects an instruction on any processor.
    """

    VNNI_512 = "AVX-512-VNNI"
    VNNI_256 = "AVX-VNNI"
    PAIRS = "AVX2"


def dot_products() -> DotProducts | None:
    """The fastest method that the processor has; None if it lacks AVX2, FMA or F16C, without which the fused pass does not pay."""
    features = target_features()
    if not {"avx2", "fma", "f16c"} <= features:
        return None
    if {"avx512vnni", "avx512bw"} <= features:
        return DotProducts.VNNI_512
    if "avxvnni" in features:
        return DotProducts.VNNI_256
    return DotProducts.PAIRS


@dataclass(frozen=True)
class Reading:
    """How a product of a few rows reads its weights from memory.

    Attributes:
        groups: number of groups of 16 outputs computed at once, for two to six rows; with 2, an activation is loaded once for 32 outputs.
        nearness: cache that weights are prefetched to, in LLVM's numbering: 3 is the nearest, 2 the next; 0 bypasses the caches.
    """

    groups: int
    nearness: int


USUAL = Reading(groups=2, nearness=2)
"""Fastest on Intel processors and on Zen 4."""
ZEN_5 = Reading(groups=1, nearness=3)
"""On Zen 5, prefetching weights to the second-level cache would make passes of two to four rows a quarter slower."""
ZEN_5_PAST = Reading(groups=1, nearness=0)
"""On Zen 5, for weights too large to stay in a cache between passes: they bypass the caches, which keep the drafter's weights."""
_FITS = 32 << 20
"""Most bytes of weights that a last-level cache is assumed to hold between passes."""


def reading(size: int) -> Reading:
    """The fastest way to read `size` bytes of weights on this processor; `USUAL` for a processor that was not measured."""
    if target_name() != "znver5":
        return USUAL
    return ZEN_5 if size <= _FITS else ZEN_5_PAST
