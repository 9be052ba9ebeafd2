"""The process is after loading as it was before: its switches, its random numbers, its environment; and loading is silent."""

from __future__ import annotations

import logging
import os
import random
import socket
import sys
from pathlib import Path
from typing import Any

import numpy
import torch
from huggingface_hub.utils import are_progress_bars_disabled, enable_progress_bars
from huggingface_hub.utils import logging as hub_logging
from transformers.utils import logging as transformers_logging

from specviz.compat.transformers import quiet_transformers
from specviz.models.loading import load_pair
from tests.unit.models.helpers import refusal

KERNELS = ("flash", "mem_efficient", "math", "cudnn")


def process_state() -> dict[str, Any]:
    """What belongs to the whole process and could be changed by loading models."""
    return {
        "environment": dict(os.environ),
        "working directory": os.getcwd(),
        "threads": (torch.get_num_threads(), torch.get_num_interop_threads()),
        "default dtype and device": (torch.get_default_dtype(), torch.get_default_device()),
        "gradients": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        "attention kernels": [getattr(torch.backends.cuda, f"{name}_sdp_enabled")() for name in KERNELS],
        "precision": (torch.get_float32_matmul_precision(), torch.are_deterministic_algorithms_enabled()),
        "torch's random numbers": torch.get_rng_state().tolist(),
        "Python's random numbers": random.getstate(),
        "numpy's random numbers": repr(numpy.random.get_state()),
        "verbosity": (transformers_logging.get_verbosity(), hub_logging.get_verbosity()),
        "bars": (transformers_logging.is_progress_bar_enabled(), are_progress_bars_disabled()),
        "logging": (logging.root.level, list(logging.root.handlers), logging.root.manager.disable),
        "socket timeout": socket.getdefaulttimeout(),
        "hooks": (sys.excepthook, sys.stdout, sys.stderr),
    }


def test_loading_is_silent_and_changes_nothing_of_the_process(checkpoints: Path, capfd: Any) -> None:
    """Neither where it succeeds nor where it fails."""
    before = process_state()
    load_pair("disk", device="cpu")
    (checkpoints / "verifier" / "model.safetensors").unlink()
    assert "damaged" in refusal()
    after = process_state()
    assert {name: after[name] for name in after if after[name] != before[name]} == {}
    assert capfd.readouterr() == ("", "")


def test_silence_that_overlaps_ends_with_the_last_as_it_was() -> None:
    """Switching transformers' bars switches the hub's too: each is restored by itself."""
    transformers_logging.disable_progress_bar()
    enable_progress_bars()
    before = process_state()
    try:
        with quiet_transformers:
            with quiet_transformers:
                pass
            assert transformers_logging.get_verbosity() == transformers_logging.ERROR
            assert are_progress_bars_disabled()
        assert process_state() == before
    finally:
        transformers_logging.enable_progress_bar()
