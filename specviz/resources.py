"""The files shipped with the project: `assets/` of a checkout, or their copy inside an installed package."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent

ASSETS = next(
    (it for it in (_PACKAGE / "assets", _PACKAGE.parent / "assets") if it.is_dir()), _PACKAGE / "assets"
)
"""Folder of the drafter, recorded runs, sweep, tasks and prompts."""
