"""The command `serve`."""

from typing import Annotated

import typer

from specviz.app import server


def serve(
    for_class: Annotated[
        bool,
        typer.Option(
            "--class", help="For a class: on all interfaces, short texts, a QR code and a teacher's page."
        ),
    ] = False,
) -> int:
    """Serve the page on HOST and PORT of the environment, by default 127.0.0.1 and 7860."""
    server.main(for_class)
    return 0
