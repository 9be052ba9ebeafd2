"""Between text and tokens: prompts to ids, ids to text one at a time, and labels of single tokens.

Knows tokenizers and requests, and nothing of models or methods.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from tokenizers.decoders import DecodeStream

from specviz.errors import RequestError
from specviz.schema.settings import Request

_CONTEXT_IDS = 8
"""Number of prompt ids that the incremental decoder starts from, so that leading spaces survive."""


def encode_prompt(tokenizer: Any, request: Request) -> list[int]:
    """The ids of a request's prompt, put into the chat template if the models have one.

    Raises:
        RequestError: messages for a model without a chat template, or a prompt that comes to no token at all.
    """
    if request.token_ids is not None:
        return list(request.token_ids)
    messages = request.messages
    if request.prompt is not None and not request.raw and tokenizer.chat_template:
        messages = [{"role": "user", "content": request.prompt}]
    if messages is None:
        ids = tokenizer(request.prompt)["input_ids"]
    elif tokenizer.chat_template:
        ids = tokenizer.apply_chat_template(
            [dict(message) for message in messages], add_generation_prompt=True, return_dict=True
        )["input_ids"]
    else:
        raise RequestError("This pair's models have no chat template: give a prompt instead of messages.")
    if not ids:
        raise RequestError("The prompt comes to no token at all: write at least one word.")
    return list(ids)


def forbidden_ids(tokenizer: Any, forbidden: Sequence[str | int], vocabulary_size: int) -> list[int]:
    """Ids of forbidden tokens, each given as an id or as a string that is exactly one token.

    Raises:
        RequestError: a string that is not one token, or an id outside the vocabulary.
    """
    ids = []
    for token in forbidden:
        if isinstance(token, str):
            found = tokenizer(token, add_special_tokens=False)["input_ids"]
            if len(found) != 1:
                raise RequestError(
                    f"Forbidden token {token!r} is {len(found)} tokens; each must be exactly one "
                    "(mind the leading space), or an id."
                )
            token = found[0]
        if not 0 <= token < vocabulary_size:
            raise RequestError(f"Forbidden token {token} is no id; ids run from 0 to {vocabulary_size - 1}.")
        ids.append(token)
    return sorted(set(ids))


class TokenLabels:
    """Labels of single tokens, spaces included, cached. Bytes that are no character alone become U+FFFD."""

    def __init__(self, tokenizer: Any) -> None:
        self.special = frozenset(tokenizer.all_special_ids)
        anchor = tokenizer("a", add_special_tokens=False)["input_ids"]
        # Decoded after an anchor, so that decoders which strip a leading space have nothing to strip.
        skipped, decode = len(tokenizer.decode(anchor)), tokenizer.backend_tokenizer.decode

        @lru_cache(maxsize=65536)
        def label(token: int) -> str:
            text: str = decode([*anchor, token], skip_special_tokens=False)
            return text[skipped:]

        self._label = label

    def __call__(self, token: int) -> str:
        """The token's own text."""
        return self._label(token)


class Detokenizer:
    """Ids to text, one at a time, never half a UTF-8 character.

    The texts returned join to the decoded whole; a token that only begins a character returns "", and the token
    that completes it returns the character. Special tokens return "".
    """

    def __init__(self, tokenizer: Any, prompt_ids: Sequence[int]) -> None:
        self._tokenizer = tokenizer.backend_tokenizer
        self._stream = DecodeStream(ids=list(prompt_ids[-_CONTEXT_IDS:]), skip_special_tokens=True)

    def push(self, token: int) -> str:
        """The text that `token` completes, which may be empty."""
        return self._stream.step(self._tokenizer, token) or ""
