"""A load test as people read it: tables, Markdown, and JSON. Every figure comes from what was measured.

Knows how to lay out what a job measured; measures nothing.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from specviz.tools.loadtest.job import Measured
from specviz.tools.loadtest.visit import FAILED, FINISHED, OUTCOMES, REFUSED, Visit

NONE = "–"
_MOST_LISTED = 20
_WAITED, _FIRST, _WHOLE = "waiting for its turn", "to the first token", "a whole text"


@dataclass(frozen=True)
class Spread:
    """Seconds: the median, the 95th percentile and the maximum of `count`."""

    count: int
    median: float
    p95: float
    maximum: float


@dataclass(frozen=True)
class Table:
    """A table with a heading; the first row names the columns."""

    title: str
    rows: list[tuple[str, ...]]


def spread(values: Sequence[float]) -> Spread | None:
    """The spread of values, by the nearest rank; None of none."""
    found = sorted(values)
    if not found:
        return None
    at = [found[math.ceil(share * len(found)) - 1] for share in (0.5, 0.95)]
    return Spread(len(found), at[0], at[1], found[-1])


def times(visits: Sequence[Visit]) -> dict[str, Spread | None]:
    """How long visitors waited, by what for; of a whole text only where it was read to its end."""
    return {
        _WAITED: spread([visit.waited for visit in visits if visit.waited is not None]),
        _FIRST: spread([visit.first_token for visit in visits if visit.first_token is not None]),
        _WHOLE: spread([visit.seconds for visit in visits if visit.outcome == FINISHED]),
    }


def outcomes(visits: Sequence[Visit]) -> dict[str, int]:
    """Requests by what came of them."""
    found = Counter(visit.outcome for visit in visits)
    return {name: found[name] for name in OUTCOMES if found[name]}


def sentences(visits: Sequence[Visit], outcome: str) -> dict[str, int]:
    """What the server said to those with this outcome, most often first; numbers in it do not count."""
    said = Counter(re.sub(r"\d+", "#", _plain(visit.why)) for visit in visits if visit.outcome == outcome)
    return dict(said.most_common())


def speed(visits: Sequence[Visit]) -> float | None:
    """Tokens a second of visitors who were served one after another, from asking to the end."""
    seconds = sum(visit.seconds for visit in visits)
    return sum(visit.tokens for visit in visits) / seconds if seconds else None


def throughput(measured: Measured) -> float | None:
    """Tokens a second of all visitors together, while new requests were asked."""
    return measured.tokens / measured.seconds if measured.seconds else None


def tables(measured: Measured) -> list[Table]:
    """All tables that have something to say."""
    found = [
        Table("Requests by what came of them", _outcomes(measured)),
        Table("Seconds", _seconds(measured)),
        Table("Tokens a second", _speeds(measured)),
        Table("The server's process", _footprints(measured)),
        Table("Processor seconds during the load", _processor(measured)),
    ]
    return [table for table in found if len(table.rows) > 1]


def verdict(measured: Measured) -> list[str]:
    """What must be said first: how many, how long, and whether all was well."""
    plan, visits = measured.plan, measured.visits
    way = "page" if plan.through == "page" else "API"
    lines = [
        f"{plan.users} visitors through the {way}, {len(visits)} requests in {measured.last:.0f} s; they thought for "
        f"{plan.think:g} s on average; {len(measured.alone)} distinct requests; seed {plan.seed}."
    ]
    if not measured.complete:
        lines.append("Incomplete: broken off before the end.")
    lines.append(_list("Wrong texts", [visit for visit in visits if visit.wrong]))
    lines.append(_list("Errors", [visit for visit in visits if visit.outcome == FAILED]))
    if measured.again:
        off = [visit for visit in measured.again if visit.wrong or visit.outcome == FAILED]
        lines.append(_list("Wrong or failed when asked alone again", off))
    return lines


def markdown(measured: Measured, command: str, date: str, machine: str) -> str:
    """The report; `command` is what was typed, `machine` what both server and visitors ran on."""
    head, *rest = verdict(measured)
    parts = [
        "# Load test",
        f"`{command}`, {date}, {machine}.",
        head,
        "\n".join(f"- {line}" for line in rest),
        "Every text is compared with the same request asked alone before the load: whole texts must be the same, "
        "those broken off must be a beginning of it. Seconds count from asking, as a visitor sees them.",
    ]
    for table in tables(measured):
        parts += [f"## {table.title}", _pipes(table.rows)]
    return "\n\n".join(parts) + "\n"


def to_json(measured: Measured, command: str, date: str, machine: str) -> str:
    """Everything that was measured, and what follows from it. No text is in it."""
    follows: dict[str, Any] = {
        "outcomes": outcomes(measured.visits),
        "refused": sentences(measured.visits, REFUSED),
        "errors": sentences(measured.visits, FAILED),
        "wrong": [visit.number for visit in measured.visits if visit.wrong],
        "times": {name: found and asdict(found) for name, found in times(measured.visits).items()},
        "times_alone": {name: found and asdict(found) for name, found in times(measured.alone).items()},
        "tokens_per_second": {
            "all": throughput(measured),
            "alone": speed(measured.alone),
            "alone_again": speed(measured.again),
        },
    }
    told = {"command": command, "date": date, "machine": machine} | follows | asdict(measured)
    return json.dumps(told, indent=1) + "\n"


def _outcomes(measured: Measured) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("outcome", "requests", "of")]
    for name, count in outcomes(measured.visits).items():
        said = sentences(measured.visits, name) if name in (REFUSED, FAILED) else {}
        rows.append((name, str(count), ""))
        rows += [("", str(often), sentence) for sentence, often in said.items()]
    return rows


def _seconds(measured: Measured) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("", "texts", "median", "95th percentile", "maximum")]
    for who, visits in (
        ("", measured.visits),
        (", alone", measured.alone),
        (", alone again", measured.again),
    ):
        for name, found in times(visits).items():
            if found:
                figures = (found.median, found.p95, found.maximum)
                rows.append((name + who, str(found.count), *(f"{figure:.2f}" for figure in figures)))
    return rows


def _speeds(measured: Measured) -> list[tuple[str, ...]]:
    together, alone, again = throughput(measured), speed(measured.alone), speed(measured.again)
    rows: list[tuple[str, ...]] = [
        ("", "tokens/s"),
        ("all visitors together", _figure(together)),
        ("one visitor alone", _figure(alone)),
    ]
    if measured.again:
        rows.append(("one visitor alone, after the load", _figure(again)))
    rows.append(("together ÷ alone", _figure(together / alone if together and alone else None, 2)))
    return rows


def _footprints(measured: Measured) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("when", "memory, MiB", "threads")]
    for when, found in measured.footprints.items():
        rows.append((when, f"{found.memory / 2**20:.0f}", str(found.threads)))
    return rows


def _processor(measured: Measured) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("", "seconds", "of one core")]
    for name, seconds in (
        ("the visitors", measured.own_processor_seconds),
        ("the server", measured.server_processor_seconds),
    ):
        if seconds is not None and measured.last:
            rows.append((name, f"{seconds:.1f}", f"{seconds / measured.last:.0%}"))
    return rows


def _list(name: str, visits: Sequence[Visit]) -> str:
    if not visits:
        return f"{name}: 0."
    shown = [f"{visit.number} (request {visit.request})" for visit in visits[:_MOST_LISTED]]
    more = ["…"] if len(visits) > _MOST_LISTED else []
    return f"{name}: {len(visits)}: {', '.join(shown + more)}."


def _figure(value: float | None, digits: int = 1) -> str:
    return NONE if value is None else f"{value:.{digits}f}"


def _plain(text: str) -> str:
    """A server's sentence for a terminal, where an escape sequence would do harm."""
    return "".join(c if c.isprintable() else " " for c in text)[:200]


def _pipes(rows: Sequence[tuple[str, ...]]) -> str:
    head, *body = rows
    lines = [head, tuple("---" for _ in head), *body]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in lines)
