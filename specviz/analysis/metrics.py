"""Compares runs: speed-up, where and why two texts diverge, and whether a greedy text equals the verifier's own.

Figures of a single run, such as `Run.acceptance_rate`, are properties of `Run`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile, zip_longest
from typing import Any

from specviz.core.methods import get_method
from specviz.schema.trace import CUT, Draft, Run, Token

BASELINE = "verifier_only"
"""The method to which speed-ups are relative. Its text is the verifier's own."""

Sentence = list[Any]
"""Strings and tokens ({"id", "label"}): the page marks white space in tokens."""


@dataclass(frozen=True)
class Divergence:
    """The first token at which two runs differ, in each of them; None if that run had already ended."""

    index: int
    first: Token | None
    second: Token | None


def name_of(run: Run) -> str:
    """A run's method, with its lenience if it has one."""
    method = get_method(run.method)
    return f"{method.title} (α\u00a0=\u00a0{run.lenience:g})" if method.has_lenience else method.title


def first_divergence(first: Run, second: Run) -> Divergence | None:
    """Where two runs diverge; None if they do not, or if one was cut off before they could."""
    for index, (one, other) in enumerate(zip_longest(first.tokens, second.tokens)):
        if one is None or other is None:
            shorter = first if one is None else second
            return None if shorter.stop_reason in CUT else Divergence(index, one, other)
        if one.id != other.id:
            return Divergence(index, one, other)
    return None


def agreement(run: Run, reference: Run) -> int:
    """Number of tokens that two runs share before they diverge."""
    pairs = zip(run.token_ids, reference.token_ids, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def verdict(run: Run, reference: Run) -> str:
    """Whether a greedy run has the verifier's own text, which `reference` has."""
    same, whole = agreement(run, reference), first_divergence(run, reference) is None
    if not whole:
        return f"agrees for {same} of {len(run.tokens)} tokens"
    cut = run.stop_reason in CUT or reference.stop_reason in CUT
    return "identical as far as it came" if cut else "identical to the verifier’s own text"


def speed_up(run: Run, baseline: Run) -> float | None:
    """Tokens per second over the baseline's; None if either wrote nothing."""
    if not run.tokens_per_second or not baseline.tokens_per_second:
        return None
    return run.tokens_per_second / baseline.tokens_per_second


def explain(divergence: Divergence, first: Run, second: Run) -> Sentence:
    """What each rule did where the texts diverge, in one sentence."""
    one, other = divergence.first, divergence.second
    names = name_of(first), name_of(second)
    drafts = _examined(one), _examined(other)
    if one and other and drafts[0] and drafts[1] and drafts[0].id == drafts[1].id:
        if one.accepted or other.accepted:
            (accepting, rejecting), put = (names, other) if one.accepted else (names[::-1], one)
            sentence = [
                f"{accepting} kept the draft ",
                _token(drafts[0]),
                f"; {rejecting} rejected it and the verifier put ",
            ]
            return [*sentence, _token(put), "."]
        sentence = [
            "Both rejected the draft ",
            _token(drafts[0]),
            f", and their rules left different replacements: {names[0]} took ",
        ]
        return [*sentence, _token(one), f", {names[1]} took ", _token(other), "."]
    return [*_clause(names[0], one), "; ", *_clause(names[1], other), "."]


def _examined(token: Token | None) -> Token | Draft | None:
    """The draft token that was examined at this token's position."""
    return None if token is None or token.acceptance is None else token.draft or token


def _clause(name: str, token: Token | None) -> Sentence:
    if token is None:
        return [f"{name} had ended"]
    if token.draft:
        return [f"{name} rejected the draft ", _token(token.draft), " and the verifier put ", _token(token)]
    return [f"{name} {'wrote' if token.acceptance is None else 'kept the draft'} ", _token(token)]


def _token(token: Token | Draft) -> dict[str, Any]:
    return {"id": token.id, "label": token.label if isinstance(token, Token) else token.text}


def table(
    runs: Sequence[Run],
    alone: Sequence[Run | None],
    baseline: Run | None,
    quality: Sequence[float | None],
) -> list[dict[str, Any]]:
    """Compare the runs of a batch. Returns one row per run, ready for JSON.

    Args:
        runs: the batch. Divergences are from its first run.
        alone: runs of the same requests, each served alone; None if not measured.
        baseline: a run of verifier_only with the same settings, served alone.
        quality: mean log-probability of each text's tokens under the verifier.
    """
    reference = next((run for run in runs if run.method == BASELINE), baseline)
    return [
        _row(runs[0], run, lone, baseline, reference) | {"quality": score}
        for run, lone, score in zip(runs, alone, quality, strict=True)
    ]


def _row(
    leader: Run, run: Run, alone: Run | None, baseline: Run | None, reference: Run | None
) -> dict[str, Any]:
    parting = first_divergence(leader, run)
    strayed = first_divergence(run, alone) if alone else None
    own = "the verifier’s own text" if run is reference else None
    return {
        "name": name_of(run),
        "tokens": len(run.tokens),
        "acceptance_rate": run.acceptance_rate,
        "block_efficiency": run.block_efficiency,
        "verifier_calls": run.verifier_calls,
        "batch_speed": run.tokens_per_second,
        "alone_speed": alone.tokens_per_second if alone else None,
        "speed_up": speed_up(alone, baseline) if alone and baseline else None,
        "verdict": own or verdict(run, reference) if reference and run.temperature == 0 else None,
        "parts_at": parting.index if parting else None,
        "parting": explain(parting, leader, run) if parting else None,
        "strayed_at": strayed.index if strayed else None,
    }
