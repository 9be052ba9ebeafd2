"""The words of each setting: its help, its label, and what its control and a link range over.

The page, the endpoints and the shell's help read this one table. Bounds and defaults are those of `specviz.schema.settings`, which
knows none of these words. Imports no gradio.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from specviz.schema.settings import SETTINGS, Setting

MAX_SEED = 2**31 - 1
"""The largest seed that the page offers; a request takes any."""


@dataclass(frozen=True, kw_only=True)
class Control:
    """How one setting is explained and offered.

    Attributes:
        setting: its bounds.
        help: one sentence, for shell and endpoints.
        title: the label of its control.
        hint: what its special values mean.
        offered: the smallest and the largest number that control and link range over; empty where it has another control.
        step: of its slider; without one the control is a box for a number.
        query: its name in a link; None keeps it out of links.
        default: what its control begins with.
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
    _control("method", "One of those that `methods` lists.", "Method"),
    _control(
        "lenience",
        "How far the drafter is trusted, within the method's range; by default the method's own.",
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
        "From 0; 0 is greedy.",
        "Temperature",
        hint="0 is greedy",
        offered=(0, 2),
        step=0.05,
    ),
    _control(
        "top_k",
        "Keep the k most probable tokens; 0 keeps all.",
        "top-k",
        hint=_KEEPS_ALL,
        offered=(0, 1_000_000),
    ),
    _control(
        "top_p",
        "Keep the most probable tokens up to this probability together, above 0; 1 keeps all.",
        "top-p",
        hint="1 keeps all tokens",
        offered=(0.05, 1),
        step=0.05,
    ),
    _control(
        "seed",
        "From 0; the same seed and the same settings give the same text.",
        "Seed",
        hint="same seed, same text",
        offered=(0, MAX_SEED),
    ),
    _control(
        "max_new_tokens",
        "Most tokens to write, from 1.",
        "Most tokens to write",
        offered=(8, 512),
        step=8,
        query="tokens",
    ),
    _control("forbidden_tokens", "A token never to write; repeatable.", query=None),
    _control("echo", "The text begins with the prompt.", query=None),
    _control(
        "inspect",
        "So many of the most probable tokens are recorded at every token of the trace, 0 to 100.",
        query=None,
    ),
    _control(
        "min_p",
        "Keep tokens with probability of at least min-p times the top token's; 0 keeps all.",
        "min-p",
        hint=_KEEPS_ALL,
        offered=(0, 1),
        step=0.05,
    ),
    _control(
        "rule",
        "When a token is trusted, for the method own_rule: a comparison such as p1(v) >= (1 - a) * max p1.",
        "Your own rule",
    ),
    _control(
        "repetition_penalty",
        "Above 1 makes tokens of the prompt and of the text so far less likely; 1 is off. By default the pair's own.",
        "Repetition penalty",
        hint="1 is off",
        offered=(0.01, 100),
    ),
)
CONTROLS: dict[str, Control] = {each.name: each for each in _CONTROLS}
"""Every setting's words by its name, in the order of `SETTINGS`."""
