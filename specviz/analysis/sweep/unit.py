"""The pieces that a sweep's work is cut into, each done whole or not at all. Knows the plan; knows no model."""

from __future__ import annotations

from dataclasses import dataclass

from specviz.analysis.sweep.plan import Plan


@dataclass(frozen=True, order=True)
class Unit:
    """An item's trial at a temperature; units are ordered as they are worked on."""

    trial: int
    item: int
    temperature: float


def units(plan: Plan, items: int) -> list[Unit]:
    """All units of a plan with so many items, in order."""
    return sorted(
        Unit(trial, item, float(temperature))
        for temperature in set(plan.temperatures)
        for trial in range(plan.trials_at(temperature))
        for item in range(items)
    )
