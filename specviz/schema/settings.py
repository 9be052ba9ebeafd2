"""Settings of a request. Their fields, defaults and bounds are defined only here.

The shell's options, the endpoints' parameters, the page's controls, links and traces derive from `SETTINGS`;
`specviz.app.settings` has their labels and hints. The engine checks whether a prompt fits a model's context.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from typing import Any, Literal, get_args, get_type_hints

from specviz.errors import RequestError, has_half_characters, quoted

AUTO: Literal["auto"] = "auto"
"""The draft length of a request that lets the engine choose K."""
MAX_DRAFT_LENGTH = 16
MAX_INSPECT = 100
DEFAULT_METHOD = "cascade_tokenV3"


@dataclass(frozen=True)
class Setting:
    """One setting of a request: its type, default and valid values.

    Attributes:
        low, high: smallest and largest valid number; None if there is no bound. A setting without `low` is not checked here.
        excludes_low: whether `low` itself is invalid.
        word: a valid value that is not a number.
        endpoints: endpoints that have this parameter; "pane" is a pane of `compare`.
        added: whether the setting is newer than version 4 of traces. If a trace lacks the setting, the default holds.
        name, kind, default: name, type and default of the field. `kind` is the type for clients, which may differ from the
            field's.
    """

    low: float | None = None
    high: float | None = None
    excludes_low: bool = False
    word: str | None = None
    endpoints: tuple[str, ...] = ("generate", "compare")
    added: bool = False
    name: str = ""
    kind: Any = None
    default: Any = None

    @property
    def is_whole(self) -> bool:
        """Whether only integers are valid."""
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
        """Raise RequestError if `value` is not valid."""
        if self.low is None or (self.word and value == self.word) or self._holds(value):
            return
        if value is self.default is None:  # the pair defines the default
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
    """How to continue a prompt. The order of the fields is public, so new fields must come last."""

    method: str = _setting(DEFAULT_METHOD, endpoints=("generate", "pane"))
    lenience: float = _setting(None, kind=float | None, endpoints=("generate", "pane"))
    draft_length: int | Literal["auto"] = _setting(
        AUTO, low=1, high=MAX_DRAFT_LENGTH, word=AUTO, kind=int | str, endpoints=("generate", "pane")
    )
    temperature: float = _setting(0.7, low=0)
    top_k: int = _setting(0, low=0)
    top_p: float = _setting(1.0, low=0, high=1, excludes_low=True)
    seed: int = _setting(0, low=0)
    max_new_tokens: int = _setting(128, low=1)
    forbidden_tokens: Sequence[str | int] = _setting((), kind=list[str], endpoints=())
    echo: bool = _setting(False, endpoints=())
    inspect: int = _setting(0, low=0, high=MAX_INSPECT, endpoints=("generate",))
    min_p: float = _setting(0.0, low=0, high=1, added=True)
    rule: str = _setting("", endpoints=("generate", "pane"), added=True)
    repetition_penalty: float | None = _setting(None, low=0.01, high=100, added=True)
    greedy_drafts: bool = _setting(False, endpoints=(), added=True)

    @property
    def warp(self) -> tuple[Any, ...]:
        """The sampling parameters, as fields of `specviz.core.sampling.SamplingParameters`."""
        return self.temperature, self.top_k, self.top_p, self.min_p


def _registered() -> dict[str, Setting]:
    hints = get_type_hints(Settings)
    found = {}
    for each in fields(Settings):
        bounds = each.metadata["setting"]
        kind = bounds.kind or hints[each.name]
        found[each.name] = replace(bounds, name=each.name, kind=kind, default=each.default)
    return found


SETTINGS: dict[str, Setting] = _registered()
"""Every setting by name, in the order of the fields."""


def arguments(endpoint: str) -> list[str]:
    """Names of the arguments of the endpoint "generate" or "compare", in their public order."""
    names = [name for name, each in SETTINGS.items() if endpoint in each.endpoints]
    if endpoint == "compare":
        return ["prompt", "panes", "pair", *names]
    names.insert(names.index("draft_length"), "pair")
    names.insert(names.index("inspect") + 1, "trace")
    return ["prompt", *names]


@dataclass
class Prompt:
    """What to continue: exactly one of `prompt`, `messages`, `token_ids`."""

    prompt: str | None = None
    # Not part of the hash, since mappings cannot be hashed.
    messages: Sequence[Mapping[str, str]] | None = field(default=None, hash=False)
    token_ids: Sequence[int] | None = None
    raw: bool = False

    @property
    def size(self) -> tuple[int, int]:
        """Number of characters of `prompt` or of all `messages`, and number of `token_ids`."""
        return sum(map(len, self._texts())), len(self.token_ids or ())

    def _texts(self) -> list[str]:
        return [self.prompt or "", *(message["content"] for message in self.messages or ())]

    def check_prompt(self) -> None:
        """Raise RequestError unless exactly one of `prompt`, `messages`, `token_ids` is given and is valid."""
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
            ids = _plain(self.token_ids, Sequence)
            if not all(type(each) is int and each >= 0 for each in ids):
                raise RequestError(
                    "token_ids must be whole numbers of at least 0: a list of them, or a tensor or an array of one dimension."
                )
            object.__setattr__(self, "token_ids", ids)
            if not ids:
                raise RequestError("token_ids is empty: there must be at least one token to continue.")
        if any(map(has_half_characters, self._texts())):
            raise RequestError("The prompt has half a character in it (a lone surrogate): leave that out.")


def _plain(given: Any, kind: Any) -> tuple[Any, ...]:
    """The entries of `given` as Python numbers and strings; (None,) unless it is a `kind`, a tensor or an array."""
    try:
        found = given.tolist() if hasattr(given, "tolist") else given  # arrays of torch and numpy
        if isinstance(found, kind) and not isinstance(found, str | bytes | bytearray):
            return tuple(each.item() if hasattr(each, "item") else each for each in found)
    except (ValueError, RuntimeError):  # an entry is a tensor of several numbers
        pass
    return (None,)


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
    """The beginning that a fork takes over from another run. `Run.fork` makes it.

    Attributes:
        prompt: prompt of the other run.
        text: text of the other run up to the fork, without the text of the chosen token.
        tokens: number of tokens between the prompt and the fork, including chosen tokens.
        chosen: id of the token that was inserted at the fork, or None.
        chosen_text: the text that the chosen token adds; set by the engine.
    """

    prompt: str
    text: str
    tokens: int
    chosen: int | None = None
    chosen_text: str = ""


@dataclass(unsafe_hash=True)
class Request(Settings, Prompt):
    """A request to an engine. Immutable; `dataclasses.replace` makes a changed copy.

    Attributes:
        prompt: text. A chat model gets it as the user's message, unless `raw`.
        messages: a conversation, [{"role": ..., "content": ...}, ...], for chat models.
        token_ids: exact ids to continue: a list, or a one-dimensional tensor or array; stored as a tuple of ints.
        raw: whether `prompt` is used without the chat template.
        method: one of `specviz.core.methods.METHODS`.
        lenience: within the method's range; None is the method's default.
        draft_length: K, draft tokens per round, 1 to 16, or "auto". Changes the speed, never the text.
        temperature: >= 0; 0 is greedy.
        top_k: keep the k most probable tokens; 0 keeps all.
        top_p: in (0, 1]; 1 keeps all.
        min_p: in [0, 1]; keep tokens with probability >= min_p × the top token's; 0 keeps all.
        rule: only for the method own_rule: an expression that is true if a token is trusted.
        repetition_penalty: from 0.01 to 100; divides positive and multiplies negative logits of tokens in prompt and text, in both
            models. 1 is off; None is the value in the verifier's generation config.
        seed: >= 0; the only source of randomness.
        max_new_tokens: >= 1.
        forbidden_tokens: ids, or strings that are one token each; never drafted, never emitted.
        echo: whether the run's text begins with the prompt.
        greedy_drafts: whether the drafter always proposes its most probable token.
        inspect: number of most probable tokens of q, p and pi to record for every token.
        return_logits: whether the run has both models' logits at every emitted position.
        continues: for a fork, the beginning that it takes over from another run; `token_ids` are the ids of its prompt and tokens.

    Raises:
        RequestError: a value is not valid.
    """

    return_logits: bool = False
    continues: Continuation | None = None

    def __post_init__(self) -> None:
        # Imported here because it imports torch, which the shell's --help does not need.
        from specviz.core.methods import get_method

        method = get_method(self.method, self.rule)
        lenience = method.default_lenience if self.lenience is None else self.lenience
        object.__setattr__(self, "lenience", method.check_lenience(lenience))
        for name, setting in SETTINGS.items():
            setting.check(getattr(self, name))
        self.check_prompt()
        # Copies, so that the caller cannot change them.
        forbidden = _plain(self.forbidden_tokens, Iterable)
        if not all(type(each) in (int, str) for each in forbidden):
            raise RequestError(
                "forbidden_tokens must be a list of ids, and of strings that are one token each."
            )
        object.__setattr__(self, "forbidden_tokens", forbidden)
        if self.messages is not None:
            object.__setattr__(self, "messages", tuple(dict(message) for message in self.messages))

    def __setattr__(self, name: str, value: object) -> None:
        # Not `frozen=True`: a mutable run inherits the same settings.
        if name in self.__dict__:
            raise FrozenInstanceError(f"A request cannot be changed: {name!r} is set already.")
        super().__setattr__(name, value)
