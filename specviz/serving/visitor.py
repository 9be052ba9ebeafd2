"""Visitors, and the number of runs that each has at a time."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from specviz.errors import QuotaError


@dataclass(frozen=True)
class Visitor:
    """The sender of a request: the session of a browser or client, and its address. An empty one is not limited."""

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
                    f"You keep SpecViz busy with {per_visitor} runs already, as many as one visitor may have: "
                    "wait for one to end, or stop it."
                )
            if after[address] > per_address:
                raise QuotaError(
                    f"With this run there would be more than {per_address} texts under way for your network, "
                    "as many as one address may have: wait for one to end."
                )
            self._counts = after
        try:
            yield
        finally:
            with self._lock:
                self._counts -= added
