"""The server: builds the page over a service, loads the first pair in the background, and serves until it is ended.

Works from any folder. Imports nothing at the top that imports torch: `build` has something to do before.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from specviz.core import compiling
from specviz.errors import SpecvizError
from specviz.progress import TerminalProgress
from specviz.serving import logs, zerogpu
from specviz.serving.offer import default_pair

if TYPE_CHECKING:
    import gradio as gr

    from specviz.serving.service import Service


def build() -> tuple[gr.Blocks, Service]:
    """The page and the service behind it; on ZeroGPU one that borrows GPUs.

    To be called in the main thread before torch is imported.

    Raises:
        SystemExit: an environment variable cannot be read; says which in one sentence.
    """
    # OpenMP threads that spin while they wait for each other lose two thirds of their speed as soon as anything else wants
    # a core, and a page always does. Only before torch is imported; another value that was set is kept.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    zerogpu.start()  # must come before torch, too; does nothing elsewhere
    if not zerogpu.active():
        compiling.begin()  # beside the imports, which take seconds
    from specviz.app.page import build_page
    from specviz.serving.service import Service
    from specviz.serving.zerogpu_service import ZeroGpuService

    try:
        service = ZeroGpuService() if zerogpu.active() else Service()
        return build_page(service), service
    except SpecvizError as error:
        sys.exit(str(error))


def serve(page: gr.Blocks, service: Service) -> None:
    """Log to standard error, load the default pair in the background, and serve until interrupted."""
    # After `build`: it imports torch.
    from specviz.app.page import launch

    logs.configure()
    service.warm_up(default_pair(), TerminalProgress(sys.stderr))
    try:
        launch(page, service)
    finally:
        service.close()


def main() -> None:
    """Build the page and serve it."""
    serve(*build())


if __name__ == "__main__":
    main()
