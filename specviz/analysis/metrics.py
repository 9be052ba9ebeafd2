"""Compares runs: where and why their texts diverge.

`specviz.schema.run_metrics` has the metrics of a single run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import Any

from specviz.core.method import LOSSLESS
from specviz.core.methods import get_method
from specviz.schema.trace import CUT, Draft, Run, Token
from specviz.wording import joined

BASELINE = "verifier_only"
"""The method whose text is the verifier's own."""

_COMPARED = (
    *("acceptance_rate", "draft_utilisation", "acceptance_rate_per_position"),
    *("mean_acceptance_length", "block_efficiency"),
)
"""The metrics in a row of `table`. Not times, since runs of one batch share their passes."""

Sentence = list[Any]
"""A sentence in parts: strings, and tokens ({"id", "label"}), whose white space the page marks."""


@dataclass(frozen=True)
class Divergence:
    """The first index at which two runs differ, and the token of each run at that index, which is None if that run had already ended."""

    index: int
    first: Token | None
    second: Token | None


def name_of(run: Run) -> str:
    """A run's method, with its lenience if it has one."""
    method = get_method(run.method)
    return f"{method.title} (α\u00a0=\u00a0{run.lenience:g})" if method.has_lenience else method.title


def first_divergence(first: Run, second: Run) -> Divergence | None:
    """Where two runs diverge; None if they do not, or if the shorter run was cut off before they did."""
    for index, (one, other) in enumerate(zip_longest(first.tokens, second.tokens)):
        if one is None or other is None:
            shorter = first if one is None else second
            return None if shorter.stop_reason in CUT else Divergence(index, one, other)
        if one.id != other.id:
            return Divergence(index, one, other)
    return None


def explain(divergence: Divergence, first: Run, second: Run) -> Sentence:
    """One sentence about what each rule did where the texts diverge."""
    one, other = divergence.first, divergence.second
    names = name_of(first), name_of(second)
    drafts = _examined(one), _examined(other)
    if not (one and other and drafts[0] and drafts[1] and drafts[0].id == drafts[1].id):
        return [*_clause(names[0], one), "; ", *_clause(names[1], other), "."]
    draft = _token(drafts[0])
    if one.accepted or other.accepted:
        (accepting, rejecting), put = (names, other) if one.accepted else (names[::-1], one)
        rejected = f"; {rejecting} rejected it and the verifier put "
        return [f"{accepting} kept the draft ", draft, rejected, _token(put), "."]
    left = f", and their rules left different replacements: {names[0]} took "
    return ["Both rejected the draft ", draft, left, _token(one), f", {names[1]} took ", _token(other), "."]


def _examined(token: Token | None) -> Token | Draft | None:
    """The draft token that was examined at this token's position; None if there was none."""
    return None if token is None or token.acceptance is None else token.draft or token


def _clause(name: str, token: Token | None) -> Sentence:
    if token is None:
        return [f"{name} had ended"]
    if token.draft:
        return [f"{name} rejected the draft ", _token(token.draft), " and the verifier put ", _token(token)]
    return [f"{name} {'wrote' if token.acceptance is None else 'kept the draft'} ", _token(token)]


def _token(token: Token | Draft) -> dict[str, Any]:
    return {"id": token.id, "label": token.label if isinstance(token, Token) else token.text}


def short_names(runs: Sequence[Run]) -> list[str]:
    """A short name for each run: its method, and its lenience or drafter where runs of the same method differ in these."""
    names = [get_method(run.method).title for run in runs]
    for at, run in enumerate(runs):
        if run.method == LOSSLESS:
            names[at] = "Lenient" if run.lenience else "Lossless"
    for more in (lambda run: f"α {run.lenience:g}", lambda run: run.drafter):
        found: dict[str, set[str]] = defaultdict(set)
        for name, run in zip(names, runs, strict=True):
            found[name].add(more(run))
        names = [
            f"{name} ({more(run)})" if len(found[name]) > 1 else name
            for name, run in zip(names, runs, strict=True)
        ]
    return names


def shares_coins(run: Run) -> bool:
    """Whether the run uses its uniforms as most methods do, so that only its rule can make it differ from other runs. Above temperature 0,
    `verifier_only` and methods that match the verifier's draws do not.
    """
    return run.temperature == 0 or not (run.method == BASELINE or get_method(run.method).matches)


def headline(runs: Sequence[Run]) -> Sentence:
    """A few sentences about where the texts of several runs of one prompt are equal, diverge, or cannot be compared."""
    names = dict(zip(map(id, runs), short_names(runs), strict=True))
    leader = next(filter(shares_coins, runs), runs[0])
    found, apart = [], []
    for run in runs:
        if run is not leader:
            parting = first_divergence(leader, run)
            comparable = shares_coins(run) if shares_coins(leader) else run.method == leader.method
            if parting is None or comparable:
                found.append((run, parting))
            else:
                apart.append(run)
    same = [leader, *(run for run, parting in found if parting is None)]
    parted = [(run, parting) for run, parting in found if parting is not None]
    said: Sentence = []
    if len(same) > 1:
        who = _EVERY[len(same)] if len(same) == len(runs) else joined([names[id(run)] for run in same])
        calls = joined([str(run.verifier_calls) for run in same])
        said.append(f"{who} write the same text, in {calls} calls of the verifier. ")
    parted.sort(key=lambda each: each[1].index)
    for place, (run, parting) in enumerate(parted):
        said += _parting(parting, names[id(leader)], names[id(run)], place == 0 and len(same) == 1, place > 0)
    if any(run.method == LOSSLESS and not run.lenience for run in runs):
        if any(run.method == BASELINE for run in apart):
            said.append(
                "Lossless has the distribution of Verifier only; it has the same words only at temperature 0. "
            )
        apart = [run for run in apart if run.method != BASELINE]
    if apart:
        verb, whose = ("uses", "its") if len(apart) == 1 else ("use", "their")
        who = joined([names[id(run)] for run in apart])
        said.append(f"{who} {verb} the coins otherwise, so {whose} words differ whatever the rule.")
    return said


_EVERY = {2: "Both panes", 3: "All three panes", 4: "All four panes"}


def _parting(parting: Divergence, leader: str, name: str, is_alone: bool, is_brief: bool) -> Sentence:
    """Says where the text of the run `name` diverges from the leader's. Names the leader if `is_alone`, both tokens unless `is_brief`."""
    one, other = parting.first, parting.second
    if parting.index == 0:
        opening = f"{name} differs{f' from {leader}' if is_alone else ''} at the first token"
    else:
        opening = f"{name} is the same{f' as {leader}' if is_alone else ''} until token {parting.index + 1}"
    if is_brief:
        return [f"{opening}. "]
    opening += ": " if parting.index == 0 else "; then "
    if one is None or other is None:
        return [f"{opening}{leader if one is None else 'it'} ends. "]
    verb = "writes" if other.acceptance is None else "keeps" if other.accepted else "puts"
    return [f"{opening}it {verb} ", _token(other), ", not ", _token(one), ". "]


def table(runs: Sequence[Run], quality: Sequence[float | None] | None = None) -> list[dict[str, Any]]:
    """Compare runs with the first one. Returns one JSON-ready row per run.

    `quality` has each text's mean log-probability per token under the verifier.
    """
    scores = quality or [None] * len(runs)
    return [_row(runs[0], run) | {"quality": score} for run, score in zip(runs, scores, strict=True)]


def _row(leader: Run, run: Run) -> dict[str, Any]:
    parting = first_divergence(leader, run)
    metrics = asdict(run.metrics())
    return {
        "tokens": len(run.tokens),
        **{name: metrics[name] for name in _COMPARED},
        "verifier_calls": run.verifier_calls,
        "shares_coins": parting is None or (shares_coins(leader) and shares_coins(run)),
        "parts_at": parting.index if parting else None,
        "parting": explain(parting, leader, run) if parting else None,
    }
