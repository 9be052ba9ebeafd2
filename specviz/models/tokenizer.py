"""Converts prompts and forbidden tokens to ids."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from textwrap import shorten
from typing import Any

from specviz.errors import RequestError, quoted
from specviz.schema.settings import Request

encoding = threading.Lock()
"""Hold this while prompts are encoded: two threads must not configure one fast tokenizer at the same time."""
if hasattr(os, "register_at_fork"):  # not on Windows
    # In a forked process nobody would release a lock that another thread holds.
    os.register_at_fork(
        before=encoding.acquire, after_in_parent=encoding.release, after_in_child=encoding.release
    )


def encode_prompt(tokenizer: Any, request: Request) -> list[int]:
    """The ids of a request's prompt. Unless it is `raw` or consists of ids, it is put into the chat template if there is one.

    Raises:
        RequestError: messages for a model without a chat template, a conversation that the template refuses, or a
            prompt without any token.
    """
    if request.token_ids is not None:
        return list(request.token_ids)
    messages = request.messages
    if request.prompt is not None and not request.raw and tokenizer.chat_template:
        messages = [{"role": "user", "content": request.prompt}]
    if messages is None:
        ids = tokenizer(request.prompt)["input_ids"]
    elif tokenizer.chat_template:
        chat = [dict(message) for message in messages]
        ids = in_template(tokenizer, chat, add_generation_prompt=True, return_dict=True)["input_ids"]
    else:
        raise RequestError("This pair's models have no chat template: give a prompt instead of messages.")
    if not ids:
        raise RequestError("The prompt comes to no token at all: write at least one word.")
    return list(ids)


def in_template(tokenizer: Any, messages: list[dict[str, str]], **options: Any) -> Any:
    """`tokenizer.apply_chat_template(messages, **options)`.

    Raises:
        RequestError: the template refuses the conversation (its reason is quoted), or fails on it.
    """
    try:
        return tokenizer.apply_chat_template(messages, **options)
    except Exception as error:  # templates are programs, and raise errors of many kinds
        reason = shorten(str(error), 200, placeholder="…") or type(error).__name__
        raise RequestError(
            f"The chat template of this pair's models does not take this conversation: {reason.rstrip('.')}."
        ) from error


def forbidden_ids(tokenizer: Any, forbidden: Sequence[str | int], vocabulary_size: int) -> list[int]:
    """The ids of forbidden tokens, sorted. Each token is given as an id or as a string that is exactly one token.

    Raises:
        RequestError: a string that is not one token, or an id outside the vocabulary.
    """
    ids = []
    for token in forbidden:
        if isinstance(token, str):
            found = tokenizer(token, add_special_tokens=False)["input_ids"]
            if len(found) != 1:
                raise RequestError(
                    f"Forbidden token {quoted(token)} is {len(found)} tokens; each must be exactly one "
                    "(mind the leading space), or an id."
                )
            token = found[0]
        if not 0 <= token < vocabulary_size:
            raise RequestError(
                f"Forbidden token {quoted(token)} is no id; ids run from 0 to {vocabulary_size - 1}."
            )
        ids.append(token)
    return sorted(set(ids))
