"""The words of settings: every setting has some, and what the page offers is valid."""

from __future__ import annotations

import subprocess
import sys

from specviz.app.settings import CONTROLS
from specviz.schema.settings import SETTINGS


def test_every_setting_has_its_words_and_offers_valid_values_only() -> None:
    assert list(CONTROLS) == list(SETTINGS)
    for name, control in CONTROLS.items():
        assert control.help
        assert (control.name, control.default) == (name, SETTINGS[name].default)
        if control.offered:
            low, high = control.offered
            assert control.default is None or low <= control.default <= high
            control.setting.check(low)
            control.setting.check(high)


def test_words_stay_above_the_engine() -> None:
    """A request is bounds and values: engine and trace load none of the page's words, and these load no gradio."""
    for modules, absent in (
        ("specviz.schema.trace, specviz.engine.engine", "specviz.app.settings"),
        ("specviz.app.settings", "gradio"),
    ):
        code = f"import sys, {modules}; sys.exit({absent!r} in sys.modules)"
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
