"""What the steps of a lesson show: for each kind of step the data of its picture, the numbers that its words may name, and
the outcomes that a guess can be about.

Every number comes from a recorded trace, the recorded sweep, or, for the kinds `distributions` and `block`, from the browser's
methods.js. Knows traces and sweeps; knows no words and draws nothing.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from specviz.analysis.lanes import lane
from specviz.analysis.recorded_runs import RecordedRuns
from specviz.analysis.sweep.folder import Recorded
from specviz.core.methods import METHODS
from specviz.errors import SpecvizError
from specviz.lessons.places import ROUNDS, TOKENS, beside_favourite, examined, is_word, listed_by_both
from specviz.lessons.source import Entry
from specviz.schema.trace import Run, Token

CONTEXT, LINE = 160, 40
"""Characters of the text before a place, and what a line break counts for among them, so that a picture fits on its stage."""
GOOD_ENOUGH = 0.5
"""How probable, beside the verifier's favourite, counts as good enough."""

Value = tuple[str, Any]
"""How a value is written, and the value: percent, number, plain, decimal, count, milliseconds, seconds, token, words."""


@dataclass(frozen=True)
class Picture:
    """What a step shows.

    Attributes:
        data: for the browser, JSON-ready.
        values: what the step's words may name in braces.
        outcomes: what came out, by the name of what was asked: a key of the step's choices.
        computed: further names for its words, whose values the browser computes.
        labels: names that the step's words must label, such as the lanes of a race.
    """

    data: Mapping[str, Any]
    values: Mapping[str, Value] = field(default_factory=dict)
    outcomes: Mapping[str, str] = field(default_factory=dict)
    computed: frozenset[str] = frozenset()
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Shelf:
    """Where pictures get what was recorded: runs beside the lesson first, then the project's, and the sweep."""

    folder: Path
    runs: RecordedRuns
    sweep: Recorded | None
    _read: dict[str, Run] = field(default_factory=dict, repr=False, compare=False)

    def load(self, name: Entry) -> Run:
        """The run of this name: `runs/NAME.jsonl` in the lesson's folder, else a recorded run.

        Raises:
            LessonError: there is none, or it cannot be read.
        """
        if name.text not in self._read:
            own = {path.stem: path for path in (self.folder / "runs").glob("*.jsonl")}
            try:
                found = Run.load(own[name.text]) if name.text in own else self.runs.load(name.text)
            except SpecvizError as error:
                raise name.error(f"the trace {name.text!r} cannot be shown. {error}") from error
            self._read[name.text] = found
        return self._read[name.text]

    @cached_property
    def alone(self) -> float:
        """Seconds of the verifier's pass over one token."""
        return self.runs.verifier_only_seconds_per_token


@dataclass(frozen=True)
class Kind:
    """A kind of step: the fields that its mechanics may and must have, and what makes its picture."""

    draw: Callable[[Entry, Shelf], Picture]
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()


# ---- from one run


def _of_run(run: Run) -> dict[str, Value]:
    """What can be said of a whole run."""
    rejected = sum(token.draft is not None for token in run.tokens)
    found: dict[str, Value] = {
        "prompt": ("words", run.prompt),
        "drafter": ("words", run.drafter),
        "verifier": ("words", run.verifier),
        "tokens": ("count", len(run.tokens)),
        "calls": ("count", run.verifier_calls),
        "rejected": ("count", rejected),
        "lenience": ("plain", run.lenience),
        "temperature": ("plain", run.temperature),
        "seconds": ("seconds", run.prefill_seconds + sum(each.seconds for each in run.rounds)),
    }
    if run.acceptance_rate is not None:
        found["acceptance_rate"] = ("percent", run.acceptance_rate)
    if run.block_efficiency is not None:
        found["tokens_per_call"] = ("decimal", run.block_efficiency)
    if run.draft_length:
        found["draft_length"] = ("count", run.draft_length)
    return found


def text_before(run: Run, tokens: int) -> dict[str, Any]:
    """The prompt, and the end of the text before a place, the first `tokens` tokens."""
    text = "".join(token.text for token in run.tokens[:tokens])
    start, room = len(text), CONTEXT
    while start and (room := room - (LINE if text[start - 1] == "\n" else 1)) >= 0:
        start -= 1
    return {"prompt": run.prompt, "before": text[start:], "cut": start > 0}


def _coloured(run: Run) -> list[dict[str, Any]]:
    """The tokens of a run, for the browser to colour."""
    return [{"text": each.text, "accepted": each.accepted} for each in run.tokens]


def _of_draft(token: Token) -> dict[str, Value]:
    """What can be said of the draft token that was examined at a place."""
    draft = examined(token)
    return {
        "draft": ("token", draft.text),
        "q": ("percent", draft.q),
        "p": ("percent", draft.p),
        "beside_favourite": ("percent", beside_favourite(token)),
    }


def _token_at(entry: Entry, run: Run) -> int:
    place = entry.fields["place"]
    index = TOKENS[place.one_of(TOKENS, "a rule for a token")](run)
    if index is None:
        raise place.error("the run has no such token.")
    return index


def _text(entry: Entry, shelf: Shelf) -> Picture:
    if "run" not in entry.fields:
        return Picture({})
    run = shelf.load(entry.fields["run"])
    return Picture({"prompt": run.prompt, "tokens": _coloured(run)}, _of_run(run))


def _race(entry: Entry, shelf: Shelf) -> Picture:
    runs = {name: shelf.load(each) for name, each in entry.fields["runs"].fields.items()}
    if not 1 <= len(runs) <= 3:
        raise entry.fields["runs"].error("one to three runs can be raced.")
    values = {f"{name}.{key}": value for name, run in runs.items() for key, value in _of_run(run).items()}
    seconds = {name: values[f"{name}.seconds"][1] for name in runs}
    fewest = min(runs, key=lambda name: runs[name].verifier_calls or 10**9)
    values |= {
        "machine": ("words", shelf.runs.machine),
        "prompt": ("words", next(iter(runs.values())).prompt),
        "ratio": ("decimal", max(seconds.values()) / max(min(seconds.values()), 1e-9)),
    }
    outcomes = {"fastest": min(seconds, key=lambda name: seconds[name]), "fewest_calls": fewest}
    lanes = [{"name": name, **lane(run)} for name, run in runs.items()]
    return Picture({"lanes": lanes}, values, outcomes, labels=tuple(runs))


_STAGES = ("drafted", "checked", "decided")


def _round(entry: Entry, shelf: Shelf) -> Picture:
    run = shelf.load(entry.fields["run"])
    place = entry.fields["place"]
    index = ROUNDS[place.one_of(ROUNDS, "a rule for a round")](run)
    if index is None:
        raise place.error("the run has no such round.")
    each = run.rounds[index]
    first = sum(len(one.tokens) for one in run.rounds[:index])
    stages = [entry.fields[name].one_of(_STAGES, "a stage of a round") for name in ("from", "to")]
    drafted = len(each.proposals)
    checks = [
        one.verifier_seconds for one in run.rounds if one.verifier_seconds and one.examined and one.proposals
    ]
    check = statistics.median(checks)
    ratio = check / shelf.alone
    values = _of_run(run) | {
        "drafted": ("count", drafted),
        "kept": ("count", each.accepted),
        "written": ("count", len(each.tokens)),
        "check": ("milliseconds", check),
        "alone": ("milliseconds", shelf.alone),
        "ratio": ("decimal", ratio),
    }
    kept = "all" if each.accepted == drafted else "some" if each.accepted else "none"
    length = max(2, run.draft_length or drafted)
    cost = "one" if ratio < 1.5 else "between" if ratio < 0.8 * length else "each"
    data = {"stages": stages, "round": lane(run)["rounds"][index], **text_before(run, first)}
    return Picture(data, values, {"kept": kept, "cost": cost})


def _decided(token: Token, run: Run) -> tuple[dict[str, Any], dict[str, Value]]:
    """A decision, for the browser's picture, and its values."""
    draft = examined(token)
    told = {
        "label": token.label,
        "text": token.text,
        "accepted": token.accepted,
        "acceptance": token.acceptance,
        "coin": token.coin,
        "draft": {"text": draft.text, "q": draft.q, "p": draft.p, "pi": draft.pi},
    }
    values = _of_draft(token) | {
        "replacement": ("token", token.label),
        "pi": ("percent", draft.pi),
        "chance": ("percent", token.acceptance),
        "coin": ("percent", token.coin),
    }
    return {"token": told, "method": run.method, "lenience": run.lenience}, values


def _coin(entry: Entry, shelf: Shelf) -> Picture:
    run = shelf.load(entry.fields["run"])
    index = _token_at(entry, run)
    data, values = _decided(run.tokens[index], run)
    verdict = "kept" if run.tokens[index].accepted else "rejected"
    return Picture(text_before(run, index) | data, _of_run(run) | values, {"verdict": verdict})


def _losslessness(entry: Entry, shelf: Shelf) -> Picture:
    run = shelf.load(entry.fields["run"])
    if run.method != "speed" or run.lenience != 0:
        raise entry.fields["run"].error("this kind shows a lossless run: speed at lenience 0.")
    index = _token_at(entry, run)
    rows = listed_by_both(run.tokens[index])
    if not rows:
        raise entry.fields["place"].error("here no token is among the most probable ones of both models.")
    label, q, p = max(rows, key=lambda row: row[1] - row[2])
    values: dict[str, Value] = {
        "token": ("token", label),
        "q": ("percent", q),
        "p": ("percent", p),
        "chance": ("percent", min(1.0, p / q)),
    }
    data = {"rows": [{"text": text, "q": q, "p": p} for text, q, p in rows], "marked": label}
    return Picture(text_before(run, index) | data, _of_run(run) | values)


def _rejections(entry: Entry, shelf: Shelf) -> Picture:
    run = shelf.load(entry.fields["run"])
    found = sorted((t for t in run.tokens if t.draft and t.top), key=beside_favourite, reverse=True)
    if not found:
        raise entry.fields["run"].error("in this run nothing was rejected, or nothing was inspected.")
    good = sum(beside_favourite(token) >= GOOD_ENOUGH for token in found)
    share = good / len(found)
    rows = [
        {
            "text": examined(token).text,
            "share": beside_favourite(token),
            "p": examined(token).p,
            "favourite": token.top.p[0].text if token.top and token.top.p else "",
            "best": token.top.p[0].probability if token.top and token.top.p else 0.0,
        }
        for token in found
    ]
    best = rows[0]
    values: dict[str, Value] = {
        "good": ("count", good),
        "good_enough": ("percent", GOOD_ENOUGH),
        "share": ("percent", share),
        "best": ("token", best["text"]),
        "best_p": ("percent", best["p"]),
        "favourite": ("token", best["favourite"]),
        "favourite_p": ("percent", best["best"]),
    }
    amount = "few" if share < 0.25 else "half" if share <= 0.6 else "most"
    return Picture(
        {"rows": rows, "good_enough": GOOD_ENOUGH, "prompt": run.prompt},
        _of_run(run) | values,
        {"good": amount},
    )


# ---- rules at one place


def _differ(token: Token, rulings: list[dict[str, Any]]) -> float | None:
    verdicts = {one["trusted"] for one in rulings}
    # A threshold below 0 is one that everything passes: true, and hard to talk about.
    clear = all(one["threshold"] > 0 for one in rulings)
    return examined(token).q if len(verdicts) > 1 and clear else None


def _mistake(token: Token, rulings: list[dict[str, Any]]) -> float | None:
    return (examined(token).q or 0.0) - (examined(token).p or 0.0) if rulings[0]["trusted"] else None


_RULE_PLACES: Mapping[str, Callable[[Token, list[dict[str, Any]]], float | None]] = {
    "the rules differ": _differ,
    "trusted and unlikely": _mistake,
}
"""Rules that choose a token where deferral rules are judged: what it is worth, or None where it does not fit."""


def _rule(entry: Entry, shelf: Shelf) -> Picture:
    # Here and not above: it computes with torch, which takes seconds to import. No other picture does.
    from specviz.lessons.rulings import rulings_at

    run = shelf.load(entry.fields["run"])
    methods = {}
    for name, lenience in entry.fields["methods"].fields.items():
        if name not in METHODS or not METHODS[name].score_label:
            raise lenience.error(f"{name} is not a method whose test has two sides.")
        own = (name, lenience.number) == (run.method, run.lenience)
        if not own and (name == "cascade_opt" or run.temperature != 1):
            raise lenience.error(f"this run does not tell what {name} compares; name a run of this method.")
        methods[name] = lenience.number
    if len(methods) > 2:
        raise entry.fields["methods"].error("one or two methods can be judged.")
    place = entry.fields["place"]
    worth = _RULE_PLACES[place.one_of(_RULE_PLACES, "a rule for a place of rules")]
    found = []
    for at, token in enumerate(run.tokens):
        if token.acceptance is None or not token.top or not token.top.q or not token.top.p:
            continue
        rulings = rulings_at(token, run, methods)
        if (value := worth(token, rulings)) is not None:
            found.append((is_word(examined(token).text), value, -at, rulings))
    if not found:
        raise place.error("the run has no such place.")
    *_, index, rulings = max(found, key=lambda one: one[:3])
    token = run.tokens[-index]
    assert token.top
    assert token.top.q
    assert token.top.p
    best_q, best_p = token.top.q[0], token.top.p[0]
    draft = examined(token)
    values: dict[str, Value] = {
        **_of_run(run),
        **_of_draft(token),
        "drafter_word": ("token", best_q.text),
        "verifier_word": ("token", best_p.text),
        "max_q": ("percent", best_q.probability),
        "max_p": ("percent", best_p.probability),
    }
    for one in rulings:
        values |= {f"{one['method']}.{key}": ("percent", one[key]) for key in ("score", "threshold")}
        values[f"{one['method']}.lenience"] = ("plain", one["lenience"])
    trusting = [one["method"] for one in rulings if one["trusted"]]
    if len(rulings) == 1:
        trusts = "trusted" if trusting else "deferred"
    else:
        trusts = "both" if len(trusting) == 2 else trusting[0] if trusting else "neither"
    data = {
        "draft": {"text": draft.text, "q": draft.q, "p": draft.p},
        "drafter": {"text": best_q.text, "probability": best_q.probability},
        "verifier": {"text": best_p.text, "probability": best_p.probability},
        "rulings": rulings,
    }
    return Picture(text_before(run, -index) | data, values, {"trusts": trusts})


# ---- from several runs, and from the sweep


def _lenience(entry: Entry, shelf: Shelf) -> Picture:
    runs = [shelf.load(each) for each in entry.fields["runs"].items]
    if len({(run.prompt, run.method, run.seed, run.temperature) for run in runs}) > 1:
        raise entry.fields["runs"].error("these runs must differ in lenience alone.")
    runs.sort(key=lambda run: run.lenience)
    told = [
        {
            "lenience": run.lenience,
            "acceptance_rate": run.acceptance_rate,
            "calls": run.verifier_calls,
            "tokens": _coloured(run),
        }
        for run in runs
    ]
    values = {
        f"{end}.{key}": value
        for end, run in (("strict", runs[0]), ("lenient", runs[-1]))
        for key, value in _of_run(run).items()
    }
    return Picture({"prompt": runs[0].prompt, "method": runs[0].method, "runs": told}, values)


def _tradeoff(entry: Entry, shelf: Shelf) -> Picture:
    if shelf.sweep is None:
        raise entry.error("there is no recorded sweep to show.")
    results, temperature = shelf.sweep.results, entry.fields["temperature"].number
    methods = entry.fields["methods"].names
    judged = entry.fields["method"].one_of(methods, "one of the methods shown")
    curves = []
    for name in methods:
        points = [
            each
            for each in results.at(temperature)
            if each.setting.method == name and {"accuracy", "rejection_rate"} <= each.figures.keys()
        ]
        if not points:
            raise entry.fields["methods"].error(f"the sweep has no curve of {name} at this temperature.")
        curves.append(
            {
                "method": name,
                "points": [
                    {
                        "lenience": each.setting.lenience,
                        "x": each.figures["rejection_rate"].value,
                        **{key: getattr(each.figures["accuracy"], key) for key in ("value", "low", "high")},
                    }
                    for each in points
                ],
            }
        )
    ends = {name: results.point(temperature, f"{name}_only") for name in ("verifier", "drafter")}
    lossless = results.point(temperature, "speed", 0.0)
    curve = [each for each in results.at(temperature) if each.setting.method == judged]
    harmless = [
        each for each in curve if (one := each.against_verifier.get("accuracy")) is not None and one.high >= 0
    ]
    if lossless is None or not harmless or any(each is None for each in ends.values()):
        raise entry.error("the sweep has no baselines to hold this curve against.")
    edge = min(harmless, key=lambda each: each.figures["rejection_rate"].value)
    before, after = (each.figures["rejection_rate"].value for each in (lossless, edge))
    saved = (before - after) / before if before > 0 else 0.0
    accuracy = {name: each.figures["accuracy"].value for name, each in ends.items() if each}
    values: dict[str, Value] = {
        "items": ("count", results.items),
        "temperature": ("plain", temperature),
        "method": ("words", METHODS[judged].title),
        "verifier_accuracy": ("percent", accuracy["verifier"]),
        "drafter_accuracy": ("percent", accuracy["drafter"]),
        "lossless_rejected": ("percent", before),
        "edge_lenience": ("plain", edge.setting.lenience),
        "edge_rejected": ("percent", after),
        "edge_accuracy": ("percent", edge.figures["accuracy"].value),
        "edge_low": ("percent", edge.figures["accuracy"].low),
        "edge_high": ("percent", edge.figures["accuracy"].high),
        "saved": ("percent", saved),
    }
    data = {
        "curves": curves,
        "models": accuracy,
        "edge": {"method": judged, "lenience": edge.setting.lenience},
        "items": results.items,
    }
    amount = "few" if saved < 0.25 else "some" if saved <= 0.5 else "most"
    return Picture(data, values, {"saved": amount})


# ---- computed in the browser

CASES = ("confident and wrong", "confident and right", "both unsure", "they agree", "verifier sure")
"""The cases of six words, by the names that `static/playground/cases.js` has."""
FIGURES = (
    *("lenience", "acceptance_rate", "rejection_rate", "distance", "drafter_distance", "models_distance"),
    *("max_q", "max_p", "gap", "chow_turns", "opt_turns", "score", "threshold", "trusted"),
    *("drafter_word", "verifier_word", "q_of_verifier_word", "p_of_verifier_word", "pi_of_drafter_word"),
    "changed",
)
"""What the browser computes of a case, by the names that `static/lesson/figures.js` has."""
_STATE = ("case", "method", "lenience", "temperature")


def _state(entry: Entry) -> dict[str, Any]:
    fields = entry.fields
    found: dict[str, Any] = {}
    if "case" in fields:
        found["case"] = fields["case"].one_of(CASES, "a case of six words")
    if "method" in fields:
        found["method"] = fields["method"].one_of(METHODS, "a method")
    for name in ("lenience", "temperature"):
        if name in fields:
            found[name] = fields[name].number
    return found


def _distributions(entry: Entry, shelf: Shelf) -> Picture:
    fields = entry.fields
    start = {"case": "confident and wrong", "temperature": 1.0} | _state(entry)
    control = fields["control"].one_of(("lenience", "method"), "a control")
    offered = (
        [each.one_of(METHODS, "a method") for each in fields["offered"].items] if "offered" in fields else []
    )
    if control == "method" and len(offered) < 2:
        raise fields["control"].error("to choose from, “offered” must name two methods or more.")
    states = {"": start}
    if "compare" in fields:
        for name, each in fields["compare"].fields.items():
            each.only(_STATE)
            states[name] = start | _state(each)
    computed = {f"{name}.{key}" if name else key for name in states for key in FIGURES}
    shows = fields["shows"].one_of(states, "a state under “compare”") if "shows" in fields else ""
    return Picture(
        {
            "states": states,
            "control": control,
            "offered": offered,
            "counts": "changed" in fields,
            "shows": shows,
        },
        computed=frozenset(computed),
    )


def _block(entry: Entry, shelf: Shelf) -> Picture:
    rate, length = entry.fields["acceptance_rate"], entry.fields["draft_length"]
    if not 0 < rate.number < 1:
        raise rate.error("an acceptance rate lies between 0 and 1.")
    if not 1 <= length.number <= 16 or length.number % 1:
        raise length.error("a draft length is a whole number from 1 to 16.")
    values: dict[str, Value] = {
        "rate": ("plain", rate.number),
        "draft_length": ("count", int(length.number)),
    }
    data = {"rate": rate.number, "draft_length": int(length.number)}
    return Picture(data, values, computed=frozenset({"yield", "limit"}))


KINDS: MappingProxyType[str, Kind] = MappingProxyType(
    {
        "text": Kind(_text, (), ("run",)),
        "race": Kind(_race, ("runs",)),
        "round": Kind(_round, ("run", "place", "from", "to")),
        "coin": Kind(_coin, ("run", "place")),
        "losslessness": Kind(_losslessness, ("run", "place")),
        "rejections": Kind(_rejections, ("run",)),
        "rule": Kind(_rule, ("run", "place", "methods")),
        "lenience": Kind(_lenience, ("runs",)),
        "tradeoff": Kind(_tradeoff, ("methods", "method", "temperature")),
        "distributions": Kind(
            _distributions,
            ("method", "lenience", "control"),
            ("case", "temperature", "offered", "compare", "changed", "shows"),
        ),
        "block": Kind(_block, ("acceptance_rate", "draft_length")),
    }
)
"""Every kind of step there is."""
