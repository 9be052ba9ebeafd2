"""A load test's report: tables, Markdown and JSON. Knows measurements; measures nothing."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from specviz.tools.loadtest.load_test import Measurements
from specviz.tools.loadtest.visitor import FAILED, FINISHED, OUTCOMES, REFUSED, Visit
from specviz.tools.templates import NONE, Rows, Table, Templates

_MOST_LISTED = 20


def percentiles(values: Sequence[float]) -> dict[str, float] | None:
    """Count, median, 95th percentile and maximum, by nearest rank: values that were measured. None without values."""
    if not values:
        return None
    median, p95, maximum = map(float, np.percentile(values, (50, 95, 100), method="inverted_cdf"))
    return {"count": len(values), "median": median, "p95": p95, "maximum": maximum}


def times(visits: Sequence[Visit]) -> dict[str, dict[str, float] | None]:
    """Waiting times by what was waited for; whole texts are those read to their end."""
    return {
        "waiting for its turn": percentiles([v.waited for v in visits if v.waited is not None]),
        "to the first token": percentiles([v.first_token for v in visits if v.first_token is not None]),
        "a whole text": percentiles([v.seconds for v in visits if v.outcome == FINISHED]),
    }


def outcomes(visits: Sequence[Visit]) -> dict[str, int]:
    """Number of requests by outcome."""
    found = Counter(visit.outcome for visit in visits)
    return {name: found[name] for name in OUTCOMES if found[name]}


def sentences(visits: Sequence[Visit], outcome: str) -> dict[str, int]:
    """The server's sentences for an outcome, most frequent first; those that differ in a number count as one."""
    found = Counter(re.sub(r"\d+", "#", _printable(v.why)) for v in visits if v.outcome == outcome)
    return dict(found.most_common())


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)[:200]


def speeds(measurements: Measurements) -> dict[str, float | None]:
    """Tokens a second: of all visitors together while requests were sent, and of one alone from sending to the end."""

    def alone(visits: Sequence[Visit]) -> float | None:
        seconds = sum(visit.seconds for visit in visits)
        return sum(visit.tokens for visit in visits) / seconds if seconds else None

    return {
        "all": measurements.tokens / measurements.seconds if measurements.seconds else None,
        "alone": alone(measurements.alone),
        "alone_again": alone(measurements.again),
    }


def tables(measurements: Measurements) -> list[Table]:
    """All tables that are not empty."""
    visits, together, alone, again = measurements.visits, *speeds(measurements).values()
    came: Rows = [("outcome", "requests", "of")]
    for outcome, count in outcomes(visits).items():
        said = sentences(visits, outcome) if outcome in (REFUSED, FAILED) else {}
        came += [(outcome, str(count), ""), *(("", str(number), each) for each, number in said.items())]
    waits: Rows = [("", "texts", "median", "95th percentile", "maximum")]
    for suffix, group in (
        ("", visits),
        (", alone", measurements.alone),
        (", alone again", measurements.again),
    ):
        for name, found in times(group).items():
            if found:
                texts, *values = found.values()
                waits.append((name + suffix, str(texts), *map(_fixed, values)))
    rates: Rows = [("", "tokens/s"), ("all visitors together", _fixed(together, 1))]
    rates.append(("one visitor alone", _fixed(alone, 1)))
    if measurements.again:
        rates.append(("one visitor alone, after the load", _fixed(again, 1)))
    rates.append(("together ÷ alone", _fixed(together / alone if together and alone else None)))
    process: Rows = [("when", "memory, MiB", "threads")]
    for when, at in measurements.footprints.items():
        process.append((when, _fixed(at.memory / 2**20, 0), str(at.threads)))
    spent: Rows = [("", "seconds", "of one core")]
    own, server = measurements.own_processor_seconds, measurements.server_processor_seconds
    for name, seconds in (("the visitors", own), ("the server", server)):
        if seconds is not None and measurements.last:
            spent.append((name, _fixed(seconds, 1), f"{seconds / measurements.last:.0%}"))
    every = (
        Table("Requests by what came of them", came),
        Table("Seconds", waits),
        Table("Tokens a second", rates),
        Table("The server's process", process),
        Table("Processor seconds during the load", spent),
    )
    return [table for table in every if len(table.rows) > 1]


def verdict(measurements: Measurements) -> list[str]:
    """What comes first: how many, how long, and whether all was well."""
    scenario, visits = measurements.scenario, measurements.visits
    way = "page" if scenario.through == "page" else "API"
    lines = [
        f"{scenario.users} visitors through the {way}, {len(visits)} requests in {measurements.last:.0f} s; they thought "
        f"for {scenario.think:g} s on average; {len(measurements.alone)} distinct requests; seed {scenario.seed}."
    ]
    if not measurements.complete:
        lines.append("Incomplete: broken off before the end.")
    lines.append(_list("Wrong texts", [visit for visit in visits if visit.wrong]))
    lines.append(_list("Errors", [visit for visit in visits if visit.outcome == FAILED]))
    if measurements.again:
        off = [visit for visit in measurements.again if visit.wrong or visit.outcome == FAILED]
        lines.append(_list("Wrong or failed when asked alone again", off))
    return lines


def markdown(measurements: Measurements, **about: str) -> str:
    """The report; `about`: the `command` that was typed, the `date`, the `machine` of both server and visitors."""
    verdicts = verdict(measurements)
    return _TEMPLATES.render("report.md.j2", verdict=verdicts, tables=tables(measurements), **about)


def to_json(measurements: Measurements, **about: str) -> str:
    """Everything that was measured, and what follows from it; `about` as for `markdown`. Contains no text."""
    visits, measured = measurements.visits, asdict(measurements)
    report: dict[str, Any] = {
        **about,
        "outcomes": outcomes(visits),
        "refused": sentences(visits, REFUSED),
        "errors": sentences(visits, FAILED),
        "wrong": [visit.number for visit in visits if visit.wrong],
        "times": times(visits),
        "times_alone": times(measurements.alone),
        "tokens_per_second": speeds(measurements),
        "plan": measured.pop("scenario"),
    }
    return json.dumps(report | measured, indent=1) + "\n"


def _list(name: str, visits: Sequence[Visit]) -> str:
    shown = [f"{visit.number} (request {visit.request})" for visit in visits[:_MOST_LISTED]]
    more = ["…"] if len(visits) > _MOST_LISTED else []
    return f"{name}: {len(visits)}{': ' if visits else ''}{', '.join(shown + more)}."


def _fixed(value: float | None, digits: int = 2) -> str:
    return NONE if value is None else f"{value:.{digits}f}"


_TEMPLATES = Templates(Path(__file__).parent / "templates")
