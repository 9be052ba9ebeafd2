"""Limits on requests, per visitor, per address and in total. Environment variables set them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from specviz.environment import LIMITS
from specviz.errors import QuotaError, RequestError, quoted
from specviz.schema.settings import Request


@dataclass(frozen=True)
class Limits:
    """All limits, each a maximum; `environment.LIMITS` has their environment variables."""

    max_prompt: int = 4000
    """Characters of a prompt."""
    max_prompt_tokens: int = 2048
    """Tokens of a prompt, chat template included. 4000 English characters are about 1100 tokens; a rare character can be four tokens."""
    max_new_tokens: int = 512
    """Tokens of one text."""
    max_panes: int = 4
    """Texts of one comparison."""
    max_trace_bytes: int = 5_000_000
    """Bytes of an uploaded trace."""
    max_sequences: int = 96
    """Concurrent sequences, on each pair."""
    queue: int = 64
    """Sequences that may wait for a slot, on each pair."""
    per_visitor: int = 3
    """Runs of one visitor at a time, decoding or queued, over all pairs."""
    per_address: int = 64
    """Texts of one client address at a time: enough for a class behind one router, with slots left for others."""
    seconds: int = 300
    """Seconds from a request to the end of its text. A text that takes longer is cut off."""
    pairs: int = 2
    """Pairs in memory at once; the least recently used one is unloaded first."""

    @classmethod
    def from_environment(
        cls, environment: Mapping[str, str] | None = None, *, usual: Limits | None = None
    ) -> Limits:
        """Read the limits from the environment. Limits that it does not set come from `usual`, by default `Limits()`.

        Raises:
            SpecvizError: a value is not a whole number of at least 1.
        """
        found = {name: variable.value(environment) for name, variable in LIMITS.items()}
        return replace(usual or cls(), **{name: value for name, value in found.items() if value is not None})

    def check(self, request: Request) -> None:
        """Raises RequestError if a request is longer than allowed. Without a tokenizer, it counts tokens only of `token_ids`."""
        length, count = request.size
        if length > self.max_prompt:
            raise RequestError(
                f"The prompt has {length} characters; here it may have at most {self.max_prompt}: shorten it."
            )
        self.check_tokens(request, count)
        if request.max_new_tokens > self.max_new_tokens:
            raise RequestError(
                f"Max new tokens is {quoted(request.max_new_tokens)}; here it may be at most {self.max_new_tokens}."
            )

    def check_tokens(self, request: Request, count: int) -> None:
        """Raises RequestError if `count`, the number of tokens of a request's prompt, is larger than allowed.

        The prompt of a fork may be longer, because it also contains text that was written.
        """
        most = self.max_prompt_tokens + (self.max_new_tokens if request.continues else 0)
        if count <= most:
            return
        if request.continues:
            has, may = f"The prompt and the text up to the fork have {count} tokens", "they may"
        else:
            has, may = f"The prompt has {count} tokens", "it may"
        raise RequestError(f"{has}; here {may} have at most {most}: shorten the prompt.")


CLASS = Limits(
    max_prompt=1000,
    max_prompt_tokens=1024,
    max_new_tokens=128,
    per_visitor=2,
    per_address=160,
    seconds=120,
    pairs=1,
)
"""Limits for a class of thirty on one machine. Behind a proxy the whole class may have one address."""


@dataclass(frozen=True)
class Visitor:
    """The sender of a request: the session of a browser or client, and its address. An empty session or address is not limited."""

    session: str = ""
    address: str = ""


NOBODY = Visitor()


class Visits:
    """Counts the runs of each session, and the texts of each address."""

    def __init__(self, per_visitor: int, per_address: int) -> None:
        """Allow `per_visitor` runs of one session and `per_address` texts of one address at a time."""
        self._most = (per_visitor, per_address)
        self._counts: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def run(self, visitor: Visitor, texts: int) -> Iterator[None]:
        """Count a run of `texts` texts until the context ends. Raises QuotaError if the visitor would have more than allowed."""
        session, address = ("session", visitor.session), ("address", visitor.address)
        added = Counter({session: bool(visitor.session), address: texts * bool(visitor.address)})
        with self._lock:
            after = self._counts + added
            per_visitor, per_address = self._most
            if after[session] > per_visitor:
                raise QuotaError(
                    f"You already have {per_visitor} runs in progress, the most that one visitor may have: "
                    "wait for one to end, or stop it."
                )
            if after[address] > per_address:
                raise QuotaError(
                    f"This run would exceed the {per_address} texts that one network address may have in progress: "
                    "wait for one to end."
                )
            self._counts = after
        try:
            yield
        finally:
            with self._lock:
                self._counts -= added
