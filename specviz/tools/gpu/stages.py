"""The stages in their order, each of a few minutes: the tests, what was expected, correctness, speed, rounds, the drafter.

A stage goes on where it was; what it found lies in one JSON file of its own. Knows the order; measures nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from specviz.compat.transformers import quiet_transformers
from specviz.errors import RequestError
from specviz.progress import Progress
from specviz.tools.gpu import correctness, drafter, own_tests, review, rounds, speed
from specviz.tools.gpu.job import Job
from specviz.tools.gpu.record import Found, Record
from specviz.tools.templates import Rows


@dataclass(frozen=True)
class Stage:
    """A stage: its name, what it is about, what does it, and how it is told."""

    name: str
    about: str
    measure: Callable[[Job, Record, Progress], None]
    table: Callable[[dict[str, Found]], Rows]


STAGES = (
    Stage(
        "tests",
        "the tests that need a GPU",
        lambda job, record, _: own_tests.measure(job, record),
        own_tests.table,
    ),
    Stage(
        "expectations",
        "what reading the code made us expect",
        lambda job, record, _: review.measure(job, record),
        review.table,
    ),
    Stage(
        "correctness",
        "logits against float64, captured passes against plain ones",
        lambda job, record, _: correctness.measure(job, record),
        correctness.table,
    ),
    Stage(
        "speed",
        "beside transformers and flashspec",
        lambda job, record, _: speed.measure(job, record),
        speed.table,
    ),
    Stage(
        "rounds",
        "rounds beside their floor, 1 to 64 sequences",
        lambda job, record, _: rounds.measure(job, record),
        rounds.table,
    ),
    Stage("drafter", "a drafter from 20 million tokens", drafter.measure, drafter.table),
)


def run(job: Job, number: int, minutes: float, progress: Progress) -> tuple[Stage, Record]:
    """Begin a stage (1 to 6) or go on with it, for about so many minutes; returns it and what it has found so far.

    Raises:
        RequestError: there is no such stage.
    """
    if not 1 <= number <= len(STAGES):
        raise RequestError(f"There is no stage {number}: there are 1 to {len(STAGES)}.")
    stage = STAGES[number - 1]
    record = Record(job.out / f"{number}-{stage.name}.json", job.device, 60 * minutes, progress)
    with quiet_transformers:
        stage.measure(job, record, progress)
    record.save()
    progress(
        1.0, f"Stage {number} {'is complete' if record.is_complete else 'goes on when it is called again'}"
    )
    return stage, record
