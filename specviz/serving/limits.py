"""How much one visitor, and all visitors together, may ask for: sane for a public server, set by the environment.

Knows numbers and their names in the environment, and checks single requests; counts no visitors and no queue.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

from specviz.errors import RequestError, SpecvizError
from specviz.schema.settings import Request

PREFIX = "SPECVIZ_"
_FORMER = {"max_sequences": "rows"}
"""What a limit was called at first, and still may be."""


@dataclass(frozen=True)
class Limits:
    """Each can be set by the environment variable of its name in capitals, such as SPECVIZ_MAX_PROMPT."""

    max_prompt: int = 4000
    """Characters of a prompt, or ids."""
    max_new_tokens: int = 512
    """Tokens of one text."""
    max_panes: int = 4
    """Texts of one comparison."""
    max_trace_bytes: int = 5_000_000
    """Of a trace that is opened."""
    max_sequences: int = 96
    """Sequences that decode at once, on each pair."""
    queue: int = 64
    """Sequences that may wait for a slot, on each pair."""
    per_visitor: int = 3
    """Runs of one visitor at a time, decoding or queued, over all pairs."""
    seconds: int = 300
    """From a request to the end of its text; what is there by then is kept."""
    pairs: int = 2
    """Model pairs in memory at once; the least recently used one is unloaded first."""

    @classmethod
    def from_environment(
        cls, environment: Mapping[str, str] | None = None, *, usual: Limits | None = None
    ) -> Limits:
        """The limits that the environment sets, the others as in `usual`, by default as they are here.

        Raises:
            SpecvizError: a value that is no whole number of at least 1.
        """
        given, found = os.environ if environment is None else environment, {}
        for each in fields(cls):
            names = [PREFIX + name.upper() for name in (each.name, _FORMER.get(each.name)) if name]
            name = next((name for name in names if name in given), None)
            if name is None:
                continue
            text = given[name]
            if not (text.isascii() and text.isdigit() and int(text) >= 1):
                raise SpecvizError(f"{name} is {text!r}; it must be a whole number of at least 1.")
            found[each.name] = int(text)
        return replace(usual or cls(), **found)

    def check(self, request: Request) -> None:
        """Check one request.

        Raises:
            RequestError: it is longer than a visitor may ask for.
        """
        texts = [request.prompt or "", *(message["content"] for message in request.messages or ())]
        length = sum(map(len, texts)) + len(request.token_ids or ())
        if length > self.max_prompt:
            unit = "characters" if request.token_ids is None else "tokens"
            raise RequestError(
                f"The prompt has {length} {unit}; here it may have {self.max_prompt}: shorten it."
            )
        if request.max_new_tokens > self.max_new_tokens:
            raise RequestError(
                f"{request.max_new_tokens} tokens were asked for; here a text may have {self.max_new_tokens}."
            )

    def check_panes(self, requests: Sequence[Request]) -> None:
        """Check how many requests may be compared.

        Raises:
            RequestError: they are too many.
        """
        if len(requests) > self.max_panes:
            raise RequestError(
                f"{len(requests)} texts were asked for side by side; here it may be {self.max_panes}."
            )


CLASS = Limits(max_prompt=1000, max_new_tokens=128, per_visitor=2, seconds=120, pairs=1)
"""For thirty at once on one machine: texts that are short enough for everybody's turn to come, of one pair."""
