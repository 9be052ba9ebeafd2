"""The errors people may see: each carries one sentence that says what was wrong and what would be right.

Knows nothing of models, pages or files. Everything SpecViz raises on purpose is a `SpecvizError`; the page and
the shell show its text as it is, so no error may carry a traceback, a path of the server, or a user's text.
"""

BROKEN = "Something broke inside SpecViz and this run has ended; the next one should work."
"""What is said of a run that was ended by whatever was not foreseen."""


class SpecvizError(Exception):
    """Base of every error that SpecViz raises on purpose."""


class RequestError(SpecvizError, ValueError):
    """A request that cannot be served as asked: a parameter out of range, an empty or overlong prompt."""


class RuleError(RequestError):
    """An expression that is no rule; `sentence` says why, `text` is the expression and `position` the character where it goes wrong, from 0."""

    def __init__(self, sentence: str, text: str, position: int) -> None:
        super().__init__(f"{sentence} (Character {position + 1} of the rule.)")
        self.sentence = sentence
        self.text = "".join(each if each.isprintable() else "\ufffd" for each in text)
        self.position = position

    @property
    def pointed(self) -> str:
        """The expression, and a caret under the place: two lines, for what is set in one width."""
        return f"{self.text}\n{' ' * self.position}^"


class BusyError(SpecvizError):
    """Too much is asked for at once, by everybody or by one visitor: later it would be served."""


class PairError(SpecvizError):
    """A model pair that cannot be had: unknown, unreachable, gated, damaged, mismatched, or too large."""


class NoRoomError(PairError):
    """A pair that does not fit into the memory that is free."""


class EngineError(SpecvizError, RuntimeError):
    """A run that broke off: out of memory, or a fault inside a forward pass."""


class TraceError(SpecvizError, ValueError):
    """A trace file that is foreign, truncated, or of a schema this version does not read."""


class LessonError(SpecvizError, ValueError):
    """A file of a lesson that cannot be shown as it is; says which, and in which line."""


class StoppedError(SpecvizError):
    """A long job was asked to stop; what it has done is kept."""


def quoted(value: object) -> str:
    """A value as a sentence quotes it: short, whatever it is."""
    try:
        text = repr(value)
    except ValueError:  # Python does not write out a whole number of thousands of digits
        return "a number of very many digits"
    return text if len(text) <= 60 else f"{text[:59]}…"


def has_half_characters(text: str) -> bool:
    """Whether there is a lone surrogate in a text: it cannot be written as UTF-8, nor sent."""
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)


_OUT_OF_MEMORY = ("allocate memory", "not enough memory", "out of memory", "alloc_failed")
"""How torch, CUDA and cuBLAS say it."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that memory ran out, on the host or on an accelerator (without importing torch)."""
    text = str(error).lower()
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or (isinstance(error, RuntimeError) and any(words in text for words in _OUT_OF_MEMORY))
    )
