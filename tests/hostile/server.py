"""Serves the page over a service without models, as app.py does, until its input ends; for a test in a process apart.

The file named on the command line gets the address.
"""

from __future__ import annotations

import sys
from pathlib import Path

from specviz.serving.logs import configure
from tests.hostile.conftest import FakeService, serve


class Failing(FakeService):
    """Fails in the middle of a text, with what was asked in the message of the error."""

    def lines(self, key, request, stop, progress=None, **more):  # type: ignore[no-untyped-def]
        for number, line in enumerate(super().lines(key, request, stop, progress)):
            if number == 3 and "fail" in (request.prompt or ""):
                raise ValueError(request.prompt)
            yield line


if __name__ == "__main__":
    configure()
    Path(sys.argv[1]).write_text(serve(Failing()).address)
    sys.stdin.read()
