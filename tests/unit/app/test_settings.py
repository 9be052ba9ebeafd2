"""The words of settings: every setting has some, and what the page offers is valid."""

from __future__ import annotations

from specviz.app.settings import CONTROLS, HELP
from specviz.schema.settings import SETTINGS


def test_every_setting_has_its_words_and_offers_valid_values_only() -> None:
    assert list(HELP) == list(SETTINGS)
    for control in CONTROLS.values():
        for bound in control.offered:
            control.setting.check(bound)
