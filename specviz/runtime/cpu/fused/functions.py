"""The compiled functions of a pass. Each function here compiles one at first use, or reads it from the cache, and returns its address."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from specviz.compat.numba import CompiledFunction, digest
from specviz.runtime.cpu.fused import decoder_pass, layers, workers
from specviz.runtime.cpu.fused.layers import POSITIONS
from specviz.runtime.cpu.fused.memory import CACHE_LINE, FLOAT_BYTES, set_number
from specviz.runtime.cpu.fused.products import PANEL_ROWS, Format, Kernel, packer, product, unpacker
from specviz.runtime.cpu.fused.tables import matrix_at
from specviz.runtime.cpu.fused.vectors import LANES

_LOOPS = Path(__file__).parents[3] / "core" / "loops.py"  # not imported here, since importing it compiles it
_SOURCES = digest(*sorted(Path(__file__).parent.glob("*.py")), _LOOPS)
_alive: list[CompiledFunction] = []


def _compile(name: str, function: Callable[..., Any], arguments: int, *, returns: bool = False) -> int:
    made = CompiledFunction(function, arguments, returns=returns, name=name, sources=_SOURCES)
    _alive.append(made)
    return made.address


@cache
def multiply(kernel: Kernel) -> int:
    """(matrix, panels, out, out_bytes, rows, first, last): computes groups `first` to `last` − 1 of a matrix's outputs, 16 in a group.

    A group's weights stay in the nearest cache for all rows. Registers hold the sums of all rows of a product: 8 rows, or 4 with 16
    registers. With 32 registers and `Reading.groups` of 2, a product of two to six rows computes two groups at once.
    """
    size, row_bytes, block_bytes = kernel.weights.block_bytes, kernel.row_bytes, kernel.block_bytes
    most, groups = (8, kernel.arithmetic.reading.groups) if kernel.has_many_registers else (4, 1)
    single = product(kernel, (1, 7, 8) if groups == 2 else range(1, most + 1))
    pair = product(kernel, range(2, 7), 2) if groups == 2 else single

    def multiply(matrix, panels, out, out_bytes, rows, first, last):  # type: ignore[no-untyped-def]
        m = matrix_at(matrix)
        blocks, start = m.blocks, m.start
        group_bytes = blocks * size
        for group in range(first, last, groups):
            w, until = m.weights + group * group_bytes, min(group + groups, last)
            if start != 0:
                for row in range(rows):
                    for own in range(group, until):
                        layers.copy(start + own * CACHE_LINE, out + row * out_bytes + own * CACHE_LINE)
            row = 0
            while row < rows:
                left = rows - row
                x = panels + row // PANEL_ROWS * blocks * block_bytes + row % PANEL_ROWS * row_bytes
                to = out + row * out_bytes + group * CACHE_LINE
                if groups == 2 and 1 < left < 7 and until - group == 2:
                    taken = left
                    pair(w, x, to, out_bytes, blocks, taken)
                else:
                    taken = min(most, left) if groups == 1 or left >= 7 else 1
                    for own in range(until - group):
                        single(w + own * group_bytes, x, to + own * CACHE_LINE, out_bytes, blocks, taken)
                row += taken

    return _compile(f"multiply-{kernel.name}", multiply, 7)


@cache
def pack(kernel: Kernel) -> int:
    """(x, at, blocks): see `products.packer`."""
    write = packer(kernel)

    def pack(x, at, blocks):  # type: ignore[no-untyped-def]
        write(x, at, blocks)

    return _compile(f"pack-{kernel.name}", pack, 3)


@cache
def embed(weights: Format) -> int:
    """(w, token, out, blocks): writes a token's row of an embedding as float32."""
    unpack, size = unpacker(weights), weights.block_bytes

    def embed(w, token, out, blocks):  # type: ignore[no-untyped-def]
        unpack(w + token // LANES * blocks * size, token % LANES, out, blocks)

    return _compile(f"embed-{weights.name}".lower(), embed, 4)


@cache
def attend(heads: int, size: int) -> int:
    """(query, keys, values, out, scores, seen): attention of `heads` heads that share keys, over the first `seen` positions."""
    score, mix = layers.scores(heads, size), layers.mixture(heads, size)

    def attend(query, keys, values, out, scores, seen):  # type: ignore[no-untyped-def]
        blocks = (seen + POSITIONS - 1) // POSITIONS
        stride, vectors = blocks * POSITIONS * FLOAT_BYTES, blocks * POSITIONS // LANES
        score(query, keys, scores, stride, blocks)
        for head in range(heads):
            own = scores + head * stride
            for position in range(seen, blocks * POSITIONS):
                set_number(own, position, np.float32(-1e30))
            layers.softmax(own, vectors)
        mix(scores, stride, values, out, seen)

    return _compile(f"attend-{heads}-{size}", attend, 6)


run = cache(lambda: _compile("run", decoder_pass.run, 5))
"""See `decoder_pass.run`. `lead` and `work` call it by address, so that it is compiled once: it takes most of the compile time."""
lead = cache(lambda: _compile("lead", workers.lead, 3, returns=True))
"""See `workers.lead`."""
work = cache(lambda: _compile("work", workers.work, 2))
"""See `workers.work`."""


@cache
def draft() -> int:
    """See `draft_pass.draft`."""
    from specviz.runtime.cpu.fused import draft_pass  # which compiles the loops over a vocabulary

    return _compile("draft", draft_pass.draft, 3, returns=True)
