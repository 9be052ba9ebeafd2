"""What surrounds the tabs: the bar, the page's address, and the invitation of a class."""

from __future__ import annotations

from specviz.app.components.scripted_html import ScriptedHTML


class Bar(ScriptedHTML):
    """Shows the name on the left, and switches for larger text and for the theme on the right, with gradio's tabs between them."""

    MODULE = "page/bar"


class Address(ScriptedHTML):
    """Shows a message over the page when a link is copied. A `visit` event carries {"query"}, the address of the view to show."""

    MODULE = "page/address"
    OWN_EVENTS = ("visit",)


class InvitationLine(ScriptedHTML):
    """Empty until the teacher invites; then a line with a link, which the visitor can close.

    Polls for the invitation every `seconds`, which also tells the server that the page is open.
    """

    MODULE = "invitation/invitation"
