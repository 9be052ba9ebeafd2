"""Whether a cascade answers more questions than both of its models, by kind of question.

A setting chosen among many looks better than it is, so each method is judged twice: at a lenience that was named before any
sweep of this kind was run (`NAMED`), and at its best lenience, chosen on one half of the questions and judged on the other, both ways round.
The baseline *sequence-level choice* gives each question wholly to one model, by the confidence that the rules of Chow and Diff
use: the mean or the minimum over the answer's tokens of max q₁, against a threshold or against the verifier's own. Its threshold is chosen on
the other half too. Intervals are those of `estimates`; in each resample the choices are made again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from specviz.analysis.sweep.claim import MODELS
from specviz.analysis.sweep.estimates import Floats, estimates, resamples, sums
from specviz.analysis.sweep.results import Estimate, Results
from specviz.core.methods import METHODS

ALL = "all"
"""All kinds of questions together."""
NAMED: Mapping[str, float] = {
    "speed": 0.0,
    "cascade_chow": 0.5,
    "cascade_diff": 0.0,
    "cascade_opt": 0.0,
    "cascade_tokenV1": 0.1,
    "cascade_tokenV2": 0.1,
    "cascade_tokenV3": 0.5,
}
"""The lenience of each of the paper's methods at which it is judged without any choice, named before the first such sweep."""
_THRESHOLDS = 256
"""The most thresholds of sequence-level choice, for each kind of confidence: memory grows with them times the questions."""


@dataclass(frozen=True)
class Gain:
    """What one model, one method, or sequence-level choice answers.

    Attributes:
        accuracy: share of questions right, by kind and for `ALL`.
        above_models: its accuracy less that of the better model, over all questions; None for a model.
        above_models_chosen: the same at the lenience chosen on the other half; None for what has no lenience.
    """

    title: str
    accuracy: Mapping[str, Estimate]
    above_models: Estimate | None = None
    above_models_chosen: Estimate | None = None


@dataclass(frozen=True)
class Gains:
    """The gains at one temperature.

    Attributes:
        rows: the verifier alone, the drafter alone, sequence-level choice, and each method at its lenience in `NAMED`.
        best: title of the method that is the most accurate with its lenience chosen on the other half; "" if there is none.
        above_choice: the accuracy of `best`, so chosen, less that of sequence-level choice, by kind and for `ALL`.
    """

    rows: tuple[Gain, ...]
    best: str
    above_choice: Mapping[str, Estimate]


def find_gains(results: Results, temperature: float) -> Gains | None:
    """The gains at a temperature; None if a model's answers or confidences are missing, or an item has no answers."""
    settings, items = results.plan.settings, results.items
    here = [index for index, setting in enumerate(settings) if setting.temperature == temperature]
    samples = [one for index in here for one in results.samples(index)]
    tables = sums(len(settings), len(items), samples)
    scores = tables["score"]
    rows: dict[str, list[int]] = {}
    for index in here:
        if tables["scored"][index].all():
            rows.setdefault(settings[index].method, []).append(index)
    if not rows.keys() >= set(MODELS):
        return None
    alone = [rows[name][0] for name in MODELS]
    verifier, drafter = scores[alone]
    sure = np.full((2, 2, len(items)), np.nan)  # [verifier and drafter, mean and minimum, items]
    for one in samples:
        if one.trial == 0 and one.setting in alone and one.confidence is not None:
            sure[alone.index(one.setting), :, one.item] = one.confidence, one.least_confidence
    if np.isnan(sure).any():
        return None
    weights, kinds = resamples(len(items)), [item.kind for item in items]
    of_kind = {kind: weights * np.array([one == kind for one in kinds]) for kind in dict.fromkeys(kinds)}
    of_kind[ALL] = weights
    half = np.array([kinds[:number].count(kind) % 2 == 0 for number, kind in enumerate(kinds)])

    def means(found: Floats) -> dict[str, Floats]:
        """Means by kind of scores [1 + REPLICATES or 1, items]."""
        # A resample may lack a small kind.
        return {
            kind: (own * found).sum(axis=1) / np.maximum(own.sum(axis=1), 1) for kind, own in of_kind.items()
        }

    def crossed(options: Floats) -> dict[str, Floats]:
        """Means of the best of `options` [options, items] on the other half of the items; of equally good ones the first."""
        found = np.empty(weights.shape)
        for one in (half, ~half):
            best = (weights[:, one] @ options[:, one].T).argmax(axis=1)
            found[:, ~one] = options[best][:, ~one]
        return means(found)

    def above(mean: Mapping[str, Floats]) -> Estimate:
        return estimates({ALL: mean[ALL] - better})[ALL]

    better = np.maximum(*(means(model)[ALL] for model in (verifier, drafter)))
    choice = crossed(np.where(_choices(*sure), drafter, verifier))
    chosen = {name: crossed(scores[own]) for name, own in rows.items() if METHODS[name].has_lenience}
    best = max(chosen, key=lambda name: chosen[name][ALL][0], default="")
    models = [Gain(METHODS[name].title, estimates(means(scores[rows[name][0]]))) for name in MODELS]
    named = [
        Gain(
            settings[index].named("{title} (α = {alpha})"), estimates(mean), above(mean), above(chosen[name])
        )
        for name in chosen
        for index in rows[name]
        if NAMED.get(name) == settings[index].lenience and (mean := means(scores[index]))
    ]
    return Gains(
        rows=(*models, Gain("Sequence-level choice", estimates(choice), above(choice)), *named),
        best=METHODS[best].title if best else "",
        above_choice=estimates({kind: chosen[best][kind] - choice[kind] for kind in choice}) if best else {},
    )


def _choices(verifier: Floats, drafter: Floats) -> Floats:
    """Which questions the drafter answers, bool [options, items]: Chow's and Diff's rule at every threshold (or as many, evenly), from none to all.

    The arguments are confidences, [mean and minimum, items].
    """
    options = []
    for sure in (*drafter, *(drafter - verifier)):
        values = np.unique(sure)[::-1]
        evenly = np.linspace(0, len(values) - 1, min(len(values), _THRESHOLDS)).round().astype(int)
        for threshold in (np.inf, *values[evenly]):
            options.append(sure >= threshold)
    return np.array(options)
