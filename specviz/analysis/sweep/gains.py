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

from specviz.analysis.sweep.claim import MODELS, share
from specviz.analysis.sweep.estimates import Floats, estimate, resamples, sums
from specviz.analysis.sweep.grid import Setting
from specviz.analysis.sweep.results import Estimate, Results
from specviz.core.methods import METHODS
from specviz.wording import joined

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


@dataclass(frozen=True)
class Gain:
    """What one method, or one way to choose between the models, answers.

    Attributes:
        method: its name in the registry; "" for sequence-level choice.
        lenience: the lenience; None if it was chosen on the other half of the questions.
        accuracy: share of questions right, by kind and for `ALL`.
        above_models: its accuracy less that of the better model, over all questions.
        above_choice: its accuracy less that of sequence-level choice, by kind; empty for the models and the choice itself.
        accepted: share of examined draft tokens accepted. This and the next are None if the lenience was chosen.
        verifier_calls: per token.
    """

    method: str
    lenience: float | None
    accuracy: Mapping[str, Estimate]
    above_models: Estimate
    above_choice: Mapping[str, Estimate]
    accepted: float | None = None
    verifier_calls: float | None = None

    @property
    def title(self) -> str:
        """The method's title, with its lenience unless that was chosen."""
        if not self.method:
            return "Sequence-level choice"
        if self.lenience is None:
            return METHODS[self.method].title
        return Setting(0.0, self.method, self.lenience).named("{title} (α = {alpha})")


@dataclass(frozen=True)
class Gains:
    """The gains at one temperature.

    Attributes:
        models: the verifier alone and the drafter alone.
        choice: sequence-level choice, its threshold chosen on the other half.
        named: each method with a lenience, at that in `NAMED`.
        chosen: each method with a lenience, at one chosen on the other half.
    """

    models: tuple[Gain, ...]
    choice: Gain
    named: tuple[Gain, ...]
    chosen: tuple[Gain, ...]


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

    def crossed(options: Floats) -> Floats:
        """The scores of the best of `options` [options, items] on the other half of the items; of equally good ones the first."""
        found = np.empty(weights.shape)
        for one in (half, ~half):
            best = (weights[:, one] @ options[:, one].T).argmax(axis=1)
            found[:, ~one] = options[best][:, ~one]
        return found

    better = np.maximum(*(means(model)[ALL] for model in (verifier, drafter)))
    choice = means(crossed(np.where(_choices(*sure), drafter, verifier)))

    def gain(method: str, lenience: float | None, mean: Mapping[str, Floats], *counts: float | None) -> Gain:
        other = {} if method in ("", *MODELS) else choice
        return Gain(
            method,
            lenience,
            {kind: _estimate(found) for kind, found in mean.items()},
            _estimate(mean[ALL] - better),
            {kind: _estimate(mean[kind] - found) for kind, found in other.items()},
            *counts,
        )

    def measured(index: int) -> Gain:
        setting, total = settings[index], {name: table[index].sum() for name, table in tables.items()}
        counts = [
            float(total[above] / total[below]) if total[below] else None
            for above, below in (("accepted", "examined"), ("verifier_calls", "tokens"))
        ]
        return gain(setting.method, setting.lenience, means(scores[index]), *counts)

    both = {name: own for name, own in rows.items() if METHODS[name].has_lenience}
    return Gains(
        models=tuple(map(measured, alone)),
        choice=gain("", None, choice),
        named=tuple(
            measured(index)
            for name, own in both.items()
            for index in own
            if NAMED.get(name) == settings[index].lenience
        ),
        chosen=tuple(gain(name, None, means(crossed(scores[own]))) for name, own in both.items()),
    )


def _estimate(replicates: Floats) -> Estimate:
    found = estimate(replicates)
    assert found is not None  # means of scores are finite
    return found


def _choices(verifier: Floats, drafter: Floats) -> Floats:
    """Which questions the drafter answers, bool [options, items]: Chow's and Diff's rule at every threshold, from none to all.

    The arguments are confidences, [mean and minimum, items].
    """
    options = []
    for sure in (*drafter, *(drafter - verifier)):
        for threshold in (np.inf, *np.unique(sure)[::-1]):
            options.append(sure >= threshold)
    return np.array(options)


def findings(gains: Gains) -> list[str]:
    """What the gains say, in sentences."""
    said = []
    for group, how in (
        (gains.chosen, "at its best lenience, chosen on the other half"),
        (gains.named, "at the lenience named before"),
    ):
        more = [
            f"{one.title} by {share(one.above_models)}"
            for one in sorted(group, key=lambda one: -one.above_models.value)
            if METHODS[one.method].has_rule and one.above_models.low > 0
        ]
        surely = f"{joined(more)} of the questions" if more else "none"
        said.append(f"Each {how}: surely right more often than both models: {surely}.")
    if gains.chosen:
        best = max(gains.chosen, key=lambda one: one.accuracy[ALL].value)
        for kind, ahead in best.above_choice.items():
            verdict = (
                "surely more" if ahead.low > 0 else "surely fewer" if ahead.high < 0 else "not surely more"
            )
            said.append(
                f"{'All questions' if kind == ALL else f'Of the kind “{kind}”'}: {best.title} answers {verdict} than "
                f"sequence-level choice, by {share(ahead)}."
            )
    return said
