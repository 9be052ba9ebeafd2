"""Converts tokens to text: labels of single tokens, and text that grows token by token.

`tokenizer.decode` needs all ids at once. Most decoders map each token independently, so text can be emitted while it grows. With any other
decoder, such as CTC (no language model uses it), all text is emitted at the end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

_ANCHOR = "a"
"""A token put before all others: a decoder that strips a text's leading space then leaves the other tokens' spaces."""
_BYTE = re.compile(r"<0x[0-9A-Fa-f+][0-9A-Fa-f]>")  # a sign too: Rust's parser accepts it
_CONTINUATIONS = "Ģ", "¿"
"""The bytes 0x80 and 0xBF as byte-level tokens. Every incomplete character can continue with at least one of these bytes."""
_TOKENWISE = ("ByteFallback", "ByteLevel", "Metaspace", "Replace", "WordPiece")
"""Types of decoder steps that map each token of a list independently; ByteFallback also depends on adjacent byte tokens."""


class TokenLabels:
    """A tokenizer's decoder. Calling it with an id returns the token's label: its text after other tokens, a leading space included.

    Labels are cached. Special tokens have labels too. Incomplete characters become U+FFFD; an unknown id has the label "".

    Attributes:
        special: ids that `tokenizer.decode` omits if `skip_special_tokens`, such as the end-of-text token's.
    """

    def __init__(self, tokenizer: Any) -> None:
        """`tokenizer` is a transformers tokenizer whose backend is from the tokenizers library."""
        backend = tokenizer.backend_tokenizer
        added = backend.get_added_tokens_decoder()
        self.special = frozenset(token for token, it in added.items() if it.special)
        # The backend recognises special tokens by their strings: another id with the same string is omitted too.
        self._skipped = {added[token].content for token in self.special}
        self._string: Callable[[int], str | None] = backend.id_to_token
        self._decode: Callable[[Sequence[str]], str] = backend.decoder.decode if backend.decoder else " ".join
        self._cleans = tokenizer.clean_up_tokenization if _cleans_up(tokenizer) else None
        self._kinds = _kinds(backend.decoder)
        if self._cleans or self._decode([_ANCHOR]) != _ANCHOR:
            self._kinds = None
        self._label = lru_cache(maxsize=65536)(self._labelled)

    def __call__(self, token: int) -> str:
        """The label of a token."""
        return self._label(token)

    def _labelled(self, token: int) -> str:
        string = self._string(token)
        return "" if string is None else self._decode([_ANCHOR, string])[len(_ANCHOR) :]

    def string(self, token: int) -> str | None:
        """The string that the decoder gets for a token; None for a special token or an unknown id, which add no text."""
        string = self._string(token)
        return None if string in self._skipped else string

    def text(self, strings: Sequence[str]) -> str:
        """The text of tokens, given as their strings."""
        text = self._decode(strings) if strings else ""
        return self._cleans(text) if self._cleans else text

    def settled(self, strings: Sequence[str]) -> tuple[str, int]:
        """The text of one or more tokens, and how many of its characters no later token can change; ("", 0) if that is unknown."""
        if self._kinds is None or ("ByteFallback" in self._kinds and _BYTE.fullmatch(strings[-1])):
            return "", 0
        text = self._decode(strings)
        # A U+FFFD at the end is final only if no continuation byte would complete or change it.
        if "ByteLevel" in self._kinds and text.endswith("\ufffd"):
            longer = [self._decode([*strings, each]) for each in _CONTINUATIONS]
            return text, len(text) - any(each != f"{text}\ufffd" for each in longer)
        return text, len(text)


class Detokenizer:
    """Converts ids to text, one id at a time, and never emits part of a UTF-8 character.

    For any ids, the results of `push` and finally of `finish` join to exactly `tokenizer.decode(ids, skip_special_tokens=True)`. Text
    that a later token may change is held back: a character's first bytes, a run of byte tokens. For a special token `push` returns "".
    """

    def __init__(self, labels: TokenLabels) -> None:
        """Begin a text, which does not depend on the prompt before it. Many detokenizers can share `labels`."""
        self._labels = labels
        self._strings = list[str]()
        self._told = 0  # characters of their text that were returned

    def push(self, token: int) -> str:
        """The text that `token` completes, which may be empty."""
        string = self._labels.string(token)
        if string is None:
            return ""
        self._strings.append(string)
        text, settled = self._labels.settled(self._strings)
        told = text[self._told : settled]
        if 0 < settled == len(text):
            self._strings, self._told = [_ANCHOR], len(_ANCHOR)
        else:
            self._told = max(self._told, settled)
        return told

    def finish(self) -> str:
        """The text that is still held back after the last token. A second call returns ""."""
        told = self._labels.text(self._strings)[self._told :]
        self._strings, self._told = [], 0
        return told


def _cleans_up(tokenizer: Any) -> bool:
    """Whether `tokenizer.decode` cleans up spaces. In transformers, a BPE tokenizer needs a second setting for that."""
    is_bpe = type(tokenizer.backend_tokenizer.model).__name__ == "BPE"
    told = "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output"
    return bool(tokenizer.clean_up_tokenization_spaces) and (not is_bpe or getattr(tokenizer, told, False))


def _kinds(decoder: Any) -> set[str] | None:
    """The types of a decoder's steps; None if a token's text may depend on other tokens."""
    if decoder is None:  # the backend then joins tokens with spaces
        return set()
    try:
        # What pickling writes: `Tokenizer.to_str` would write the vocabulary too.
        parts = _flat(json.loads(decoder.__getstate__()))
    except Exception:  # a decoder written in Python cannot be pickled
        return None
    fused = False
    for part in parts:
        kind = part["type"]
        if not (
            kind == "Fuse" or (kind == "Strip" and not part["stop"]) or (kind in _TOKENWISE and not fused)
        ):
            return None
        fused = fused or kind in ("Fuse", "ByteLevel")
    return {part["type"] for part in parts}


def _flat(part: dict[str, Any]) -> list[dict[str, Any]]:
    """The steps of a decoder, which is given as the tokenizers library's JSON."""
    if part["type"] == "Sequence":
        return [inner for each in part["decoders"] for inner in _flat(each)]
    return [part]
