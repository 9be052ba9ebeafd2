"""A benchmark as people read it: tables, and a report in Markdown. Every figure comes from the measurements.

Knows how to lay out a `Bench`; measures nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specviz.tools.bench.contenders import (
    CASCADE,
    COMPILED,
    CONSTANT,
    FLASHSPEC,
    GENERATE,
    HEURISTIC,
    SPEED,
    VERIFIER_ONLY,
    speed_at,
)
from specviz.tools.bench.measurements import Bench, Party, Spread, bound, spread

NONE = "–"
_FOREIGN = (GENERATE, COMPILED, CONSTANT, HEURISTIC, FLASHSPEC)


@dataclass(frozen=True)
class Table:
    """A table with a heading and a few words on how to read it; the first row names the columns."""

    title: str
    note: str
    rows: list[tuple[str, ...]]


def tables(bench: Bench) -> list[Table]:
    """All tables of a benchmark that have something to say."""
    every = [_speeds(bench, temperature) for temperature in bench.temperatures]
    every += [
        _ratios(bench),
        _bounds(bench),
        _draft_lengths(bench),
        _forwards(bench),
        _overheads(bench),
        _together(bench),
    ]
    return [table for table in every if len(table.rows) > 1]


def markdown(benches: Sequence[Bench]) -> str:
    """The report of one or several benchmarks."""
    parts = [
        "# Benchmarks",
        "Written by `python -m specviz bench`; every figure was measured in the run it stands under, none was put in by "
        "hand. Medians; quartiles in brackets. Compare figures within one run only: another hour, or another machine, "
        "is another run.",
    ]
    for bench in benches:
        parts += _section(bench)
    return "\n\n".join(parts) + "\n"


def _section(bench: Bench) -> list[str]:
    parts = [f"## {bench.pair}, {bench.machine}"]
    if not bench.complete:
        parts.append(
            "**Incomplete: this run was stopped before its end; what follows is what had been measured.**"
        )
    parts.append(_settings(bench))
    parts.append("\n".join(f"- **{p.name}**: {p.about}{_threads(bench, p)}." for p in bench.parties))
    for table in tables(bench):
        parts += [f"### {table.title}", table.note, _pipes(table.rows)]
    parts += ["### What is compared, and what is not", _caveats(bench)]
    return parts


def _pipes(rows: list[tuple[str, ...]]) -> str:
    head, *body = rows
    lines = [head, tuple("---" for _ in head), *body]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in lines)


def _settings(bench: Bench) -> str:
    installed = ", ".join(f"{name} {version}" for name, version in bench.versions.items())
    lines = [
        f"`{bench.command}`, {bench.date}, {bench.seconds / 60:.1f} minutes.",
        f"- Machine: {bench.machine} ({bench.device}); {bench.processor}.",
        f"- Versions: {installed}.",
        f"- Models: {bench.drafter} → {bench.verifier}, {bench.dtype}. Threads: {bench.threads} for everybody.",
        f"- {len(bench.prompts)} held-out prompts of four kinds × {bench.repetitions} repetition(s) × temperatures "
        f"{', '.join(f'{t:g}' for t in bench.temperatures)}; {bench.tokens} new tokens each; no top-k, no top-p; seeds "
        f"from {bench.seed} on.",
        *(f"- {note}" for note in bench.notes),
    ]
    return "\n".join([lines[0], "", *lines[1:]])


def _threads(bench: Bench, party: Party) -> str:
    return "" if party.threads == bench.threads else f" ({party.threads} of the threads)"


def _caveats(bench: Bench) -> str:
    matched = bench.draft_length
    lines = [f"{party.name} did not take part: {party.absent}" for party in bench.parties if party.absent]
    lines += [
        "Everybody gets the same ids of the same prompts, runs after a warm-up, one after another in an order that rotates "
        "from prompt to prompt; a ratio is taken between two runs that share prompt, temperature and repetition, and the "
        "median is that of these ratios. The samples are the prompts: with one repetition, each prompt counts once.",
        "Seconds run from the call to its end and include reading the prompt. Nobody obeys the end-of-text token, so all "
        "write equally many tokens and nobody pays for suppressing it: "
        f"{bench.ended} of {len(bench.samples)} runs passed one.",
        f"“Same seed” gives the same text within this project only: others draw their random numbers in another way. What "
        f"is the same is the distribution. Those who draft a fixed number draft {matched}; transformers and flashspec get "
        "their usual extra token after a block that was accepted whole, this project draws none.",
        "transformers and flashspec run on the weights as transformers loads them; how this project stores its weights is "
        "part of what is measured. On a CPU nobody need use all threads: each of the others got the number that was fastest "
        "in a short trial before the run, this project chooses one for each pass when it loads its models.",
        "At temperature 0 everybody but the cascade must write the verifier’s own text. Where one does not, rounding in "
        f"{bench.dtype} decided between two tokens that scored almost alike; the column says for how many prompts it did not.",
        "Peak memory is what a run took at once beyond what the process held before it, weights not counted; on a CPU the "
        "allocator keeps what was freed, so there it is a lower bound.",
    ]
    return "\n".join(f"- {line}" for line in lines)


def _number(value: float | None, form: str = ".2f", scale: float = 1.0) -> str:
    return NONE if value is None else f"{value * scale:{form}}"


def _quartiles(found: Spread | None, form: str = ".2f", scale: float = 1.0) -> str:
    if found is None:
        return NONE
    low, high = (f"{value * scale:{form}}" for value in (found.low, found.high))
    return f"{found.median * scale:{form}} ({low}–{high})"


def reference(bench: Bench) -> str:
    """Whose greedy text is held to be the verifier's own: transformers' where it took part."""
    names = [party.name for party in bench.present]
    return GENERATE if GENERATE in names else VERIFIER_ONLY


def _speeds(bench: Bench, temperature: float) -> Table:
    head = ["contender", "tokens/s", f"÷ {VERIFIER_ONLY}", f"÷ {GENERATE}", "acceptance", "tokens a round"]
    head += ["first token, ms", "peak memory, MB", *(["same text"] if temperature == 0 else [])]
    rows = [tuple(head)]
    for party in bench.present:
        name, samples = party.name, bench.of(party.name, temperature)
        if not samples:
            continue
        first = spread(s.first_token_seconds for s in samples if s.first_token_seconds is not None)
        memory = spread(float(s.memory) for s in samples if s.memory is not None)
        row = [
            name,
            _quartiles(bench.speed(name, temperature), ".1f"),
            *(
                _quartiles(spread(bench.ratios(name, other, temperature)))
                for other in (VERIFIER_ONLY, GENERATE)
            ),
            _number(bench.acceptance(name, temperature)),
            _number(bench.block_efficiency(name, temperature)),
            _number(first.median if first else None, ".0f", 1000),
            _number(memory.median if memory else None, ".1f", 1e-6),
        ]
        if temperature == 0:
            row.append(_same(bench, name, party.lossless))
        rows.append(tuple(row))
    return Table(
        f"Temperature {temperature:g}",
        "Tokens a second of whole runs, reading the prompt included; a round is one forward pass of the verifier."
        + (f" Same text: as {reference(bench)}’s, in how many prompts." if temperature == 0 else ""),
        rows,
    )


def _same(bench: Bench, name: str, lossless: bool) -> str:
    if name == reference(bench):
        return "is the reference"
    found = bench.agreement(name, reference(bench))
    if found is None:
        return NONE
    same, of, _ = found
    told = "yes" if same == of else f"{same} of {of}"
    return told if lossless else f"{told} (need not be)"


def _ratios(bench: Bench) -> Table:
    matched = speed_at(bench.draft_length)
    wanted = [
        (VERIFIER_ONLY, GENERATE),
        (VERIFIER_ONLY, COMPILED),
        (SPEED, VERIFIER_ONLY),
        (CASCADE, VERIFIER_ONLY),
    ]
    wanted += [(SPEED, other) for other in _FOREIGN]
    wanted += [(matched, other) for other in (CONSTANT, FLASHSPEC)]
    rows: list[tuple[str, ...]] = [
        ("ours ÷ theirs", *(f"T = {t:g}" for t in bench.temperatures), "all", "pairs")
    ]
    for ours, theirs in wanted:
        every = bench.ratios(ours, theirs)
        if every:
            each = [_quartiles(spread(bench.ratios(ours, theirs, t))) for t in bench.temperatures]
            rows.append((f"{ours} ÷ {theirs}", *each, _quartiles(spread(every)), str(len(every))))
    return Table(
        "Pair by pair",
        "Tokens a second over tokens a second, of runs that share prompt, temperature and repetition: median (quartiles).",
        rows,
    )


def _bounds(bench: Bench) -> Table:
    rows: list[tuple[str, ...]] = [
        ("method", "T", "acceptance a", "measured ÷ verifier_only", "bound", "at K")
    ]
    for name in (SPEED, CASCADE):
        for temperature in bench.temperatures:
            acceptance = bench.acceptance(name, temperature)
            measured = spread(bench.ratios(name, VERIFIER_ONLY, temperature))
            if acceptance is None or measured is None or bench.forwards is None:
                continue
            most, k = bound(acceptance, bench.forwards.drafter_seconds, bench.forwards.verifier_seconds)
            rows.append(
                (name, f"{temperature:g}", f"{acceptance:.2f}", _quartiles(measured), f"{most:.2f}", str(k))
            )
    return Table(
        "How far drafting could carry",
        "With acceptance a, a drafter’s pass of d and a verifier’s pass of v(n) over n tokens, bare and measured in this run, "
        "such rounds gain no more than (1 + a + … + a^(K−1)) / ((K − 1 + a^(K−1))·d + v(K)) × v(1), at the best K; K = 0 is not to draft. The bound takes every "
        "proposal’s chance to be the mean; where acceptance differs from place to place, choosing K by place can do better.",
        rows,
    )


def _draft_lengths(bench: Bench) -> Table:
    fixed = [speed_at(k) for k in bench.draft_lengths]
    rows: list[tuple[str, ...]] = [
        ("T", "kind", *(f"K = {k}" for k in bench.draft_lengths), "auto", "auto ÷ best fixed")
    ]
    if not bench.of(SPEED) or not any(bench.of(name) for name in fixed):
        return Table("", "", rows[:1])
    for temperature in bench.temperatures:
        for kind in [*dict.fromkeys(sample.kind for sample in bench.samples), None]:
            best = bench.best_fixed(fixed, temperature, kind)
            if best is None:
                continue
            speeds = [
                _number(s.median if (s := bench.speed(n, temperature, kind)) else None, ".1f") for n in fixed
            ]
            auto = bench.speed(SPEED, temperature, kind)
            ratio = spread(bench.ratios(SPEED, best[0], temperature, kind))
            rows.append(
                (
                    f"{temperature:g}",
                    kind or "all",
                    *speeds,
                    _number(auto.median if auto else None, ".1f"),
                    f"{_quartiles(ratio)} (K = {best[0].rpartition(' ')[2]})",
                )
            )
    return Table(
        "Draft length chosen against fixed",
        "Lossless speculative decoding, tokens a second. The best fixed K was picked after the fact, among all that were "
        "measured, which favours it.",
        rows,
    )


def _forwards(bench: Bench) -> Table:
    rows: list[tuple[str, ...]] = [("pass", "bare, ms", "in units of v(1)", "floor, ms")]
    forwards = bench.forwards
    title, note = "Bare forward passes", ""
    if forwards is None:
        return Table(title, note, rows)
    one = forwards.verifier_seconds[0]
    rows.append(
        (
            "drafter, 1 token",
            f"{forwards.drafter_seconds * 1000:.2f}",
            f"{forwards.drafter_seconds / one:.3f}",
            f"{forwards.drafter_bytes / forwards.bandwidth * 1000:.2f}",
        )
    )
    floor = f"{forwards.verifier_bytes / forwards.bandwidth * 1000:.2f}"
    for count, seconds in enumerate(forwards.verifier_seconds, 1):
        name = f"verifier, {count} token{'s' if count > 1 else ''}"
        rows.append((name, f"{seconds * 1000:.2f}", f"{seconds / one:.3f}", floor))
    note = (
        f"This project’s models at {forwards.positions} positions. The floor is bytes over bandwidth: the drafter reads "
        f"{forwards.drafter_bytes / 1e6:.1f} MB, the verifier {forwards.verifier_bytes / 1e6:.1f} MB (weights, and the keys "
        f"and values of one row), and memory was read at {forwards.bandwidth / 1e9:.1f} GB/s in this run."
    )
    if forwards.drafter_bytes < 64e6:
        note += " A drafter this small may stay in the processor’s cache and then beats its floor."
    return Table(title, note, rows)


def _overheads(bench: Bench) -> Table:
    rows: list[tuple[str, ...]] = [
        ("method", "inspect", "K", "a round, ms", "its passes bare, ms", "overhead, %", "floor, ms")
    ]
    for each in bench.overheads:
        rows.append(
            (
                each.contender,
                str(each.inspect),
                str(each.draft_length or NONE),
                *(
                    _quartiles(spread(each_of), ".1f", 1000)
                    for each_of in (each.round_seconds, each.bare_seconds)
                ),
                _quartiles(each.share, ".1f", 100),
                _quartiles(
                    spread(map(bench.forwards.floor, each.passes)) if bench.forwards else None, ".1f", 1000
                ),
            )
        )
    return Table(
        "What a round adds to its forward passes",
        "At temperature 1, by the clock outside the engine, so that drawing, deciding, recording and telling are all in it. "
        "After each round the same passes are made bare, at the same shapes and cache length; the overhead is taken round "
        "by round, and its median given.",
        rows,
    )


def _together(bench: Bench) -> Table:
    rows: list[tuple[str, ...]] = [
        ("method", "alone, tokens/s", "requests", "together, tokens/s", "together ÷ alone")
    ]
    for each in bench.together:
        rows.append(
            (
                each.contender,
                _quartiles(spread(each.alone), ".1f"),
                str(each.requests),
                _quartiles(spread(each.together), ".1f"),
                _quartiles(each.gain),
            )
        )
    return Table(
        "Several requests at once",
        "Tokens a second of all together, served as one batch, against one request alone, in turn, at temperature 1.",
        rows,
    )
