"""The names of gguf that reading the embedded model needs."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

from specviz.compat.gguf import TensorReader


def test_arrays_are_passed_over_and_tensors_found(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "llama")
    writer.add_array("words", ["a", "", "naïve", "日本"] * 9)
    writer.add_array("numbers", [1, 2, 3])
    writer.add_uint32("after", 7)
    writer.add_tensor("matrix", np.arange(6, dtype=np.float32).reshape(2, 3))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    reader = TensorReader(tmp_path / "model.gguf")
    assert reader.fields["after"].parts[-1][0] == 7, (
        "metadata after an array is misread: the model cannot be unpacked"
    )
    assert reader.fields["words"].parts == reader.fields["words"].parts[:4], (
        "arrays are read in full: seconds are lost"
    )
    assert np.array_equal(reader.tensors[0].data, [[0, 1, 2], [3, 4, 5]])
