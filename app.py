"""Entry: builds the page and serves it. Spaces looks for `demo`."""

import sys

from specviz.pairs import DEFAULT_PAIR
from specviz.progress import TerminalProgress
from specviz.service import Service
from specviz.ui.page import build_page, launch

service = Service()
demo = build_page(service)

if __name__ == "__main__":
    service.warm_up(DEFAULT_PAIR, TerminalProgress(sys.stderr))
    launch(demo)
