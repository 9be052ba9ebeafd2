"""A figure of a sweep that was drawn to a file. Knows nothing of drawing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Picture:
    """Accuracy at one temperature against one cost, by its name in `specviz.analysis.sweep.results.FIGURES`."""

    temperature: float
    cost: str
    path: Path
