"""The project's own tests that need a GPU, run by pytest from a checkout; one that has passed is not run again.

Knows pytest's command line and what it prints; knows no test.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec

from specviz.resources import ASSETS
from specviz.tools.gpu.job import Job
from specviz.tools.gpu.record import Found, Record
from specviz.tools.templates import Rows

_ROOT = ASSETS.parent
_TESTS, _TINY_TESTS = "tests/gpu", "tests/unit/core/test_sampling.py"
_ENOUGH = 20.0
"""Seconds without which they are not begun."""
_LINE = re.compile(r"^(tests/\S+::.+?) (PASSED|FAILED|ERROR|SKIPPED)\b", re.MULTILINE)


def measure(job: Job, record: Record) -> None:
    """Run what has not passed yet, for as long as there is time; pytest's whole output is in tests.log."""
    path = _TINY_TESTS if job.tiny else _TESTS
    if find_spec("pytest") is None or not (_ROOT / path).exists():
        record.step("pytest", lambda: {"error": f"pytest, and {path} of a checkout, are needed"})
        return
    record.steps.pop("pytest", None)
    if record.seconds_left < _ENOUGH:
        record.left.append(path)
        return
    passed = [name for name, found in record.steps.items() if found.get("outcome") == "PASSED"]
    command = [sys.executable, "-m", "pytest", "-v", "--color=no", "-p", "no:cacheprovider", path]
    command += [word for name in passed for word in ("--deselect", name)]
    log = job.out / "tests.log"
    with log.open("a", encoding="utf-8") as output:
        begin = output.tell()
        environment = os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}
        child = subprocess.Popen(command, cwd=_ROOT, stdout=output, stderr=output, env=environment)
        try:
            child.wait(record.seconds_left - _ENOUGH / 2)
        except subprocess.TimeoutExpired:
            child.terminate()
            child.wait()
            record.left.append("tests that tests.log does not show")
    found = _outcomes(log.read_bytes()[begin:].decode(errors="replace"))
    if not found and not passed:
        found = {"pytest": {"error": f"nothing was run: see {log.name}"}}
    record.steps |= found
    record.save()


def table(steps: dict[str, Found]) -> Rows:
    """A row for each test."""
    rows: Rows = [("test", "outcome")]
    rows += [(name.rpartition("::")[2], it.get("outcome") or it["error"]) for name, it in steps.items()]
    return rows


def _outcomes(printed: str) -> dict[str, Found]:
    """What became of each test, by what pytest printed, perhaps not to its end."""
    found: dict[str, Found] = {}
    for name, outcome in _LINE.findall(printed):
        found[name] = {"outcome": outcome}
        if outcome != "PASSED":
            found[name]["error"] = f"{outcome}: see tests.log"
    return found
