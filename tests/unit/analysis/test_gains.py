"""Gains over both models: who answers what, what is chosen on which half, and the choice of one model per question."""

from __future__ import annotations

from typing import Any

import pytest

from specviz.analysis.sweep.estimates import ALL, Gain, Gains, find_gains
from specviz.analysis.sweep.grid import SweepGrid
from specviz.analysis.sweep.items import Item
from specviz.analysis.sweep.results import Results, Sample

PLAN = SweepGrid(methods=("cascade_tokenV1",), temperatures=(0.0,), leniences=(-1.0, 0.1, 1.0))
ITEMS = [Item(f"{kind}-{n}", kind, "?", ("yes",)) for n in range(40) for kind in ("skill", "fact", "mixed")]


def _samples() -> list[Sample]:
    """The drafter knows skills and is sure there; the verifier knows facts; a lenience of 0.1 answers all."""
    samples = []
    for setting, knows in enumerate(
        (("skill",), ("fact",), ("fact",), ("skill", "fact", "mixed"), ("skill",))
    ):
        for number, item in enumerate(ITEMS):
            sure = 0.9 if (item.kind == "skill") == (setting == 0) else 0.4
            more: dict[str, Any] = {"confidence": sure, "least_confidence": sure} if setting < 2 else {}
            counts = (10, 10, 8, 10, 3) if setting > 1 else (10, 0, 0, 0, 10)
            score = float(item.kind in knows)
            samples.append(Sample(setting, number, 0, 0, "", *counts, score, 0, 0, 0, "eos", **more))
    return samples


def _gains(samples: list[Sample]) -> Gains | None:
    return find_gains(Results(PLAN, "drafter", "verifier", "float32", tuple(ITEMS), (), given=samples), 0.0)


def _only(gains: Gains, title: str) -> Gain:
    (found,) = (one for one in gains.rows if one.title == title)
    return found


def test_a_cascade_is_judged_beside_both_models_and_the_choice_of_one_per_question() -> None:
    """The choice knows skills and facts by confidence, but not both in one answer: there the cascade is ahead."""
    gains = _gains(_samples())
    assert gains is not None
    accuracy = {kind: found.value for kind, found in _only(gains, "Sequence-level choice").accuracy.items()}
    assert accuracy == {"skill": 1, "fact": 1, "mixed": 0, ALL: pytest.approx(2 / 3, abs=1e-5)}
    named = _only(gains, "Token V1 (α = 0.1)")
    assert named.above_models is not None
    assert named.above_models.value == pytest.approx(2 / 3, abs=1e-5)
    assert named.above_models == named.above_models_chosen
    assert (gains.best, gains.above_choice["mixed"].value) == ("Token V1", 1)


def test_a_lenience_is_never_judged_on_the_questions_it_was_chosen_on() -> None:
    """A setting that is right on one half only is chosen there, and judged on the other, where it is wrong."""
    samples = [
        one if one.setting < 2 else one._replace(score=float((one.setting == 3) == (one.item // 3 % 2 == 0)))
        for one in _samples()
    ]
    gains = _gains(samples)
    assert gains is not None
    assert gains.above_choice[ALL].value == pytest.approx(-2 / 3, abs=1e-5)


def test_without_confidences_there_are_no_gains() -> None:
    samples = [one._replace(confidence=None) for one in _samples()]
    assert _gains(samples) is None
