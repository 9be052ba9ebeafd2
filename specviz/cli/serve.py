"""The command `serve`."""

from specviz.app import server


def serve() -> int:
    """Serve the page on HOST and PORT of the environment, by default 127.0.0.1 and 7860."""
    server.main()
    return 0
