"""Loads a model as a transformers module, on any device, and makes its passes fast.

This module imports transformers' modelling code, which takes two seconds. So `loading` imports it only if fused passes do not support a
model, or if a caller needs the transformers module.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import AutoModelForCausalLM, PreTrainedModel

from specviz.errors import NoRoomError
from specviz.models.checkpoint import Checkpoint, is_quantised
from specviz.models.placement import WEIGHTS_SHARE, Placement, free_gpu_memory
from specviz.models.small_vocabulary import SmallVocabulary
from specviz.runtime.attention import group
from specviz.runtime.cpu.packing import pack
from specviz.runtime.cpu.threads import choose
from specviz.runtime.cuda.decoder import fuse


def load_module(
    folder: Path, name: str, placement: Placement, *, prepack: bool, gguf: Path | None = None
) -> PreTrainedModel:
    """Load a folder's model, in eval mode and without gradients.

    Args:
        name: the model's name in error messages.
        prepack: whether to `tune` the model.
        gguf: the GGUF file with the weights, if the folder has only the config.

    Raises:
        NoRoomError: the model does not fit into the memory of the GPUs. Reading may raise other errors.
    """
    if gguf or is_quantised(folder):
        model = Checkpoint.read(folder, gguf).module(placement.dtype, **_device_options(placement))
    else:
        # A repository without safetensors (OPT) is read from its .bin file, unpickled as bare tensors and no more.
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=placement.dtype,
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
            **_device_options(placement),
        )
        model, found = loaded
        if found["missing_keys"]:  # transformers would fill them with random numbers
            raise ValueError("the weights are damaged or incomplete")
    if placement.sharded and {"cpu", "disk"} & set(map(str, getattr(model, "hf_device_map", {}).values())):
        raise NoRoomError(
            f"{name} does not fit into the memory of the GPUs here: choose a smaller pair or dtype."
        )
    if vocabulary := SmallVocabulary.load(folder):
        vocabulary.widen(model)
    model.eval().requires_grad_(False)
    if prepack:
        tune(model)
    return model


def tune(model: PreTrainedModel) -> None:
    """Make passes over a few tokens fast: packed weights and threads on the CPU, kernels on a GPU, attention on any device."""
    pack(model)
    group(model)
    choose(model)
    fuse(model)


def _device_options(placement: Placement) -> dict[str, Any]:
    """The options of `from_pretrained` that say where the weights go."""
    if placement.sharded:
        limits = {index: int(free * WEIGHTS_SHARE) for index, free in enumerate(free_gpu_memory())}
        return {"device_map": "auto", "max_memory": limits}
    if placement.device.type != "cpu":
        return {"device_map": {"": placement.device}}
    return {}
