"""What a request may ask for: its fields, their defaults and their bounds, written once and checked here, in sentences.

The shell's options, the endpoints' parameters, the page's controls, links and traces are made of `SETTINGS`; `specviz.app.settings` has
their words. Knows no model: whether a prompt fits a context is checked by the engine.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from typing import Any, Literal, get_args, get_type_hints

from specviz.errors import RequestError, has_half_characters, quoted

AUTO: Literal["auto"] = "auto"
"""The draft length that the engine chooses."""
MAX_DRAFT_LENGTH = 16
MAX_INSPECT = 100
DEFAULT_METHOD = "cascade_tokenV3"


@dataclass(frozen=True)
class Setting:
    """One setting of a request: its type, its default, and which values are valid.

    Attributes:
        low, high: the smallest and the largest valid number; None is no bound. Only numbers have `low`.
        excludes_low: `low` itself is not valid.
        word: a value that is valid beside the numbers.
        endpoints: which take it; "pane" stands for each pane of `compare`.
        warps: a sampling parameter: `specviz.core.sampling.Warp` has a field of that name.
        added: after traces of version 4, so that older ones lack it and mean its default.
        name, kind, default: of its field; `kind` is the type in which clients give it, where that is not the field's.
    """

    low: float | None = None
    high: float | None = None
    excludes_low: bool = False
    word: str | None = None
    endpoints: tuple[str, ...] = ("generate", "compare")
    warps: bool = False
    added: bool = False
    name: str = ""
    kind: Any = None
    default: Any = None

    @property
    def is_whole(self) -> bool:
        """Whether its numbers are whole."""
        return float not in (self.kind, *get_args(self.kind))

    @property
    def bounds(self) -> str:
        """The valid numbers, in words."""
        if self.high is None:
            return f"of at least {self.low:g}"
        if self.excludes_low:
            return f"above {self.low:g} and at most {self.high:g}"
        return f"from {self.low:g} to {self.high:g}"

    def check(self, value: object) -> None:
        """Raises RequestError where `value` is out of range, with a sentence that says what is right."""
        if self.low is None or (self.word and value == self.word) or self._holds(value):
            return
        if value is self.default is None:  # known once the pair is
            return
        number = "a whole number" if self.is_whole else "a number"
        words = f' or "{self.word}"' if self.word else ""
        named = self.name.replace("_", " ").capitalize()
        raise RequestError(f"{named} is {quoted(value)}; it must be {number} {self.bounds}{words}.")

    def _holds(self, value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, int if self.is_whole else int | float):
            return False
        finite = self.is_whole or abs(value) <= sys.float_info.max  # false for NaN
        low = self.low or 0
        above = value > low if self.excludes_low else value >= low
        return finite and above and (self.high is None or value <= self.high)


def _setting(default: Any, **bounds: Any) -> Any:
    return field(default=default, metadata={"setting": Setting(**bounds)})


@dataclass
class Settings:
    """How to continue a prompt. Fields are in the order in which they may be given; new ones are added at the end."""

    method: str = _setting(DEFAULT_METHOD, endpoints=("generate", "pane"))
    lenience: float = _setting(None, kind=float | None, endpoints=("generate", "pane"))
    draft_length: int | Literal["auto"] = _setting(
        AUTO, low=1, high=MAX_DRAFT_LENGTH, word=AUTO, kind=int | str, endpoints=("generate", "pane")
    )
    temperature: float = _setting(0.7, low=0, warps=True)
    top_k: int = _setting(0, low=0, warps=True)
    top_p: float = _setting(1.0, low=0, high=1, excludes_low=True, warps=True)
    seed: int = _setting(0, low=0)
    max_new_tokens: int = _setting(128, low=1)
    forbidden_tokens: Sequence[str | int] = _setting((), kind=list[str], endpoints=())
    echo: bool = _setting(False, endpoints=())
    inspect: int = _setting(0, low=0, high=MAX_INSPECT, endpoints=("generate",))
    min_p: float = _setting(0.0, low=0, high=1, warps=True, added=True)
    rule: str = _setting("", endpoints=("generate", "pane"), added=True)
    repetition_penalty: float | None = _setting(None, low=0.01, high=100, added=True)

    @property
    def warp(self) -> tuple[Any, ...]:
        """The sampling parameters, in the order of `specviz.core.sampling.Warp`."""
        return tuple(getattr(self, name) for name in _WARPS)


def _registered() -> dict[str, Setting]:
    hints = get_type_hints(Settings)
    found = {}
    for each in fields(Settings):
        bounds = each.metadata["setting"]
        kind = bounds.kind or hints[each.name]
        found[each.name] = replace(bounds, name=each.name, kind=kind, default=each.default)
    return found


SETTINGS: dict[str, Setting] = _registered()
"""Every setting by its name, in the order of the fields."""
_WARPS = tuple(name for name, each in SETTINGS.items() if each.warps)


def arguments(endpoint: str) -> list[str]:
    """The names of the arguments of the endpoint "generate" or "compare", in the order in which they may be given; a new setting comes last."""
    names = [name for name, each in SETTINGS.items() if endpoint in each.endpoints]
    if endpoint == "compare":
        return ["prompt", "panes", "pair", *names]
    names.insert(names.index("draft_length"), "pair")
    names.insert(names.index("inspect") + 1, "trace")
    return ["prompt", *names]


@dataclass
class Prompt:
    """What is to be continued: exactly one of `prompt`, `messages`, `token_ids`."""

    prompt: str | None = None
    # Left out of the hash, which mappings have none of.
    messages: Sequence[Mapping[str, str]] | None = field(default=None, hash=False)
    token_ids: Sequence[int] | None = None
    raw: bool = False

    def check_prompt(self) -> None:
        """Raises RequestError where there is nothing to continue, or more than one thing."""
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
        if self.messages is not None and not _is_conversation(self.messages):
            raise RequestError(
                'messages must be a list of {"role": ..., "content": ...} with at least one entry.'
            )
        if self.token_ids is not None:
            object.__setattr__(self, "token_ids", _whole_numbers(self.token_ids))
            if not self.token_ids:
                raise RequestError("token_ids is empty: there must be at least one token to continue.")
        texts = [self.prompt or "", *(message["content"] for message in self.messages or ())]
        if any(map(has_half_characters, texts)):
            raise RequestError("The prompt has half a character in it (a lone surrogate): leave that out.")


def _whole_numbers(ids: Any) -> tuple[int, ...]:
    """Ids as plain ints, from a list, a tuple, or one dimension of a tensor or an array.

    Raises:
        RequestError: they are anything else, or below 0.
    """
    try:
        found = ids.tolist() if hasattr(ids, "tolist") else ids  # of torch, of numpy
        if not isinstance(found, Sequence) or isinstance(found, str | bytes | bytearray):
            raise TypeError
        plain = [each.item() if hasattr(each, "item") else each for each in found]
        if not all(isinstance(each, int) and not isinstance(each, bool) and each >= 0 for each in plain):
            raise ValueError
    except (TypeError, ValueError, RuntimeError) as error:
        raise RequestError(
            "token_ids must be whole numbers of at least 0: a list of them, or a tensor or an array of one dimension."
        ) from error
    return tuple(map(int, plain))


def _is_conversation(messages: object) -> bool:
    return (
        isinstance(messages, Sequence)
        and not isinstance(messages, str | bytes)
        and len(messages) > 0
        and all(
            isinstance(m, Mapping) and isinstance(m.get("role"), str) and isinstance(m.get("content"), str)
            for m in messages
        )
    )


@dataclass(frozen=True)
class Continuation:
    """What a request goes on from instead of beginning anew: the first tokens of another run. `Run.fork` makes it.

    Attributes:
        prompt: of that run.
        text: its text up to there, without a chosen token's.
        tokens: how many tokens of it are kept, chosen ones among them.
        chosen: id of the token that somebody put in the next place, whatever the models would have written; None where nobody did.
        chosen_text: what that token adds to the text; known once the engine has it.
    """

    prompt: str
    text: str
    tokens: int
    chosen: int | None = None
    chosen_text: str = ""


@dataclass(unsafe_hash=True)
class Request(Settings, Prompt):
    """One request to an engine. It cannot be changed; `dataclasses.replace` makes another.

    Attributes:
        prompt: text; wrapped as a user's turn where the pair is a chat model, unless `raw`.
        messages: a conversation, [{"role": ..., "content": ...}, ...], for chat models.
        token_ids: the exact ids to continue: a list, or a tensor or an array of one dimension; kept as a tuple of ints.
        raw: take `prompt` as it is, without the chat template.
        method: one of `specviz.core.methods.METHODS`.
        lenience: within the method's range; where None is given, it is the method's default from here on.
        draft_length: K, draft tokens per round, 1 to 16; or "auto", which leaves it to the engine. Never changes the text, only the speed.
        temperature: >= 0; 0 is greedy.
        top_k: keep the k most probable tokens; 0 keeps all.
        top_p: in (0, 1]; 1 keeps all.
        min_p: in [0, 1]; keeps tokens at least so many times as probable as the most probable one; 0 keeps all.
        rule: an expression that says when a token is trusted, for the method own_rule.
        repetition_penalty: from 0.01 to 100; the logits of both models at tokens of the prompt and of the text so far are divided by
            it where they are positive, and multiplied by it where they are negative. 1 is off; None takes that of the verifier's
            generation config.
        seed: >= 0; the text depends on it alone.
        max_new_tokens: >= 1.
        forbidden_tokens: ids, or strings that are one token each; never drafted, never emitted.
        echo: the run's text begins with the prompt.
        inspect: record this many of the most probable tokens of q, p and pi for every token.
        return_logits: the run keeps both models' logits at every emitted position.
        continues: the run that `token_ids` are the beginning of, where they are that of one.

    Raises:
        RequestError: for any value out of its range, with a sentence that says what is right.
    """

    return_logits: bool = False
    continues: Continuation | None = None

    def __post_init__(self) -> None:
        # Brings torch, which the shell's --help can do without.
        from specviz.core.methods import get_method

        method = get_method(self.method, self.rule)
        lenience = method.default_lenience if self.lenience is None else self.lenience
        object.__setattr__(self, "lenience", method.check_lenience(lenience))
        for name, setting in SETTINGS.items():
            setting.check(getattr(self, name))
        self.check_prompt()
        # Copies, which whoever gave them cannot change any more.
        if isinstance(self.forbidden_tokens, list):
            object.__setattr__(self, "forbidden_tokens", tuple(self.forbidden_tokens))
        if self.messages is not None:
            object.__setattr__(self, "messages", tuple(dict(message) for message in self.messages))

    def __setattr__(self, name: str, value: object) -> None:
        # Not `frozen=True`: a run has the same settings, can change in other ways, and could not inherit them then.
        if name in self.__dict__:
            raise FrozenInstanceError(f"A request cannot be changed: {name!r} is set already.")
        super().__setattr__(name, value)
