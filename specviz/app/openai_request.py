"""Turns the calls of OpenAI's clients to /v1/completions and /v1/chat/completions into requests for the engine."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from specviz.app.refusals import ParameterError
from specviz.errors import RequestError, quoted
from specviz.schema.settings import SETTINGS, Request, arguments
from specviz.serving.limits import Limits
from specviz.serving.offer import offered_pairs

MAX_TOP = 20
"""Maximum of `top_logprobs`, and of a text completion's `logprobs`."""
MAX_STOPS, MAX_STOP = 4, 100
"""Maximum number of stop sequences, and maximum characters of each."""
TEXT_TOKENS = 16
"""Default of a text completion's `max_tokens`, as in OpenAI's API. A chat completion's default is the server's limit."""
_SEEDS = 2**31

_SETTINGS = [
    each for each in arguments("generate") if each in SETTINGS.keys() - {"max_new_tokens", "inspect"}
]
"""Settings of `Request` that a call may set by parameters of the same names. Some of these are also OpenAI's parameters."""
_SHARED: dict[str, Any] = {"model": str, "stream": bool, "stream_options": dict, "stop": str | list[str]}
_SHARED |= {"specviz": bool, "max_tokens": Any} | dict.fromkeys(_SETTINGS, Any)
CHAT = _SHARED | {"messages": list[dict], "max_completion_tokens": Any, "logprobs": bool, "top_logprobs": int}
"""Types of the parameters of a chat completion; the engine's request checks those of type Any."""
TEXT = _SHARED | {"prompt": str | list[str] | list[int] | list[list[int]], "logprobs": int}
"""Types of the parameters of a text completion."""
_PASSED_OVER = {
    *("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"),
    "parallel_tool_calls",
}
"""Parameters that are ignored."""
_ONLY: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "logit_bias": ({},),
    "tools": ([],),
    "functions": ([],),
    "tool_choice": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
}
"""Parameters that are accepted only with these values, which have no effect."""
_adapter = cache(TypeAdapter)
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}


@dataclass(frozen=True)
class Completion:
    """A call for a chat or text completion.

    Attributes:
        model: the key of a pair.
        prompt: name of the parameter with the prompt, "messages" or "prompt".
        stops: stop sequences; the text ends before the first stop sequence in it.
        explains: whether the answer says how each token was decided (parameter `specviz`).
    """

    model: str
    request: Request
    prompt: str
    stops: tuple[str, ...]
    streams: bool
    includes_usage: bool
    logprobs: bool
    explains: bool

    @property
    def is_chat(self) -> bool:
        """Whether the call is for a chat completion."""
        return self.prompt == "messages"


def read(body: bytes, kinds: dict[str, Any], limits: Limits) -> Completion:
    """Read the call in a body; `kinds` is `CHAT` or `TEXT`.

    Raises:
        RequestError: the call cannot be served; a `ParameterError` if a parameter is the reason.
    """
    sent = _parameters(body, kinds)
    prompt = "messages" if kinds is CHAT else "prompt"
    for name in ("model", prompt):
        if name not in sent:
            raise ParameterError(f"{name} is missing: give it a value.", name)
    if sent["model"] not in (offered := offered_pairs()):
        raise ParameterError(
            f"There is no model of that name here; there are {', '.join(offered)}.", "model", 404
        )
    top, stops = _top(sent), sent.get("stop", [])
    stops = [stops] if isinstance(stops, str) else stops
    if len(stops) > MAX_STOPS or not all(1 <= len(each) <= MAX_STOP for each in stops):
        raise ParameterError(
            f"stop must be at most {MAX_STOPS} texts of 1 to {MAX_STOP} characters each.", "stop"
        )
    return Completion(
        model=sent["model"],
        request=_request(sent, prompt, top or 0, limits),
        prompt=prompt,
        stops=tuple(stops),
        streams=sent.get("stream", False),
        includes_usage=sent.get("stream_options", {}).get("include_usage") is True,
        logprobs=top is not None,
        explains=sent.get("specviz", False),
    )


def _parameters(body: bytes, kinds: dict[str, Any]) -> dict[str, Any]:
    """The body's non-null parameters that `kinds` names. Raises RequestError for wrong types and for unsupported parameters or values."""
    try:
        sent = json.loads(body)
    except (ValueError, RecursionError):
        sent = None
    if not isinstance(sent, dict):
        raise RequestError("The body must be a JSON object.")
    sent = {name: value for name, value in sent.items() if value is not None and name not in _PASSED_OVER}
    for name, value in sent.items():
        if name in kinds:
            try:
                _adapter(kinds[name]).validate_python(value, strict=True)
            except ValidationError as error:
                raise ParameterError(f"{name} does not fit: {error.errors()[0]['msg']}.", name) from error
        elif name not in _ONLY:
            raise ParameterError(
                f"There is no parameter {quoted(name)} here: leave it out.", quoted(name)[1:-1]
            )
        elif value not in _ONLY[name]:
            right = " or ".join(json.dumps(each) for each in _ONLY[name])
            raise ParameterError(f"{name} may only be {right} here: leave it out.", name)
    return {name: sent[name] for name in kinds if name in sent}


def _request(sent: dict[str, Any], prompt: str, inspect: int, limits: Limits) -> Request:
    """The request for the engine. It is checked after each added parameter, so that an error names the parameter."""
    is_chat = prompt == "messages"
    length = "max_completion_tokens" if "max_completion_tokens" in sent else "max_tokens"
    usual = limits.max_new_tokens if is_chat else min(TEXT_TOKENS, limits.max_new_tokens)
    added = [
        (prompt, _conversation(sent["messages"]) if is_chat else _prompt(sent["prompt"])),
        (length, {"max_new_tokens": sent.get(length, usual)}),
        *((name, {name: sent[name]}) for name in _SETTINGS if name in sent),
    ]
    settings: dict[str, Any] = {"seed": secrets.randbelow(_SEEDS), "inspect": inspect}
    for name, values in added:
        settings |= values
        with blaming(name):
            limits.check(Request(**settings))
    return Request(**settings)


def _conversation(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Convert a chat completion's messages to the field `messages` of `Request`. Raises ParameterError if a message is invalid."""
    found = []
    for number, message in enumerate(messages, 1):
        role, content = message.get("role"), message.get("content")
        if not isinstance(role, str) or role not in _ROLES:
            raise ParameterError(
                f"The role of message {number} must be one of {', '.join(_ROLES)}.", "messages"
            )
        parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
        texts: list[Any] = [
            each.get("text") for each in parts if isinstance(each, dict) and each.get("type") == "text"
        ]
        if len(texts) < len(parts) or not all(isinstance(each, str) for each in texts):
            raise ParameterError(f"The content of message {number} must be text.", "messages")
        found.append({"role": _ROLES[role], "content": "".join(texts)})
    return {"messages": found}


def _prompt(prompt: Any) -> dict[str, Any]:
    """The fields of `Request` for the prompt of a text completion: a text or token ids, alone or as the only item of a list."""
    if prompt and isinstance(prompt, list) and isinstance(prompt[0], str | list):
        if len(prompt) > 1:
            raise ParameterError(f"{len(prompt)} prompts came; here a call may have one.", "prompt")
        [prompt] = prompt
    return {"prompt": prompt, "raw": True} if isinstance(prompt, str) else {"token_ids": prompt}


def _top(sent: dict[str, Any]) -> int | None:
    """Number of top tokens wanted at each position; None if no logprobs are wanted."""
    name = "top_logprobs" if "top_logprobs" in sent else "logprobs"
    value = sent.get(name)
    if value is None or value is False:
        return None
    if name == "top_logprobs" and not sent.get("logprobs"):
        raise ParameterError("top_logprobs needs logprobs: set it to true.", name)
    top = 0 if value is True else int(value)
    if not 0 <= top <= MAX_TOP:
        raise ParameterError(f"{name} must be from 0 to {MAX_TOP}.", name)
    return top


@contextmanager
def blaming(param: str) -> Iterator[None]:
    """Turn a `RequestError` into a `ParameterError` that names `param`."""
    try:
        yield
    except RequestError as error:
        raise ParameterError(str(error), param) from error
