"""The text of an answer, in pieces, up to the first stop string."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from specviz.schema.trace import Run, Token


@dataclass(frozen=True)
class Piece:
    """A part of a text, and the tokens that it completes, each with its offset in the text. The last piece has the run."""

    text: str = ""
    tokens: Sequence[tuple[int, Token]] = ()
    run: Run | None = None
    finish_reason: str | None = None

    @property
    def tells(self) -> bool:
        """Whether it has anything to send."""
        return bool(self.text or self.tokens or self.finish_reason)


def joined(pieces: Sequence[Piece]) -> Piece:
    """All pieces as one."""
    last = pieces[-1] if pieces else Piece()
    tokens = [each for piece in pieces for each in piece.tokens]
    return Piece("".join(piece.text for piece in pieces), tokens, last.run, last.finish_reason)


@dataclass
class Text:
    """A text so far. It ends before the first stop, even one in the middle of a round."""

    stops: tuple[str, ...] = ()
    text: str = ""
    read: int = 0
    """Number of tokens up to the stop, including the one that completes it."""
    is_stopped: bool = False
    _told: int = 0
    _waiting: list[tuple[int, Token]] = field(default_factory=list)

    def take(self, run: Run, *, ends: bool = False) -> Piece:
        """The piece that `run` adds. Unless the run `ends`, withholds last characters that may begin a stop."""
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
        """Number of last characters that may be the beginning of a stop."""
        lengths = (n for stop in self.stops for n in range(1, len(stop)) if self.text.endswith(stop[:n]))
        return max(lengths, default=0)
