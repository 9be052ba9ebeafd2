"""Sweeps of the embedded pair, as people start them: by several processes, and killed on the way."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from specviz import __main__ as shell
from specviz.analysis.sweep.folder import SHELF, SweepFolder
from specviz.analysis.sweep.grid import Unit
from specviz.analysis.sweep.items import load_items
from specviz.analysis.sweep.sweep import Sweep
from specviz.engine.engine import Engine
from specviz.models.loading import load_pair
from specviz.models.registry import DEFAULT_PAIR
from specviz.runtime.cpu.threads import budget, set_budget

ROOT = Path(__file__).parents[2]
SETTINGS = [
    "--points",
    "2",
    "--temperatures",
    "0",
    "1",
    "--limit",
    "4",
    "--max-new-tokens",
    "8",
    "--timed",
    "0",
]
UNITS = 4 * 2
PINNED = {"OMP_NUM_THREADS": "1", "SPECVIZ_PREPACK": "0"}
"""What is measured otherwise whenever a pair is loaded, and so may differ from one process to the next: last bits depend on it."""
FILES = ("plan.json", "results.json", "samples.jsonl.gz")


def started(arguments: list[str]) -> subprocess.Popen:
    """A process on one thread, with plain weights."""
    return subprocess.Popen(
        arguments,
        cwd=ROOT,
        env={**os.environ, **PINNED},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.fixture(scope="module")
def here() -> Iterator[Callable[..., int]]:
    """Runs the shell in this process, as the others of these tests run."""
    before = budget()
    set_budget(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPECVIZ_PREPACK", PINNED["SPECVIZ_PREPACK"])
        pair = load_pair(DEFAULT_PAIR, device="cpu", dtype="float32")

    def run(*arguments: str) -> int:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("specviz.models.loading.load_pair", lambda *_, **__: pair)
            return shell.main(arguments)

    yield run
    set_budget(before)


@pytest.fixture(scope="module")
def whole(here: Callable[..., int], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a sweep by one process that nobody disturbed."""
    folder = tmp_path_factory.mktemp("sweep") / "whole"
    assert here("sweep", "--out", str(folder), *SETTINGS) == 0
    return folder


def check_same(folder: Path, whole: Path) -> None:
    for name in FILES:
        assert (folder / name).read_bytes() == (whole / name).read_bytes(), name


def test_two_processes_come_to_the_same_files_as_one(whole: Path, tmp_path: Path) -> None:
    """`accelerate launch` shares the work among processes; what comes of it does not tell."""
    # Its --cpu starts several processes through MPI alone; --multi_gpu starts them as torch does, on CPUs too.
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"]
    process = started([*launch, "-m", "specviz", "sweep", "--out", str(tmp_path / "two"), *SETTINGS])
    found: set[str] = set()
    while process.poll() is None:
        found |= {part.name for part in (tmp_path / "two").glob("part-*.jsonl")}
        time.sleep(0.05)
    assert process.returncode == 0, process.communicate()[0]
    assert found == {"part-0.jsonl", "part-1.jsonl"}
    check_same(tmp_path / "two", whole)


def test_a_sweep_killed_twice_comes_to_the_same_files(
    here: Callable[..., int], whole: Path, tmp_path: Path
) -> None:
    """Killed for good at two moments of chance, and gone on with by nothing but its folder."""
    folder, chance = tmp_path / "killed", random.Random(1)
    part = folder / "part-0.jsonl"
    counts = []
    for settings in (SETTINGS, []):
        before = len(SweepFolder(folder).done())
        process = started([sys.executable, "-m", "specviz", "sweep", "--out", str(folder), *settings])
        while process.poll() is None and not (part.exists() and len(SweepFolder(folder).done()) > before):
            time.sleep(0.02)
        time.sleep(chance.random() / 2)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        counts.append(len(SweepFolder(folder).done()))
    assert 0 < counts[0] < counts[1] < UNITS, counts
    assert here("sweep", "--out", str(folder)) == 0
    check_same(folder, whole)


AGAIN = ("drafter_only", "verifier_only", "speed", "cascade_opt", "cascade_tokenV3", "typical_acceptance")


def test_the_recorded_texts_come_out_again(engine: Engine) -> None:
    """Laws 2 and 3: a few items of the project's own sweep, in other company than then, come to the recorded texts and figures."""
    store = SweepFolder(SHELF)
    header = store.header()
    assert header is not None
    sweep = Sweep(replace(header.plan, methods=AGAIN), engine.pair, load_items())
    recorded = {(one.item, header.plan.settings[one.setting]): one for one in store.samples()}
    checked = 0
    for number, temperature in enumerate(header.plan.temperatures):
        for one in sweep.samples(Unit(0, 7 + 50 * number, temperature), threading.Event()):
            setting = sweep.grid.settings[one.setting]
            assert replace(one, setting=0) == replace(recorded[one.item, setting], setting=0), setting
            checked += 1
    assert checked == len(sweep.grid.settings)
