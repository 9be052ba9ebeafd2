"""The look of the page: gradio's theme in the page's colours, the fonts, and the page's head."""

from __future__ import annotations

import json
import os

import gradio as gr

from specviz.app.components.scripted_html import STATIC, TEMPLATES, static_address, style
from specviz.app.marks import colours, method_menu
from specviz.compat import gradio as compat
from specviz.core.methods import METHODS

TITLE = "SpecViz: a small model drafts, a large one checks"
DESCRIPTION = (
    "Watch speculative decoding and speculative cascades token by token: what the small model proposed, "
    "what the large one kept, and why."
)
ICON = STATIC / "page/icon.svg"


def css() -> str:
    """The page's style sheet. Gradio applies it only inside gradio's container."""
    return "\n".join((style("page/page", "page/settings", "page/compare"), _menu_style()))


def _menu_style() -> str:
    """CSS that shows the heading of each group of methods above the group's first method, since gradio's dropdowns have no headings. While
    a dropdown is filtered, headings may be missing.
    """
    rules = []
    for heading, (first, *_) in method_menu().items():
        at = f"#method .options li[aria-label={json.dumps(METHODS[first].label, ensure_ascii=False)}]"
        rules.append(f"{at} {{ margin-top: 1.9rem; }}\n{at}::before {{ content: {json.dumps(heading)}; }}")
    return "\n".join(rules)


_SANS = ("Inter", "system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif")
_MONO = ("JetBrains Mono", "ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace")


def font_faces() -> str:
    """CSS that declares the fonts, which this server serves."""
    return style("fonts/fonts").replace('url("', f'url("{static_address()}/fonts/')


# ---- gradio's theme

_SIZES = {"xxs": 0.6875, "xs": 0.75, "sm": 0.8125, "md": 0.875, "lg": 0.9375, "xl": 1.3125, "xxl": 1.625}
_RADII = {"xxs": 3, "xs": 3, "sm": 5, "md": 8, "lg": 8, "xl": 14, "xxl": 14}

_COLOURS = {
    "page": "body_background_fill",
    "panel": """
        background_fill_primary input_background_fill input_background_fill_focus
        block_label_background_fill table_even_background_fill table_odd_background_fill
        checkbox_background_color checkbox_background_color_hover checkbox_background_color_focus
        button_secondary_background_fill button_cancel_background_fill
    """,
    "sunken": """
        background_fill_secondary color_accent_soft code_background_fill table_row_focus
        button_secondary_background_fill_hover stat_background_fill panel_background_fill
    """,
    "line": """
        border_color_primary border_color_accent_subdued block_border_color panel_border_color
        table_border_color block_label_border_color
    """,
    "text": """
        body_text_color accordion_text_color table_text_color checkbox_label_text_color
        checkbox_label_text_color_selected button_secondary_text_color block_title_text_color
        link_text_color link_text_color_active link_text_color_visited button_secondary_text_color_hover
    """,
    "muted": """
        body_text_color_subdued block_info_text_color block_label_text_color link_text_color_hover
        checkbox_border_color checkbox_border_color_hover input_placeholder_color
    """,
    "button": """
        button_primary_background_fill button_primary_border_color slider_color loader_color
        checkbox_background_color_selected checkbox_border_color_selected checkbox_border_color_focus
        border_color_accent input_border_color_focus button_secondary_border_color_hover
    """,
    "on-button": "button_primary_text_color button_primary_text_color_hover",
    "error": """
        error_text_color error_icon_color error_border_color button_cancel_text_color
        button_cancel_text_color_hover button_cancel_border_color_hover
    """,
    "error-tint": "error_background_fill button_cancel_background_fill_hover",
}
"""For each of the page's colours, the variables of gradio's theme that get it."""
_EDGES = (
    "input_border_color input_border_color_hover button_secondary_border_color button_cancel_border_color"
)
_HOVERS = "button_primary_background_fill_hover button_primary_border_color_hover"
_PLAIN = {
    "transparent": """
        block_background_fill block_title_background_fill checkbox_label_background_fill
        checkbox_label_background_fill_hover checkbox_label_background_fill_selected
    """,
    "0px": "block_border_width panel_border_width checkbox_label_border_width block_padding",
    "4px 8px 4px 0": "checkbox_label_padding",
    "none": """
        checkbox_label_shadow block_shadow input_shadow input_shadow_focus checkbox_shadow
        button_primary_shadow button_secondary_shadow button_cancel_shadow block_label_shadow
    """,
    "*text_sm": "checkbox_label_text_size block_title_text_size button_small_text_size",
    "500": """
        block_title_text_weight button_large_text_weight button_medium_text_weight
        button_small_text_weight
    """,
    "*text_xs": "block_info_text_size",
    "16px": "form_gap_width layout_gap",
    "1px": "input_border_width button_border_width",
    "7px 10px": "input_padding",
    "8px": "input_radius button_large_radius button_medium_radius button_small_radius table_radius",
    "*text_md": "input_text_size button_medium_text_size",
    "*text_lg": "button_large_text_size",
    "9px 18px": "button_large_padding",
    "8px 14px": "button_medium_padding",
    "5px 10px": "button_small_padding",
    "background-color 0.12s, border-color 0.12s": "button_transition",
    "*button_primary_background_fill": "color_accent",
}
"""For each value, the variables of gradio's theme that get it, in the light and in the dark theme."""


def _variables(base: gr.themes.Base) -> dict[str, str]:
    """Arguments of `base.set`; those for the dark theme have names that end in "_dark"."""
    found = {name: value for value, names in _PLAIN.items() for name in names.split()}
    found |= {f"{name}_dark": value for name, value in found.items() if hasattr(base, f"{name}_dark")}
    for suffix, theme in (("", "light"), ("_dark", "dark")):
        own = colours(theme)
        named = [(own[colour], names) for colour, names in _COLOURS.items()]
        named.append((f"color-mix(in srgb, {own['line']} 60%, {own['muted']})", _EDGES))
        named.append((f"color-mix(in srgb, {own['button']} 84%, {own['panel']})", _HOVERS))
        found |= {f"{name}{suffix}": colour for colour, names in named for name in names.split()}
    return found


def theme() -> gr.themes.Base:
    """Gradio's theme in the page's colours, sizes and fonts. Text sizes are in rem, so that the switch for larger text scales all of them."""
    base = gr.themes.Default(
        font=_SANS,
        font_mono=_MONO,
        text_size=gr.themes.Size(name="specviz", **{name: f"{size}rem" for name, size in _SIZES.items()}),
        radius_size=gr.themes.Size(name="specviz", **{name: f"{size}px" for name, size in _RADII.items()}),
    )
    return base.set(**_variables(base))


def head() -> str:
    """The page's head: link previews, fonts, sizes, and the reader's choices of theme and text size.

    The picture of a link preview needs an absolute address, which is known only on a Space.
    """
    host = os.environ.get("SPACE_HOST")
    return TEMPLATES.get_template("page/head.html").render(
        title=TITLE,
        description=DESCRIPTION,
        base=f"https://{host}/" if host else "",
        static=static_address(),
        css="\n".join((font_faces(), compat.STYLE, style("page/head"))),
        script=compat.SCRIPT + (STATIC / "page/head.js").read_text(encoding="utf-8"),
        light=colours("light"),
        dark=colours("dark"),
    )
