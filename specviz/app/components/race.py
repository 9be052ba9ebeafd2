"""The race that the page opens with: two recorded runs for one prompt, replayed on one clock. `static/race/` draws it."""

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

    `race_value` makes the value.
    """

    MODULE = "race/race"


def race_value(shelf: RecordedRuns) -> str:
    """The value of `Race` for the recorded race and cascade. Raises TraceError if one of their runs is missing or invalid."""
    assert shelf.race
    alone, drafted = map(shelf.load, RACERS)
    lossless, cascade = map(shelf.load, CASCADE)
    spec = PAIRS[drafted.pair]
    about: dict[str, Any] = {
        "machine": shelf.machine,
        "method": METHODS[drafted.method].title,
        "prompts": shelf.race.prompts,
        "repetitions": shelf.race.repetitions,
        "sizes": [spec.drafter_parameters, spec.verifier_parameters],
        "why": query_of("generate", {"run": INSPECTED}),
        "cascade": {
            "tokens": len(cascade.tokens),
            "calls": cascade.verifier_calls,
            "lossless": lossless.verifier_calls,
            "temperature": cascade.temperature,
            "query": query_of("generate", {"run": CASCADE[1]}),
        },
        "alone": lane(alone),
        "drafted": lane(drafted),
    }
    return json.dumps(about, ensure_ascii=False)
