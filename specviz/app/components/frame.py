"""What surrounds the tabs: the bar, the page's address, and the invitation of a class."""

from __future__ import annotations

from specviz.app.components.scripted_html import ScriptedHTML


class Bar(ScriptedHTML):
    """The bar at the top: the name on the left, switches for larger text and the theme on the right, gradio's tabs between them."""

    MODULE = "page/bar"


class Address(ScriptedHTML):
    """Shows a message over the page when a link is copied.

    A `visit` event has {"query", "held"}: the query of the view to show, and whether the view's tab still shows it.
    """

    MODULE = "page/address"
    OWN_EVENTS = ("visit",)


class InvitationLine(ScriptedHTML):
    """A line with a link, which the visitor can close. Empty until the teacher invites.

    Asks for the invitation every `seconds` (a prop). This also tells the server that the page is open.
    """

    MODULE = "invitation/invitation"
