"""A sweep as people read it: pictures, tables, and what follows from them, in Markdown.

Every figure comes from the results, and every sentence of the findings from a rule on them: other numbers, other
sentences. Knows how to lay out `Results`; measures and estimates nothing but the two models' scores by kind of item.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from specviz.analysis.sweep import estimates
from specviz.analysis.sweep.cost_model import CostModel
from specviz.analysis.sweep.items import BUILT_IN, Item
from specviz.analysis.sweep.results import FIGURES, Estimate, Point, Results
from specviz.analysis.sweep.sample import Sample
from specviz.analysis.sweep.setting import Setting
from specviz.core.methods import METHODS, get_method
from specviz.tools.bench.measurements import spread
from specviz.tools.sweep.picture import Picture

NONE = "–"
BASELINES = ("verifier_only", "drafter_only")
MOST = 0.9
"""How much of the way from the drafter's accuracy to the verifier's counts as most of it."""
_BUILT_IN_ITEMS = (
    "The built-in items were written for this project, and their wording was chosen, kind by kind, so that the embedded "
    "pair’s verifier answers rather than rambles; none was dropped for its answer. Its score is no benchmark figure. An answer "
    "counts as right if it holds the word asked for (the last number, in sums), so a few are right by luck: what the drafter gets is about what luck gives."
)
_SAME, _CLOSE = 1e-4, 1e-3
"""Up to where two figures are called the same; up to where rounding may part them."""
_FEWER = 0.01
"""How much lower a rejection rate must be to be called so."""


def markdown(
    results: Results,
    items: Sequence[Item],
    costs: CostModel | None = None,
    machine: str | None = None,
    *,
    versions: Mapping[str, str],
    command: str,
    date: str,
    pictures: Sequence[Picture] = (),
    settings: Sequence[Setting] = (),
    samples: Sequence[Sample] = (),
) -> str:
    """The report of a sweep.

    Args:
        results: of the sweep; all its points are shown.
        items: that were asked, as the plan counts them.
        costs: of the pair where latency was measured, and `machine` in words; None where it was not.
        versions: what is installed.
        command, date: how and when the sweep was made.
        pictures: with their paths as seen from the report.
        settings, samples: the plan's settings and the texts, for the scores by kind of item; none leaves those out.
    """
    parts = [
        "# Quality against cost",
        f"Written by `{command}`; every figure was measured in this sweep and every sentence under “What came out” follows "
        "from the figures by rule, none was put in by hand. 95 % intervals in brackets.",
    ]
    if not results.complete:
        parts.append("**Incomplete: the sweep is not at its end; what follows is what there was so far.**")
    parts += ["## What was swept", _swept(results, items, machine, versions, date)]
    parts += ["## What came out", _bullets(findings(results))]
    parts += ["## The two models alone", *_alone(results, items, settings, samples)]
    for temperature in results.temperatures:
        parts.append(f"## Temperature {temperature:g}")
        for picture in pictures:
            if picture.temperature == temperature:
                parts.append(
                    f"![Task accuracy against {FIGURES[picture.cost].title.lower()} at temperature {temperature:g}: one curve "
                    f"for each method over its lenience, with 95 % intervals]({picture.path.as_posix()})"
                )
        parts.append(_pipes(_points(results, temperature, costs)))
    parts += ["## Where the curves end", *_ends(results)]
    parts += ["## Latency by arithmetic", *_modelled(results, costs, machine)]
    parts += ["## How to read this", _bullets(_caveats(results))]
    return "\n\n".join(parts) + "\n"


def findings(results: Results) -> list[str]:
    """What came out, in sentences that follow from the numbers."""
    every = [line for t in results.temperatures for line in _keeping(results, t)]
    every += [line for t in results.temperatures for line in _beating(results, t)]
    every += _beside_speed(results)
    every += _no_help(results)
    every += [line for t in results.temperatures for line in _faster(results, t)]
    every += _neither(results)
    return every


# --- what came out


def _keeping(results: Results, temperature: float) -> list[str]:
    """Who keeps most of the verifier's accuracy, at which rejection rate."""
    verifier, drafter = (_value(results.point(temperature, name), "accuracy") for name in BASELINES)
    if verifier is None or drafter is None:
        return []
    apart = _of(results.point(temperature, "drafter_only"), "accuracy", "against_verifier")
    if apart is None or apart.high >= 0:
        by = f" (difference {_signed(apart)})" if apart else ""
        return [
            f"At temperature {temperature:g}, these items do not tell the two models apart: the verifier gets "
            f"{verifier:.3f} of them right, the drafter {drafter:.3f}{by}. What accuracy says there about the settings "
            "in between is mostly chance."
        ]
    wanted = drafter + MOST * (verifier - drafter)
    reached: list[tuple[float, Point]] = []
    never = []
    for name in _curves(results, temperature):
        enough = [
            (rate, point)
            for point in _curve(results, temperature, name)
            if (rate := _value(point, "rejection_rate")) is not None
            and (_value(point, "accuracy") or 0.0) >= wanted
        ]
        if enough:
            reached.append(min(enough, key=lambda one: one[0]))
        else:
            never.append(METHODS[name].title)
    reached.sort(key=lambda one: one[0])
    lossless = _value(results.point(temperature, "speed", 0.0), "rejection_rate")
    most = 1.0 if lossless is None else lossless - _FEWER
    saving = [f"{_name(point)} (rejects {rate:.3f})" for rate, point in reached if rate <= most]
    other = [METHODS[point.setting.method].title for rate, point in reached if rate > most]
    beside = "" if lossless is None else f" with fewer rejections than lossless decoding’s {lossless:.3f}"
    told = [
        f"At temperature {temperature:g}, the verifier gets {verifier:.3f} of the items right and the drafter "
        f"{drafter:.3f}; {_percent(MOST)} of the way up is {wanted:.3f}."
    ]
    if saving:
        told.append(
            f"That is reached{beside} by {_and(saving)}, each at the lowest rejection rate that does."
        )
    else:
        told.append(f"No setting reaches that{beside}.")
    if other:
        told.append(f"With no fewer: {_and(other)}.")
    if never:
        told.append(f"Nowhere on its curve: {_and(never)}.")
    return [" ".join(told)]


def _beating(results: Results, temperature: float) -> list[str]:
    """Where a cascade gets more right than both models."""
    judged = [point for point in _cascades(results, temperature) if "accuracy" in point.figures]
    if not judged or any(_value(results.point(temperature, name), "accuracy") is None for name in BASELINES):
        return []
    ahead = [point for point in judged if point.beats_both != "no"]
    surely = [point for point in ahead if point.beats_both == "surely"]
    start = f"At temperature {temperature:g}, "
    if not ahead:
        return [f"{start}none of the {len(judged)} cascade settings gets more items right than both models."]
    best = max(ahead, key=lambda point: _value(point, "accuracy") or 0.0)
    told = (
        f"{start}{len(ahead)} of the {len(judged)} cascade settings {_verb(ahead, 'gets', 'get')} more items right than "
        f"both models; most of all {_name(best)}, {_interval(best.figures['accuracy'])}. "
    )
    if not surely:
        return [
            f"{told}For none of them does the interval of the difference to the better model lie above 0: this sweep "
            "does not show that a cascade is better than both."
        ]
    # One side of an interval of 95 %.
    chance = len(judged) / 40
    told += (
        f"The interval of the difference to the better model lies above 0 for {_names(surely)}; were none better, "
        f"{chance:.1f} of {len(judged)} would do so by chance"
    )
    return [f"{told}." if len(surely) > chance else f"{told}, and there are no more than that."]


def _beside_speed(results: Results) -> list[str]:
    """How many cascade settings are better or worse than lenient speculative decoding that rejects as much."""
    every = []
    several = len(results.temperatures) > 1
    for name in estimates.COMPARED:
        held = [(point, point.against_speed[name]) for point in results.points if name in point.against_speed]
        title = FIGURES[name].title
        if not held:
            every.append(
                f"{title}: no cascade could be held against speculative decoding at its own rejection rate; the sweep has no "
                "curve of it to hold it against."
            )
            continue
        better = [point for point, one in held if one.low > 0]
        worse = [point for point, one in held if one.high < 0]
        chance = len(held) / 20
        told = f"{title}, held against lenient speculative decoding that rejects as much: {_count(held, 'comparison')}. "
        told += f"Surely better: {_listed(better, several)}. Surely worse: {_listed(worse, several)}. "
        told += f"With so many intervals of 95 %, about one in twenty, here {chance:.1f}, would exclude 0 by chance alone"
        told += "; there are no more than that." if len(better) + len(worse) <= chance else "."
        every.append(told)
    return every


def _no_help(results: Results) -> list[str]:
    """The cascades that are nowhere on their curve surely better than lenient speculative decoding."""
    every = []
    for temperature in results.temperatures:
        held = [point for point in _cascades(results, temperature) if point.against_speed]
        methods = list(dict.fromkeys(point.setting.method for point in held))
        helped = {
            point.setting.method for point in held if any(one.low > 0 for one in point.against_speed.values())
        }
        useless = [METHODS[name].title for name in methods if name not in helped]
        figures = _and([FIGURES[name].title.lower() for name in estimates.COMPARED], "or")
        if useless:
            every.append(
                f"No help at temperature {temperature:g}: at equal rejection rate, {_and(useless)} "
                f"{_verb(useless, 'is', 'are')} at no lenience surely better than lenient speculative decoding, in {figures}."
            )
        elif methods:
            every.append(
                f"At temperature {temperature:g}, every cascade is somewhere on its curve surely better than lenient "
                f"speculative decoding at equal rejection rate, in {figures}."
            )
    return every


def _faster(results: Results, temperature: float) -> list[str]:
    """Whether anything with both models takes less time than the verifier alone."""
    timed = [point for point in _both(results, temperature) if "relative_latency" in point.figures]
    start = f"At temperature {temperature:g}, "
    if not timed:
        return [f"{start}latency was not measured."]
    faster = [point for point in timed if point.figures["relative_latency"].high < 1]
    slower = [point for point in timed if point.figures["relative_latency"].low > 1]
    best = min(faster or timed, key=lambda point: point.figures["relative_latency"].value)
    told = f"{start}{_count(timed, 'setting')} with both models {_verb(timed, 'was', 'were')} timed. "
    if faster:
        told += (
            f"Surely faster than the verifier alone: {len(faster)}; the fastest is {_name(best)}, which takes "
            f"{_interval(best.figures['relative_latency'])} of its time a token. "
        )
        good = [
            point for point in faster if (one := point.against_verifier.get("accuracy")) and one.high >= 0
        ]
        told += f"Of these, not surely less accurate than the verifier: {_listed(good)}. "
    else:
        told += (
            f"None is surely faster than the verifier alone; the least is {_interval(best.figures['relative_latency'])} "
            f"of its time a token, for {_name(best)}. "
        )
    told += f"Surely slower: {len(slower)}."
    if lossless := _of(results.point(temperature, "speed", 0.0), "relative_latency"):
        told += f" Lossless decoding takes {_interval(lossless)}"
        drafter = _of(results.point(temperature, "drafter_only"), "relative_latency")
        told += f", the drafter alone {_interval(drafter)}." if drafter else "."
    return [told]


def _neither(results: Results) -> list[str]:
    """Settings that lose on both sides to the verifier alone."""
    lost = [
        point
        for point in results.points
        if (time := point.figures.get("relative_latency"))
        and (right := point.against_verifier.get("accuracy"))
        and time.low > 1
        and right.high < 0
    ]
    if not lost:
        return []
    return [
        f"Surely slower than the verifier alone and surely less accurate: {_listed(lost, len(results.temperatures) > 1)}."
    ]


# --- sections


def _swept(
    results: Results, items: Sequence[Item], machine: str | None, versions: Mapping[str, str], date: str
) -> str:
    plan = results.plan
    kinds = [f"{sum(item.kind == kind for item in items)} {kind}" for kind in _kinds(items)]
    methods = [
        METHODS[name].title for name in METHODS if any(p.setting.method == name for p in results.points)
    ]
    temperatures = _and([f"{t:g}" for t in results.temperatures])
    trials = plan.get("trials", 1)
    source = Path(str(plan.get("prompts", NONE))).name  # of a file nobody needs the folder
    greedy = " (one at temperature 0)" if trials != 1 and 0 in results.temperatures else ""
    lines = [
        f"{date}{'. ' if date else ''}Pair: {results.drafter} → {results.verifier}, {results.dtype}.",
        f"Items: {results.items}, {source}; {_and(kinds)}." if kinds else f"Items: {results.items}.",
        f"Settings: {len(results.points)}, at temperatures {temperatures}; {', '.join(methods)}.",
        f"Texts: {trials} of an item at a setting{greedy}, {sum(p.samples for p in results.points)} in all, of at most "
        f"{plan.get('max_new_tokens', NONE)} tokens; K = {plan.get('draft_length', NONE)}; seeds from "
        f"{plan.get('seed', NONE)} on, an item’s the same for all settings.",
    ]
    if versions:
        lines.append(f"Versions: {', '.join(f'{name} {version}' for name, version in versions.items())}.")
    if _has(results, "relative_latency"):
        where = f" on {machine}" if machine else ""
        lines.append(f"Latency: {plan.get('timed', NONE)} of the items, served one at a time{where}.")
    return _bullets(lines)


def _alone(
    results: Results, items: Sequence[Item], settings: Sequence[Setting], samples: Sequence[Sample]
) -> list[str]:
    """Both models' scores, over all items and by kind."""
    rows: list[tuple[str, ...]] = [("T", "items", "count", "verifier", "drafter", "drafter − verifier")]
    groups: list[tuple[str, int, Results]] = [("all", results.items, results)]
    kept = [one for one in samples if settings[one.setting].method in BASELINES]
    for kind in _kinds(items) if kept else []:
        chosen = [one for one in kept if items[one.item].kind == kind]
        count = sum(item.kind == kind for item in items)
        found = estimates.results({}, "", "", "", settings, len(items), chosen)
        groups.append((kind, count, found))
    for temperature in results.temperatures:
        for kind, count, found in groups:
            verifier, drafter = (found.point(temperature, name) for name in BASELINES)
            apart = _of(drafter, "accuracy", "against_verifier")
            scores = [_interval(_of(point, "accuracy")) for point in (verifier, drafter)]
            rows.append((f"{temperature:g}", kind, str(count), *scores, _signed(apart)))
    parts = ["Share of the items answered right.", _pipes(rows)]
    cut = [
        f"{_percent(sum(one.stop_reason == 'length' for one in own) / len(own))} of the {who}’s"
        for name, who in zip(BASELINES, ("verifier", "drafter"), strict=True)
        if (own := [one for one in kept if settings[one.setting].method == name])
    ]
    if cut:
        parts.append(f"Cut off at the most tokens allowed: {_and(cut)} texts.")
    return parts


def _points(results: Results, temperature: float, costs: CostModel | None) -> list[tuple[str, ...]]:
    """All settings of a temperature, a row each."""
    rows: list[tuple[str, ...]] = [
        (
            "method",
            "α",
            "accuracy",
            "− verifier_only",
            "− speed at equal rejection",
            "TV(π, p)",
            "log p₁",
            "greedy",
            "rejection rate",
            "block efficiency",
            "latency, measured",
            "modelled",
        )
    ]
    for point in results.at(temperature):
        method = get_method(point.setting.method)
        star = {"surely": " ★", "yes": " ☆"}.get(point.beats_both, "")
        rows.append(
            (
                method.title,
                f"{point.setting.lenience:g}".replace("-", "−") if method.has_lenience else NONE,
                _interval(_of(point, "accuracy")) + star,
                _signed(point.against_verifier.get("accuracy")),
                _signed(point.against_speed.get("accuracy")),
                *(
                    _number(_value(point, name))
                    for name in ("distance", "log_probability", "greedy_agreement", "rejection_rate")
                ),
                _number(_value(point, "block_efficiency"), ".2f"),
                _interval(_of(point, "relative_latency"), ".2f"),
                _number(_modelled_latency(point, costs), ".2f"),
            )
        )
    return rows


def _ends(results: Results) -> list[str]:
    """Whether each curve begins at the verifier and ends at the drafter."""
    rows: list[tuple[str, ...]] = [
        ("T", "method", "strict end", "as verifier_only?", "drafter’s end", "as drafter_only?")
    ]
    for temperature in results.temperatures:
        for name in _curves(results, temperature):
            cells = []
            for lenience, model in zip(METHODS[name].offered_range, BASELINES, strict=True):
                point, other = results.point(temperature, name, lenience), results.point(temperature, model)
                cells += [f"α = {lenience:g}".replace("-", "−"), _landing(point, other)]
            rows.append((f"{temperature:g}", METHODS[name].title, *cells))
    if len(rows) == 1:
        return ["No method with a lenience took part."]
    note = (
        f"“The same” where all quality figures are equal to within {_SAME:g}; “yes” where the interval of the paired difference "
        "holds 0 (accuracy and log-probability, beside verifier_only) or the two intervals meet (the others). "
        f"Differences below {_CLOSE:g} count as rounding."
    )
    return [note, _pipes(rows), _bullets(_exceptions(results))]


def _exceptions(results: Results) -> list[str]:
    """Ends that by the methods' definitions are not where one might look for them."""
    at = {point.setting.method: set[float]() for point in results.points}
    for point in results.points:
        at[point.setting.method].add(point.setting.temperature)
    every = []
    if 0 in at.get("speed", ()):
        every.append(
            "At temperature 0 speculative decoding ignores α: a proposal either is the verifier’s own token or has probability 0 "
            "under it. Its curve is one point, and it has no drafter’s end."
        )
    if at.get("cascade_tokenV3", set()) - {0}:
        every.append(
            "Token V3’s strict end, α = 0, still trusts the verifier’s favourite a, so above temperature 0 it is not lossless: "
            "TV(π, p) = q(a)·(1 − p(a))."
        )
    if "cascade_opt" in at:
        every.append(
            "OPT’s lenience has no bounds. At temperature 1 everything beyond ±1 is an end, since max q and max p differ by at "
            "most TV; at others −5 may still trust, and 5 may not, where the two models all but agree."
        )
    return every


def _landing(point: Point | None, model: Point | None) -> str:
    """How a curve's end compares with the model it should end at."""
    if point is None or model is None:
        return NONE
    names = [n for n, one in FIGURES.items() if one.is_quality and n in point.figures and n in model.figures]
    pairs = {name: (point.figures[name], model.figures[name]) for name in names}
    if not pairs:
        return NONE
    if all(abs(own.value - other.value) <= _SAME for own, other in pairs.values()):
        return "the same"
    paired = point.against_verifier if model.setting.method == "verifier_only" else {}
    apart = []
    for name, (own, other) in pairs.items():
        if difference := paired.get(name):
            gap = max(difference.low, -difference.high)
        else:
            gap = max(own.low - other.high, other.low - own.high)
        if gap > _CLOSE:
            apart.append(f"{FIGURES[name].title} {_number(own.value)} beside {_number(other.value)}")
    return f"no: {'; '.join(apart)}" if apart else "yes"


def _modelled(results: Results, costs: CostModel | None, machine: str | None) -> list[str]:
    """How well the cost model foretells what was measured."""
    if costs is None:
        return ["Too little was timed to say what the pair’s passes cost."]
    where = f" on {machine}" if machine else ""
    parts = [
        f"In units of a verifier pass over one token, measured{where}: a drafter pass takes c = {costs.drafter:.3f}, and a "
        f"verification of k tokens v(k) = 1 + {costs.per_token:.3f}·(k − 1). With acceptance a, the same at every place, a "
        f"round of K = {costs.draft_length} then takes ((K − 1 + a^(K−1))·c + v(K)) / (1 + a + … + a^(K−1)) a token: the column “modelled”."
    ]
    rows: list[tuple[str, ...]] = [
        ("T", "settings with both models", "modelled ÷ measured, median (quartiles)", "least", "most")
    ]
    every = []
    for temperature in results.temperatures:
        ratios = [
            modelled / measured
            for point in _both(results, temperature)
            if (modelled := _modelled_latency(point, costs))
            and (measured := _value(point, "relative_latency"))
        ]
        if found := spread(ratios):
            middle = f"{found.median:.2f} ({found.low:.2f}–{found.high:.2f})"
            ends = f"{min(ratios):.2f}", f"{max(ratios):.2f}"
            rows.append((f"{temperature:g}", str(len(ratios)), middle, *ends))
        every += ratios
    if not every:
        return [*parts, "No setting with both models was timed, so there is nothing to hold it against."]
    near = sum(abs(ratio - 1) <= 0.1 for ratio in every)
    over = sum(ratio > 1 for ratio in every)
    verdict = (
        f"It comes within a tenth of what was measured for {near} of {len(every)} settings; for {over} it says too much, for "
        f"{sum(ratio < 1 for ratio in every)} too little."
    )
    return [*parts, _pipes(rows), verdict]


def _caveats(results: Results) -> list[str]:
    return [
        f"An interval is the middle 95 % of {estimates.REPLICATES} resamples of the items, each with all its texts; all settings "
        "are resampled alike, so differences are paired. It says how much hangs on which items were asked, and nothing about "
        "other kinds of items. “Surely” means that such an interval excludes 0; one in twenty does so by chance.",
        *([_BUILT_IN_ITEMS] if results.plan.get("prompts") == BUILT_IN else []),
        "Whatever is named as the best of many was picked after the fact, which favours it.",
        "“− speed at equal rejection”: the cascade’s accuracy less that of lenient speculative decoding, interpolated between "
        "its leniences to the cascade’s rejection rate; absent where its curve does not reach so far, and at temperature 0.",
        "★: a cascade more accurate than both models alone, with the interval of the difference to the better one above 0; ☆: "
        "without, which chance often gives.",
        "Latency is seconds a token of one request alone, ÷ verifier_only’s on the same items; reading the prompt is left "
        "out. The intervals resample the timed items; with so few of them they are rough. What else the machine did meanwhile is in them too.",
        *(f"{figure.title}: {figure.about}." for name, figure in FIGURES.items() if _has(results, name)),
    ]


# --- points and their figures


def _of(point: Point | None, name: str, side: str = "figures") -> Estimate | None:
    found: Estimate | None = getattr(point, side).get(name) if point else None
    return found


def _value(point: Point | None, name: str) -> float | None:
    found = _of(point, name)
    return found.value if found else None


def _has(results: Results, name: str) -> bool:
    return any(name in point.figures for point in results.points)


def _both(results: Results, temperature: float) -> list[Point]:
    """Settings in which both models run."""
    return [point for point in results.at(temperature) if point.setting.method not in BASELINES]


def _cascades(results: Results, temperature: float) -> list[Point]:
    return [point for point in results.at(temperature) if get_method(point.setting.method).rule]


def _curves(results: Results, temperature: float) -> list[str]:
    """Methods that have a curve, in order."""
    return list(dict.fromkeys(point.setting.method for point in _both(results, temperature)))


def _curve(results: Results, temperature: float, method: str) -> list[Point]:
    return [point for point in results.at(temperature) if point.setting.method == method]


def _modelled_latency(point: Point, costs: CostModel | None) -> float | None:
    rejected = _value(point, "rejection_rate")
    if costs is None or rejected is None:
        return None
    return costs.relative_latency(point.setting.method, 1 - rejected)


# --- words and cells


def _kinds(items: Iterable[Item]) -> list[str]:
    return list(dict.fromkeys(item.kind for item in items))


def _name(point: Point) -> str:
    return point.setting.title.replace("-", "−")


def _names(points: Sequence[Point], with_temperature: bool = False) -> str:
    """Settings by name, those of one method and temperature together."""
    leniences: dict[tuple[float, str], list[str]] = {}
    for point in points:
        key = point.setting.temperature, get_method(point.setting.method).title
        leniences.setdefault(key, []).append(f"{point.setting.lenience:g}".replace("-", "−"))
    return "; ".join(
        f"{title} at {f'T = {temperature:g}, ' if with_temperature else ''}α = {', '.join(found)}"
        for (temperature, title), found in leniences.items()
    )


def _listed(points: Sequence[Point], with_temperature: bool = False) -> str:
    return f"{len(points)} ({_names(points, with_temperature)})" if points else "none"


def _and(words: Sequence[str], word: str = "and") -> str:
    return f" {word} ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _count(things: Sequence[object], noun: str) -> str:
    return f"{len(things)} {noun}" if len(things) == 1 else f"{len(things)} {noun}s"


def _verb(things: Sequence[object], one: str, many: str) -> str:
    return one if len(things) == 1 else many


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"


def _number(value: float | None, form: str = ".3f") -> str:
    return NONE if value is None else f"{value:{form}}".replace("-", "−")


def _interval(found: Estimate | None, form: str = ".3f") -> str:
    if found is None:
        return NONE
    return f"{_number(found.value, form)} ({_number(found.low, form)}–{_number(found.high, form)})"


def _signed(found: Estimate | None) -> str:
    if found is None:
        return NONE
    value, low, high = (_number(each, "+.3f") for each in (found.value, found.low, found.high))
    return f"{value} ({low} to {high})"


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _pipes(rows: Sequence[tuple[str, ...]]) -> str:
    head, *body = rows
    lines = [head, tuple("---" for _ in head), *body]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in lines)
