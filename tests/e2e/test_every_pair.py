"""A pair of each architecture of the registry, from a stand-in hub.

Law 5: at temperature 0 Python writes what transformers' `generate` writes with the same files. test_embedded.py has the pairs that need
no hub; test_api.py has the other doors.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import pytest

from tests.support.stand_in_hub import StandInHub
from tests.support.stand_in_hub.every_pair import FUSED, HUB_PAIRS
from tests.support.stand_in_hub.served import ROOT, environment
from tests.support.stand_in_hub.server import GOOD_TOKEN


@pytest.fixture(scope="module")
def written(hub: StandInHub, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What Python and transformers write, by pair."""
    command = [sys.executable, "-m", "tests.support.stand_in_hub.every_pair"]
    env = environment(hub, tmp_path_factory.mktemp("home"), HF_TOKEN=GOOD_TOKEN)
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("key", HUB_PAIRS)
def test_python_writes_what_generate_writes_while_loading_reports_progress(
    written: dict[str, Any], key: str
) -> None:
    """Law 5, on fused passes where the architecture has them."""
    python, expected = written[key]
    assert python["runner"] == ("FusedModel" if key in FUSED else "TorchModel")
    assert python["ids"] == expected
    fractions = [fraction for fraction, _ in python["told"]]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0
    assert (
        len({text for _, text in python["told"] if re.fullmatch(r"Downloading .+: \d+ of \d+ MB", text)}) > 1
    )
