"""The race that the page opens with: two recorded runs of one text on one clock, drawn by `static/race/`."""

from __future__ import annotations

import json
from typing import Any

from specviz.analysis.lanes import lane
from specviz.analysis.recorded_runs import CASCADE, INSPECTED, RACERS, RecordedRuns
from specviz.app.components.scripted_html import ScriptedHTML
from specviz.app.link import query_of
from specviz.core.methods import METHODS
from specviz.models.registry import PAIRS


class Race(ScriptedHTML):
    """Plays a race when it is shown, and again on demand. Its buttons lead to other addresses of the page.

    `race_value` makes the value; "" shows that no race was recorded.
    """

    MODULE = "race/race"


def race_value(shelf: RecordedRuns) -> str:
    """The value for the recorded race; raises TraceError if one of its runs is missing or invalid."""
    if shelf.race is None:
        return ""
    alone, drafted = map(shelf.load, RACERS)
    about: dict[str, Any] = {"machine": shelf.machine, "method": METHODS[drafted.method].title}
    about |= {"prompts": shelf.race.prompts, "repetitions": shelf.race.repetitions}
    if spec := PAIRS.get(drafted.pair):
        about["sizes"] = [spec.drafter_parameters, spec.verifier_parameters]
    about |= {"why": query_of("generate", {"run": INSPECTED}), "cascade": _cascade(shelf)}
    return json.dumps(about | {"alone": lane(alone), "drafted": lane(drafted)}, ensure_ascii=False)


def _cascade(shelf: RecordedRuns) -> dict[str, Any] | None:
    """The calls of the recorded cascade and of the lossless run beside it, and the cascade's address."""
    if not shelf.keys.issuperset(CASCADE):
        return None
    lossless, cascade = map(shelf.load, CASCADE)
    counts = {
        "tokens": len(cascade.tokens),
        "calls": cascade.verifier_calls,
        "lossless": lossless.verifier_calls,
        "temperature": cascade.temperature,
    }
    return counts | {"query": query_of("generate", {"run": CASCADE[1]})}
