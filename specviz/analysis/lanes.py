"""The part of a run that the picture of a race shows; a whole trace is many times as long."""

from __future__ import annotations

from typing import Any

from specviz.schema.trace import Round, Run, Token

_RUN = (
    *("prompt", "drafter", "verifier", "method", "lenience", "temperature", "draft_length"),
    *("prefill_seconds", "seconds", "verifier_calls"),
)
_ROUND = ("draft_length", "seconds", "drafter_seconds", "verifier_seconds")


def lane(run: Run) -> dict[str, Any]:
    """The part of a run that the picture of a race shows, JSON-ready, with the field names of a trace."""
    return {name: getattr(run, name) for name in _RUN} | {"rounds": [_round(each) for each in run.rounds]}


def _round(round_: Round) -> dict[str, Any]:
    told = {name: getattr(round_, name) for name in _ROUND}
    proposals = [{"text": each.text} for each in round_.proposals]
    return told | {"proposals": proposals, "tokens": [_token(each) for each in round_.tokens]}


def _token(token: Token) -> dict[str, Any]:
    draft = {"draft": {"text": token.draft.text}} if token.draft else {}
    examined = {"acceptance": token.acceptance, "coin": token.coin}
    return {"text": token.text, "label": token.label, "accepted": token.accepted} | examined | draft
