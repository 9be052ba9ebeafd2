"""Sweeps by several processes; and the recorded one, reproduced."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from specviz import __main__ as shell
from specviz.analysis.sweep.folder import SweepFolder, shown_sweeps
from specviz.analysis.sweep.grid import Unit
from specviz.analysis.sweep.items import load_items
from specviz.analysis.sweep.sweep import Sweep
from specviz.engine.engine import Engine
from specviz.models.loading import load_pair
from specviz.models.registry import PAIRS
from specviz.resources import ASSETS
from specviz.serving.offer import own_pairs
from tests.support.tiny import tiny_pair

ROOT = Path(__file__).parents[2]
SETTINGS = "--pair tiny --methods speed cascade_opt --points 2 --temperatures 0 1 --limit 6 --max-new-tokens 8 --timed 0 --dtype float64"
FILES = ("plan.json", "results.json", "samples.jsonl.gz")

_SHELL = """
import sys

from specviz import __main__ as shell
from specviz.analysis.sweep.folder import SweepFolder
from specviz.models.registry import PAIRS
from specviz.serving.offer import own_pairs

append = SweepFolder.append
SweepFolder.append = lambda folder, rank, *more: (print("process", rank), append(folder, rank, *more))
PAIRS.update(own_pairs(sys.argv[1]))
sys.exit(shell.main(sys.argv[2:]))
"""


def test_two_processes_come_to_the_same_files_as_one(tmp_path: Path) -> None:
    """`accelerate launch` shares the work among processes."""
    whole, two, script = (tmp_path / name for name in ("whole", "two", "shell.py"))
    script.write_text(_SHELL)
    tiny_pair("llama", tmp_path, chat=True)
    own = f"tiny={tmp_path}/drafter>{tmp_path}/verifier"
    # Its --cpu starts several processes through MPI alone; --multi_gpu starts them as torch does, on CPUs too.
    launch = ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", str(script), own]
    process = subprocess.Popen(
        [sys.executable, *launch, "sweep", "--out", str(two), *SETTINGS.split()],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PAIRS, "tiny", own_pairs(own)["tiny"])
        assert shell.main(["sweep", "--out", str(whole), *SETTINGS.split()]) == 0
    output, _ = process.communicate()
    assert process.returncode == 0, output
    assert {"process 0", "process 1"} <= set(output.splitlines())
    for name in FILES:
        assert (two / name).read_bytes() == (whole / name).read_bytes(), name


AGAIN = ("speed", "cascade_opt", "typical_acceptance")


@pytest.mark.parametrize("name", [each.name for each in shown_sweeps().values()])
def test_the_recorded_texts_come_out_again(engine: Engine, name: str) -> None:
    """Laws 2 and 3: a few items of each recorded sweep, batched differently, have the recorded texts and figures."""
    store = SweepFolder(ASSETS / name)
    header = store.header()
    assert header is not None
    key = header.plan.pair
    own = engine if key == engine.pair.key else Engine(load_pair(key, device="cpu", dtype="float32"))
    sweep = Sweep(replace(header.plan, methods=AGAIN), load_items(header.plan.prompts), own)
    settings = header.plan.settings
    recorded = {(one.item, settings[one.setting]): one for one in store.samples()}
    checked = 0
    for number, temperature in enumerate(header.plan.temperatures):
        for one in sweep.samples(Unit(0, 7 + 50 * number, temperature), threading.Event()):
            setting = sweep.grid.settings[one.setting]
            known = recorded[one.item, setting]
            # Recorded where sums over the vocabulary were taken in float32.
            assert one.log_probability == pytest.approx(
                known.log_probability, abs=5e-5 * max(1, known.tokens)
            )
            figures = {"setting": 0, "log_probability": 0.0, "confidence": None, "least_confidence": None}
            assert one._replace(**figures) == known._replace(**figures), setting
            checked += 1
    assert checked == len(sweep.grid.settings)
