"""The race that the page opens with: two recorded runs of one text, told on one clock.

Knows recorded runs and what of them the browser draws, with `static/race/`; needs no model and computes no figure.
"""

from __future__ import annotations

import json
from typing import Any

from specviz.analysis.recorded_runs import RACERS, RecordedRuns
from specviz.app.components.scripted_html import ScriptedHTML, style, template
from specviz.core.methods import METHODS
from specviz.schema.trace import Round, Run, Token

_RUN = (
    *("prompt", "drafter", "verifier", "method", "lenience", "temperature", "draft_length"),
    *("prefill_seconds", "seconds", "verifier_calls"),
)
_ROUND = ("draft_length", "seconds", "drafter_seconds", "verifier_seconds")


class Race(ScriptedHTML):
    """Plays a race by itself, and again when asked.

    The value is that of `race_value`; "" is the race that nobody recorded. `select` events ask why a draft token was
    rejected: `index` counts from 0 over the tokens of the drafted run, `value` is the token in its place. `play` events
    ask for a prompt of one's own.
    """

    TEMPLATE = template("race/race")
    CSS = style(("shared/shared", "race/race"))
    MODULE = "race/race"


def race_value(shelf: RecordedRuns) -> str:
    """The race among recorded runs, for the component.

    Raises:
        TraceError: one of its runs is missing or invalid.
    """
    if shelf.race is None:
        return ""
    alone, drafted = map(shelf.load, RACERS)
    about = {"machine": shelf.machine, "method": METHODS[drafted.method].title}
    counts = {"prompts": shelf.race.prompts, "repetitions": shelf.race.repetitions}
    return json.dumps(about | counts | {"alone": _run(alone), "drafted": _run(drafted)}, ensure_ascii=False)


def _run(run: Run) -> dict[str, Any]:
    """What is drawn of a run, by the names that a trace has; a whole trace is many times as long."""
    return {name: getattr(run, name) for name in _RUN} | {"rounds": [_round(each) for each in run.rounds]}


def _round(round_: Round) -> dict[str, Any]:
    told = {name: getattr(round_, name) for name in _ROUND}
    proposals = [{"text": each.text} for each in round_.proposals]
    return told | {"proposals": proposals, "tokens": [_token(each) for each in round_.tokens]}


def _token(token: Token) -> dict[str, Any]:
    draft = {"draft": {"text": token.draft.text}} if token.draft else {}
    examined = {"acceptance": token.acceptance, "coin": token.coin}
    return {"text": token.text, "label": token.label, "accepted": token.accepted} | examined | draft
