"""Loading a model as one of transformers' modules, on any device, and making its passes fast.

Brings transformers' modelling code, which takes two seconds to import: `loading` imports this module where no fused pass serves, or where
somebody asks for a pair's modules. Knows one model at a time, and no pair.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import AutoModelForCausalLM, PreTrainedModel

from specviz.compat.transformers import DOWNLOAD_BAR
from specviz.errors import NoRoomError
from specviz.models import hub
from specviz.models.checkpoint import Checkpoint, is_quantised
from specviz.models.failures import DAMAGED
from specviz.models.placement import WEIGHTS_SHARE, Placement, free_gpu_memory
from specviz.models.small_vocabulary import SmallVocabulary
from specviz.progress import Progress
from specviz.runtime.attention import group
from specviz.runtime.cpu.packing import pack
from specviz.runtime.cpu.threads import choose
from specviz.runtime.cuda.decoder import fuse


def load_module(
    location: str, name: str, placement: Placement, report: Progress, *, prepack: bool, online: bool
) -> PreTrainedModel:
    """The model of a folder or repository.

    Args:
        location: of a folder, or "owner/name" of a repository.
        name: what sentences call it.
        prepack: whether it is tuned.
        online: whether the hub may be asked.

    Raises:
        PairError: it does not fit, or has not all its weights; and whatever reading raises.
    """
    if is_quantised(Path(location)):
        model = Checkpoint.read(Path(location)).module(placement.dtype, **_device_options(placement))
    else:
        model = _published(location, name, placement, report, online)
    if placement.sharded and {"cpu", "disk"} & set(map(str, getattr(model, "hf_device_map", {}).values())):
        raise NoRoomError(
            f"{name} does not fit into the memory of the GPUs here: choose a smaller pair or dtype."
        )
    if vocabulary := SmallVocabulary.load(Path(location)):
        vocabulary.widen(model)
    if prepack:
        tune(model)
    return model


def tune(model: PreTrainedModel) -> None:
    """Make passes over a few tokens fast: packed weights and threads on the CPU, kernels on a GPU, attention on any device."""
    pack(model)
    group(model)
    choose(model)
    fuse(model)


def _published(
    location: str, name: str, placement: Placement, report: Progress, online: bool
) -> PreTrainedModel:
    """The model of a folder or repository as transformers reads it."""
    # A repository without safetensors (OPT) is read from its .bin file, unpickled as bare tensors and no more.
    loaded: Any = AutoModelForCausalLM.from_pretrained(
        location,
        dtype=placement.dtype,
        local_files_only=not online,
        trust_remote_code=False,
        output_loading_info=True,
        **_device_options(placement),
        **({DOWNLOAD_BAR: hub.download_bar(name, report)} if online else {}),
    )
    model, found = loaded
    if found["missing_keys"]:  # transformers would fill them with random numbers
        raise DAMAGED.of(name)
    return model


def _device_options(placement: Placement) -> dict[str, Any]:
    """The options of `from_pretrained` that say where the weights go."""
    if placement.sharded:
        limits = {index: int(free * WEIGHTS_SHARE) for index, free in enumerate(free_gpu_memory())}
        return {"device_map": "auto", "max_memory": limits}
    if placement.device.type != "cpu":
        return {"device_map": {"": placement.device}}
    return {}
