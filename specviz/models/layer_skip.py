"""Layer skip: a drafter that is its verifier without some of its layers."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch

from specviz.errors import PairError

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def skip_layers(verifier: PreTrainedModel, layers: Iterable[int]) -> PreTrainedModel:
    """A drafter made of `verifier` without `layers` (indices from 0). It shares all its weights with the verifier.

    A model of the same class with fewer layers is built without weights. Each of its leaf modules (linear maps,
    embeddings, norms) is then replaced by the verifier's module. Only the modules around them are new, so that each
    attention module has its index in the shorter stack, which KV caches need. Moving or casting the drafter also moves or
    casts the verifier.

    Raises:
        PairError: the model has no plain list of independent layers, it lacks one of `layers`, or none would be left.
    """
    skipped, config = set(layers), copy.deepcopy(verifier.config)
    try:
        stack = list(verifier.base_model.get_submodule("layers").children())
        kept = [i for i in range(len(stack)) if i not in skipped]
        if not kept or len(kept) + len(skipped) != len(stack):
            raise ValueError("it has no such layers, or no others")
        for name, values in list(vars(config).items()):
            if "layer" in name and isinstance(values, list) and len(values) == len(stack):
                setattr(config, name, [values[i] for i in kept])
        config.num_hidden_layers = len(kept)
        with torch.device("meta"):
            drafter = type(verifier)(config)
        _graft(drafter, verifier, without=verifier.base_model.get_submodule("layers"))
        for shell, index in zip(drafter.base_model.get_submodule("layers").children(), kept, strict=True):
            _graft(shell, stack[index])
        if any(it.is_meta for it in (*drafter.parameters(), *drafter.buffers())):
            raise ValueError("some weights were not found")
    except Exception as error:
        # Layers under another name, or that depend on their index: shared keys, other heads.
        raise PairError(
            f"SpecViz cannot skip these layers of {type(verifier).__name__}: it lacks one, or they depend on one another."
        ) from error
    drafter.generation_config = copy.deepcopy(verifier.generation_config)
    return drafter.eval()


def _graft(shell: torch.nn.Module, source: torch.nn.Module, without: torch.nn.Module | None = None) -> None:
    """Replace the leaf modules of `shell` by the modules of the same name in `source`, except `without` and its submodules."""
    for name, child in source.named_children():
        if child is without:
            continue
        if next(child.children(), None) is None:
            setattr(shell, name, child)
        else:
            _graft(getattr(shell, name), child, without)
