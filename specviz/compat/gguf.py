"""The private names of gguf that SpecViz needs, in 0.17 to 0.19.

`GGUFReader` makes several arrays of every word of a tokenizer, for seconds, where only tensors are wanted. Covered by
tests/unit/compat/test_gguf.py, which says what is lost when a later version changes it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gguf import GGUFReader, GGUFValueType


class TensorReader(GGUFReader):
    """A GGUF file's tensors and its single values; arrays among its metadata are passed over."""

    def _get_field_parts(self, orig_offs: int, raw_type: int) -> Any:
        if GGUFValueType(raw_type) is not GGUFValueType.ARRAY:
            return super()._get_field_parts(orig_offs, raw_type)
        kind, count = (
            GGUFValueType(int(self._get(orig_offs, np.uint32)[0])),
            int(self._get(orig_offs + 4, np.uint64)[0]),
        )
        begin = orig_offs + 12
        if kind is GGUFValueType.STRING:
            end, data = begin, memoryview(self.data)  # type: ignore[arg-type]
            for _ in range(count):
                end += 8 + int.from_bytes(data[end : end + 8], "little")
        else:
            end = begin + count * np.dtype(self.gguf_scalar_to_np[kind]).itemsize
        return end - orig_offs, [], [], [GGUFValueType.ARRAY]
