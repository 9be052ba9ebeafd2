"""The line on a visitor's page that invites to a step of a lesson. `static/invitation/` draws it.

Its script polls for the invitation, which also tells the server that the page is open.
"""

from __future__ import annotations

from typing import Any

from specviz.app.classroom import POLL_SECONDS
from specviz.app.components.scripted_html import ScriptedHTML, style, template


class InvitationLine(ScriptedHTML):
    """Empty until the teacher invites; then a line with a link, which the visitor can close."""

    TEMPLATE = template("invitation/invitation")
    CSS = style(("shared/shared", "invitation/invitation"))
    MODULE = "invitation/invitation"

    def __init__(self, **kwargs: Any) -> None:
        """Make one; `kwargs` as for `ScriptedHTML`."""
        super().__init__(seconds=POLL_SECONDS, **kwargs)
