"""What is asked for: one prompt and how to continue it. Checked here, once, in sentences.

Knows the methods' ranges and nothing of models: whether a prompt fits a context is the engine's to say.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from specviz.core.methods import get_method
from specviz.errors import RequestError, has_half_characters, quoted

AUTO: Literal["auto"] = "auto"
"""The draft length that is chosen round by round."""
MAX_DRAFT_LENGTH = 16
MAX_INSPECT = 100


@dataclass(frozen=True)
class Request:
    """One request to an engine. Exactly one of `prompt`, `messages`, `token_ids` is given.

    Attributes:
        prompt: text; wrapped as a user's turn where the pair is a chat model, unless `raw`.
        messages: a conversation, [{"role": ..., "content": ...}, ...], for chat models.
        token_ids: the exact ids to continue.
        raw: take `prompt` as it is, without the chat template.
        method: one of `specviz.core.methods.METHODS`.
        lenience: within the method's range; None takes the method's default.
        draft_length: K, proposals per round, 1 to 16; or "auto", which chooses it for each round. Never changes the
            text, only the speed.
        temperature: >= 0; 0 is greedy.
        top_k: keep the k most probable tokens; 0 keeps all.
        top_p: in (0, 1]; 1 keeps all.
        seed: >= 0; the text depends on it alone.
        max_new_tokens: >= 1.
        forbidden_tokens: ids, or strings that are one token each; never drafted, never emitted.
        echo: the run's text begins with the prompt.
        return_logits: the run keeps both models' logits at every emitted position.
        inspect: record this many of the most probable tokens of q, p and pi for every token.

    Raises:
        RequestError: for any value out of its range, with a sentence that says what is right.
    """

    prompt: str | None = None
    messages: Sequence[Mapping[str, str]] | None = None
    token_ids: Sequence[int] | None = None
    raw: bool = False
    method: str = "cascade_tokenV3"
    lenience: float | None = None
    draft_length: int | Literal["auto"] = AUTO
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    max_new_tokens: int = 128
    forbidden_tokens: Sequence[str | int] = field(default=())
    echo: bool = False
    return_logits: bool = False
    inspect: int = 0

    def __post_init__(self) -> None:
        method = get_method(self.method)
        lenience = method.default_lenience if self.lenience is None else self.lenience
        object.__setattr__(self, "lenience", method.check_lenience(lenience))
        if self.draft_length != AUTO:
            _whole(
                "Draft length",
                self.draft_length,
                1,
                MAX_DRAFT_LENGTH,
                'or "auto", which chooses it for each round',
            )
        _number("Temperature", self.temperature, 0, math.inf, "a number of at least 0 (0 is greedy)")
        _whole("top_k", self.top_k, 0, None, "0 keeps all tokens")
        _number("top_p", self.top_p, 0, 1, "a number above 0 and at most 1 (1 keeps all tokens)")
        if self.top_p <= 0:
            raise RequestError(
                f"top_p is {quoted(self.top_p)}; it must be above 0 and at most 1 (1 keeps all tokens)."
            )
        _whole("Seed", self.seed, 0, None)
        _whole("max_new_tokens", self.max_new_tokens, 1, None)
        _whole("inspect", self.inspect, 0, MAX_INSPECT)
        self._check_prompt()

    def _check_prompt(self) -> None:
        given = [name for name in ("prompt", "messages", "token_ids") if getattr(self, name) is not None]
        if len(given) != 1:
            raise RequestError(
                f"Give exactly one of prompt, messages and token_ids; {' and '.join(given) or 'none'} came."
            )
        if self.prompt is not None:
            if not isinstance(self.prompt, str):
                raise RequestError("The prompt must be text.")
            if not self.prompt.strip():
                raise RequestError("The prompt is empty: write what the models should answer or continue.")
        if self.messages is not None:
            fit = not isinstance(self.messages, str | bytes) and all(
                isinstance(m, Mapping)
                and isinstance(m.get("role"), str)
                and isinstance(m.get("content"), str)
                for m in self.messages
            )
            if not fit or not self.messages:
                raise RequestError(
                    'messages must be a list of {"role": ..., "content": ...} with at least one entry.'
                )
        said = [self.prompt or "", *(message["content"] for message in self.messages or ())]
        if any(map(has_half_characters, said)):
            raise RequestError("The prompt has half a character in it (a lone surrogate): leave that out.")
        if self.token_ids is not None:
            if not self.token_ids:
                raise RequestError("token_ids is empty: there must be at least one token to continue.")
            if not all(_is_whole(i) and i >= 0 for i in self.token_ids):
                raise RequestError("token_ids must be whole numbers of at least 0.")


def read_draft_length(text: str) -> int | str:
    """A draft length as it is typed: a whole number where there is one; what else is said, a request judges."""
    try:
        return int(text)
    except ValueError:
        return text


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _whole(name: str, value: object, low: int, high: int | None, hint: str = "") -> None:
    if (
        isinstance(value, int)
        and not isinstance(value, bool)
        and value >= low
        and (high is None or value <= high)
    ):
        return
    bounds = f"of at least {low}" if high is None else f"from {low} to {high}"
    raise RequestError(
        f"{name} is {quoted(value)}; it must be a whole number {bounds}{f' ({hint})' if hint else ''}."
    )


def _number(name: str, value: object, low: float, high: float, right: str) -> None:
    if (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and abs(value) <= sys.float_info.max
        and low <= value <= high
    ):
        return
    raise RequestError(f"{name} is {quoted(value)}; it must be {right}.")
