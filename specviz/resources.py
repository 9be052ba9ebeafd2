"""Where the files shipped with the project lie: `assets/` of a checkout, or their copy inside an installed package.

Knows one folder, and nothing of what is in it.
"""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent

ASSETS = next(
    (it for it in (_PACKAGE / "assets", _PACKAGE.parent / "assets") if it.is_dir()), _PACKAGE / "assets"
)
"""The drafter, recorded runs, sweep, tasks and prompts."""
