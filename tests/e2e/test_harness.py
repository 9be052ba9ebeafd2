"""lm-evaluation-harness on the embedded pair: its scores are the sweep's."""

from __future__ import annotations

from pathlib import Path

import pytest
from lm_eval.evaluator import simple_evaluate
from lm_eval.tasks import TaskManager

from specviz.analysis.sweep.items import ARITHMETIC, Items, load_items
from specviz.engine.engine import Engine
from specviz.integrations.lm_eval import HarnessModel
from specviz.schema.settings import Request
from tests.support.harness_task import NAME, forbid_network, local_task

COUNT = 8


def test_the_harness_scores_the_pair_as_the_sweep_does(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Greedy texts of the harness are the engine's, and its filter and metric score them as the sweep does."""
    forbid_network(monkeypatch)
    monkeypatch.setattr(
        "lm_eval.evaluator.add_env_info", lambda _results: None
    )  # asks other programs, for seconds
    chosen = [item for item in load_items().items if item.kind == ARITHMETIC][:COUNT]
    items = Items("arithmetic", tuple(chosen))
    include = local_task(tmp_path, chosen)
    results = simple_evaluate(
        model=HarnessModel(engine.pair, method="cascade_tokenV3", lenience=0.3),
        tasks=[NAME],
        task_manager=TaskManager(include_path=include, include_defaults=False),
        apply_chat_template=True,
        bootstrap_iters=0,
    )
    samples = sorted(results["samples"][NAME], key=lambda one: one["doc_id"])
    asked = {"method": "cascade_tokenV3", "lenience": 0.3, "temperature": 0, "max_new_tokens": 24}
    runs = engine.generate([Request(prompt=item.prompt, draft_length=3, **asked) for item in chosen])
    assert len(samples) == COUNT
    assert [one["resps"][0][0] for one in samples] == [run.text.split("\n\n")[0] for run in runs]
    scores = [items.score(number, one["resps"][0][0]) for number, one in enumerate(samples)]
    assert [one["exact_match"] for one in samples] == scores
    assert {0.0, 1.0} == set(scores)
    assert results["results"][NAME]["exact_match,last-number"] == pytest.approx(sum(scores) / COUNT)
