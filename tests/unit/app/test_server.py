"""The server as a container and an installed package have it: built from a folder of its own, torch not before its environment is set."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from specviz.files import cache_directory
from specviz.models.registry import DEFAULT_PAIR
from specviz.serving.limits import CLASS
from tests.support.tiny import tiny_pair

ROOT = Path(__file__).parents[3]
_BUILDS = """
import ctypes, gc, os, sys, threading
from specviz import environment
assert "torch" not in sys.modules
seen = []
environment.on_zero_gpu = lambda: seen.append(("torch" in sys.modules, os.environ["OMP_WAIT_POLICY"]))
from app import classroom, demo, service
assert seen[0] == (False, "PASSIVE"), seen
assert classroom is None
assert "torch" not in sys.modules, "the page has imported torch, and answers a second and a half later"
assert gc.isenabled()
print(len(demo.blocks), type(service).__name__)
from specviz.app import page, server
from specviz.schema.settings import Request
*_, last = service.events("own", [Request("A prompt", max_new_tokens=5)], threading.Event())
from transformers import CONFIG_MAPPING
print(CONFIG_MAPPING["llama"].model_type, last.run.stop_reason)
getattr(ctypes.CDLL(None), "malloc_stats", lambda: None)()
service.close()
del os.environ["SPECVIZ_PAIRS_OFFERED"]
page.build_page = lambda *_: None
_, service, classroom = server.build(for_class=True)
print(server._told(classroom).count(classroom.secret), service.limits.max_new_tokens, os.environ["SPECVIZ_PAIRS_OFFERED"])
os.environ["SPECVIZ_QUEUE"] = "many"
server.build()
"""


def test_what_the_dockerfile_copies_serves_a_pair_of_its_owner_and_a_class(tmp_path: Path) -> None:
    """In an empty home. `build` sets the waiting policy and would start ZeroGPU before torch is imported. What it imports keeps no model of
    transformers from loading: here Llama's, from folders.

    A class has its limits and its one pair, and the console shows the secret once. A wrong variable ends the start in one sentence.
    """
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    for line in re.findall(r"^COPY (.*)$", text, re.MULTILINE):
        for source in shlex.split(line)[:-1]:
            if (ROOT / source).is_dir():
                left_out = shutil.ignore_patterns("*.png", "*.pyi")
                shutil.copytree(ROOT / source, tmp_path / source, ignore=left_out)
            else:
                shutil.copy(ROOT / source, tmp_path / source)
    tiny_pair("llama", tmp_path)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SPECVIZ_")}
    environment |= {"HOME": str(tmp_path), "HF_HUB_OFFLINE": "1", "SPECVIZ_CACHE": str(cache_directory())}
    environment |= {"SPECVIZ_OWN_PAIRS": f"own={tmp_path}/drafter>{tmp_path}/verifier"}
    environment |= {"SPECVIZ_PAIRS_OFFERED": "own"}
    for name in ("OMP_WAIT_POLICY", "PYTHONPATH"):
        environment.pop(name, None)
    done = subprocess.run(
        [sys.executable, "-B", "-c", _BUILDS], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 1, done.stderr[-3000:]
    assert done.stderr.splitlines()[-1].startswith("SPECVIZ_QUEUE is 'many'"), done.stderr[-3000:]
    assert "Traceback" not in done.stderr
    assert len(re.findall(r"^Arena \d+:", done.stderr, re.MULTILINE)) <= 2, "what threads free is scattered"
    blocks, service, model_type, reason, secrets, tokens, offered = done.stdout.split()
    assert int(blocks) > 100
    assert (service, model_type) == ("Service", "llama")
    assert reason in ("length", "eos")
    assert (secrets, int(tokens), offered) == ("1", CLASS.max_new_tokens, DEFAULT_PAIR)
