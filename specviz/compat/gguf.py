"""Overrides a private method of gguf's `GGUFReader` (0.17 to 0.19), which takes seconds to read the arrays of a tokenizer's tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
from gguf import GGUFReader, GGUFValueType


class TensorReader(GGUFReader):
    """Reads a GGUF file's tensors, and its metadata except arrays."""

    def _get_field_parts(self, orig_offs: int, raw_type: int) -> Any:
        if GGUFValueType(raw_type) is not GGUFValueType.ARRAY:
            return super()._get_field_parts(orig_offs, raw_type)
        kind = GGUFValueType(int(self._get(orig_offs, np.uint32)[0]))
        count, begin = int(self._get(orig_offs + 4, np.uint64)[0]), orig_offs + 12
        if kind is GGUFValueType.STRING:
            end, data = begin, memoryview(self.data)  # type: ignore[arg-type]
            for _ in range(count):
                end += 8 + int.from_bytes(data[end : end + 8], "little")
        else:
            end = begin + count * np.dtype(self.gguf_scalar_to_np[kind]).itemsize
        return end - orig_offs, [], [], [GGUFValueType.ARRAY]
