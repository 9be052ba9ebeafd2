"""The pictures of lessons: their data for the browser, and the values that a step's text can insert by a name in braces.

Values come from recorded runs and sweeps; for `distributions`, `block` and `rule` the browser computes some or all.
Each kind of picture is a function, whose keyword arguments are its fields in `pictures.yaml`.
"""

from __future__ import annotations

import inspect
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from specviz.analysis.lanes import lane
from specviz.analysis.recorded_runs import RecordedRuns
from specviz.analysis.sweep.folder import SHELF, Recorded
from specviz.core.methods import METHODS
from specviz.errors import LessonError
from specviz.schema.settings import AUTO
from specviz.schema.trace import Draft, Run, Token

CONTEXT, LINE = 160, 40
"""Maximum characters shown before a token, of which a line break counts as `LINE`, so that the picture fits on its stage."""
GOOD_ENOUGH = 0.5
"""A draft token is good enough if its verifier probability is at least this share of the top token's."""
VISIBLE = 0.01
"""A smaller probability has no visible bar."""
JUDGED = ("cascade_chow", "cascade_diff", "cascade_tokenV1", "cascade_tokenV2", "cascade_tokenV3")
"""Methods whose rule needs only the draft token and both models' top tokens, which every inspected run records."""
CASES = ("confident and wrong", "confident and right", "both unsure", "they agree", "verifier sure")
"""The example distributions over six words, by their names in `static/playground/cases.js`."""
COMPUTED = (
    *("lenience", "acceptance_rate", "rejection_rate", "distance", "drafter_distance", "models_distance"),
    *("max_q", "max_p", "gap", "chow_turns", "opt_turns", "score", "threshold", "trusted"),
    *("drafter_word", "verifier_word", "q_of_verifier_word", "p_of_verifier_word", "pi_of_drafter_word"),
    "changed",
)
"""The numbers of a case, by their names in `static/lesson/figures.js`."""

Values = Mapping[str, tuple[str, Any]]
"""By name: the format in which the browser writes a value, and the value."""


@dataclass(frozen=True)
class Live:
    """Where a visitor can try what a step shows.

    Attributes:
        tab: name of the page's tab in links.
        settings: settings of a `Request`, by name.
        panes: method, lenience and draft length of each pane of a comparison.
        own: further parameters of the link, which only the tab's script reads.
    """

    tab: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    panes: tuple[tuple[str, float, int | str], ...] = ()
    own: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Picture:
    """What a step shows.

    Attributes:
        data: what the browser draws, JSON-ready.
        values: values that the text can insert by a name in braces.
        computed: further such names, whose values the browser computes.
        live: where to try it; None if nowhere.
    """

    data: Mapping[str, Any]
    values: Values = field(default_factory=dict)
    computed: frozenset[str] = frozenset()
    live: Live | None = None


@dataclass(frozen=True)
class Shelf:
    """The recorded runs of a lesson's pictures (in its own `folder`, then in the project's), and the sweeps by folder name."""

    folder: Path
    runs: RecordedRuns
    sweeps: Mapping[str, Recorded]
    _read: dict[str, Run] = field(default_factory=dict, repr=False, compare=False)

    def load(self, name: str) -> Run:
        """Read a run: `runs/NAME.jsonl` in the lesson's folder, or else the project's recorded run of that name.

        Raises:
            TraceError: there is none, or it cannot be read.
        """
        if name not in self._read:
            own = {path.stem: path for path in (self.folder / "runs").glob("*.jsonl")}
            self._read[name] = Run.load(own[name]) if name in own else self.runs.load(name)
        return self._read[name]


def draw(kind: str, fields: Mapping[str, Any], shelf: Shelf) -> Picture:
    """The picture of a kind with these fields.

    Raises:
        LessonError: the kind is unknown, or a field is missing, unknown or invalid.
        TraceError: its run cannot be read.
    """
    _one_of("a kind of picture", kind, KINDS)
    known = inspect.signature(KINDS[kind], eval_str=True).parameters
    for name, value in fields.items():
        _one_of(f"a field of {kind}", name, [each for each in known if each != "shelf"])
        wanted = known[name].annotation
        if not isinstance(value, int | float if wanted is float else wanted):
            raise LessonError(f"“{name}” must be {_TYPES.get(wanted, wanted)}.")
    for name, each in known.items():
        if each.default is each.empty and name not in (*fields, "shelf"):
            raise LessonError(f"“{name}” is missing.")
    return KINDS[kind](shelf, **fields)


_TYPES = {str: "text", int: "a whole number", float: "a number", list: "a list", dict: "names with values"}


def _one_of(name: str, value: object, known: Any) -> None:
    if not isinstance(value, str) or value not in known:
        raise LessonError(f"“{value}” is not {name}; known: {', '.join(known)}.")


def _as(kind: str, **values: Any) -> Values:
    """Values in one format, `kind`; values of None are omitted."""
    return {name: (kind, value) for name, value in values.items() if value is not None}


def _named(prefix: str, values: Values) -> Values:
    return {f"{prefix}.{name}": value for name, value in values.items()}


# ---- from one run


_SHARED = ("prompt", "temperature", "top_k", "top_p", "min_p", "seed", "max_new_tokens")
"""Settings that all panes of a comparison share."""


def _tried(*runs: Run) -> Live:
    """Where to try the settings of a run, or of several runs as a comparison."""
    first = runs[0]
    shared = {name: getattr(first, name) for name in _SHARED}
    panes = tuple((run.method, run.lenience, run.draft_length or AUTO) for run in runs)
    if len(panes) > 1:
        return Live("compare", shared, panes)
    own = dict(zip(("method", "lenience", "draft_length"), panes[0], strict=True))
    return Live("generate", shared | own)


def _of_run(run: Run) -> Values:
    rejected = sum(token.draft is not None for token in run.tokens)
    return {
        **_as("words", prompt=run.prompt, drafter=run.drafter, verifier=run.verifier),
        **_as("count", tokens=len(run.tokens), calls=run.verifier_calls, rejected=rejected),
        **_as("count", draft_length=run.draft_length),
        **_as("plain", lenience=run.lenience, temperature=run.temperature),
        **_as("seconds", seconds=run.prefill_seconds + sum(each.seconds for each in run.rounds)),
        **_as("percent", acceptance_rate=run.acceptance_rate),
        **_as("decimal", tokens_per_call=run.block_efficiency),
    }


def text_before(run: Run, tokens: int) -> dict[str, Any]:
    """The prompt, the end of the text of the first `tokens` tokens, and whether the text was cut."""
    text = "".join(token.text for token in run.tokens[:tokens])
    start, left = len(text), CONTEXT
    while start and (left := left - (LINE if text[start - 1] == "\n" else 1)) >= 0:
        start -= 1
    return {"prompt": run.prompt, "before": text[start:], "cut": start > 0}


def _coloured(run: Run) -> list[dict[str, Any]]:
    return [{"text": each.text, "accepted": each.accepted} for each in run.tokens]


def examined(token: Token) -> Token | Draft:
    """The draft token that was examined at this token's position."""
    return token.draft or token


def _examined_token(run: Run, index: int) -> tuple[Token, Any, Any]:
    """The token at an index, and the top tokens of the drafter and of the verifier."""
    token = run.tokens[index] if 0 <= index < len(run.tokens) else None
    if token is None or token.acceptance is None or not (token.top and token.top.q and token.top.p):
        raise LessonError("“token” must be the index of a token that was drafted and inspected.")
    return token, token.top.q, token.top.p


def _of_draft(token: Token) -> Values:
    draft = examined(token)
    shares = _as("percent", q=draft.q, p=draft.p, beside_favourite=beside_favourite(token))
    return {**_as("token", draft=draft.text), **shares}


def beside_favourite(token: Token) -> float:
    """The verifier's probability of the examined draft token, divided by that of its top token."""
    best = token.top.p[0].probability if token.top and token.top.p else 0.0
    return (examined(token).p or 0.0) / best if best > 0 else 0.0


def _text(shelf: Shelf, run: str = "") -> Picture:
    """No picture (the step has only words), or the text of a run."""
    if not run:
        return Picture({})
    shown = shelf.load(run)
    told = {"prompt": shown.prompt, "tokens": _coloured(shown)}
    return Picture(told, _of_run(shown), live=_tried(shown))


def _race(shelf: Shelf, runs: dict) -> Picture:
    """One to three runs on one clock. `runs` maps the names that the text uses for them to the runs' own names."""
    raced = {str(name): shelf.load(str(run)) for name, run in runs.items()}
    if not 1 <= len(raced) <= 3:
        raise LessonError("“runs” must name one to three runs.")
    values = {**_as("words", machine=shelf.runs.machine, prompt=next(iter(raced.values())).prompt)}
    for name, one in raced.items():
        values |= _named(name, _of_run(one))
    return Picture({"lanes": [lane(run) for run in raced.values()]}, values, live=_tried(*raced.values()))


def _round(shelf: Shelf, run: str, round: int, stages: list) -> Picture:
    """One round. `stages` are its stages before and after the guess: drafted, checked or decided."""
    shown = shelf.load(run)
    if not 0 <= round < len(shown.rounds) or not shown.rounds[round].proposals:
        raise LessonError("“round” must be the index of a round with a draft.")
    if len(stages) != 2:
        raise LessonError("“stages” must be two stages of a round.")
    for stage in stages:
        _one_of("a stage", stage, ("drafted", "checked", "decided"))
    one = shown.rounds[round]
    checks = [each.verifier_seconds for each in shown.rounds if each.examined and each.verifier_seconds]
    if not checks:
        raise LessonError("“run” must have checked its drafts.")
    check, alone = statistics.median(checks), shelf.runs.verifier_only_seconds_per_token
    values = {
        **_of_run(shown),
        **_as("count", drafted=len(one.proposals), kept=one.accepted, written=len(one.tokens)),
        **_as("milliseconds", check=check, alone=alone),
        **_as("decimal", ratio=check / alone),
    }
    written = sum(len(each.tokens) for each in shown.rounds[:round])
    data = {"stages": stages, "round": lane(shown)["rounds"][round], **text_before(shown, written)}
    return Picture(data, values, live=_tried(shown))


def _coin(shelf: Shelf, run: str, token: int) -> Picture:
    """The decision on one draft token."""
    shown = shelf.load(run)
    decided, _, _ = _examined_token(shown, token)
    draft = examined(decided)
    told = {name: getattr(decided, name) for name in ("label", "text", "accepted", "acceptance", "coin")}
    told["draft"] = {name: getattr(draft, name) for name in ("text", "q", "p", "pi")}
    shares = _as("percent", pi=draft.pi, chance=decided.acceptance, coin=decided.coin)
    values = {**_of_run(shown), **_of_draft(decided), **_as("token", replacement=decided.label), **shares}
    data = {"token": told, "method": shown.method, "lenience": shown.lenience}
    return Picture(text_before(shown, token) | data, values, live=_tried(shown))


def _losslessness(shelf: Shelf, run: str, token: int) -> Picture:
    """What lossless decoding accepts and replaces at one position, for the tokens among the top tokens of both models."""
    shown = shelf.load(run)
    if shown.method != "speed" or shown.lenience != 0:
        raise LessonError("“run” must be lossless: speed at lenience 0.")
    _, top_q, top_p = _examined_token(shown, token)
    drafter = {one.id: one.probability for one in top_q}
    shared = [(one.text, drafter[one.id], one.probability) for one in top_p if one.id in drafter]
    rows = [{"text": text, "q": q, "p": p} for text, q, p in shared if max(q, p) >= VISIBLE]
    if not rows:
        raise LessonError("“token”: here both models have no likely token in common.")
    marked = max(rows, key=lambda row: row["q"] - row["p"])
    q, p = marked["q"], marked["p"]
    shares = _as("percent", q=q, p=p, chance=min(1.0, p / q) if q else 1.0)
    values = {**_of_run(shown), **_as("token", token=marked["text"]), **shares}
    data = {"rows": rows, "marked": marked["text"]}
    return Picture(text_before(shown, token) | data, values, live=_tried(shown))


def _rejections(shelf: Shelf, run: str) -> Picture:
    """The rejected draft tokens of a run, in descending order of `beside_favourite`."""
    shown = shelf.load(run)
    found = sorted(
        (each for each in shown.tokens if each.draft and each.top), key=beside_favourite, reverse=True
    )
    if not found:
        raise LessonError("“run”: nothing was rejected in this run, or nothing was inspected.")
    shares = [beside_favourite(each) for each in found]
    good = sum(share >= GOOD_ENOUGH for share in shares)
    _, _, (favourite, *_) = _examined_token(shown, shown.tokens.index(found[0]))
    values = {
        **_of_run(shown),
        **_as("count", good=good),
        **_as("percent", good_enough=GOOD_ENOUGH, share=good / len(shares)),
        **_as("token", best=examined(found[0]).text, favourite=favourite.text),
        **_as("percent", best_p=examined(found[0]).p, favourite_p=favourite.probability),
    }
    rows = [{"text": examined(each).text, "share": share} for each, share in zip(found, shares, strict=True)]
    data = {"rows": rows, "good_enough": GOOD_ENOUGH, "prompt": shown.prompt}
    return Picture(data, values, live=_tried(shown))


def _rule(shelf: Shelf, run: str, token: int, methods: dict) -> Picture:
    """What one or two deferral rules compare at one position. `methods` maps each method to its lenience."""
    shown = shelf.load(run)
    judged, top_q, top_p = _examined_token(shown, token)
    asked = []
    for name, lenience in methods.items():
        recorded = None
        if (name, lenience) == (shown.method, shown.lenience) and judged.rule:
            recorded = {"score": judged.rule.score, "threshold": judged.rule.threshold}
        elif shown.temperature != 1 or name not in JUDGED or not isinstance(lenience, int | float):
            raise LessonError(
                f"“methods”: what {name} compares must be known: see `rule` in docs/lessons.md."
            )
        asked.append({"method": name, "lenience": lenience, "recorded": recorded})
    draft = examined(judged)
    known = {one.id: one.text for one in (draft, *top_q, *top_p)}  # the draft token first
    masses = {
        name: [
            {draft.id: getattr(draft, name), **{one.id: one.probability for one in top}}.get(id, 0.0)
            for id in known
        ]
        for name, top in (("q", top_q), ("p", top_p))
    }
    best_q, best_p = top_q[0], top_p[0]
    values = {
        **_of_run(shown),
        **_of_draft(judged),
        **_as("token", drafter_word=best_q.text, verifier_word=best_p.text),
        **_as("percent", max_q=best_q.probability, max_p=best_p.probability),
    }
    computed = {f"{name}.{key}" for name in methods for key in ("score", "threshold", "lenience")}
    data = {"tokens": [*known.values()], "asked": asked, **masses}
    live = _tried(*(replace(shown, method=name, lenience=lenience) for name, lenience in methods.items()))
    return Picture(text_before(shown, token) | data, values, frozenset(computed), live)


# ---- from several runs, and from the sweep


def _lenience(shelf: Shelf, runs: list) -> Picture:
    """Runs that differ only in lenience, with a slider that selects one."""
    shown = sorted((shelf.load(str(name)) for name in runs), key=lambda run: run.lenience)
    if len({(run.prompt, run.method, run.seed, run.temperature) for run in shown}) != 1:
        raise LessonError("“runs” must differ in lenience alone.")
    told = [
        {
            "lenience": run.lenience,
            "acceptance_rate": run.acceptance_rate,
            "calls": run.verifier_calls,
            "tokens": _coloured(run),
        }
        for run in shown
    ]
    values = {**_named("strict", _of_run(shown[0])), **_named("lenient", _of_run(shown[-1]))}
    return Picture({"prompt": shown[0].prompt, "runs": told}, values, live=_tried(*shown))


def _tradeoff(
    shelf: Shelf, methods: list, method: str, temperature: float, sweep: str = SHELF.name
) -> Picture:
    """Curves of a recorded sweep, and the most lenient setting of `method` that is not significantly less accurate than the verifier."""
    for name in (method, *methods):
        _one_of("a method", name, METHODS)
    _one_of("among the methods", method, methods)
    _one_of("a recorded sweep", sweep, shelf.sweeps)
    results = shelf.sweeps[sweep].results
    curves = {
        name: [each for each in results.at(temperature) if each.setting.method == name] for name in methods
    }
    verifier, drafter = (results.point(temperature, f"{name}_only") for name in ("verifier", "drafter"))
    lossless = results.point(temperature, "speed", 0.0)
    harmless = [
        each
        for each in curves[method]
        if (difference := each.against_verifier.get("accuracy")) is not None and difference.high >= 0
    ]
    if not (all(curves.values()) and harmless and verifier and drafter and lossless):
        raise LessonError("the recorded sweep has no such curves at this temperature.")
    edge = min(harmless, key=lambda each: each.figures["rejection_rate"].value)
    accuracy = edge.figures["accuracy"]
    best = max(curves[method], key=lambda each: each.figures["accuracy"].value)
    models = {
        name: each.figures["accuracy"].value for name, each in (("verifier", verifier), ("drafter", drafter))
    }
    before, after = (each.figures["rejection_rate"].value for each in (lossless, edge))
    values = {
        **_as("count", items=results.items),
        **_as("plain", temperature=temperature, edge_lenience=edge.setting.lenience),
        **_as("plain", best_lenience=best.setting.lenience),
        **_as("percent", best_accuracy=best.figures["accuracy"].value),
        **_as("words", method=METHODS[method].title),
        **_as("percent", verifier_accuracy=models["verifier"], drafter_accuracy=models["drafter"]),
        **_as("percent", lossless_rejected=before, edge_rejected=after),
        **_as("percent", edge_accuracy=accuracy.value, edge_low=accuracy.low, edge_high=accuracy.high),
        **_as("percent", saved=(before - after) / before if before > 0 else 0.0),
    }
    told = [{"method": name, "points": [_point(each) for each in curve]} for name, curve in curves.items()]
    judged = {"method": method, "lenience": edge.setting.lenience}
    point = f"{method}:{edge.setting.lenience:g}"
    live = Live("tradeoff", own={"sweep": sweep, "heat": f"{temperature:g}", "point": point})
    return Picture({"curves": told, "models": models, "edge": judged}, values, live=live)


def _point(result: Any) -> dict[str, Any]:
    accuracy = result.figures["accuracy"]
    interval = {"value": accuracy.value, "low": accuracy.low, "high": accuracy.high}
    return {"lenience": result.setting.lenience, "x": result.figures["rejection_rate"].value, **interval}


# ---- computed in the browser


def _distributions(
    shelf: Shelf,
    method: str,
    lenience: float,
    control: str,
    case: str = CASES[0],
    temperature: float = 1.0,
    offered: list | None = None,
    compare: dict | None = None,
    changed: bool = False,
    shows: str = "",
) -> Picture:
    """Two distributions over six words, and one control: the lenience, or a choice among the `offered` methods."""
    start = {"case": case, "method": method, "lenience": lenience, "temperature": temperature}
    states = {"": start}
    for name, change in (compare or {}).items():
        if not isinstance(change, dict):
            raise LessonError(f"“{name}” under “compare” must be names with values.")
        states[str(name)] = start | change
    for state in states.values():
        for number in (state["lenience"], state["temperature"]):
            if not isinstance(number, int | float):
                raise LessonError("lenience and temperature must be numbers.")
        _one_of("a case", state["case"], CASES)
        _one_of("a method", state["method"], METHODS)
    for each in offered or ():
        _one_of("a method", each, METHODS)
    _one_of("a control here", control, ("lenience", "method") if len(offered or ()) > 1 else ("lenience",))
    _one_of("a state under “compare”", shows, states)
    computed = {f"{name}.{key}" if name else key for name in states for key in COMPUTED}
    data = {"states": states, "control": control, "offered": offered or [], "counts": changed, "shows": shows}
    return Picture(data, computed=frozenset(computed), live=Live("playground"))


def _block(shelf: Shelf, acceptance_rate: float, draft_length: int) -> Picture:
    """Tokens per verifier call as a function of the draft length."""
    if not 0 < acceptance_rate < 1 or not 1 <= draft_length <= 16:
        raise LessonError("“acceptance_rate” lies between 0 and 1, “draft_length” from 1 to 16.")
    data = {"rate": acceptance_rate, "draft_length": draft_length}
    values = {**_as("plain", rate=acceptance_rate), **_as("count", draft_length=draft_length)}
    return Picture(
        data, values, frozenset({"yield", "limit"}), Live("generate", {"draft_length": draft_length})
    )


KINDS: Mapping[str, Callable[..., Picture]] = {
    make.__name__.strip("_"): make
    for make in (
        _text,
        _race,
        _round,
        _coin,
        _losslessness,
        _rejections,
        _rule,
        _lenience,
        _tradeoff,
        _distributions,
        _block,
    )
}
"""Every kind of picture, by its name in `pictures.yaml`."""
