"""Ending a page that a test has served."""

from __future__ import annotations

import gradio as gr


def close(page: gr.Blocks) -> None:
    """End its server. Gradio sets an event of the server's loop from this thread, which fails where connections that end look at it in the
    same moment: it is set then, and only the rest is left to do.
    """
    try:
        page.close(verbose=False)
    except RuntimeError as error:
        if "mutated during iteration" not in str(error):
            raise
        page.server.close()
