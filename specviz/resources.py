"""The files shipped with the project: `assets/` in a checkout, or its copy in an installed package."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent

ASSETS = next(
    (it for it in (_PACKAGE / "assets", _PACKAGE.parent / "assets") if it.is_dir()), _PACKAGE / "assets"
)
"""Folder of the embedded pairs' files, lessons, recorded runs and sweeps, tasks and prompts."""
