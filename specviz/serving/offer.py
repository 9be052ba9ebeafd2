"""The pairs that this server offers: pairs of the registry that fit its hardware, and the owner's own pairs.

Reads the environment and the memory size once. Does not query the hub, load a model or import torch. Visitors can only
choose a key of `offered_pairs`; only the owner can name repositories and folders.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from specviz.environment import OWN_PAIRS, PAIRS_OFFERED, on_zero_gpu
from specviz.errors import SpecvizError
from specviz.models import hub
from specviz.models.availability import GATED
from specviz.models.registry import DEFAULT_PAIR, PAIRS, REPOSITORY, HubSource, PairSpec

OFFERED, OWN = PAIRS_OFFERED.name, OWN_PAIRS.name

CPU_PARAMETERS = 2_000_000_000
"""Maximum parameters of a verifier on a CPU. Each pass reads all weights: 8 GB of float32 take about a second at 10 GB/s."""
HOST_SHARE = 0.5
"""Share of the host's memory that one pair's weights may take. The rest is for a second pair, caches and the page."""
GPU_SHARE = 0.9
"""Share of the memory of all GPUs that the weights of one pair may take."""
ZERO_GPU_PAIRS = ("embedded", "embedded-specialist", "embedded-skip", "embedded-lookup", "smollm2")
"""Pairs offered on ZeroGPU. Only a few: every run moves all of them to the GPU, in the visitor's GPU time."""

_FLOAT32, _BFLOAT16 = 4, 2  # bytes of a parameter, on a CPU and on a GPU
_KEY = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@dataclass(frozen=True)
class Hardware:
    """Memory in bytes. `gpu_bytes` is the sum over all GPUs; 0 without a GPU."""

    host_bytes: int
    gpu_bytes: int = 0
    zero_gpu: bool = False


@cache
def offered_pairs() -> dict[str, PairSpec]:
    """The pairs that visitors may choose, by key. Cached for the process.

    Raises:
        SpecvizError: SPECVIZ_PAIRS_OFFERED or SPECVIZ_OWN_PAIRS cannot be read.
    """
    return choose(os.environ, find_hardware(os.environ))


@cache
def missing_pairs() -> dict[str, str]:
    """Why pairs of the registry are not offered, in a few words, by key. Empty if the owner chose the pairs, and on ZeroGPU."""
    if _named(os.environ) or on_zero_gpu():
        return {}
    hardware = find_hardware(os.environ)
    return {key: _obstacle(PAIRS[key], hardware) for key in PAIRS if key not in offered_pairs()}


def default_pair() -> str:
    """The key of the pair that the page begins with: the embedded pair if it is offered, else the first."""
    offered = offered_pairs()
    return DEFAULT_PAIR if DEFAULT_PAIR in offered else next(iter(offered))


def choose(environment: Mapping[str, str], hardware: Hardware) -> dict[str, PairSpec]:
    """The pairs to offer on `hardware`, or those that `environment` names. Raises SpecvizError as `offered_pairs` does."""
    own = own_pairs(OWN_PAIRS.value(environment))
    known = PAIRS | own
    asked = _named(environment)
    if asked == ["all"]:
        return known
    if unknown := [key for key in asked if key not in known]:
        raise SpecvizError(
            f'{OFFERED} names {unknown[0]!r}, which is not a pair: use "all", or some of {", ".join(known)}.'
        )
    if asked:
        return {key: known[key] for key in asked}
    return {key: spec for key, spec in PAIRS.items() if not _obstacle(spec, hardware)} | own


def _named(environment: Mapping[str, str]) -> list[str]:
    """The keys in SPECVIZ_PAIRS_OFFERED."""
    return [key for key in (part.strip() for part in PAIRS_OFFERED.value(environment).split(",")) if key]


def _obstacle(spec: PairSpec, hardware: Hardware) -> str:
    """Why a pair is not offered, as far as known without asking the hub; "" if it is offered."""
    if hardware.zero_gpu:
        return "" if spec.key in ZERO_GPU_PAIRS else "too large for ZeroGPU"
    if not spec.repositories:
        return ""
    width, memory, where = _FLOAT32, hardware.host_bytes * HOST_SHARE, "memory"
    if hardware.gpu_bytes:
        width, memory, where = _BFLOAT16, hardware.gpu_bytes * GPU_SHARE, "GPU memory"
    elif spec.verifier_parameters > CPU_PARAMETERS:
        return "too large for a CPU"
    if (needed := spec.loaded_parameters * width) > memory:
        return f"needs {needed / 1e9:.1f} GB of {where}; a pair may take {memory / 1e9:.1f} GB"
    from huggingface_hub import constants, get_token  # slow to import

    offline, locked = constants.HF_HUB_OFFLINE, spec.gated and get_token() is None
    if not (offline or locked) or all(map(hub.is_cached, spec.repositories)):
        return ""
    return "not cached, and the server may not use the network" if offline else GATED


# ---- the owner's own pairs ---------------------------------------------------------------------------------


def own_pairs(text: str) -> dict[str, PairSpec]:
    """Parse pairs from "name=drafter>verifier; …". A model is a hub repository, or a folder that begins with "/", "./", "../" or "~".

    Raises:
        SpecvizError: the text cannot be read, a name is taken, or a folder holds no model.
    """
    found: dict[str, PairSpec] = {}
    for part in filter(None, (each.strip() for each in text.split(";"))):
        key, _, models = (each.strip() for each in part.partition("="))
        drafter, _, verifier = (each.strip() for each in models.partition(">"))
        if not (drafter and verifier and _KEY.fullmatch(key)):
            raise SpecvizError(
                f"{OWN} cannot be read: write name=drafter>verifier, with a semicolon between pairs and names of "
                "small letters, digits, dots and dashes."
            )
        if key in PAIRS or key in found or key == "all":
            raise SpecvizError(f"{OWN}: the name {key!r} is taken; choose another one.")
        found[key] = _own_pair(key, drafter, verifier)
    return found


def _own_pair(key: str, drafter: str, verifier: str) -> PairSpec:
    small, large = _source(key, drafter), _source(key, verifier)
    names = [source.repository.rpartition("/")[2] for source in (small, large)]
    return PairSpec(
        key=key,
        title=f"{names[0]} → {names[1]}",
        drafter=small,
        verifier=large,
        drafter_name=names[0],
        verifier_name=names[1],
        drafter_parameters=_parameters(Path(small.repository)),
        verifier_parameters=_parameters(Path(large.repository)),
        about="A pair that the owner of this server has added.",
        repetition_penalty=None,
    )


def _source(key: str, model: str) -> HubSource:
    """The source for a hub repository, or for a folder (by its absolute path)."""
    if model.startswith(("/", "./", "../", "~")):
        folder = Path(model).expanduser().resolve()
        if not (folder / "config.json").is_file():
            raise SpecvizError(f"{OWN}: {key} names a folder that holds no model: there is no config.json.")
        return HubSource(str(folder))
    if not REPOSITORY.fullmatch(model):
        raise SpecvizError(
            f"{OWN}: {key} names a model that is neither the name of a repository on the hub nor a folder, which begins with / or ./."
        )
    return HubSource(model)


def _parameters(folder: Path) -> int:
    """Number of parameters in a folder, estimated from the size of its weight files; 0 if unknown."""
    if not folder.is_absolute():
        return 0
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        half = str(config.get("dtype") or config.get("torch_dtype")).endswith("16")
    except (OSError, ValueError, AttributeError):
        return 0
    sizes = [
        sum(path.stat().st_size for path in folder.glob(kind))
        for kind in ("*.safetensors", "pytorch_model*.bin")
    ]
    return next(filter(None, sizes), 0) // (_BFLOAT16 if half else _FLOAT32)


# ---- the hardware ------------------------------------------------------------------------------------------


def find_hardware(environment: Mapping[str, str]) -> Hardware:
    """The memory of this machine or container."""
    if on_zero_gpu():
        return Hardware(host_bytes=0, zero_gpu=True)
    return Hardware(_host_bytes(), _gpu_bytes(environment))


def _host_bytes() -> int:
    """The machine's memory, or the container's if it is less."""
    found = [int(psutil.virtual_memory().total)]
    for path in _CGROUP_LIMITS:
        with suppress(OSError, ValueError):  # not there, or "max"
            found.append(int(Path(path).read_text(encoding="ascii")))
    return min(found)


def _gpu_bytes(environment: Mapping[str, str]) -> int:
    """Memory of all NVIDIA GPUs that torch would use. Asks nvidia-smi, since importing torch takes seconds."""
    tool = shutil.which("nvidia-smi", path=environment.get("PATH"))
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    try:
        if tool is None or visible == "" or "+cpu" in version("torch"):
            return 0
        query = [tool, "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
        query += [f"--id={visible}"] if visible else []
        listing = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError, PackageNotFoundError):
        return 0
    return sum(int(line) * 2**20 for line in listing.split() if line.isdigit())
