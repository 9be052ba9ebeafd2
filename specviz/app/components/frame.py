"""What surrounds the tabs: the bar, the page's address, and the invitation of a class."""

from __future__ import annotations

from specviz.app.components.scripted_html import ScriptedHTML


class Bar(ScriptedHTML):
    """The bar at the top: the name on the left, switches for larger text and the theme on the right, gradio's tabs between them."""

    MODULE = "page/bar"


class Address(ScriptedHTML):
    """Shows a message over the page when a link is copied.

    A `visit` event has the "query" of the view to show, and "held": whether the tab of this view still shows the view.
    """

    MODULE = "page/address"
    OWN_EVENTS = ("visit",)


class InvitationLine(ScriptedHTML):
    """A line with a link to the lesson step of the teacher's invitation. Visitors can close the line. Without an invitation, it is empty.

    Requests the invitation every `seconds` (a prop). The requests also tell the server that the page is open.
    """

    MODULE = "invitation/invitation"
