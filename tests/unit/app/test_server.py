"""The server as an installed package has it: built from any folder, and torch not before its environment is set."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import specviz

_BUILDS = """
import os, sys
from specviz.app import server
from specviz.serving import zerogpu
assert "torch" not in sys.modules
seen = []
zerogpu.start = lambda: seen.append(("torch" in sys.modules, os.environ["OMP_WAIT_POLICY"]))
page, service = server.build()
assert seen == [(False, "PASSIVE")], seen
print(len(page.blocks), type(service).__name__)
"""


def test_the_page_is_built_in_any_folder_and_its_environment_set_before_torch(tmp_path: Path) -> None:
    """`build` sets the waiting policy and starts ZeroGPU before torch is imported, and needs no checkout around it."""
    environment = os.environ | {"PYTHONPATH": str(Path(specviz.__file__).parents[1])}
    environment.pop("OMP_WAIT_POLICY", None)
    done = subprocess.run(
        [sys.executable, "-c", _BUILDS], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    blocks, service = done.stdout.split()
    assert int(blocks) > 100
    assert service == "Service"
