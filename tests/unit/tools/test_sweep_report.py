"""The reports of the recorded sweeps are the documents, and a report names no folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from specviz.analysis.sweep.folder import open_recorded
from specviz.cli.sweep_job import report
from specviz.resources import ASSETS
from specviz.tools.sweep.report import picture

DOCS = ASSETS.parent / "docs"


@pytest.mark.parametrize(
    ("folder", "document"), [("sweep", "results.md"), ("sweep-specialist", "specialist.md")]
)
def test_the_documents_are_the_reports_of_the_recorded_sweeps(folder: str, document: str) -> None:
    """Every sentence, table and picture; a picture is an XML file."""
    recorded = open_recorded(ASSETS / folder)
    pictures = {t: Path(f"../assets/{folder}/rejection-rate-{t:g}.svg") for t in recorded.temperatures}
    assert report(recorded, pictures) == (DOCS / document).read_text(encoding="utf-8")
    for temperature, path in pictures.items():
        drawn = picture(recorded, temperature)
        assert drawn == (DOCS / path).read_text(encoding="utf-8")
        assert ElementTree.fromstring(drawn).tag.endswith("svg")


def test_a_report_names_no_folder() -> None:
    """Of a file of questions it has the name."""
    recorded = open_recorded(ASSETS / "sweep")
    plan = replace(recorded.plan, prompts="/home/somebody/questions.jsonl")
    pictures = dict.fromkeys(recorded.temperatures, Path("picture.svg"))
    text = report(replace(recorded, plan=plan, machine={}), pictures)
    assert "--prompts questions.jsonl" in text
    assert "somebody" not in text
