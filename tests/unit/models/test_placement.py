"""Placement: what fits where, and that what does not is refused with both numbers."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch

from specviz.errors import PairError
from specviz.models import placement
from specviz.models.placement import Placement, choose_placement
from specviz.models.registry import PAIRS, SkipSource
from tests.unit.models.helpers import refusal


def test_a_pair_too_large_for_memory_is_refused_with_both_numbers(
    checkpoints: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=2_000_000_000))
    large = dataclasses.replace(PAIRS["disk"], verifier_parameters=10**9)
    monkeypatch.setitem(PAIRS, "disk", large)
    assert {"4.4 GB", "2.0 GB"} <= set(re.findall(r"\d\.\d GB", refusal()))
    shared = dataclasses.replace(large, verifier_parameters=400_000_000, drafter_parameters=350_000_000)
    skipping = dataclasses.replace(shared, drafter=SkipSource(range(1)))
    assert choose_placement(skipping, "cpu", "auto").sharded is False
    with pytest.raises(PairError, match=" GB"):
        choose_placement(shared, "cpu", "auto")


def test_a_verifier_is_divided_among_several_gpus_only_where_one_is_too_small(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    free = {0: 10e9, 1: 10e9}
    monkeypatch.setattr(placement, "find_device", torch.device)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(free))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda it: (free[getattr(it, "index", it) or 0], 0))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))

    def placed(billions: float, device: str = "cuda") -> Placement:
        spec = dataclasses.replace(PAIRS["opt"], verifier_parameters=int(billions * 1e9))
        return choose_placement(spec, device, "auto")

    assert placed(4).dtype == torch.bfloat16
    assert not placed(4).sharded
    assert placed(8).sharded
    with pytest.raises(PairError, match=r"22\.5 GB .* 20\.0 GB"):
        placed(10)
    with pytest.raises(PairError, match=r"10\.0 GB"):
        placed(8, "cuda:1")
