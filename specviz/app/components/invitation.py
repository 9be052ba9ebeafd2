"""The line on a visitor's page that invites to a step of a lesson, drawn by `static/invitation/`; there only for a class.

Its page also tells the server that it is open, under a number that it draws itself. Knows how often to ask, and no lesson.
"""

from __future__ import annotations

from typing import Any

from specviz.app.classroom import POLL_SECONDS
from specviz.app.components.scripted_html import ScriptedHTML, style, template


class InvitationLine(ScriptedHTML):
    """Nothing, until the teacher invites; then a line with a link, which can be put away. It has no value and sends nothing."""

    TEMPLATE = template("invitation/invitation")
    CSS = style(("shared/shared", "invitation/invitation"))
    MODULE = "invitation/invitation"

    def __init__(self, **kwargs: Any) -> None:
        """Make one; `kwargs` as for `ScriptedHTML`."""
        super().__init__(seconds=POLL_SECONDS, **kwargs)
