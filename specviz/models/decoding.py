"""A tokenizer's decoder as a chain of stages that take one token at a time, for text that is shown while it grows.

`tokenizer.decode` needs all ids at once. Here each part of its decoder (`tokenizers.decoders`) is a stage that passes a piece of
text on as soon as no later token can change it; until then the piece waits. In the end, the joined output equals the decoder's.
A decoder with an unknown part, such as BERT's WordPiece (no language model has it), gives all its text at the end.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from tokenizers import Regex, decoders, pre_tokenizers

Pieces = Sequence[str]
"""Tokens as a decoder sees them: strings that it maps one by one and finally joins."""


class _Stage:
    """One part of a decoder, decoding one text. This base class passes every piece on."""

    def push(self, piece: str) -> Pieces:
        """Take a piece; returns the pieces that no later one can change."""
        return (piece,)

    def finish(self) -> Pieces:
        """End the text; returns the pieces that were waiting."""
        return ()


class _Mapped(_Stage):
    """Maps the first piece by one function and every later one by another."""

    def __init__(self, first: Callable[[str], str], later: Callable[[str], str]) -> None:
        self._next, self._later = first, later

    def push(self, piece: str) -> Pieces:
        function, self._next = self._next, self._later
        return (function(piece),)


class _Utf8(_Stage):
    """Byte-level pieces to text. An incomplete character waits; invalid bytes become U+FFFD."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, piece: str) -> Pieces:
        return (self._decoder.decode(_bytes(piece)),)

    def finish(self) -> Pieces:
        return (self._decoder.decode(b"", final=True),)


class _ByteFallback(_Stage):
    """Pieces such as <0xF0> to text. A run of them waits until it ends; if it is not UTF-8 as a whole, every byte becomes U+FFFD."""

    _BYTE = re.compile(r"<0x([0-9A-Fa-f+][0-9A-Fa-f])>")  # a sign too: Rust's parser accepts it

    def __init__(self) -> None:
        self._run = bytearray()

    def push(self, piece: str) -> Pieces:
        if byte := self._BYTE.fullmatch(piece):
            self._run.append(int(byte[1], 16))
            return ()
        return (*self.finish(), piece)

    def finish(self) -> Pieces:
        run, self._run = self._run, bytearray()
        try:
            return (run.decode(),) if run else ()
        except UnicodeDecodeError:
            return ("\ufffd",) * len(run)


class _Strip(_Stage):
    """Removes up to `count` of a character from the beginning of every piece, or of the whole text where pieces are `fused`."""

    def __init__(self, character: str, count: int, fused: bool) -> None:
        self._character, self._count, self._fused = character, count, fused

    def push(self, piece: str) -> Pieces:
        count = self._count
        while count and piece.startswith(self._character):
            piece, count = piece[1:], count - 1
        if self._fused:
            self._count = 0 if piece else count
        return (piece,)


class _Replaced(_Stage):
    """Replaces a string in the whole text. A possible beginning of it waits."""

    def __init__(self, pattern: str, content: str) -> None:
        self._pattern, self._content, self._waiting = pattern, content, ""

    def push(self, piece: str) -> Pieces:
        *whole, tail = (self._waiting + piece).split(self._pattern)
        most = min(len(tail), len(self._pattern) - 1)
        ends = (tail[-n:] for n in range(most, 0, -1))
        self._waiting = next(filter(self._pattern.startswith, ends), "")
        return (self._content.join([*whole, tail[: len(tail) - len(self._waiting)]]),)

    def finish(self) -> Pieces:
        waiting, self._waiting = self._waiting, ""
        return (waiting,)


class _Held(_Stage):
    """Holds every piece until the end, for a decoder of which it is unknown what later pieces may change."""

    def __init__(self, decode: Callable[[list[str]], str]) -> None:
        self._decode, self._pieces = decode, list[str]()

    def push(self, piece: str) -> Pieces:
        self._pieces.append(piece)
        return ()

    def finish(self) -> Pieces:
        return (self._decode(self._pieces),) if self._pieces else ()


class Decoding:
    """How a tokenizer turns ids into text.

    Attributes:
        special: ids that `decode` omits if it skips special tokens.
    """

    def __init__(self, tokenizer: Any) -> None:
        """`tokenizer` is one of transformers', with a backend of the tokenizers library."""
        backend = tokenizer.backend_tokenizer
        added = backend.get_added_tokens_decoder()
        self.special = frozenset(token for token, it in added.items() if it.special)
        # The backend recognises special tokens by their strings: another id with the same string is omitted too.
        self._skipped = {added[token].content for token in self.special}
        self._piece: Callable[[int], str | None] = backend.id_to_token
        self._decoder = backend.decoder
        self._makers = _makers(self._decoder)
        if _cleans_up(tokenizer):
            self._makers += [partial(_Replaced, pattern, pattern.strip()) for pattern in _CLEANED_UP]

    def piece(self, token: int) -> str | None:
        """A token's piece; None for a special token or an unknown id, which add nothing."""
        piece = self._piece(token)
        return None if piece in self._skipped else piece

    def stages(self) -> list[_Stage]:
        """Fresh stages, for one text."""
        return [make() for make in self._makers]

    def label(self, token: int) -> str:
        """A token's text after other tokens, a leading space included. Special tokens have labels too."""
        piece = self._piece(token)
        if piece is None:
            return ""
        if self._decoder is None:
            return f" {piece}"
        # After a letter, so that decoders which strip a leading space have nothing to strip.
        text: str = self._decoder.decode(["a", piece])
        return text[1:]


_ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
_PRINTABLE = [ord(character) for character in _ALPHABET if ord(character) < 256]
_BYTES = dict(
    zip(_ALPHABET, _PRINTABLE + [byte for byte in range(256) if byte not in _PRINTABLE], strict=True)
)
"""The byte that each character stands for: printable characters for their own, those from U+0100 on for the other bytes, in order."""

_CLEANED_UP = (" .", " ?", " !", " ,", " ' ", " n't", " 'm", " 's", " 've", " 're")
"""Strings whose outer spaces transformers removes, in this order, if a tokenizer cleans up."""


def _bytes(piece: str) -> bytes:
    try:
        return bytes([_BYTES[character] for character in piece])
    except KeyError:  # an added token that is no byte-level string
        return piece.encode()


def _cleans_up(tokenizer: Any) -> bool:
    """Whether `tokenizer.decode` cleans up spaces. In transformers, a BPE tokenizer needs a second setting for that."""
    is_bpe = type(tokenizer.backend_tokenizer.model).__name__ == "BPE"
    told = "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output"
    return bool(tokenizer.clean_up_tokenization_spaces) and (not is_bpe or getattr(tokenizer, told, False))


def _makers(decoder: Any) -> list[Callable[[], _Stage]]:
    """Factories of a decoder's stages."""
    if decoder is None:  # the backend then joins tokens with spaces
        return [partial(_Mapped, str, " {}".format)]
    try:
        # What pickling writes: `Tokenizer.to_str` would write the vocabulary too.
        found = _parts(json.loads(decoder.__getstate__()), fused=False)[0]
    except Exception:  # a decoder written in Python cannot be pickled
        found = None
    return [partial(_Held, decoder.decode)] if found is None else found


def _parts(part: Mapping[str, Any], fused: bool) -> tuple[list[Callable[[], _Stage]] | None, bool]:
    """Factories of the stages of a decoder's part, and whether their output is one growing piece.

    Args:
        part: in the tokenizers library's JSON.
        fused: whether its input is one growing piece.

    Returns:
        None instead of factories if the part is unknown.
    """
    match part:
        case {"type": "Sequence", "decoders": [*parts]}:
            makers: list[Callable[[], _Stage]] = []
            for each in parts:
                more, fused = _parts(each, fused)
                if more is None:
                    return None, fused
                makers += more
            return makers, fused
        case {"type": "Fuse"}:
            return [], True
        case {"type": "Strip", "content": str(character), "start": int(count), "stop": 0}:
            return [partial(_Strip, character, count, fused)], fused
        case {"type": "Replace", "pattern": {"String": str(pattern)}, "content": str(content)} if pattern:
            if fused:
                return [partial(_Replaced, pattern, content)], True
            return [_same(lambda piece: piece.replace(pattern, content))], False
    return None if fused else _unfused(part), part["type"] == "ByteLevel"


def _unfused(part: Mapping[str, Any]) -> list[Callable[[], _Stage]] | None:
    """Factories of the stages of a part that needs separate pieces; None if it is unknown."""
    match part:
        case {"type": "ByteLevel"}:
            return [_Utf8]
        case {"type": "ByteFallback"}:
            return [_ByteFallback]
        case {"type": "Replace", "pattern": {"Regex": str(pattern)}, "content": str(content)}:
            decode = decoders.Replace(Regex(pattern), content).decode
            return [_same(lambda piece: decode([piece]))]
        case {"type": "Metaspace", "replacement": str(mark), "prepend_scheme": scheme}:
            first = " " if scheme == "never" else ""
            begin, follow = (lambda piece, by=by: piece.replace(mark, by) for by in (first, " "))
            return [partial(_Mapped, begin, follow)]
    return None


def _same(function: Callable[[str], str]) -> Callable[[], _Stage]:
    return partial(_Mapped, function, function)
