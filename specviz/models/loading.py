"""Loads a pair: from its sources to two models in memory.

Models come from the hub, a folder, the project's assets, the embedded verifier's wheel, or the verifier itself (layer skip); prompt
lookup has no drafter model. Any failure becomes a `PairError` of one sentence, and leaves nothing in memory.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from specviz import environment
from specviz.compat.transformers import quiet_transformers
from specviz.core.backend import compiled_backend
from specviz.environment import ACTIVATIONS
from specviz.errors import PairError
from specviz.models import hub, smollm2
from specviz.models.checkpoint import Checkpoint, has_safetensors, read_config
from specviz.models.failures import check_folder, explain
from specviz.models.fused import fused_model, is_possible
from specviz.models.layer_skip import skip_layers
from specviz.models.pair import ModelPair, make_pair
from specviz.models.placement import Placement, choose_placement
from specviz.models.registry import (
    AssetSource,
    HubSource,
    LookupSource,
    PairSpec,
    SkipSource,
    Source,
    find_pair,
)
from specviz.models.servable import check_config, torch_model
from specviz.models.small_vocabulary import SmallVocabulary
from specviz.progress import Progress, part, silent
from specviz.runtime.cpu.threads import choose
from specviz.runtime.lookup import LookupModel
from specviz.runtime.memory import give_back_memory
from specviz.runtime.runner import Model

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_log = logging.getLogger(__name__)


def load_pair(
    key: str | PairSpec,
    device: str = "auto",
    dtype: str = "auto",
    progress: Progress | None = None,
    prepack: bool = True,
    *,
    activations: str | None = None,
) -> ModelPair:
    """Load a pair of the registry by its key, or any other pair by its `PairSpec`.

    During this call, settings of the process change for all threads; they are restored afterwards. transformers and
    huggingface_hub are silent (`quiet_transformers`), transformers sets torch's default dtype, and on the CPU torch's
    number of threads changes while passes are timed (`runtime.cpu.threads`).

    Args:
        device: "auto" (CUDA where there is a GPU, else the CPU) or a name such as "cpu", "cuda" or "cuda:1".
        dtype: "float64", "float32", "bfloat16", "float16", or "auto" (see `placement.dtype_name`).
        progress: may be called from other threads.
        prepack: False leaves the models exactly as transformers makes them: plain weights, transformers' attention.
        activations: "exact" (as close to the float model as float32) or "fast" (one byte each). Matters only if quantised weights
            are used as published: on the CPU in float32. Default: SPECVIZ_CPU_ACTIVATIONS, or else "exact".

    Raises:
        PairError: one sentence: unknown key, device, dtype or activations, hub unreachable, repository gated or missing, weights damaged,
            memory (`NoRoomError`) or disk too small, tokenizers differ, or model not supported. No part of the pair stays in memory.
    """
    spec = find_pair(key)
    activations = activations or environment.CPU_ACTIVATIONS.value()
    if activations not in ACTIVATIONS:
        raise PairError(f"There are no activations {activations!r}: known are {', '.join(ACTIVATIONS)}.")

    try:
        placement = choose_placement(spec, device, dtype)
        with quiet_transformers:
            loader = _Loader(placement, prepack, _may_ask_hub(spec), fast=activations == "fast")
            return _assemble(spec, loader, progress or silent)
    except Exception as error:
        _log.debug("loading %s failed", spec.title, exc_info=error)
        failure = explain(error, spec.title)
    # Raised outside the handler: the frames of the error's traceback would keep half a pair in memory.
    release_memory()
    raise failure


def load_verifier(key: str, device: str, dtype: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load a pair's verifier, with plain parameters for training or copying, and its tokenizer. Arguments and errors as in `load_pair`."""
    spec = find_pair(key)
    alone = replace(spec, title=spec.verifier_name, drafter=LookupSource(), drafter_parameters=0)
    pair = load_pair(alone, device, dtype, prepack=False)
    return pair.verifier, pair.tokenizer


def release_memory() -> None:
    """Free what a failed load or an unloaded pair leaves behind: reference cycles, and memory that allocators hold."""
    gc.collect()
    give_back_memory()


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Turns errors of the block into PairErrors about the model `name`."""
    try:
        yield
    except Exception as error:
        raise explain(error, name) from error


def _may_ask_hub(spec: PairSpec) -> bool:
    """Whether a pair needs the hub and the hub answers. Raises PairError if files are not cached and the hub is down or refuses."""
    if not spec.repositories:
        return False
    online = hub.reachable()
    for repository in spec.repositories:
        if hub.is_cached(repository):
            continue
        name = repository.rpartition("/")[2]
        if not online:
            raise explain(ConnectionError(), name)
        if refused := hub.refusal(repository):
            raise explain(refused, name)
    return online


def _assemble(spec: PairSpec, loader: _Loader, report: Progress) -> ModelPair:
    """Load both models and their tokenizers, and make the pair."""
    for source, name in ((spec.drafter, spec.drafter_name), (spec.verifier, spec.verifier_name)):
        if isinstance(source, HubSource):  # refused before any weights are read
            with _naming(name):
                check_config(read_config(source.repository, online=loader.online))
    drafter: Model
    if isinstance(spec.drafter, SkipSource | LookupSource):
        verifier, tokenizer = loader.load(spec.verifier, spec.verifier_name, report)
        drafter_tokenizer = None
        if isinstance(spec.drafter, SkipSource):
            drafter = _without_layers(verifier, spec.drafter.skipped, loader.prepack)
        else:
            drafter = LookupModel(verifier)
    else:
        # The drafter first: the verifier's shards then share the memory that it leaves free.
        alone = replace(loader, placement=replace(loader.placement, sharded=False), is_drafter=True)
        drafter, drafter_tokenizer = alone.load(spec.drafter, spec.drafter_name, part(report, 0.0, 0.3))
        verifier, tokenizer = loader.load(spec.verifier, spec.verifier_name, part(report, 0.3, 1.0))
    if loader.may_fuse:
        report(0.99, "Reading the compiled loops of a round (the first time, compiling them)")
        compiled_backend()
    report(1.0, f"{spec.title} is ready")
    about = {name: getattr(spec, name) for name in ("key", "title", "drafter_name", "verifier_name")}
    return make_pair(drafter, verifier, tokenizer, drafter_tokenizer=drafter_tokenizer, **about)


def _without_layers(verifier: Model, layers: range, prepack: bool) -> Model:
    """The layer-skip drafter: a verifier without `layers`."""

    def module() -> PreTrainedModel:
        skipping = skip_layers(verifier.module(), layers)
        if prepack:  # its weights are packed already: they are the verifier's
            choose(skipping)
        return skipping

    if not hasattr(verifier, "with_layers"):
        return torch_model(module())
    count = verifier.config.num_hidden_layers
    fused: Model = verifier.with_layers([i for i in range(count) if i not in layers], module)
    return fused


@dataclass(frozen=True)
class _Loader:
    """Loads the models of one pair.

    Attributes:
        prepack: whether models may be changed for speed: fused passes, or `modules.tune`.
        online: whether the hub may be asked.
        fast: whether activations take one byte.
        is_drafter: whether the model is a drafter, which may use the verifier's tokenizer.
    """

    placement: Placement
    prepack: bool
    online: bool
    fast: bool = False
    is_drafter: bool = False

    @property
    def may_fuse(self) -> bool:
        """Whether models may run fused passes."""
        on_cpu = self.placement.device.type == "cpu" and not self.placement.sharded
        return self.prepack and on_cpu and self.placement.dtype == torch.float32

    def load(self, source: Source, name: str, report: Progress) -> tuple[Model, Any]:
        """Load one model and its tokenizer, which is None for a drafter that uses its verifier's. Error messages call the model `name`."""
        with _naming(name):
            report(0.0, f"Loading {name}")
            gguf = None
            if isinstance(source, HubSource):
                folder = hub.folder_of(source.repository, name, report, self.online)
            elif isinstance(source, AssetSource):
                folder = source.path
            else:
                folder, gguf = smollm2.SHIPPED, smollm2.gguf_file(part(report, 0.0, 0.9))
            check_folder(folder, name)
            model = self._model(folder, name, report, gguf)
            if isinstance(source, AssetSource) or (self.is_drafter and hub.shares_tokenizer(folder)):
                return model, None
            options: Any = {"local_files_only": True, "trust_remote_code": False}
            if gguf:  # AutoTokenizer would find this class too, but through a config's class, which takes seconds to import.
                return model, PreTrainedTokenizerFast.from_pretrained(folder, **options)
            from transformers import AutoTokenizer  # imported here: it takes half a second

            return model, AutoTokenizer.from_pretrained(folder, **options)

    def _model(self, folder: Path, name: str, report: Progress, gguf: Path | None = None) -> Model:
        """Load the model in a folder onto its device, with the weights of `gguf` if given. Raises whatever reading raises."""

        def module(prepack: bool) -> PreTrainedModel:
            # Imported here: it takes two seconds, and fused passes do without.
            from specviz.models.modules import load_module

            with quiet_transformers:
                return load_module(folder, name, self.placement, prepack=prepack, gguf=gguf)

        readable = gguf or has_safetensors(folder)
        if self.may_fuse and readable and is_possible(read_config(str(folder))):
            report(0.9, f"Arranging the weights of {name} (the first time, compiling for this processor)")
            checkpoint, vocabulary = Checkpoint.read(folder, gguf), SmallVocabulary.load(folder)
            if fused := fused_model(checkpoint, lambda: module(prepack=False), vocabulary, fast=self.fast):
                return fused
        return torch_model(module(self.prepack))
