"""Estimates results from texts: every figure of a setting with its interval, and differences between settings.

A figure is a ratio of sums over items. Its interval is a 95 % percentile bootstrap over items (`REPLICATES` resamples). All
settings share the resamples, so that differences are paired. Arrays of replicates are [1 + REPLICATES, settings]; row 0
is the value over all items. With a single item, or items with equal results, an interval has no width.

`find_gains` says whether a cascade answers more questions than both of its models. A setting chosen among many looks better than it is, so
each method is judged twice: at a lenience that was named before any such sweep (`NAMED`), and at its best lenience, chosen on one half of
the questions and judged on the other, both ways round. The baseline *sequence-level choice* takes each answer wholly from one model: from
the drafter if its confidence (as in Chow's rule), or its lead in confidence over the verifier (as in Diff's), reaches a threshold, which is
chosen on the other half. Confidence is the mean or minimum of a model's largest probabilities over its answer. Each resample chooses anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from specviz.analysis.sweep.grid import MODELS, Setting
from specviz.analysis.sweep.results import COMPARED, Estimate, Header, Point, Results, Sample, Timing
from specviz.core.methods import METHODS, get_method

REPLICATES = 2000
SEED = 0
"""Seed of the resampling, so that the same texts always give the same results."""
RATIOS = {
    "accuracy": ("score", "scored"),
    "log_probability": ("log_probability", "tokens"),
    "distance": ("distance", "tokens"),
    "greedy_agreement": ("greedy", "tokens"),
    "rejection_rate": ("rejected", "examined"),
    "verifier_calls": ("verifier_calls", "tokens"),
}
"""Numerator and denominator of each figure."""
ALL = "all"
"""Key for all kinds of questions together."""
NAMED: Mapping[str, float] = {
    "speed": 0.0,
    "cascade_chow": 0.5,
    "cascade_diff": 0.0,
    "cascade_opt": 0.0,
    "cascade_tokenV1": 0.1,
    "cascade_tokenV2": 0.1,
    "cascade_tokenV3": 0.5,
}
"""The lenience at which each of the paper's methods is judged without choosing a lenience from the results."""
_COUNTED = ("tokens", "examined", "accepted", "verifier_calls", "distance", "log_probability", "greedy")

Floats = npt.NDArray[np.float64]


def estimated(header: Header, samples: Sequence[Sample]) -> Results:
    """The results of a sweep with these samples."""
    points = estimate_points(header.plan.settings, len(header.items), samples)
    return Results(**vars(header), points=points, complete=len(samples) == header.planned, given=samples)


def estimate_points(settings: Sequence[Setting], items: int, samples: Sequence[Sample]) -> tuple[Point, ...]:
    """Estimate every figure from these samples, in any order. Settings without a sample are left out.

    Args:
        settings: the settings, which `Sample.setting` indexes. All settings of a temperature must have the same items.
        items: number of items.
        samples: samples of a whole sweep or of a part.
    """
    tables = sums(len(settings), items, samples)
    totals = {name: resamples(items) @ table.T for name, table in tables.items()}
    ratios = {name: divided(*(totals[part] for part in ratio)) for name, ratio in RATIOS.items()}
    for index, setting in enumerate(settings):
        # One model alone examines nothing. By definition the drafter alone has no rejections, and the verifier alone accepts nothing.
        method = get_method(setting.method)
        if not (method.drafts and method.verifies):
            ratios["rejection_rate"][:, index] = 0.0 if method.drafts else 1.0
    texts, tokens = (tables[name].sum(axis=1).astype(int).tolist() for name in ("texts", "tokens"))
    done = {setting: index for index, setting in enumerate(settings) if texts[index]}
    return tuple(
        Point(setting, texts[index], tokens[index], **_figures(setting, done, ratios))
        for setting, index in done.items()
    )


def with_latency(results: Results, settings: Sequence[Setting], timings: Sequence[Timing]) -> Results:
    """Add relative latency: seconds per token divided by those of `verifier_only` at the same temperature, on items timed for both."""
    items = max((one.timed for one in timings), default=-1) + 1
    seconds, tokens = np.zeros((2, len(settings), items))
    for one in sorted(timings, key=lambda one: (one.setting, one.timed, one.seconds)):
        seconds[one.setting, one.timed] += one.seconds
        tokens[one.setting, one.timed] += one.tokens
    weights, number = resamples(items), {setting: index for index, setting in enumerate(settings)}
    points = []
    for point in results.points:
        own = number[point.setting]
        alone = number[Setting(point.setting.temperature, "verifier_only", 0.0)]
        both = (tokens[own] > 0) & (tokens[alone] > 0)
        seconds_per_token, baseline = (
            divided(weights @ (seconds[one] * both), weights @ (tokens[one] * both)) for one in (own, alone)
        )
        latency = estimates({"relative_latency": divided(seconds_per_token, baseline)})
        points.append(replace(point, figures={**point.figures, **latency}))
    return replace(results, points=tuple(points))


def sums(settings: int, items: int, samples: Sequence[Sample]) -> dict[str, Floats]:
    """The numerators and denominators in `RATIOS` and the number of "texts", by name, each [settings, items]."""
    tables = {name: np.zeros((settings, items)) for name in (*_COUNTED, "texts", "score", "scored")}
    # Sorted, since the last bits of a sum depend on its order.
    for one in sorted(samples, key=lambda one: (one.setting, one.item, one.trial)):
        cell = one.setting, one.item
        for name in _COUNTED:
            tables[name][cell] += getattr(one, name)
        tables["texts"][cell] += 1
        if one.score is not None:
            tables["score"][cell] += one.score
            tables["scored"][cell] += 1
    tables["rejected"] = tables["examined"] - tables["accepted"]
    # An item's accuracy is the mean of its trials.
    tables["score"] /= np.maximum(tables["scored"], 1)
    tables["scored"] = (tables["scored"] > 0).astype(np.float64)
    return tables


@lru_cache(maxsize=4)
def resamples(items: int) -> Floats:
    """The weight of each item, [1 + REPLICATES, items]: 1 in row 0; in a replicate, the number of times it was drawn."""
    if not items:
        return np.ones((1, 0))
    # The legacy generator, because numpy guarantees that its numbers never change.
    drawn = np.random.RandomState(SEED).multinomial(items, np.full(items, 1 / items), REPLICATES)
    return np.vstack([np.ones(items), drawn])


def divided(numerator: Floats, denominator: Floats) -> Floats:
    """The ratio; NaN where `denominator` is 0."""
    shape = np.broadcast(numerator, denominator).shape
    return np.divide(numerator, denominator, out=np.full(shape, np.nan), where=denominator != 0)


def _figures(setting: Setting, done: Mapping[Setting, int], ratios: Mapping[str, Floats]) -> dict[str, Any]:
    """The estimated fields of the setting's `Point`, by name."""
    temperature, method = setting.temperature, get_method(setting.method)
    own = {name: found[:, done[setting]] for name, found in ratios.items()}
    accuracy, rejected = ratios["accuracy"], ratios["rejection_rate"]
    verifier, drafter, lossless = (
        done.get(Setting(temperature, name, 0.0)) for name in ("verifier_only", "drafter_only", "speed")
    )
    found: dict[str, Any] = {"figures": estimates(own), "ratios": {}}
    if verifier is not None:
        if setting.method != "verifier_only":
            found["against_verifier"] = _differences(
                own, {name: ratios[name][:, verifier] for name in COMPARED}
            )
        # Lossless decoding samples the same distribution with other uniforms: the mean has less noise.
        references = [verifier] if lossless is None else [verifier, lossless]
        baseline = accuracy[:, references].mean(axis=1)
        found["ratios"] |= estimates({"accuracy": divided(own["accuracy"], baseline)})
    if lossless is not None and method.drafts and method.verifies:
        share = divided(own["rejection_rate"], rejected[:, lossless])
        found["ratios"] |= estimates({"rejection_rate": share})
    if method.has_rule:
        if verifier is not None and drafter is not None:
            found["beats_both"] = _ahead(own["accuracy"] - accuracy[:, [verifier, drafter]].max(axis=1))
        if temperature > 0:  # at 0 neither reference depends on its lenience
            for side, name, other in (
                ("against_speed", "speed", _on_curve),
                ("against_min_p", "lossless_min_p", _best),
            ):
                rows = [i for one, i in done.items() if (one.temperature, one.method) == (temperature, name)]
                found[side] = _differences(
                    own, other(own, {each: all_[:, rows] for each, all_ in ratios.items()})
                )
    return found


def _differences(own: Mapping[str, Floats], other: Mapping[str, Floats]) -> dict[str, Estimate]:
    return estimates({name: own[name] - other[name] for name in COMPARED if name in other})


def _ahead(difference: Floats) -> str:
    found = estimate(difference)
    if found is None or found.value <= 0:
        return "no"
    return "surely" if found.low > 0 else "yes"


def _on_curve(own: Mapping[str, Floats], curve: Mapping[str, Floats]) -> dict[str, Floats]:
    """The `COMPARED` figures of a curve at the rejection rate of `own`; empty if the curve does not reach that rate.

    In a replicate where the curve does not reach the rate, the nearer end of the curve is used. Leaving such replicates out would favour
    those in which the rates are similar.
    """
    rate, rates = own["rejection_rate"], curve["rejection_rate"]
    ends = rates[0].min(initial=np.inf), rates[0].max(initial=-np.inf)
    if not (ends[0] < ends[1] and ends[0] <= rate[0] <= ends[1]):
        return {}
    return {name: interpolated(rates, curve[name], rate) for name in COMPARED}


def _best(own: Mapping[str, Floats], others: Mapping[str, Floats]) -> dict[str, Floats]:
    """The `COMPARED` figures of the most accurate setting in `others` that rejects no more drafts than `own`.

    If all settings reject more: the figures of the most accurate one; empty if it is at least as accurate as `own`.
    """
    rates, accuracy = others["rejection_rate"][0], others["accuracy"][0]
    fair = np.flatnonzero(rates <= own["rejection_rate"][0])
    rows = fair if fair.size else np.arange(len(rates))
    best = rows[np.argmax(accuracy[rows])] if rows.size else None
    if best is None or not (fair.size or own["accuracy"][0] > accuracy[best]):
        return {}
    return {name: others[name][:, best] for name in COMPARED}


def interpolated(rates: Floats, values: Floats, wanted: Floats) -> Floats:
    """Evaluate n piecewise linear curves [n, points], curve i at `wanted[i]`. Beyond an end, the value is that of the end."""
    order = np.argsort(rates, axis=1, kind="stable")
    x, y = np.take_along_axis(rates, order, 1), np.take_along_axis(values, order, 1)
    right = np.clip((x <= wanted[:, None]).sum(axis=1), 1, x.shape[1] - 1)[:, None]
    (x0, x1), (y0, y1) = (
        (np.take_along_axis(side, right - 1, 1)[:, 0], np.take_along_axis(side, right, 1)[:, 0])
        for side in (x, y)
    )
    width = x1 - x0
    share = np.where(width > 0, (wanted - x0) / np.where(width > 0, width, 1), 0.5)
    found = y0 + np.clip(share, 0, 1) * (y1 - y0)
    return np.where(np.isnan(rates + values).any(axis=1), np.nan, found)


def estimate(replicates: Floats) -> Estimate | None:
    """The value `replicates[0]` with the 95 % percentile interval of the other finite replicates; None if the value is not finite."""
    value, drawn = replicates[0], replicates[1:][np.isfinite(replicates[1:])]
    if not np.isfinite(value):
        return None
    low, high = np.quantile(drawn, (0.025, 0.975)) if drawn.size else (value, value)
    return Estimate(*map(_rounded, (value, min(low, value), max(high, value))))


def _rounded(value: float) -> float:
    """Round to six significant digits, and values near 0 to 0. Smaller differences depend on the processor."""
    return 0.0 if abs(value) < 1e-12 else float(f"{value:.6g}")


def estimates(found: Mapping[str, Floats]) -> dict[str, Estimate]:
    """The estimates of several figures by name. Figures without an estimate are left out."""
    each = {name: estimate(replicates) for name, replicates in found.items()}
    return {name: one for name, one in each.items() if one is not None}


# ---- beside both models


class Gain(NamedTuple):
    """How many questions one model, one method, or sequence-level choice answers right.

    Attributes:
        accuracy: share of questions right, by kind and for `ALL`.
        above_models: the accuracy minus that of the better model, over all questions; None for a model.
        above_models_chosen: as `above_models`, with the lenience chosen on the other half of the questions; None if there is none.
    """

    title: str
    accuracy: Mapping[str, Estimate]
    above_models: Estimate | None = None
    above_models_chosen: Estimate | None = None


class Gains(NamedTuple):
    """The gains at one temperature.

    Attributes:
        rows: the verifier alone, the drafter alone, sequence-level choice, and each method at its lenience in `NAMED`.
        best: title of the method that is the most accurate with its lenience chosen on the other half; "" if no method has a lenience.
        above_choice: accuracy of `best`, with that choice of lenience, minus accuracy of sequence-level choice, by kind and for `ALL`.
    """

    rows: tuple[Gain, ...]
    best: str
    above_choice: Mapping[str, Estimate]


def find_gains(results: Results, temperature: float) -> Gains | None:
    """The gains at a temperature of a finished sweep; None if an item has no answers or a model's text has no confidence."""
    settings, kinds = results.plan.settings, [item.kind for item in results.items]
    rows: dict[str, list[int]] = {}
    for index, setting in enumerate(settings):
        if setting.temperature == temperature:
            rows.setdefault(setting.method, []).append(index)
    samples = {index: results.samples(index) for own in rows.values() for index in own}
    tables = sums(len(settings), len(kinds), [one for own in samples.values() for one in own])
    scores, alone = tables["score"], [rows[name][0] for name in MODELS]
    sure = np.array(
        [
            [(one.confidence, one.least_confidence) for one in samples[index] if one.trial == 0]
            for index in alone
        ],
        dtype=np.float64,
    )  # [verifier and drafter, items, mean and minimum]
    if not tables["scored"][alone].all() or np.isnan(sure).any():
        return None
    weights = resamples(len(kinds))
    of_kind = {kind: weights * np.array([one == kind for one in kinds]) for kind in dict.fromkeys(kinds)}
    of_kind[ALL] = weights
    half = np.array([kinds[:number].count(kind) % 2 == 0 for number, kind in enumerate(kinds)])

    def means(found: Floats) -> dict[str, Floats]:
        """Means by kind, each [1 + REPLICATES], of scores [items] or [1 + REPLICATES, items]."""
        # A resample may lack a small kind.
        return {
            kind: (own * found).sum(axis=1) / np.maximum(own.sum(axis=1), 1) for kind, own in of_kind.items()
        }

    def crossed(options: Floats) -> dict[str, Floats]:
        """Means if each half of the items uses the row of `options` [options, items] that is best on the other half, in a tie the first."""
        found = np.empty(weights.shape)
        for one in (half, ~half):
            best = (weights[:, one] @ options[:, one].T).argmax(axis=1)
            found[:, ~one] = options[best][:, ~one]
        return means(found)

    def above(mean: Mapping[str, Floats]) -> Estimate:
        return estimates({ALL: mean[ALL] - better})[ALL]

    verifier, drafter = scores[alone]
    better = np.maximum(means(verifier)[ALL], means(drafter)[ALL])
    # Which questions the drafter answers: by Chow's and Diff's rule, at every threshold from none to all.
    by_rule = [*sure[1].T, *(sure[1] - sure[0]).T]
    deferred = [found >= least for found in by_rule for least in (np.inf, *np.unique(found)[::-1])]
    choice = crossed(np.where(deferred, drafter, verifier))
    chosen = {name: crossed(scores[own]) for name, own in rows.items() if METHODS[name].has_lenience}
    best = max(chosen, key=lambda name: chosen[name][ALL][0], default="")
    gains = [Gain(METHODS[name].title, estimates(means(scores[rows[name][0]]))) for name in MODELS]
    gains.append(Gain("Sequence-level choice", estimates(choice), above(choice)))
    for name in chosen:
        for index in rows[name]:
            if NAMED.get(name) == settings[index].lenience:
                title, mean = settings[index].named("{title} (α = {alpha})"), means(scores[index])
                gains.append(Gain(title, estimates(mean), above(mean), above(chosen[name])))
    ahead = estimates({kind: chosen[best][kind] - choice[kind] for kind in choice}) if best else {}
    return Gains(tuple(gains), METHODS[best].title if best else "", ahead)
