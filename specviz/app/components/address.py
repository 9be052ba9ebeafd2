"""The page's address: copies links, and requests the view that Back, Forward or a link within the page leads to."""

from __future__ import annotations

from specviz.app.components.scripted_html import ScriptedHTML, style


class Address(ScriptedHTML):
    """Shows a message over the page when a link is copied. A `visit` event carries {"query"}, the address of the view to show."""

    TEMPLATE = '<div class="specviz sa-address" role="status" data-testid="address-message"></div>'
    CSS = style(("shared/shared", "page/address"))
    MODULE = "page/address"
    OWN_EVENTS = ("visit",)
