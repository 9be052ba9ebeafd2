"""Controls: pairs that cannot be had stand last in their list, with the reason."""

from __future__ import annotations

from specviz.app.controls import NOT_NOW, _pair_choices
from specviz.serving.offer import offered_pairs


def test_pairs_that_cannot_be_had_come_last_with_the_reason() -> None:
    first = next(iter(offered_pairs()))
    labels = {key: label for label, key in _pair_choices({first: "not cached"})}
    assert list(labels)[-1] == first
    assert labels[first] == f"{offered_pairs()[first].title}{NOT_NOW}not cached"
    assert not any(NOT_NOW in label for key, label in labels.items() if key != first)
