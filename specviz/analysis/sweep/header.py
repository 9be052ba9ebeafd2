"""What a sweep is about: the plan, the pair it names, the items. Knows no model and no file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from specviz.analysis.sweep.estimates import results
from specviz.analysis.sweep.items import Item
from specviz.analysis.sweep.plan import Plan
from specviz.analysis.sweep.results import Results
from specviz.analysis.sweep.sample import Sample
from specviz.errors import SpecvizError, TraceError

SCHEMA, VERSION = "specviz-sweep-plan", 1


@dataclass(frozen=True)
class Header:
    """What a folder is about; two sweeps with the same header come to the same results."""

    plan: Plan
    drafter: str
    verifier: str
    dtype: str
    items: tuple[Item, ...]

    def results(self, samples: Sequence[Sample]) -> Results:
        """What these samples tell."""
        plan, settings = self.plan, self.plan.settings
        wanted = len(self.items) * sum(plan.trials_at(setting.temperature) for setting in settings)
        return results(
            plan.to_record(),
            self.drafter,
            self.verifier,
            self.dtype,
            settings,
            len(self.items),
            samples,
            complete=len(samples) == wanted,
        )

    def to_json(self) -> str:
        """As text."""
        record = {"schema": SCHEMA, "version": VERSION} | asdict(self) | {"plan": self.plan.to_record()}
        return json.dumps(record, ensure_ascii=False, indent=1) + "\n"

    @staticmethod
    def from_json(text: str) -> Header:
        """Read what `to_json` wrote; TraceError where it is something else or of another version."""
        try:
            record = json.loads(text)
            if (record.pop("schema"), record.pop("version")) != (SCHEMA, VERSION):
                raise TraceError(f"This is no plan of a sweep of version {VERSION}.")
            items = tuple(Item(**one | {"answers": tuple(one["answers"])}) for one in record.pop("items"))
            return Header(Plan.from_record(record.pop("plan")), **record, items=items)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            if isinstance(error, SpecvizError):
                raise
            raise TraceError("This plan of a sweep is damaged or something else.") from error
