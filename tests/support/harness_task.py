"""A task of lm-evaluation-harness made of given items, without a download."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from specviz.analysis.sweep.items import Item

NAME = "local_arithmetic"

# The last number of an answer with its sign, a fraction included (no whole number is the same); commas, leading
# zeros and the sign of a zero do not count. A minus is a sign only where nothing stands before it to subtract from.
_NUMBER = (
    r"((?:(?<![^\W_])[-−]|(?<!\d )\b(?:[Mm]inus|[Nn]egative) )?"
    r"(?<![^\W_])(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?)"
)


def local_task(folder: Path, items: Sequence[Item], **changes: Any) -> Path:
    """Write the items and the task `NAME` into a folder; returns it, as a path to include.

    The answers must be whole numbers of at least 0: the harness reads the last number of a text by its own regular
    expression filter and compares it as text.

    Args:
        folder: an empty one.
        items: prompts and answers.
        changes: other values for fields of the task.
    """
    documents = [{"question": item.prompt, "answers": list(item.answers)} for item in items]
    data = folder / "items.json"
    data.write_text("\n".join(map(json.dumps, documents)), encoding="utf-8")
    task: dict[str, Any] = {
        "task": NAME,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(data)}, "cache_dir": str(folder / "cache")},
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": "{{question}}",
        "doc_to_target": "answers",
        "generation_kwargs": {"until": ["\n\n"], "do_sample": False, "max_gen_toks": 24},
        "filter_list": [
            {
                "name": "last-number",
                "filter": [
                    {"function": "regex", "regex_pattern": _NUMBER, "group_select": -1},
                    {"function": "take_first"},
                ],
            }
        ],
        "metric_list": [
            {
                "metric": "exact_match",
                "aggregation": "mean",
                "higher_is_better": True,
                "regexes_to_ignore": [",", r"\.0*$", r"^0+(?=\d)", r"^\D+(?=0+$)"],
            }
        ],
    }
    # JSON is YAML.
    (folder / f"{NAME}.yaml").write_text(json.dumps(task | changes), encoding="utf-8")
    return folder


def forbid_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every connection fail."""

    def refuse(*_args: object, **_named: object) -> None:
        raise AssertionError("something looked for the network")

    monkeypatch.setattr("socket.getaddrinfo", refuse)
    monkeypatch.setattr("socket.socket.connect", refuse)
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        monkeypatch.setenv(name, "1")
