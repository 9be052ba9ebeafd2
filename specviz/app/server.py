"""The server: builds the page over a service, loads the first pair in the background, and serves until it is ended.

Works from any folder. Imports nothing at the top that imports torch: `build` has something to do before. Nor does the page import it: the
first pair's loading does, once the page is being served.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from specviz.errors import SpecvizError
from specviz.models.registry import DEFAULT_PAIR
from specviz.progress import TerminalProgress
from specviz.serving import logs, zerogpu
from specviz.serving.offer import default_pair

if TYPE_CHECKING:
    import gradio as gr

    from specviz.app.classroom import Classroom
    from specviz.serving.service import Service

_START_SECONDS = 60.0
"""How long loading the first pair may go on without collections of garbage; fetching weights can take minutes."""


def build(for_class: bool = False) -> tuple[gr.Blocks, Service, Classroom | None]:
    """The page, the service behind it, which on ZeroGPU borrows GPUs, and the class if it is for one.

    To be called in the main thread before torch is imported. It is for a class also where SPECVIZ_CLASS is 1.

    Raises:
        SystemExit: an environment variable cannot be read; says which in one sentence.
    """
    # OpenMP threads that spin while they wait for each other lose two thirds of their speed as soon as anything else wants
    # a core, and a page always does. Only before torch is imported; another value that was set is kept.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    zerogpu.start()  # must come before torch, too; does nothing elsewhere
    for_class = for_class or os.environ.get("SPECVIZ_CLASS") == "1"
    if for_class:
        # Before it is first asked, which is once.
        os.environ.setdefault("SPECVIZ_PAIRS_OFFERED", DEFAULT_PAIR)
    try:
        with _without_collections():
            return _build(for_class)
    except SpecvizError as error:
        sys.exit(str(error))


def _build(for_class: bool) -> tuple[gr.Blocks, Service, Classroom | None]:
    from specviz.app.classroom import Classroom, class_address
    from specviz.app.page import build_page, port
    from specviz.serving.limits import CLASS, Limits
    from specviz.serving.service import Service
    from specviz.serving.zerogpu_service import ZeroGpuService

    limits = Limits.from_environment(usual=CLASS if for_class else None)
    service = ZeroGpuService(limits) if zerogpu.active() else Service(limits)
    classroom = Classroom(class_address(port())) if for_class else None
    return build_page(service, classroom), service, classroom


@contextmanager
def _without_collections() -> Iterator[None]:
    """No collections of garbage meanwhile, and none of what is there then. What a start makes stays, and looking through it again and
    again takes a sixth of the time; a pair that was looked through would hold up every text.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


def serve(page: gr.Blocks, service: Service, classroom: Classroom | None = None) -> None:
    """Tell the addresses of a class, log to standard error, load the default pair in the background, and serve until interrupted."""
    from specviz.app.page import launch

    logs.configure()
    if classroom:
        print(_told(classroom), flush=True)
    loading = service.warm_up(default_pair(), TerminalProgress(sys.stderr))

    def wait() -> None:
        with _without_collections():
            loading.join(_START_SECONDS)

    threading.Thread(target=wait, name="specviz-start", daemon=True).start()
    try:
        launch(page, service, classroom)
    finally:
        service.close()


def _told(classroom: Classroom) -> str:
    """What the console says at the start of a class; the only place that shows the teacher's address."""
    return f"""For a class: everybody on this network can open the page, on every interface of this machine unless HOST says otherwise.
  For everybody:      {classroom.address}
  For the projector:  {classroom.address}class
  For you alone:      {classroom.teachers_address}
"""


def main(for_class: bool = False) -> None:
    """Build the page and serve it, for a class or as the environment says."""
    serve(*build(for_class))


if __name__ == "__main__":
    main()
