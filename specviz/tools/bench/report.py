"""A benchmark as people read it: tables, and a report in Markdown whose prose is in `templates/`.

Every figure comes from the measurements. Knows how to lay out `Measurements`; measures nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path

from specviz.analysis.statistics import Quartiles, quartiles
from specviz.tools.bench.contenders import (
    CASCADE,
    COMPILED,
    CONSTANT,
    FLASHSPEC,
    GENERATE,
    HEURISTIC,
    LLAMA_CPP,
    SPEED,
    VERIFIER_ONLY,
    speed_at,
)
from specviz.tools.bench.measurements import Measurements, bound
from specviz.tools.templates import NONE, Rows, Table, Templates

_FOREIGN = (GENERATE, COMPILED, CONSTANT, HEURISTIC, FLASHSPEC, LLAMA_CPP)


def tables(bench: Measurements) -> list[Table]:
    """All tables of a benchmark that have a row; their notes are the template's, by `key`."""
    every = [Table(f"Temperature {t:g}", _speeds(bench, t), "speeds") for t in bench.temperatures]
    every += [
        Table("Pair by pair", _ratios(bench), "ratios"),
        Table("How far drafting could carry", _bounds(bench), "bounds"),
        Table("Draft length chosen against fixed", _draft_lengths(bench), "draft_lengths"),
        Table("Bare forward passes", _forwards(bench), "forwards"),
        Table("What a round adds to its forward passes", _overheads(bench), "overheads"),
        Table("Several requests at once", _together(bench), "together"),
    ]
    return [table for table in every if len(table.rows) > 1]


def markdown(benches: Sequence[Measurements]) -> str:
    """The report of one or several benchmarks."""
    sections = [(bench, tables(bench), reference(bench)) for bench in benches]
    return _TEMPLATES.render("benchmarks.md.j2", sections=sections)


def reference(bench: Measurements) -> str:
    """The contender whose greedy text counts as the verifier's own: transformers' if it took part."""
    names = [party.name for party in bench.present]
    return GENERATE if GENERATE in names else VERIFIER_ONLY


def _speeds(bench: Measurements, temperature: float) -> Rows:
    greedy = temperature == 0
    head = ["contender", "tokens/s", f"÷ {VERIFIER_ONLY}", f"÷ {GENERATE}", "acceptance", "tokens a round"]
    head += ["first token, ms", "peak memory, MB", *(["same text"] if greedy else [])]
    rows: Rows = [tuple(head)]
    for party in bench.present:
        name, samples = party.name, bench.of(party.name, temperature)
        if not samples:
            continue
        ratios = (_spread(bench.ratios(name, other, temperature)) for other in (VERIFIER_ONLY, GENERATE))
        cells = [name, _spread(bench.speed(name, temperature), ".1f"), *ratios]
        cells.append(_number(bench.acceptance(name, temperature)))
        cells.append(_number(bench.block_efficiency(name, temperature)))
        cells.append(_median((s.first_token_seconds for s in samples), ".0f", 1000))
        cells.append(_median((s.memory for s in samples), ".1f", 1e-6))
        rows.append((*cells, *([_same_text(bench, name, party.lossless)] if greedy else [])))
    return rows


def _same_text(bench: Measurements, name: str, lossless: bool) -> str:
    if name == reference(bench):
        return "is the reference"
    found = bench.agreement(name, reference(bench))
    if found is None:
        return NONE
    same, of, _ = found
    answer = "yes" if same == of else f"{same} of {of}"
    return answer if lossless else f"{answer} (need not be)"


def _ratios(bench: Measurements) -> Rows:
    matched = speed_at(bench.draft_length)
    pairs = [(VERIFIER_ONLY, theirs) for theirs in (GENERATE, COMPILED, LLAMA_CPP)]
    pairs += [(ours, VERIFIER_ONLY) for ours in (SPEED, CASCADE)]
    pairs += [(SPEED, other) for other in _FOREIGN]
    pairs += [(matched, other) for other in (CONSTANT, FLASHSPEC)]
    rows: Rows = [("ours ÷ theirs", *(f"T = {t:g}" for t in bench.temperatures), "all", "pairs")]
    for ours, theirs in pairs:
        if every := bench.ratios(ours, theirs):
            each = [_spread(bench.ratios(ours, theirs, t)) for t in bench.temperatures]
            rows.append((f"{ours} ÷ {theirs}", *each, _spread(every), str(len(every))))
    return rows


def _bounds(bench: Measurements) -> Rows:
    rows: Rows = [("method", "T", "acceptance a", "measured ÷ verifier_only", "bound", "at K")]
    for name in (SPEED, CASCADE):
        for t in bench.temperatures:
            acceptance, measured = bench.acceptance(name, t), bench.ratios(name, VERIFIER_ONLY, t)
            if acceptance is None or not measured or bench.forwards is None:
                continue
            most, k = bound(acceptance, bench.forwards.seconds_a_draft_token, bench.forwards.verifier_seconds)
            rows.append((name, f"{t:g}", f"{acceptance:.2f}", _spread(measured), f"{most:.2f}", str(k)))
    return rows


def _draft_lengths(bench: Measurements) -> Rows:
    rows: Rows = [("T", "kind", *(f"K = {k}" for k in bench.draft_lengths), "auto", "auto ÷ best fixed")]
    names = [*map(speed_at, bench.draft_lengths), SPEED]
    kinds = [*dict.fromkeys(sample.kind for sample in bench.samples), None]
    for t, kind in product(bench.temperatures, kinds if bench.of(SPEED) else ()):
        fixed = {k: found for k in bench.draft_lengths if (found := bench.speed(speed_at(k), t, kind))}
        if fixed:
            best = max(fixed, key=lambda k: fixed[k].median)
            speeds = [_median((s.speed for s in bench.of(name, t, kind)), ".1f") for name in names]
            ratio = f"{_spread(bench.ratios(SPEED, speed_at(best), t, kind))} (K = {best})"
            rows.append((f"{t:g}", kind or "all", *speeds, ratio))
    return rows


def _forwards(bench: Measurements) -> Rows:
    rows: Rows = [("pass", "bare, ms", "in units of v(1)", "floor, ms")]
    if (found := bench.forwards) is None:
        return rows
    passes = [("drafter, 1 token", found.drafter_seconds, found.drafter_bytes)]
    if found.draft_seconds is not None:
        name = f"drafter, each of {found.draft_length} draft tokens, drawn"
        passes.append((name, found.draft_seconds, found.drafter_bytes))
    for count, seconds in enumerate(found.verifier_seconds, 1):
        passes.append((f"verifier, {count} token{'s' if count > 1 else ''}", seconds, found.verifier_bytes))
    for name, seconds, read in passes:
        unit = f"{seconds / found.verifier_seconds[0]:.3f}"
        rows.append((name, f"{seconds * 1000:.2f}", unit, f"{read / found.bandwidth * 1000:.2f}"))
    return rows


def _overheads(bench: Measurements) -> Rows:
    rows: Rows = [
        ("method", "inspect", "K", "a round, ms", "its passes bare, ms", "overhead, %", "floor, ms")
    ]
    for each in bench.overheads:
        floors = [bench.forwards.floor(passes) for passes in each.passes] if bench.forwards else None
        times = [_spread(one, ".1f", 1000) for one in (each.round_seconds, each.bare_seconds)]
        more = _spread(each.share, ".1f", 100), _spread(floors, ".1f", 1000)
        rows.append((each.contender, str(each.inspect), str(each.draft_length or NONE), *times, *more))
    return rows


def _together(bench: Measurements) -> Rows:
    rows: Rows = [("method", "alone, tokens/s", "requests", "together, tokens/s", "together ÷ alone")]
    for each in bench.together:
        speeds = _spread(each.alone, ".1f"), str(each.requests), _spread(each.together, ".1f")
        rows.append((each.contender, *speeds, _spread(each.gain)))
    return rows


def _number(value: float | None, form: str = ".2f", scale: float = 1.0) -> str:
    return NONE if value is None else f"{value * scale:{form}}"


def _median(values: Iterable[float | None], form: str, scale: float = 1.0) -> str:
    found = quartiles(value for value in values if value is not None)
    return _number(found.median if found else None, form, scale)


def _spread(values: Quartiles | Iterable[float] | None, form: str = ".2f", scale: float = 1.0) -> str:
    """Median and quartiles of values, or those already found."""
    found = values if isinstance(values, Quartiles) else quartiles(values or ())
    if found is None:
        return NONE
    median, low, high = (_number(value, form, scale) for value in (found.median, found.low, found.high))
    return f"{median} ({low}–{high})"


_TEMPLATES = Templates(Path(__file__).parent / "templates")
