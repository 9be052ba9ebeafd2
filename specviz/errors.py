"""The errors that users see. Each message is one sentence that says what is wrong and what would be right.

The page and the shell show the message of a `SpecvizError` unchanged, so it must not contain a traceback, a path of the
server, or a user's text.
"""

import errno
import os

BROKEN = "Something broke inside SpecViz and this run has ended; the next one should work."
"""The message for an unforeseen error."""


class SpecvizError(Exception):
    """Base class of all errors that SpecViz raises deliberately."""


class RequestError(SpecvizError, ValueError):
    """A request that cannot be served: a parameter out of range, an empty or overlong prompt."""


class RuleError(RequestError):
    """An invalid expression for a rule. `sentence` says what is wrong with `text` at character `position` (from 0)."""

    def __init__(self, sentence: str, text: str, position: int) -> None:
        super().__init__(f"{sentence} (Character {position + 1} of the rule.)")
        self.sentence = sentence
        self.text = "".join(each if each.isprintable() else "\ufffd" for each in text)
        self.position = position

    @property
    def pointed(self) -> str:
        """Two lines for a monospaced font: the expression, and a caret under the position."""
        return f"{self.text}\n{' ' * self.position}^"


class BusyError(SpecvizError):
    """Too many requests at once, in total or from one visitor. A later one can be served."""


class QuotaError(BusyError):
    """A visitor has too many runs in progress, or an address too many texts."""


class PairError(SpecvizError):
    """A model pair that cannot be loaded: unknown, unreachable, gated, damaged, mismatched, or too large."""


class NoRoomError(PairError):
    """A pair that does not fit into the free memory."""


class EngineError(SpecvizError, RuntimeError):
    """A run that failed: out of memory, or an error in a forward pass."""


class TraceError(SpecvizError, ValueError):
    """A trace file that is foreign, damaged, truncated, or of an unknown version."""


class LessonError(SpecvizError, ValueError):
    """A lesson that cannot be shown; the message names the file and, if the error is in a step, the step."""


class StoppedError(SpecvizError):
    """A long job that was stopped. Its results so far are saved."""


def quoted(value: object) -> str:
    """The repr of a value for a message, cut to 60 characters."""
    try:
        text = repr(value)
    except ValueError:  # Python refuses to print integers of thousands of digits
        return "a number of very many digits"
    return text if len(text) <= 60 else f"{text[:59]}…"


def has_half_characters(text: str) -> bool:
    """Whether a text has a lone surrogate, which UTF-8 cannot encode."""
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)


_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def is_disk_full(error: object) -> bool:
    """Whether an error, or the output of a program, says that a disk or a quota is full."""
    text = str(error).lower()  # its words, because some libraries wrap the system's error
    return getattr(error, "errno", None) in _DISK_FULL or any(
        os.strerror(each).lower() in text for each in _DISK_FULL
    )


_OUT_OF_MEMORY = ("allocate memory", "not enough memory", "out of memory", "alloc_failed")
"""Words in the messages of torch, CUDA and cuBLAS."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that memory ran out, on the host or an accelerator. Does not import torch."""
    text = str(error).lower()
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or (isinstance(error, RuntimeError) and any(words in text for words in _OUT_OF_MEMORY))
    )
