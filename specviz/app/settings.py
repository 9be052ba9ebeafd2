"""The help, label and control range of each setting.

The page, links, endpoints and the shell's help read this table. Bounds and defaults come from `specviz.schema.settings`. Imports no
gradio.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from specviz.schema.settings import SETTINGS, Setting

MAX_SEED = 2**31 - 1
"""The largest seed that the page offers; requests accept larger ones."""


@dataclass(frozen=True, kw_only=True)
class Control:
    """The words and the control of one setting.

    Attributes:
        setting: the setting, with its bounds.
        help: one sentence, for shell and endpoints.
        title: the label of its control.
        hint: the meaning of its special values.
        offered: the smallest and the largest number of its control and of a link; empty for other kinds of controls.
        step: the step of its slider; without one the control is a box for a number.
        query: its name in a link; None keeps it out of links.
        default: the first value of its control.
    """

    setting: Setting
    help: str
    title: str
    hint: str = ""
    offered: tuple[float, ...] = ()
    step: float | None = None
    query: str | None
    default: Any

    @property
    def name(self) -> str:
        """The setting's name."""
        return self.setting.name


def _control(name: str, help_: str, title: str = "", **more: Any) -> Control:
    setting = SETTINGS[name]
    given = {"title": title or name, "query": name, "default": setting.default} | more
    return Control(setting=setting, help=help_, **given)


_KEEPS_ALL = "0 keeps all tokens"
_CONTROLS = (
    _control("method", "A method that `methods` lists.", "Method"),
    _control(
        "lenience",
        "How far to trust the drafter, within the method's range; null is the method's default.",
        "Lenience α",
    ),
    _control(
        "draft_length",
        'Draft tokens in a round, 1 to 16 or "auto"; changes the speed, never the text.',
        "Draft length K",
        query="k",
    ),
    _control(
        "temperature",
        "Temperature of both models, at least 0; 0 is greedy.",
        "Temperature",
        hint="0 is greedy",
        offered=(0, 2),
        step=0.05,
    ),
    _control(
        "top_k",
        "Keep the k most probable tokens, at least 1; 0 keeps all.",
        "top-k",
        hint=_KEEPS_ALL,
        offered=(0, 1_000_000),
    ),
    _control(
        "top_p",
        "Keep the most probable tokens whose probabilities sum to this share, above 0; 1 keeps all.",
        "top-p",
        hint="1 keeps all tokens",
        offered=(0.05, 1),
        step=0.05,
    ),
    _control(
        "seed",
        "At least 0; the same seed and settings give the same text.",
        "Seed",
        hint="same seed, same text",
        offered=(0, MAX_SEED),
    ),
    _control(
        "max_new_tokens",
        "Most tokens to write, at least 1.",
        "Most tokens to write",
        offered=(8, 512),
        step=8,
        query="tokens",
    ),
    _control("forbidden_tokens", "A token that must not be written; repeatable.", query=None),
    _control("echo", "Begin the text with the prompt.", query=None),
    _control(
        "inspect",
        "Number of top tokens to record with each token of the trace, 0 to 100.",
        query=None,
    ),
    _control(
        "min_p",
        "Keep tokens with probability ≥ min-p × the top token's, from 0 to 1; 0 keeps all.",
        "min-p",
        hint=_KEEPS_ALL,
        offered=(0, 1),
        step=0.05,
    ),
    _control(
        "rule",
        "For the method own_rule: when to trust a token, such as p1(v) >= (1 - a) * max p1.",
        "Your own rule",
    ),
    _control(
        "repetition_penalty",
        "From 0.01 to 100; above 1 makes tokens that occurred before less likely; 1 is off; null is the pair's own.",
        "Repetition penalty",
        hint="1 is off",
        offered=(0.01, 100),
    ),
    _control(
        "greedy_drafts",
        "The drafter always proposes its most probable token: q is one-hot, so a lossless method accepts it with probability p.",
        query=None,
    ),
)
CONTROLS: dict[str, Control] = {each.name: each for each in _CONTROLS}
"""The words of every setting by its name, in the order of `SETTINGS`."""
