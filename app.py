"""Entry: builds the page and serves it. Spaces looks for `demo`."""

import os
import sys

# Two threads that spin while they wait for each other lose two thirds of their speed as soon as anything else wants
# a core, and a page always does. Set before torch is imported; whoever sets it otherwise is obeyed.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from specviz.pairs import DEFAULT_PAIR
from specviz.progress import TerminalProgress
from specviz.service import Service
from specviz.ui.page import build_page, launch

service = Service()
demo = build_page(service)

if __name__ == "__main__":
    service.warm_up(DEFAULT_PAIR, TerminalProgress(sys.stderr))
    launch(demo)
