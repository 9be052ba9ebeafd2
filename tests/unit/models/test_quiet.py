"""Silence while models are loaded: complete, and over when the last block ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from huggingface_hub.utils import (
    are_progress_bars_disabled,
    disable_progress_bars,
    enable_progress_bars,
)
from transformers.utils import logging as transformers_logging

from specviz.compat.transformers import quiet_transformers
from specviz.models.loading import load_pair


def test_loading_is_silent_and_restores_what_the_libraries_say(checkpoints: Path, capfd: Any) -> None:
    transformers_logging.set_verbosity_warning()
    transformers_logging.enable_progress_bar()
    load_pair("disk", device="cpu")
    assert capfd.readouterr() == ("", "")
    assert transformers_logging.get_verbosity() == transformers_logging.WARNING
    assert transformers_logging.is_progress_bar_enabled()


def test_silence_that_overlaps_ends_with_the_last() -> None:
    transformers_logging.set_verbosity_warning()
    for _ in range(2):
        quiet_transformers.__enter__()
    quiet_transformers.__exit__()
    assert transformers_logging.get_verbosity() == transformers_logging.ERROR
    quiet_transformers.__exit__()
    assert transformers_logging.get_verbosity() == transformers_logging.WARNING


@pytest.mark.parametrize("bars", [True, False])
@pytest.mark.parametrize("hub_bars", [True, False])
def test_the_bars_of_each_library_are_restored_as_they_were(bars: bool, hub_bars: bool) -> None:
    """Switching transformers' bars switches the hub's too: each is restored by itself."""

    def switch(bars: bool, hub_bars: bool) -> None:
        (transformers_logging.enable_progress_bar if bars else transformers_logging.disable_progress_bar)()
        (enable_progress_bars if hub_bars else disable_progress_bars)()

    switch(bars, hub_bars)
    try:
        with quiet_transformers:
            assert not transformers_logging.is_progress_bar_enabled()
            assert are_progress_bars_disabled()
        assert transformers_logging.is_progress_bar_enabled() is bars
        assert are_progress_bars_disabled() is not hub_bars
    finally:
        switch(True, True)
