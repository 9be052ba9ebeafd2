"""An answer in OpenAI's format: the text up to the first stop sequence, the tokens' probabilities, and how each token was decided."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from specviz.app.api import figures
from specviz.app.openai_request import Completion
from specviz.schema.trace import Run, Token

UNLIKELY = -9999.0
"""The log probability that OpenAI's API gives to a probability of 0."""


@dataclass(frozen=True)
class Piece:
    """A part of a text. `tokens` has (offset in the whole text, token) for each token that ends in it. Only the last piece has a `run`."""

    text: str = ""
    tokens: Sequence[tuple[int, Token]] = ()
    run: Run | None = None
    finish_reason: str | None = None


def joined(pieces: Sequence[Piece]) -> Piece:
    """Join consecutive pieces into one piece."""
    last = pieces[-1] if pieces else Piece()
    tokens = [each for piece in pieces for each in piece.tokens]
    return Piece("".join(piece.text for piece in pieces), tokens, last.run, last.finish_reason)


@dataclass
class Text:
    """The text so far, up to the first stop sequence, which may be in the middle of a round."""

    stops: tuple[str, ...] = ()
    text: str = ""
    read: int = 0
    """Number of tokens read so far. No tokens are read after the token that completes a stop sequence."""
    is_stopped: bool = False
    _told: int = 0
    _waiting: list[tuple[int, Token]] = field(default_factory=list)

    def take(self, run: Run, *, ends: bool = False) -> Piece:
        """Return the text of `run` since the last call; unless the run `ends`, without final characters that may begin a stop sequence."""
        for token in run.tokens[self.read :]:
            if self.is_stopped:
                break
            self._read(token)
        ends = ends or self.is_stopped
        if ends and not self.is_stopped:
            self.text += run.tail
        until = len(self.text) - (0 if ends else self._open())
        text, self._told = self.text[self._told : until], until
        done = [each for each in self._waiting if ends or each[0] + len(each[1].text) <= until]
        self._waiting = self._waiting[len(done) :]
        if not ends:
            return Piece(text, done)
        return Piece(text, done, run, "stop" if self.is_stopped or run.stop_reason == "eos" else "length")

    def _read(self, token: Token) -> None:
        begins = len(self.text)
        self.text += token.text
        self.read += 1
        found = [
            at for stop in self.stops if (at := self.text.find(stop, max(0, begins - len(stop) + 1))) >= 0
        ]
        if found:
            self.text, self.is_stopped = self.text[: min(found)], True
            self._waiting = [each for each in self._waiting if each[0] < len(self.text)]
        if not found or begins < len(self.text):
            self._waiting.append((begins, token))

    def _open(self) -> int:
        """Number of final characters that may begin a stop sequence."""
        lengths = (n for stop in self.stops for n in range(1, len(stop)) if self.text.endswith(stop[:n]))
        return max(lengths, default=0)


class Answer:
    """Makes the JSON objects that answer one call."""

    def __init__(self, asked: Completion) -> None:
        self._asked = asked
        self.text = Text(asked.stops)
        kind = "chat.completion" if asked.is_chat else "text_completion"
        self._kinds = (kind, f"{kind}.chunk" if asked.is_chat else kind)
        self._named = {
            "id": f"{'chatcmpl' if asked.is_chat else 'cmpl'}-{secrets.token_hex(12)}",
            "created": int(time.time()),  # noqa: TID251  (a date)
            "model": asked.model,
        }

    def whole(self, piece: Piece) -> dict[str, Any]:
        """The answer if it is not streamed; `piece` has the whole text."""
        said = {"message": {"role": "assistant", "content": piece.text, "refusal": None}}
        return self._object(0, [self._choice(said, piece)], usage=self._usage(piece)) | self._explained(piece)

    def starts(self) -> Iterator[dict[str, Any]]:
        """The chunk before the text of a chat completion; none for a text completion."""
        if self._asked.is_chat:
            yield self._object(1, [self._choice({"delta": {"role": "assistant", "content": ""}}, Piece())])

    def chunks(self, piece: Piece) -> Iterator[dict[str, Any]]:
        """The chunk of a piece; after the last piece also the usage, if requested."""
        said = {"delta": {"content": piece.text} if piece.text else {}}
        yield self._object(1, [self._choice(said, piece)]) | self._explained(piece)
        if piece.run and self._asked.includes_usage:
            yield self._object(1, [], usage=self._usage(piece))

    def _usage(self, last: Piece) -> dict[str, int]:
        assert last.run
        prompt, written = len(last.run.prompt_ids), self.text.read
        return {"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written}

    def _object(self, kind: int, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        usage = {"usage": None} if kind and self._asked.includes_usage else {}
        return self._named | {"object": self._kinds[kind], "choices": choices} | usage | more

    def _choice(self, said: dict[str, Any], piece: Piece) -> dict[str, Any]:
        """The choice of an answer. `said` has the text in the format of a chat completion."""
        said = said if self._asked.is_chat else {"text": piece.text}
        found = None
        if self._asked.logprobs and piece.tokens:
            shown = [each for each in piece.tokens if not each[1].special]
            found = _chat_logprobs(shown) if self._asked.is_chat else _text_logprobs(shown)
        return {"index": 0, **said, "logprobs": found, "finish_reason": piece.finish_reason}

    def _explained(self, piece: Piece) -> dict[str, Any]:
        """How each token was decided, if requested; in the last piece also the run's figures, method, lenience and seed."""
        if not self._asked.explains:
            return {}
        found: dict[str, Any] = {"tokens": [_decision(token) for _, token in piece.tokens]}
        if run := piece.run:
            found |= {"method": run.method, "lenience": run.lenience, "seed": run.seed} | figures(run)
        return {"specviz": found}


def _decision(token: Token) -> dict[str, Any]:
    return {
        "token": token.label,
        "id": token.id,
        "last_word": "drafter" if token.accepted else "verifier",
        "q": token.q,
        "p": token.p,
        "acceptance": token.acceptance,
        "coin": token.coin,
    }


def _log(probability: float) -> float:
    return math.log(probability) if probability > 0 else UNLIKELY


def _top(token: Token) -> list[tuple[str, float]]:
    """The most probable tokens of the target distribution π at the position of `token`, with their log probabilities."""
    return [(each.text, _log(each.probability)) for each in (token.top.pi if token.top else None) or ()]


def _chat_logprobs(tokens: Sequence[tuple[int, Token]]) -> dict[str, Any]:
    content = [
        _named(token.label, _log(token.pi)) | {"top_logprobs": [_named(*each) for each in _top(token)]}
        for _, token in tokens
    ]
    return {"content": content, "refusal": None}


def _named(label: str, logprob: float) -> dict[str, Any]:
    """A token's entry in `logprobs`. `bytes` is None if the token ends within a character, whose bytes the label does not show."""
    return {"token": label, "logprob": logprob, "bytes": None if "\ufffd" in label else [*label.encode()]}


def _text_logprobs(tokens: Sequence[tuple[int, Token]]) -> dict[str, Any]:
    return {
        "tokens": [token.label for _, token in tokens],
        "token_logprobs": [_log(token.pi) for _, token in tokens],
        "top_logprobs": [dict([*_top(token), (token.label, _log(token.pi))]) for _, token in tokens],
        "text_offset": [offset for offset, _ in tokens],
    }
