"""What happened in a run: Run, Round, Token.

These store decisions; `specviz.schema.run_metrics` derives rates from them. `specviz.schema.trace_file` defines the file format.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

from specviz.errors import RequestError, TraceError, quoted
from specviz.files import write_whole
from specviz.schema import trace_file
from specviz.schema.run_metrics import RunMetrics, measure
from specviz.schema.settings import AUTO, SETTINGS, Continuation, Request, Settings

STOP_REASONS = ("eos", "length", "context", "cancelled", "time")
CUT = ("", "cancelled", "time")
"""Stop reasons of a text that is unfinished: it is still being written, or was interrupted."""
MAX_DRAWN = 20_000
"""The most rounds, tokens and draft tokens, in total, that a browser can draw; also the most entries of `alternatives` or a `Top` list."""


@dataclass(frozen=True)
class Proposal:
    """A draft token, and its probability under q."""

    id: int
    text: str
    q: float


@dataclass(frozen=True)
class Draft(Proposal):
    """A rejected draft token, and its probability under q, p and pi."""

    p: float
    pi: float


@dataclass(frozen=True)
class RuleTest:
    """A deferral test of the examined draft token."""

    score: float
    threshold: float
    trusted: bool


@dataclass(frozen=True)
class Likely:
    """One of the most probable tokens of a distribution."""

    id: int
    text: str
    probability: float


@dataclass(frozen=True)
class Top:
    """The most probable tokens of q, p and pi, in descending order; None for a model that did not run.

    At temperature 0, q and p are one-hot, so the tokens are those of the same logits at temperature 1.
    """

    q: list[Likely] | None
    p: list[Likely] | None
    pi: list[Likely] | None


@dataclass(frozen=True)
class Alternative:
    """A method with a lenience, whose verdict is recorded for every token."""

    method: str
    lenience: float


@dataclass(frozen=True)
class WhatIf:
    """What each of the run's alternatives would have done with the examined draft token and the same uniform.

    Attributes:
        acceptance: acceptance probability under each of `Run.alternatives`, in their order. The token is accepted if coin < acceptance.
        flips: for each alternative, the critical leniences, at which its verdict changes: ascending, at most two. None if
            unknown, as for a custom rule.
        kept: [from, to), the range of leniences in which this run's rule would draw the same replacement; None if the
            replacement does not depend on the lenience, or nothing was rejected.
    """

    acceptance: list[float]
    flips: list[list[float] | None]
    kept: list[float] | None


@dataclass(frozen=True)
class Token:
    """One emitted token.

    Attributes:
        text: the text that the token completes; "" for special tokens. If a character takes several tokens, its text is in the
            last of them. The run's last token also has the text that is left unfinished.
        label: how to show the token by itself.
        position: position in the sequence; the prompt counts.
        round: index of its round.
        accepted: whether the token was drafted and accepted; otherwise it was resampled, or drawn by the verifier alone.
        special: whether it is a special token, such as the end of the text.
        draft: the draft token that was rejected here; None if no draft token was rejected.
        q, p, pi: probability of this token under drafter, verifier, target; None for a model that did not run.
        acceptance, coin: acceptance probability and uniform of the examined draft token, which is accepted if
            coin < acceptance. None if no draft token was examined.
        rule: the deferral test; only for cascades.
        top: the most probable tokens; only with inspection.
        what_if: what other methods and leniences would have done; only with inspection, and if both models ran.
    """

    id: int
    text: str
    label: str
    position: int
    round: int
    accepted: bool
    special: bool
    draft: Draft | None
    q: float | None
    p: float | None
    pi: float
    acceptance: float | None
    coin: float | None
    rule: RuleTest | None
    top: Top | None
    what_if: WhatIf | None


@dataclass(frozen=True)
class Round:
    """One round: up to K draft tokens, one verifier pass, at most K tokens. All seconds are those of the whole batch.

    Attributes:
        draft_length: K; 0 if the drafter does not run. There are K proposals, or K − 1: the K-th is recorded only if
            it is examined.
        proposals: the draft tokens.
        examined, accepted: numbers of examined and of accepted draft tokens.
        drafter_seconds, verifier_seconds: seconds of the forward passes, including the draws of draft tokens.
        tokens: the emitted tokens.
        kept_by_block: number of draft tokens that block verification would have kept, given the same coins; only for lossless
            decoding with inspection. Older traces lack it.
    """

    index: int
    draft_length: int
    proposals: list[Proposal]
    examined: int
    accepted: int
    seconds: float
    drafter_seconds: float
    verifier_seconds: float
    tokens: list[Token]
    kept_by_block: int | None = None


@dataclass
class Models:
    """The models that served a run, their device and their dtype."""

    pair: str
    drafter: str
    verifier: str
    device: str
    dtype: str


@dataclass(kw_only=True)
class Run(Settings, Models):
    """A served request: its settings and all decisions.

    Attributes:
        draft_length: None if the engine chose it anew for each round (see the rounds).
        alternatives: methods and leniences to which every token's `what_if` refers, including this run's; empty without
            inspection.
        continues: for a fork, the beginning that it takes over from another run; its tokens are at the end of `prompt_ids`.
        stop_reason: "eos", "length", "context" (the models' context is full), "cancelled", "time" (a server's deadline), "" while running.
        verifier_calls, drafter_calls: numbers of forward passes that this run's rounds needed, without prefill.
        neighbours: largest number of other concurrent sequences.
        tail: unfinished text of a run cut off by "cancelled" or "time", such as U+FFFD for half a character.
        drafter_logits, verifier_logits: [tokens, V], on request; not saved.
    """

    lenience: float = field()
    draft_length: int | None = field()  # type: ignore[assignment]  # the value used, not the value requested
    forbidden_tokens: list[int] = field()
    repetition_penalty: float = 1.0  # the value used; older traces lack it
    prompt: str
    prompt_ids: list[int]
    alternatives: list[Alternative]
    continues: Continuation | None = None
    rounds: list[Round] = field(default_factory=list)
    stop_reason: str = ""
    seconds: float = 0.0
    prefill_seconds: float = 0.0
    verifier_calls: int = 0
    drafter_calls: int = 0
    neighbours: int = 0
    tail: str = ""
    drafter_logits: Any = field(default=None, compare=False, repr=False)
    verifier_logits: Any = field(default=None, compare=False, repr=False)

    @staticmethod
    def for_request(
        request: Request, *, forbidden_tokens: list[int], repetition_penalty: float, **more: Any
    ) -> Run:
        """The run of a request before its first round. `more` has the run's other fields. The two settings are the values used."""
        settings = {name: getattr(request, name) for name in SETTINGS}
        settings["draft_length"] = None if request.draft_length == AUTO else request.draft_length
        settings |= {"forbidden_tokens": forbidden_tokens, "repetition_penalty": repetition_penalty}
        settings |= {name: float(settings[name]) for name in _FLOATS}
        return Run(**settings | more)

    def fork(self, tokens: int, *, chosen: int | None = None, **changes: Any) -> Request:
        """A request that continues this run after its first `tokens` tokens, with the same seed and uniforms.

        The fork writes what a run with these settings would write after the same tokens (laws 2 and 3).

        Args:
            tokens: from 0 to the run's number of tokens, not counting an end-of-text token.
            chosen: id of a token to insert at the fork.
            changes: settings that differ from the run's. With another `method`, the default lenience and no custom rule apply
                unless `lenience` or `rule` is given. `max_new_tokens` counts from the fork; by default it is what the run had left.

        Raises:
            RequestError: the run has fewer tokens, no token is left to write, or a setting is invalid.
        """
        ids = self.token_ids
        most = len(ids) - (self.stop_reason == "eos")
        if isinstance(tokens, bool) or not isinstance(tokens, int) or not 0 <= tokens <= most:
            raise RequestError(
                f"tokens is {quoted(tokens)}; this run can be forked after 0 to {most} tokens."
            )
        own = ids[:tokens] + ([] if chosen is None else [chosen])
        settings: dict[str, Any] = {name: getattr(self, name) for name in SETTINGS}
        settings |= {
            "draft_length": self.draft_length or AUTO,
            "max_new_tokens": self.max_new_tokens - len(own),
        }
        if changes.get("method", self.method) != self.method:
            settings |= {"lenience": None, "rule": ""}
        settings |= changes
        if settings["max_new_tokens"] < 1 and "max_new_tokens" not in changes:
            raise RequestError("Nothing is left to write here: the run was asked for no more tokens.")
        before = self.continues or Continuation(self.prompt, "", 0)
        text = before.text + before.chosen_text + "".join(token.text for token in self.tokens[:tokens])
        continues = Continuation(before.prompt, text, before.tokens + len(own), chosen)
        return Request(token_ids=[*self.prompt_ids, *own], continues=continues, **settings)

    @property
    def tokens(self) -> list[Token]:
        """All emitted tokens in order."""
        return [token for round_ in self.rounds for token in round_.tokens]

    @property
    def token_ids(self) -> list[int]:
        """Ids of all emitted tokens, including an end-of-text token."""
        return [token.id for token in self.tokens]

    @property
    def accepted(self) -> list[bool]:
        """Whether each emitted token was drafted and accepted."""
        return [token.accepted for token in self.tokens]

    @property
    def text(self) -> str:
        """The text of the new tokens, as `tokenizer.decode(ids, skip_special_tokens=True)`.

        With `echo`, it begins with the prompt and, for a fork, the text before the fork.
        """
        before = self.continues.text + self.continues.chosen_text if self.continues else ""
        new = "".join(token.text for token in self.tokens)
        return (self.prompt if self.echo else "") + before + new + self.tail

    def metrics(self) -> RunMetrics:
        """The metrics of the run so far."""
        return measure(self)

    @property
    def acceptance_rate(self) -> float | None:
        """As in `metrics`."""
        return self.metrics().acceptance_rate

    @property
    def block_efficiency(self) -> float | None:
        """As in `metrics`."""
        return self.metrics().block_efficiency

    @property
    def tokens_per_second(self) -> float | None:
        """As in `metrics`."""
        return self.metrics().tokens_per_second

    def summary(self) -> dict[str, Any]:
        """Settings, text, metrics and rounds as one JSON-ready object."""
        written = {"text": self.text, "token_ids": self.token_ids, "accepted": self.accepted}
        end = {n: value for n, value in trace_file.ending(self).items() if n not in ("neighbours", "tail")}
        found = trace_file.opening(self) | written | vars(self.metrics()) | end | {"rounds": self.rounds}
        return trace_file.plain(found)

    def lines(self) -> Iterator[str]:
        """The lines of the trace, each with its newline."""
        yield trace_file.header_line(self)
        for round_ in self.rounds:
            yield trace_file.round_line(round_)
        if self.stop_reason:
            yield trace_file.end_line(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the trace, completely or not at all. Raises TraceError if it cannot be written."""
        try:
            write_whole(Path(path), "".join(self.lines()))
        except OSError as error:
            raise TraceError(f"The trace could not be written: {error.strerror or error}.") from error

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Run:
        """Read a trace file.

        Raises:
            TraceError: the file is unreadable, foreign, truncated, damaged, or of an unknown version.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise TraceError(
                "The trace cannot be read: it must be a UTF-8 text file of JSON lines."
            ) from error
        return parse_trace(text.split("\n"))  # not splitlines, since a string may contain U+2028


_FLOATS = [name for name, kind in get_type_hints(Run).items() if name in SETTINGS and kind is float]


def parse_trace(lines: Iterable[str], *, most: int | None = None) -> Run:
    """A Run from the lines of a trace, which are untrusted.

    Args:
        lines: with or without their newlines.
        most: maximum size, counted as for `MAX_DRAWN`; by default there is none.

    Raises:
        TraceError: the trace is foreign, truncated, damaged, of an unknown version, or larger than `most`.
    """
    run = trace_file.parse(lines, Run, Round)
    if most is not None and (drawn := _drawn(run)) > most:
        raise TraceError(
            f"This trace is too long to be drawn: it has {drawn:,} rounds, tokens and draft tokens, and here it may have at most {most:,}."
        )
    if run.stop_reason not in STOP_REASONS:
        raise TraceError(f"This trace is damaged: {quoted(run.stop_reason)} is no reason to stop.")
    before = run.continues.tokens if run.continues else 0
    what_ifs_fit = all(_fits(token.what_if, run) for token in run.tokens if token.what_if)
    if not what_ifs_fit or not 0 <= before < max(1, len(run.prompt_ids)):
        raise TraceError("This trace is damaged: its parts do not fit together.")
    return run


def _drawn(run: Run) -> int:
    """What `MAX_DRAWN` limits: the number of rounds, tokens and draft tokens, or the length of `alternatives` or a `Top` list if larger."""
    whole = sum(1 + len(each.proposals) + len(each.tokens) for each in run.rounds)
    tops = [len(top or ()) for token in run.tokens if token.top for top in vars(token.top).values()]
    return max([whole, len(run.alternatives), *tops])


def _fits(what_if: WhatIf, run: Run) -> bool:
    lengths = {len(what_if.acceptance), len(what_if.flips)}
    own = run.method in [one.method for one in run.alternatives]
    few = all(len(flips or ()) <= 2 for flips in what_if.flips)
    return own and few and lengths == {len(run.alternatives)} and len(what_if.kept or (0.0, 0.0)) == 2
