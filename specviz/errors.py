"""The errors that users see: each is one sentence that says what was wrong and what would be right.

The page and the shell show the text of a `SpecvizError` as it is, so that it may contain no traceback, no path of the
server, and no user's text.
"""

import errno
import os

BROKEN = "Something broke inside SpecViz and this run has ended; the next one should work."
"""The message for an unforeseen error."""


class SpecvizError(Exception):
    """Base of every error that SpecViz raises on purpose."""


class RequestError(SpecvizError, ValueError):
    """A request that cannot be served: a parameter out of range, an empty or overlong prompt."""


class RuleError(RequestError):
    """An expression that is no rule: `text` fails at character `position` (from 0), as `sentence` says."""

    def __init__(self, sentence: str, text: str, position: int) -> None:
        super().__init__(f"{sentence} (Character {position + 1} of the rule.)")
        self.sentence = sentence
        self.text = "".join(each if each.isprintable() else "\ufffd" for each in text)
        self.position = position

    @property
    def pointed(self) -> str:
        """The expression and a caret under the position: two lines, for a monospaced font."""
        return f"{self.text}\n{' ' * self.position}^"


class BusyError(SpecvizError):
    """Too many requests at once, by everybody or by one visitor; a later one would be served."""


class QuotaError(BusyError):
    """One visitor, or one address, has as much under way as it may have."""


class PairError(SpecvizError):
    """A model pair that cannot be loaded: unknown, unreachable, gated, damaged, mismatched, or too large."""


class NoRoomError(PairError):
    """A pair that does not fit into free memory."""


class EngineError(SpecvizError, RuntimeError):
    """A run that failed: out of memory, or an error in a forward pass."""


class TraceError(SpecvizError, ValueError):
    """A trace file that is foreign, damaged, truncated, or of an unknown version."""


class LessonError(SpecvizError, ValueError):
    """A lesson's file that cannot be shown, with its name and line."""


class StoppedError(SpecvizError):
    """A long job that was stopped; its work so far is kept."""


def quoted(value: object) -> str:
    """A value as a sentence quotes it: at most 60 characters."""
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
    text = str(error).lower()  # some libraries wrap the system's error in their own
    return getattr(error, "errno", None) in _DISK_FULL or any(
        os.strerror(each).lower() in text for each in _DISK_FULL
    )


_OUT_OF_MEMORY = ("allocate memory", "not enough memory", "out of memory", "alloc_failed")
"""Words of torch, CUDA and cuBLAS."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that memory ran out, on the host or an accelerator. Does not import torch."""
    text = str(error).lower()
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or (isinstance(error, RuntimeError) and any(words in text for words in _OUT_OF_MEMORY))
    )
