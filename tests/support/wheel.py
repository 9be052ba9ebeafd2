"""The project as a wheel, built from the checkout and installed into a folder."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def build_wheel(folder: Path) -> Path:
    """Build the wheel into a folder, without a download."""
    _pip("wheel", "--no-build-isolation", "--wheel-dir", str(folder), str(ROOT))
    [wheel] = folder.glob("specviz-*.whl")
    return wheel


def install_wheel(wheel: Path, folder: Path) -> None:
    """Install the wheel without its requirements; with `folder` in PYTHONPATH it comes before other installations."""
    _pip("install", "--no-index", "--target", str(folder), str(wheel))


def _pip(command: str, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", command, "--quiet", "--no-deps", *arguments],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
