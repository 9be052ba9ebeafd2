"""One request of one visitor: what came of it and how long it took. Holds no text."""

from __future__ import annotations

from dataclasses import dataclass

READ, CANCEL, CLOSE, KILL = "read", "cancel", "close", "kill"
"""What a visitor means to do: read to the end; or midway stop, close the tab, lose the connection."""

FINISHED, LATE, CANCELLED, CLOSED, KILLED, REFUSED, FAILED, UNFINISHED = (
    *("finished", "out of time", "cancelled", "closed", "killed"),
    *("refused", "failed", "unfinished"),
)
OUTCOMES = (FINISHED, LATE, CANCELLED, CLOSED, KILLED, REFUSED, FAILED, UNFINISHED)
"""What can come of it; "out of time" by the server's clock, "unfinished" where the load test itself was broken off."""


@dataclass
class Visit:
    """A request.

    Attributes:
        number: counts the requests from 1 on.
        user: who asked.
        request: index in the catalogue.
        intent: what the visitor meant to do.
        asked: seconds from the beginning of the load to asking.
        outcome: one of `OUTCOMES`.
        why: the server's reason to stop, its sentence, or the kind of error.
        waited: seconds from asking until the text had its turn (on the page: and its prompt was read); None if it had none.
        first_token: seconds from asking to the first token; None if there was none.
        seconds: from asking to the end.
        tokens: that were seen.
        wrong: the text is not the one that was written alone, nor a beginning of it where it was broken off.
    """

    number: int
    user: int
    request: int
    intent: str
    asked: float = 0.0
    outcome: str = UNFINISHED
    why: str = ""
    waited: float | None = None
    first_token: float | None = None
    seconds: float = 0.0
    tokens: int = 0
    wrong: bool = False
