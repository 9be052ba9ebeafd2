"""The private name of lm-evaluation-harness that SpecViz needs, as of 0.4.12."""

from __future__ import annotations

from typing import Any


def first_filter(task: Any) -> Any:
    """The first filter of a task. The public `Task.apply_filters` filters only the task's own instances."""
    return task._filters[0]
