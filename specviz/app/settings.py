"""The help of each setting, and the label and range of each setting that the page offers.

The page, links, endpoints and the shell's help read these tables. Bounds and defaults come from `specviz.schema.settings`. This module does
not import gradio.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from specviz.schema.settings import SETTINGS, Setting

MAX_SEED = 2**31 - 1
"""The largest seed that the page offers; requests accept larger ones."""
HELP = {
    "method": "A method that `methods` lists.",
    "lenience": "How far to trust the drafter, within the method's range; null is the method's default.",
    "draft_length": 'Draft tokens in a round, 1 to 16 or "auto"; changes the speed, never the text.',
    "temperature": "Temperature of both models, at least 0; 0 is greedy.",
    "top_k": "Keep the k most probable tokens, at least 1; 0 keeps all.",
    "top_p": "Keep the most probable tokens whose probabilities sum to this share, above 0; 1 keeps all.",
    "seed": "At least 0; the same seed and settings give the same text.",
    "max_new_tokens": "Maximum number of new tokens, at least 1.",
    "forbidden_tokens": "A token that must not be written; repeatable.",
    "echo": "Begin the text with the prompt.",
    "inspect": "Number of top tokens to record with each token of the trace, 0 to 100.",
    "min_p": "Keep tokens with probability ≥ min-p × the top token's, from 0 to 1; 0 keeps all.",
    "rule": "For the method own_rule: when to trust a token, such as p1(v) >= (1 - a) * max p1.",
    "repetition_penalty": "From 0.01 to 100; above 1 makes tokens that occurred before less likely; 1 is off; null is the pair's own.",
    "greedy_drafts": "The drafter always proposes its most probable token: q is one-hot, so a lossless method accepts it with probability p.",
}
"""One sentence about each setting, for shell and endpoints."""


@dataclass(frozen=True)
class Control:
    """The control of one setting.

    Attributes:
        title: its label.
        offered: its smallest and largest number, on the page and in a link; empty for a control without a fixed range.
        step: the step of its slider; None for a control that is no slider.
        hint: the meaning of its special values.
        query: its name in a link, by default the setting's name.
        default: its initial value, by default the setting's default.
    """

    name: str
    title: str
    offered: tuple[float, ...] = ()
    step: float | None = None
    hint: str = ""
    query: str = ""
    default: Any = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "query", self.query or self.name)
        object.__setattr__(self, "default", self.setting.default if self.default is None else self.default)

    @property
    def setting(self) -> Setting:
        """The setting, with its bounds."""
        return SETTINGS[self.name]


_KEEPS_ALL = "0 keeps all tokens."
CONTROLS = {
    each.name: each
    for each in (
        Control("method", "Method"),
        Control("lenience", "Lenience α"),
        Control("draft_length", "Draft length K", query="k"),
        Control("temperature", "Temperature", (0, 2), step=0.05, hint="0 is greedy."),
        Control("top_k", "top-k", (0, 1_000_000), hint=_KEEPS_ALL),
        Control("top_p", "top-p", (0.05, 1), step=0.05, hint="1 keeps all tokens."),
        Control("seed", "Seed", (0, MAX_SEED), hint="Same seed, same text."),
        Control("max_new_tokens", "Max new tokens", (8, 512), step=8, query="tokens"),
        Control("min_p", "min-p", (0, 1), step=0.05, hint=_KEEPS_ALL),
        Control("rule", "Your own rule"),
        Control("repetition_penalty", "Repetition penalty", (0.01, 100), hint="1 is off."),
    )
}
"""The controls by the names of their settings, in the order of `SETTINGS`."""
