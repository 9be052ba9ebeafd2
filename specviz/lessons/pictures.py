"""The pictures of lessons: their data for the browser, and the values that a step's text can insert by a name in braces.

Values come from recorded runs and sweeps; for `distributions`, `block` and `rule` the browser computes some or all.
Each kind of picture is a function. Its keyword arguments are fields in `pictures.yaml`; for a field of type `Run`, `draw` loads the run.
"""

from __future__ import annotations

import inspect
import statistics
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from specviz.analysis.lanes import lane
from specviz.analysis.recorded_runs import read_recorded_runs
from specviz.analysis.sweep.folder import SHELF, shown_sweeps
from specviz.analysis.sweep.results import Point
from specviz.core.method import LOSSLESS
from specviz.core.methods import METHODS
from specviz.errors import LessonError
from specviz.schema.settings import AUTO
from specviz.schema.trace import Run, Token

CONTEXT, LINE = 160, 40
"""Maximum number of characters shown before a token, so that the picture fits on its stage; a line break counts as `LINE`."""
GOOD_ENOUGH = 0.5
"""A draft token is good enough if its verifier probability is at least this share of the top token's."""
VISIBLE = 0.01
"""A smaller probability has no visible bar."""
JUDGED = ("cascade_chow", "cascade_diff", "cascade_tokenV1", "cascade_tokenV2", "cascade_tokenV3")
"""Methods whose rule needs only the draft token and both models' top tokens, which every inspected run records."""
CASES = ("confident and wrong", "confident and right", "both unsure", "they agree", "verifier sure")
"""Names of the example distributions over six words, as in `app/static/playground/cases.js`."""
COMPUTED = (
    *("lenience", "acceptance_rate", "rejection_rate", "distance", "drafter_distance", "models_distance"),
    *("max_q", "max_p", "gap", "chow_turns", "opt_turns", "score", "threshold", "trusted"),
    *("drafter_word", "verifier_word", "q_of_verifier_word", "p_of_verifier_word", "pi_of_drafter_word"),
    "changed",
)
"""Names of the values that the browser computes for a case, as in `app/static/lesson/figures.js`."""

Values = dict[str, tuple[str, Any]]
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
        computed: names of further values, which the browser computes.
        live: where to try it; None if nowhere.
    """

    data: Mapping[str, Any]
    values: Values = field(default_factory=dict)
    computed: frozenset[str] = frozenset()
    live: Live | None = None


_recorded = cache(read_recorded_runs)


def _load(folder: Path, name: str) -> Run:
    """The run in `runs/NAME.jsonl` of the lesson's folder, or else the project's recorded run of that name."""
    own = {path.stem: path for path in (folder / "runs").glob("*.jsonl")}
    return Run.load(own[name]) if name in own else _recorded().load(name)


def draw(kind: str, fields: Mapping[str, Any], folder: Path) -> Picture:
    """Make a picture of this kind with these fields, for the lesson in `folder`.

    Raises:
        LessonError: the kind is unknown, or a field is missing, unknown or invalid.
        TraceError: a recorded run cannot be read.
    """
    _one_of("a kind of picture", kind, KINDS)
    known = dict(inspect.signature(KINDS[kind], eval_str=True).parameters)
    given: dict[str, Any] = {"folder": folder} if known.pop("folder", None) else {}
    for name, value in fields.items():
        _one_of(f"a field of {kind}", name, known)
        is_run = known[name].annotation in (Run, Run | None)
        wanted = str if is_run else known[name].annotation
        if not isinstance(value, int | float if wanted is float else wanted):
            raise LessonError(f"“{name}” must be {_TYPES.get(wanted, 'true or false')}.")
        given[name] = _load(folder, str(value)) if is_run else value
    for name, each in known.items():
        if each.default is each.empty and name not in given:
            raise LessonError(f"“{name}” is missing.")
    return KINDS[kind](**given)


_TYPES = {str: "text", int: "a whole number", float: "a number", list: "a list", dict: "names with values"}


def _one_of(name: str, value: object, known: Any) -> None:
    if not isinstance(value, str) or value not in known:
        raise LessonError(f"“{value}” is not {name}; known: {', '.join(known)}.")


def _values(**formats: Mapping[str, Any]) -> Values:
    """The values of a picture, given by format and then by name. Values of None are omitted."""
    return {
        name: (kind, value)
        for kind, values in formats.items()
        for name, value in values.items()
        if value is not None
    }


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
    calls, rejected = run.verifier_calls, sum(token.draft is not None for token in run.tokens)
    return _values(
        words={"prompt": run.prompt, "drafter": run.drafter, "verifier": run.verifier},
        count={
            "tokens": len(run.tokens),
            "draft_length": run.draft_length,
            "calls": calls,
            "rejected": rejected,
        },
        plain={"lenience": run.lenience, "temperature": run.temperature},
        seconds={"seconds": run.prefill_seconds + sum(each.seconds for each in run.rounds)},
        percent={"acceptance_rate": run.acceptance_rate},
        decimal={"tokens_per_call": run.block_efficiency},
    )


def _picture(
    run: Run, data: Mapping[str, Any], before: int | None = None, **formats: Mapping[str, Any]
) -> Picture:
    """A picture of one run with these values, and with the text before the token at the index `before`, if any."""
    context = {} if before is None else text_before(run, before)
    return Picture({**context, **data}, _of_run(run) | _values(**formats), live=_tried(run))


def text_before(run: Run, tokens: int) -> dict[str, Any]:
    """The prompt, the text of the run's first `tokens` tokens, and whether the beginning of that text was cut off (see `CONTEXT`)."""
    text = "".join(token.text for token in run.tokens[:tokens])
    start, left = len(text), CONTEXT
    while start and (left := left - (LINE if text[start - 1] == "\n" else 1)) >= 0:
        start -= 1
    return {"prompt": run.prompt, "before": text[start:], "cut": start > 0}


def _coloured(run: Run) -> list[dict[str, Any]]:
    return [{"text": each.text, "accepted": each.accepted} for each in run.tokens]


def _examined_token(run: Run, index: int) -> tuple[Token, Any, Any]:
    """The token at an index, and the top tokens of drafter and verifier. Raises LessonError if it was not drafted and inspected."""
    token = run.tokens[index] if 0 <= index < len(run.tokens) else None
    if token is None or token.acceptance is None or not (token.top and token.top.q and token.top.p):
        raise LessonError("“token” must be the index of a token that was drafted and inspected.")
    return token, token.top.q, token.top.p


def _text(run: Run | None = None) -> Picture:
    """No picture (the step has only words), or the text of a run."""
    return _picture(run, {"prompt": run.prompt, "tokens": _coloured(run)}) if run else Picture({})


def _race(folder: Path, runs: dict) -> Picture:
    """One to three runs on one clock. Each key of `runs` is a name for use in the step's text, each value a run's name."""
    raced = {str(name): _load(folder, str(run)) for name, run in runs.items()}
    if not 1 <= len(raced) <= 3:
        raise LessonError("“runs” must name one to three runs.")
    values = _values(words={"machine": _recorded().machine, "prompt": next(iter(raced.values())).prompt})
    for name, one in raced.items():
        values |= _named(name, _of_run(one))
    return Picture({"lanes": [lane(run) for run in raced.values()]}, values, live=_tried(*raced.values()))


def _round(run: Run, round: int, stages: list) -> Picture:
    """One round at two stages, before and after the pupil guesses. A stage is "drafted", "checked" or "decided"."""
    checks = [each.verifier_seconds for each in run.rounds if each.examined and each.verifier_seconds]
    if not 0 <= round < len(run.rounds) or not run.rounds[round].proposals or not checks:
        raise LessonError("“round” must be the index of a round whose draft the verifier checked.")
    if len(stages) != 2:
        raise LessonError("“stages” must be two stages of a round.")
    for stage in stages:
        _one_of("a stage", stage, ("drafted", "checked", "decided"))
    one = run.rounds[round]
    check, alone = statistics.median(checks), _recorded().verifier_only_seconds_per_token
    return _picture(
        run,
        {"stages": stages, "round": lane(run)["rounds"][round]},
        before=sum(len(each.tokens) for each in run.rounds[:round]),
        count={"drafted": len(one.proposals), "kept": one.accepted, "written": len(one.tokens)},
        milliseconds={"check": check, "alone": alone},
        decimal={"ratio": check / alone},
    )


def _coin(run: Run, token: int) -> Picture:
    """The decision on one draft token."""
    decided, _, _ = _examined_token(run, token)
    draft = decided.draft or decided
    told = {name: getattr(decided, name) for name in ("label", "text", "accepted", "acceptance", "coin")}
    told["draft"] = {name: getattr(draft, name) for name in ("text", "q", "p", "pi")}
    return _picture(
        run,
        {"token": told, "method": run.method, "lenience": run.lenience},
        before=token,
        token={"draft": draft.text, "replacement": decided.label},
        percent={
            "chance": decided.acceptance,
            "coin": decided.coin,
            "q": draft.q,
            "p": draft.p,
            "pi": draft.pi,
        },
    )


def _losslessness(run: Run, token: int) -> Picture:
    """What lossless decoding accepts and replaces at one position. Shows only tokens that are top tokens of both models."""
    if run.method != LOSSLESS or run.lenience != 0:
        raise LessonError("“run” must be lossless: speed at lenience 0.")
    _, top_q, top_p = _examined_token(run, token)
    drafter = {one.id: one.probability for one in top_q}
    shared = [(one.text, drafter[one.id], one.probability) for one in top_p if one.id in drafter]
    rows = [{"text": text, "q": q, "p": p} for text, q, p in shared if max(q, p) >= VISIBLE]
    if not rows:
        raise LessonError("“token”: here both models have no likely token in common.")
    marked = max(rows, key=lambda row: row["q"] - row["p"])
    q, p = marked["q"], marked["p"]
    shares = {"q": q, "p": p, "chance": min(1.0, p / q) if q else 1.0}
    data, named = {"rows": rows, "marked": marked["text"]}, {"token": marked["text"]}
    return _picture(run, data, before=token, token=named, percent=shares)


def _rejections(run: Run) -> Picture:
    """The rejected draft tokens of a run, each with its verifier probability relative to the top token's. Most probable first."""
    found = [
        ((each.draft.p or 0.0) / each.top.p[0].probability, each.draft, each.top.p[0])
        for each in run.tokens
        if each.draft and each.top and each.top.p and each.top.p[0].probability
    ]
    if not found:
        raise LessonError("“run”: nothing was rejected in this run, or nothing was inspected.")
    found.sort(key=lambda one: one[0], reverse=True)
    good = sum(share >= GOOD_ENOUGH for share, _, _ in found)
    _, best, favourite = found[0]
    shares = {"good_enough": GOOD_ENOUGH, "share": good / len(found)}
    return _picture(
        run,
        {
            "rows": [{"text": draft.text, "share": share} for share, draft, _ in found],
            "good_enough": GOOD_ENOUGH,
            "prompt": run.prompt,
        },
        count={"good": good},
        token={"best": best.text, "favourite": favourite.text},
        percent=shares | {"best_p": best.p, "favourite_p": favourite.probability},
    )


def _rule(run: Run, token: int, methods: dict) -> Picture:
    """What one or two deferral rules compare at one position. `methods` maps each method to its lenience."""
    judged, top_q, top_p = _examined_token(run, token)
    if not 1 <= len(methods) <= 2:
        raise LessonError("“methods” must be one or two methods with their leniences.")
    asked = []
    for name, lenience in methods.items():
        recorded = None
        if (name, lenience) == (run.method, run.lenience) and judged.rule:
            recorded = {"score": judged.rule.score, "threshold": judged.rule.threshold}
        elif run.temperature != 1 or name not in JUDGED or not isinstance(lenience, int | float):
            raise LessonError(
                f"“methods”: what {name} compares must be known: see `rule` in docs/lessons.md."
            )
        asked.append({"method": name, "lenience": lenience, "recorded": recorded})
    draft = judged.draft or judged
    known = {one.id: one.text for one in (draft, *top_q, *top_p)}  # the draft token first
    masses = {}
    for name, own, top in (("q", draft.q, top_q), ("p", draft.p, top_p)):
        mass = {draft.id: own, **{one.id: one.probability for one in top}}
        masses[name] = [mass.get(id, 0.0) for id in known]
    shown = _picture(
        run,
        {"tokens": list(known.values()), "asked": asked, **masses},
        before=token,
        token={"draft": draft.text, "drafter_word": top_q[0].text, "verifier_word": top_p[0].text},
        percent={"q": draft.q, "p": draft.p, "max_q": top_q[0].probability, "max_p": top_p[0].probability},
    )
    computed = frozenset(f"{name}.{key}" for name in methods for key in ("score", "threshold", "lenience"))
    live = _tried(*(replace(run, method=name, lenience=lenience) for name, lenience in methods.items()))
    return replace(shown, computed=computed, live=live)


# ---- from several runs, and from the sweep


def _lenience(folder: Path, runs: list) -> Picture:
    """Runs that differ only in lenience, with a slider that selects one."""
    shown = sorted((_load(folder, str(name)) for name in runs), key=lambda run: run.lenience)
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


def _tradeoff(methods: list, method: str, temperature: float, sweep: str = SHELF.name) -> Picture:
    """Curves of a recorded sweep. Of the settings of `method` not significantly below the verifier, marks the one that rejects least."""
    for name in (method, *methods):
        _one_of("a method", name, METHODS)
    _one_of("among the methods", method, methods)
    sweeps = {each.name: each for each in shown_sweeps().values()}
    _one_of("a recorded sweep", sweep, sweeps)
    results = sweeps[sweep]
    at = results.at(temperature)
    curves = {name: [each for each in at if each.setting.method == name] for name in methods}
    alone = {name: results.point(temperature, f"{name}_only") for name in ("verifier", "drafter")}
    lossless = results.point(temperature, LOSSLESS)
    harmless = [
        each
        for each in curves[method]
        if (difference := each.against_verifier.get("accuracy")) is not None and difference.high >= 0
    ]
    if not (all(curves.values()) and harmless and lossless):
        raise LessonError("the recorded sweep has no such curves at this temperature.")
    models = {name: point.value("accuracy") for name, point in alone.items() if point}
    edge = min(harmless, key=lambda each: each.value("rejection_rate"))
    best = max(curves[method], key=lambda each: each.value("accuracy"))
    before, after = (round(each.value("rejection_rate"), 2) for each in (lossless, edge))  # as shown
    accuracy, lenience = edge.figures["accuracy"], edge.setting.lenience
    values = _values(
        count={"items": len(results.items)},
        plain={"temperature": temperature, "edge_lenience": lenience, "best_lenience": best.setting.lenience},
        words={"method": METHODS[method].title},
        percent={
            **{f"{name}_accuracy": value for name, value in models.items()},
            **{"best_accuracy": best.value("accuracy"), "lossless_rejected": before, "edge_rejected": after},
            **{"edge_accuracy": accuracy.value, "edge_low": accuracy.low, "edge_high": accuracy.high},
            "saved": (before - after) / before if before > 0 else 0.0,
        },
    )
    told = [{"method": name, "points": [_point(each) for each in curve]} for name, curve in curves.items()]
    data = {"curves": told, "models": models, "edge": {"method": method, "lenience": lenience}}
    point = {"sweep": sweep, "heat": f"{temperature:g}", "point": f"{method}:{lenience:g}"}
    return Picture(data, values, live=Live("tradeoff", own=point))


def _point(point: Point) -> dict[str, Any]:
    shown = {"lenience": point.setting.lenience, "x": point.value("rejection_rate")}
    return shown | asdict(point.figures["accuracy"])


# ---- computed in the browser


def _distributions(
    method: str,
    lenience: float,
    control: str,
    case: str = CASES[0],
    temperature: float = 1.0,
    offered: list = [],  # noqa: B006, not changed
    compare: dict = {},  # noqa: B006
    changed: bool = False,
    shows: str = "",
) -> Picture:
    """Two distributions over six words, and one control: the lenience, or a choice among the `offered` methods."""
    start = {"case": case, "method": method, "lenience": lenience, "temperature": temperature}
    states = {"": start}
    for name, change in compare.items():
        if not isinstance(change, dict):
            raise LessonError(f"“{name}” under “compare” must be names with values.")
        states[str(name)] = start | change
    for state in states.values():
        if not all(isinstance(state[name], int | float) for name in ("lenience", "temperature")):
            raise LessonError("lenience and temperature must be numbers.")
        _one_of("a case", state["case"], CASES)
        _one_of("a method", state["method"], METHODS)
    for each in offered:
        _one_of("a method", each, METHODS)
    _one_of("a control here", control, ("lenience", "method") if len(offered) > 1 else ("lenience",))
    _one_of("a state under “compare”", shows, states)
    computed = frozenset(f"{name}.{key}" if name else key for name in states for key in COMPUTED)
    data = {"states": states, "control": control, "offered": offered, "counts": changed, "shows": shows}
    return Picture(data, computed=computed, live=Live("playground"))


def _block(acceptance_rate: float, draft_length: int) -> Picture:
    """Tokens per verifier call as a function of the draft length."""
    if not 0 < acceptance_rate < 1 or not 1 <= draft_length <= 16:
        raise LessonError("“acceptance_rate” lies between 0 and 1, “draft_length” from 1 to 16.")
    length = {"draft_length": draft_length}
    values, computed = _values(plain={"rate": acceptance_rate}, count=length), frozenset({"yield", "limit"})
    return Picture({"rate": acceptance_rate} | length, values, computed, Live("generate", length))


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
