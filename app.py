"""Entry: builds the page and serves it. Spaces looks for `demo`."""

import os
import sys

# Two threads that spin while they wait for each other lose two thirds of their speed as soon as anything else wants
# a core, and a page always does. Set before torch is imported; whoever sets it otherwise is obeyed.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from specviz.serving import zerogpu

zerogpu.start()  # before torch is imported, too; does nothing elsewhere

from specviz.app.page import build_page, launch
from specviz.errors import SpecvizError
from specviz.progress import TerminalProgress
from specviz.serving import logs
from specviz.serving.offer import default_pair
from specviz.serving.service import Service
from specviz.serving.zerogpu_service import ZeroGpuService

try:
    service = ZeroGpuService() if zerogpu.active() else Service()
    demo = build_page(service)
except SpecvizError as error:  # an environment variable that cannot be read: one sentence
    sys.exit(str(error))

if __name__ == "__main__":
    logs.configure()
    service.warm_up(default_pair(), TerminalProgress(sys.stderr))
    try:
        launch(demo, service)
    finally:
        service.close()
