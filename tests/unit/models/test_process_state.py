"""The process is after loading as it was before: its switches, its random numbers, its environment."""

from __future__ import annotations

import logging
import os
import random
import socket
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from huggingface_hub.utils import are_progress_bars_disabled
from huggingface_hub.utils import logging as hub_logging
from transformers import modeling_gguf_pytorch_utils
from transformers.utils import logging as transformers_logging

from specviz.errors import PairError
from specviz.models.loading import load_pair

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
        "the bar of GGUF files": modeling_gguf_pytorch_utils.tqdm,
        "logging": (logging.root.level, list(logging.root.handlers), logging.root.manager.disable),
        "socket timeout": socket.getdefaulttimeout(),
        "hooks": (sys.excepthook, sys.stdout, sys.stderr),
    }


@pytest.mark.parametrize("key", ["embedded", "embedded-skip"])
def test_loading_a_pair_changes_nothing_of_the_process(key: str) -> None:
    before = process_state()
    load_pair(key, device="cpu")
    after = process_state()
    assert {name: after[name] for name in after if after[name] != before[name]} == {}


def test_a_pair_that_is_refused_changes_nothing_of_the_process(checkpoints: Path) -> None:
    (checkpoints / "verifier" / "model.safetensors").unlink()
    before = process_state()
    with pytest.raises(PairError, match="damaged or incomplete"):
        load_pair("disk", device="cpu")
    assert process_state() == before
