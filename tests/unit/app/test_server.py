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
import gc, os, sys
from specviz.app import server
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
os.environ["SPECVIZ_CLASS"] = "1"
page, service, classroom = server.build()
print(server._told(classroom).count(classroom.secret), service.limits.max_new_tokens, os.environ["SPECVIZ_PAIRS_OFFERED"])
"""


def test_the_page_is_built_in_any_folder_and_its_environment_set_before_torch(tmp_path: Path) -> None:
    """`build` sets the waiting policy and starts ZeroGPU before torch is imported, and needs no checkout around it.

    For a class it has its limits and its one pair, and the console alone tells the secret, once.
    """
    environment = os.environ | {"PYTHONPATH": str(Path(specviz.__file__).parents[1])}
    for name in ("OMP_WAIT_POLICY", "SPECVIZ_CLASS", "SPECVIZ_PAIRS_OFFERED"):
        environment.pop(name, None)
    done = subprocess.run(
        [sys.executable, "-c", _BUILDS], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    blocks, service, secrets, tokens, offered = done.stdout.split()
    assert int(blocks) > 100
    assert service == "Service"
    assert (secrets, int(tokens), offered) == ("1", CLASS.max_new_tokens, DEFAULT_PAIR)


_SERVES = """
import threading
from specviz.app import server
from specviz.schema.settings import Request
page, service, classroom = server.build()
*_, last = service.events("own", [Request("A prompt", max_new_tokens=5)], threading.Event())
from transformers import CONFIG_MAPPING
print(CONFIG_MAPPING["llama"].model_type, last.run.stop_reason)
service.close()
"""


def test_a_server_loads_a_pair_of_an_owner_and_writes_with_it(tmp_path: Path) -> None:
    """What a start imports and in which order keeps no model of transformers from being read: here Llama's, from folders."""
    tiny_pair("llama", tmp_path)
    environment = os.environ | {"SPECVIZ_OWN_PAIRS": f"own={tmp_path}/drafter>{tmp_path}/verifier"}
    environment |= {"PYTHONPATH": str(Path(specviz.__file__).parents[1]), "SPECVIZ_PAIRS_OFFERED": "own"}
    done = subprocess.run(
        [sys.executable, "-c", _SERVES], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    model_type, reason = done.stdout.split()
    assert model_type == "llama"
    assert reason in ("length", "eos")
