"""SpecViz's shell on the stand-in hub: pairs are as large as the stand-in's models, whatever the registry says.

Otherwise nothing is replaced.
"""

from __future__ import annotations

import sys
from dataclasses import replace

from specviz.models.registry import PAIRS

PARAMETERS = 1_500_000  # of each of the stand-in's models, about


def shrink() -> None:
    """Let the registry's pairs of the hub be as small as the stand-in's."""
    for key, spec in PAIRS.items():
        if spec.repositories:
            PAIRS[key] = replace(spec, drafter_parameters=PARAMETERS, verifier_parameters=PARAMETERS)


if __name__ == "__main__":
    shrink()
    from specviz.cli.main import main

    sys.exit(main())
