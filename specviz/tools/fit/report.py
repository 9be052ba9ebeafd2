"""The report of a measurement: estimates with 95 % intervals, by resampling prompts, and the verdict in a sentence."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from specviz.analysis.fit import LONGEST, Blocks, leviathan_speed_up
from specviz.analysis.sweep.estimates import Floats, divided, estimate, resamples
from specviz.analysis.sweep.results import Estimate
from specviz.tools.fit.measuring import ALONE, Fit
from specviz.tools.templates import NONE, Rows, cell, render, table
from specviz.wording import joined


@dataclass(frozen=True)
class Row:
    """A draft length at a temperature: predicted tokens per call and speed-up, `leviathan_speed_up`, and measurements if there are any."""

    draft_length: int
    cost: float
    tokens_per_call: Estimate | None
    speed_up: Estimate | None
    leviathan: float
    measured_tokens_per_call: Estimate | None = None
    measured: Estimate | None = None


@dataclass(frozen=True)
class Kind:
    """Results on the prompts of a kind: acceptance rate, and measured speed-up at the draft length in `AtTemperature.best`."""

    acceptance: Estimate | None
    measured: Estimate | None


@dataclass(frozen=True)
class AtTemperature:
    """All results at one temperature.

    Attributes:
        acceptance: 1 − TV(q, p), a mean over all tokens.
        positions: acceptance rate of a block's first draft token, of its second if the first was accepted, and so on.
        draft: cost of a draft token, in tokens of the verifier alone.
        break_even: the smallest constant acceptance rate at which some draft length pays; None if none does.
    """

    temperature: float
    acceptance: Estimate | None
    positions: list[Estimate | None]
    draft: float
    break_even: float | None
    rows: list[Row]
    kinds: dict[str, Kind]

    @property
    def chosen(self) -> Row:
        """The row of the measured draft length that is predicted to be fastest. The fastest measurement may be fast by chance."""
        found = [row for row in self.rows if row.measured]
        return max(found, key=lambda row: row.speed_up.value if row.speed_up else 0.0)

    @property
    def best(self) -> tuple[int, Estimate]:
        """The draft length of `chosen`, and its measured speed-up."""
        assert self.chosen.measured
        return self.chosen.draft_length, self.chosen.measured

    @property
    def pays(self) -> bool | None:
        """Whether drafting pays: True or False if the measured interval is above or below 1. If the interval contains 1: False if the
        measured value and the predicted interval are below 1, else None.
        """
        speed, foretold = self.best[1], self.chosen.speed_up
        if speed.low > 1:
            return True
        is_loss = speed.high < 1 or (speed.value < 1 and foretold is not None and foretold.high < 1)
        return False if is_loss else None


@dataclass(frozen=True)
class Result:
    """All results of one pair."""

    drafter: str
    verifier: str
    tokenizers: str
    milliseconds: dict[str, float]
    temperatures: list[AtTemperature]
    verdict: str

    @property
    def score(self) -> float:
        """Geometric mean over temperatures of the measured speed-up in `AtTemperature.best`."""
        return statistics.geometric_mean(each.best[1].value for each in self.temperatures)


def result(fit: Fit) -> Result:
    """Evaluate a finished measurement."""
    found = [_at(fit, temperature) for temperature in fit.options.temperatures]
    # A pair whose tokenizers differ is not loaded.
    pair, tokenizers = fit.pair, f"the same, {fit.pair.vocabulary_size:,} ids"
    sizes = pair.drafter_model.output_size, pair.verifier_model.output_size
    if sizes[0] != sizes[1]:
        tokenizers = f"the same, padded differently: {pair.vocabulary_size:,} ids, of which the drafter scores {sizes[0]:,} and the verifier {sizes[1]:,}"
    return Result(
        pair.drafter_name, pair.verifier_name, tokenizers, fit.milliseconds(), found, verdict(found)
    )


def _at(fit: Fit, temperature: float) -> AtTemperature:
    texts, costs, measured = fit.texts[temperature], fit.costs(temperature), fit.measured(temperature)
    blocks = {k: Blocks.of(texts, k) for k in range(1, LONGEST + 1)}
    acceptance = estimate(blocks[1].acceptance[:, 0])
    rows = []
    for k, found in blocks.items():
        tokens, cost = found.tokens_per_call, costs.of(k)
        own = (cost, estimate(tokens), estimate(tokens / cost))
        formula = leviathan_speed_up(acceptance.value if acceptance else 0.0, k, costs.draft)
        timed = _measured(fit, temperature, k) if k in measured else (None, None)
        rows.append(Row(k, *own, formula, *timed))
    at = AtTemperature(
        temperature,
        acceptance,
        [estimate(column) for column in blocks[LONGEST].acceptance.T],
        costs.draft,
        costs.break_even(),
        rows,
        {},
    )
    for kind in dict.fromkeys(item.kind for item in fit.items):
        alike = [text for text, item in zip(texts, fit.items, strict=True) if item.kind == kind]
        _, speed_up = _measured(fit, temperature, at.best[0], kind)
        at.kinds[kind] = Kind(estimate(Blocks.of(alike, 1).acceptance[:, 0]), speed_up)
    return at


def _measured(
    fit: Fit, temperature: float, draft_length: int, kind: str = ""
) -> tuple[Estimate | None, Estimate | None]:
    """Measured tokens per call, and speed-up over the verifier alone, on the prompts of `kind` or, if it is "", on all prompts."""
    turns = zip(fit.runs[temperature], fit.items, strict=True)
    own = [turn for turn, item in turns if kind in ("", item.kind)]
    runs, alone = ([turn[k] for turn in own] for k in (draft_length, ALONE))
    weights = resamples(len(runs))

    def total(found: Sequence[dict[str, float]], name: str) -> Floats:
        return weights @ np.array([each[name] for each in found])

    speeds = [divided(total(each, "tokens"), total(each, "seconds")) for each in (runs, alone)]
    return estimate(divided(total(runs, "tokens"), total(runs, "calls"))), estimate(divided(*speeds))


def verdict(found: Sequence[AtTemperature]) -> str:
    """Whether drafting pays, in a sentence."""
    pays, never, doubtful = (
        [f"{each.temperature:g}" for each in found if each.pays is which] for which in (True, False, None)
    )
    best = max(found, key=lambda each: each.best[1].value)
    if not pays:
        start = "It cannot be told whether drafting pays" if doubtful else "Drafting does not pay"
        k, speed = best.best
        return f"{start}: at best K = {k}, {spread(speed)} × at T = {best.temperature:g}; {_why_not(best)}."
    figures = "; ".join(
        f"K = {each.best[0]}, {spread(each.best[1])} × at T = {each.temperature:g}" for each in found
    )
    others = (("not surely", doubtful), ("not", never))
    where = "".join(f", {word} at {joined(names)}" for word, names in others if names)
    kinds = sorted((kind.measured.value, name) for name, kind in best.kinds.items() if kind.measured)
    (low, least), (high, most) = kinds[0], kinds[-1]
    by_kind = f"; from {low:.2f} × on {least} to {high:.2f} × on {most} at T = {best.temperature:g}"
    where = f" at T = {joined(pays)}{where}" if where else ""
    return f"Drafting pays{where}: {figures}{by_kind if len(kinds) > 1 else ''}."


def _why_not(at: AtTemperature) -> str:
    """What a draft token costs, the share of draft tokens that is accepted, and the share that would pay."""
    kept = at.acceptance.value if at.acceptance else 0.0
    said = f"a draft token costs {at.draft:.2f} of a pass, and {kept:.2f} are kept"
    if at.break_even is None:
        return f"{said}; at this cost it would not pay even if all were kept"
    return f"{said}; it would pay if at least {at.break_even:.2f} were kept" if at.break_even > kept else said


def spread(found: Estimate | None) -> str:
    """A number and its interval in words."""
    return f"{found.value:.2f} ({found.low:.2f}–{found.high:.2f})" if found else NONE


def overview(results: Sequence[Result]) -> Rows:
    """A table of all drafters, in the order of `results`."""
    heads = (f"kept, K and speed-up at T = {each.temperature:g}" for each in results[0].temperatures)
    rows: Rows = [("drafter", "a draft token costs", *heads)]
    for one in results:
        cells = [
            f"{at.acceptance.value if at.acceptance else 0:.2f}, {at.best[0]}: {spread(at.best[1])}"
            for at in one.temperatures
        ]
        rows.append((one.drafter, f"{one.temperatures[0].draft:.2f}", *cells))
    return rows


def draft_lengths(at: AtTemperature) -> Rows:
    """A table of predictions and measurements by K."""
    rows: Rows = [
        ("K", "round costs", "tokens per call", "measured", "speed-up", "measured", "Leviathan’s, γ = K − 1")
    ]
    for row in at.rows:
        calls, speeds = (row.tokens_per_call, row.measured_tokens_per_call), (row.speed_up, row.measured)
        own = *map(spread, calls), *map(spread, speeds)
        rows.append((str(row.draft_length), f"{row.cost:.2f}", *own, f"{row.leviathan:.2f}"))
    return rows


def markdown(results: Sequence[Result], notes: Sequence[str], about: dict[str, Any]) -> str:
    """The report."""
    filters = {"cell": cell, "spread": spread, "table": table}
    tables = {"overview": overview, "draft_lengths": draft_lengths}
    path = Path(__file__).with_name("report.md.j2")
    return render(path, filters, results=results, notes=notes, about=about, **tables)


def to_json(results: Sequence[Result], notes: Sequence[str], about: dict[str, Any]) -> str:
    """All results, as JSON."""
    found = {"about": about, "notes": notes, "pairs": [asdict(each) for each in results]}
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"
