"""The command `record`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from specviz.cli.options import option


def record(
    folder: Annotated[Path | None, option("Folder to write to", "the project’s own", "DIR")] = None,
) -> int:
    """Make all of the page's recordings again."""
    from specviz.analysis.recorded_runs import FOLDER  # slow to import, as is what follows
    from specviz.tools.record import record

    recorded = record(folder or FOLDER, lambda title: print(title, file=sys.stderr))
    alone = 1000 * recorded.verifier_only_seconds_per_token
    about = f"{len(recorded.runs)} runs · verifier alone {alone:.0f} ms a token on {recorded.machine}"
    print(about, file=sys.stderr)
    return 0
