"""Whether a cascade answers more questions than both of its models, by kind of question.

A setting chosen among many looks better than it is, so each method is judged twice: at a lenience that was named before any
sweep of this kind was run (`NAMED`), and at its best lenience, chosen on one half of the questions and judged on the other, both ways round.
The baseline *sequence-level choice* gives each question wholly to one model, by the confidence that the rules of Chow and Diff
use: the mean or the minimum over the answer's tokens of max q₁, against a threshold or against the verifier's own. Its threshold is chosen on
the other half too. Intervals are those of `estimates`; in each resample the choices are made again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from specviz.analysis.sweep.claim import MODELS, share
from specviz.analysis.sweep.estimates import Floats, estimate, resamples, sums
from specviz.analysis.sweep.grid import Setting
from specviz.analysis.sweep.items import Item
from specviz.analysis.sweep.results import Estimate, Sample
from specviz.core.methods import get_method
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
        accepted: share of examined draft tokens accepted; of sequence-level choice, the share of questions that the drafter answers. None if the
            lenience was chosen.
        verifier_calls: per token; of sequence-level choice, only those that write answers. None if the lenience was chosen.
    """

    method: str
    lenience: float | None
    accuracy: Mapping[str, Estimate]
    above_models: Estimate
    above_choice: Mapping[str, Estimate]
    accepted: float | None = None
    verifier_calls: float | None = None

    @property
    def is_sure(self) -> bool:
        """Whether the interval of the gain lies above 0."""
        return self.above_models.low > 0


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


def find_gains(
    settings: Sequence[Setting], items: Sequence[Item], samples: Sequence[Sample], temperature: float
) -> Gains | None:
    """The gains at a temperature; None if a model's answers or confidences are missing, or an item has no answers.

    Args:
        settings: the settings, which `Sample.setting` indexes.
        items: the questions.
        samples: all samples of a sweep.
    """
    tables = sums(len(settings), len(items), samples)
    rows: dict[str, list[int]] = {}
    for index, setting in enumerate(settings):
        if setting.temperature == temperature and tables["texts"][index].all():
            rows.setdefault(setting.method, []).append(index)
    if (
        not all(name in rows for name in MODELS)
        or not tables["scored"][[r for i in rows.values() for r in i]].all()
    ):
        return None
    verifier, drafter = (rows[name][0] for name in MODELS)
    sure = _confidences(samples, len(items), verifier, drafter)
    if sure is None:
        return None
    judge = _Judge(items, tables["score"][verifier], tables["score"][drafter])
    takes = _choices(*sure)
    options = np.where(takes, tables["score"][drafter], tables["score"][verifier])
    chosen_choice = judge.crossed(options)

    def gain(index: int) -> Gain:
        setting, tokens = settings[index], tables["tokens"][index].sum()
        calls = float(tables["verifier_calls"][index].sum() / tokens) if tokens else None
        examined = tables["examined"][index].sum()
        accepted = float(tables["accepted"][index].sum() / examined) if examined else None
        scores = np.broadcast_to(tables["score"][index], judge.weights.shape)
        beside = None if setting.method in MODELS else chosen_choice
        return judge.gain(setting.method, setting.lenience, scores, beside, accepted, calls)

    both = [name for name in rows if get_method(name).has_lenience]
    return Gains(
        models=tuple(gain(rows[name][0]) for name in MODELS),
        choice=judge.gain("", None, chosen_choice),
        named=tuple(
            gain(index)
            for name in both
            for index in rows[name]
            if NAMED.get(name) == settings[index].lenience
        ),
        chosen=tuple(
            judge.gain(name, None, judge.crossed(tables["score"][rows[name]]), chosen_choice) for name in both
        ),
    )


class _Judge:
    """Judges answers to the items: scores [1 + REPLICATES, items], of which row 0 is judged over all items."""

    def __init__(self, items: Sequence[Item], verifier: Floats, drafter: Floats) -> None:
        self.weights = resamples(len(items))
        kinds = [item.kind for item in items]
        self._kinds = {kind: np.array([one == kind for one in kinds]) for kind in dict.fromkeys(kinds)}
        self._kinds[ALL] = np.ones(len(items), bool)
        rank = [kinds[:number].count(kind) for number, kind in enumerate(kinds)]
        self._half = np.array(rank) % 2 == 0
        self._better = np.maximum(self._mean(verifier, ALL), self._mean(drafter, ALL))

    def crossed(self, options: Floats) -> Floats:
        """The scores of the best of `options` [options, items] on the other half of the items; of equally good ones the first."""
        scores = np.empty(self.weights.shape)
        for half in (self._half, ~self._half):
            best = (self.weights[:, half] @ options[:, half].T).argmax(axis=1)
            scores[:, ~half] = options[best][:, ~half]
        return scores

    def gain(
        self,
        method: str,
        lenience: float | None,
        scores: Floats,
        beside: Floats | None = None,
        accepted: float | None = None,
        verifier_calls: float | None = None,
    ) -> Gain:
        """The gain of these scores, `beside` those of sequence-level choice."""
        means = {kind: self._mean(scores, kind) for kind in self._kinds}
        other = {} if beside is None else {kind: self._mean(beside, kind) for kind in self._kinds}
        return Gain(
            method,
            lenience,
            {kind: _sure(mean) for kind, mean in means.items()},
            _sure(means[ALL] - self._better),
            {kind: _sure(means[kind] - mean) for kind, mean in other.items()},
            accepted,
            verifier_calls,
        )

    def _mean(self, scores: Floats, kind: str) -> Floats:
        weights = self.weights * self._kinds[kind]
        # A resample may lack a small kind.
        return (weights * scores).sum(axis=1) / np.maximum(weights.sum(axis=1), 1)


def _sure(replicates: Floats) -> Estimate:
    found = estimate(replicates)
    assert found is not None  # means of scores are finite
    return found


def _confidences(
    samples: Sequence[Sample], items: int, verifier: int, drafter: int
) -> tuple[Floats, Floats] | None:
    """Confidences [mean and minimum, items] of the verifier's and the drafter's answers, of the first trial; None if one is missing."""
    found = np.full((2, 2, items), np.nan)
    for one in samples:
        if one.trial == 0 and one.setting in (verifier, drafter) and one.confidence is not None:
            found[int(one.setting == drafter), :, one.item] = one.confidence, one.least_confidence
    return None if np.isnan(found).any() else (found[0], found[1])


def _choices(verifier: Floats, drafter: Floats) -> npt.NDArray[np.bool_]:
    """Which questions the drafter answers, bool [options, items]: Chow's and Diff's rule at every threshold, from none to all."""
    options = []
    for sure in (*drafter, *(drafter - verifier)):
        for threshold in (np.inf, *np.unique(sure)[::-1]):
            options.append(sure >= threshold)
    return np.array(options)


def described(gain: Gain) -> str:
    """The method's title, with its lenience unless that was chosen."""
    if not gain.method:
        return "Sequence-level choice"
    if gain.lenience is None or not get_method(gain.method).has_lenience:
        return get_method(gain.method).title
    return f"{get_method(gain.method).title} (α = {gain.lenience:g})".replace("-", "−")


def findings(gains: Gains) -> list[str]:
    """What the gains say, in sentences."""
    said = []
    for group, how in (
        (gains.chosen, "at its best lenience, chosen on the other half"),
        (gains.named, "at the lenience named before"),
    ):
        cascades = sorted(
            (one for one in group if get_method(one.method).has_rule), key=lambda one: -one.above_models.value
        )
        more = [f"{described(one)} by {share(one.above_models)}" for one in cascades if one.is_sure]
        surely = f"{joined(more)} of the questions" if more else "none"
        said.append(f"Each {how}: surely right more often than both models: {surely}.")
    kinds = [kind for kind in gains.choice.accuracy if kind != ALL]
    if gains.chosen and len(kinds) > 1:
        best = max(gains.chosen, key=lambda one: one.accuracy[ALL].value)
        for kind in (*kinds, ALL):
            ahead = best.above_choice[kind]
            verdict = (
                "surely more" if ahead.low > 0 else "surely fewer" if ahead.high < 0 else "not surely more"
            )
            said.append(
                f"{'All questions' if kind == ALL else f'Of the kind “{kind}”'}: {described(best)} answers {verdict} than "
                f"sequence-level choice, by {share(ahead)}."
            )
    return said
