"""The stages in their order, each of a few minutes: the tests, what was expected, correctness, speed, rounds, the drafter.

A stage goes on where it was; what it found lies in one JSON file of its own. Knows the order; measures nothing itself.
"""

from __future__ import annotations

from typing import Protocol

from specviz.compat.transformers import quiet_transformers
from specviz.errors import RequestError
from specviz.progress import Progress
from specviz.tools.gpu import correctness, drafter, own_tests, review, rounds, speed
from specviz.tools.gpu.job import Job
from specviz.tools.gpu.record import Found, Record
from specviz.tools.templates import Rows


class Stage(Protocol):
    """A module of a stage."""

    def measure(self, job: Job, record: Record) -> None:
        """Take the steps that are missing."""

    def table(self, steps: dict[str, Found]) -> Rows:
        """What was found, as a short table."""


STAGES: dict[str, Stage] = {
    "tests": own_tests,
    "expectations": review,
    "correctness": correctness,
    "speed": speed,
    "rounds": rounds,
    "drafter": drafter,
}
"""By the names of their files, from stage 1 on."""


def run(job: Job, number: int, minutes: float, progress: Progress) -> tuple[Rows, Record]:
    """Begin a stage (1 to 6) or go on with it, for about so many minutes; returns its table and what it has found so far.

    Raises:
        RequestError: there is no such stage.
    """
    if not 1 <= number <= len(STAGES):
        raise RequestError(f"There is no stage {number}: there are 1 to {len(STAGES)}.")
    name, stage = list(STAGES.items())[number - 1]
    record = Record(job.out / f"{number}-{name}.json", job.device, 60 * minutes, progress)
    with quiet_transformers:
        stage.measure(job, record)
    record.save()
    end = "is complete" if record.is_complete else "goes on when it is called again"
    progress(1.0, f"Stage {number} {end}")
    return stage.table(record.steps), record
