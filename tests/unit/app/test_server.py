"""The server as an installed package has it: built from any folder, and torch not before its environment is set."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import specviz
from specviz.models.registry import DEFAULT_PAIR
from specviz.serving.limits import CLASS
from tests.support.tiny import tiny_pair

_BUILDS = """
import gc, os, sys, threading
from specviz.app import server
from specviz.schema.settings import Request
from specviz.serving import zerogpu
assert "torch" not in sys.modules
seen = []
zerogpu.start = lambda: seen.append(("torch" in sys.modules, os.environ["OMP_WAIT_POLICY"]))
page, service, classroom = server.build()
assert seen == [(False, "PASSIVE")], seen
assert classroom is None
assert "torch" not in sys.modules, "the page has imported torch, and answers a second and a half later"
assert gc.isenabled()
print(len(page.blocks), type(service).__name__)
*_, last = service.events("own", [Request("A prompt", max_new_tokens=5)], threading.Event())
from transformers import CONFIG_MAPPING
print(CONFIG_MAPPING["llama"].model_type, last.run.stop_reason)
service.close()
del os.environ["SPECVIZ_PAIRS_OFFERED"]
os.environ["SPECVIZ_CLASS"] = "1"
page, service, classroom = server.build()
print(server._told(classroom).count(classroom.secret), service.limits.max_new_tokens, os.environ["SPECVIZ_PAIRS_OFFERED"])
"""


def test_a_server_is_built_in_any_folder_before_torch_and_writes_with_a_pair_of_its_owner(
    tmp_path: Path,
) -> None:
    """`build` sets the waiting policy and starts ZeroGPU before torch is imported, and needs no checkout around it. What it imports
    keeps no model of transformers from loading: here Llama's, from folders.

    A class has its limits and its one pair, and the console shows the secret once.
    """
    tiny_pair("llama", tmp_path)
    environment = os.environ | {"SPECVIZ_OWN_PAIRS": f"own={tmp_path}/drafter>{tmp_path}/verifier"}
    environment |= {"PYTHONPATH": str(Path(specviz.__file__).parents[1]), "SPECVIZ_PAIRS_OFFERED": "own"}
    for name in ("OMP_WAIT_POLICY", "SPECVIZ_CLASS"):
        environment.pop(name, None)
    done = subprocess.run(
        [sys.executable, "-c", _BUILDS], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    blocks, service, model_type, reason, secrets, tokens, offered = done.stdout.split()
    assert model_type == "llama"
    assert reason in ("length", "eos")
    assert int(blocks) > 100
    assert service == "Service"
    assert (secrets, int(tokens), offered) == ("1", CLASS.max_new_tokens, DEFAULT_PAIR)
