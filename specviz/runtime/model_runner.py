"""The runner of transformers models, on any device; `models.servable` decides which models it serves."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from specviz.compat.transformers import attention_of, cache_argument
from specviz.runtime import attention
from specviz.runtime.cpu.threads import chosen, limited_to
from specviz.runtime.cuda.decoder import decoder_of
from specviz.runtime.cuda.graphs import Graphs
from specviz.runtime.cuda.workspace import Workspace, single_gpu, workspace
from specviz.runtime.kv_cache import GRAIN, KVCache, power
from specviz.runtime.runner import Model, PassInputs, Runner

_FULL, _SLIDING = "full_attention", "sliding_attention"
"""Types of layers, as configs name them."""
_SHORTEST = 256
"""Minimum number of positions that a captured pass reads: fewer shapes to capture, at hardly any cost."""
_WIDEST, _LARGEST = 16, 128
"""Most tokens of a slot, and of all slots, in a captured pass. Larger passes take much memory, and launches matter less in them."""
_CPU_CHUNK = 256
"""`Runner.chunk` on a CPU. Prefill is about 5 % slower than with 512; with 128 it would be 14 % slower."""

Inputs = tuple[Tensor, Tensor, Tensor]


class ModelRunner(Runner):
    """A runner of a transformers model."""

    def __init__(self, model: Any, vocabulary_size: int, workspace: Workspace | None = None) -> None:
        """Wrap `model`. Its logits are cut or extended to the pair's `vocabulary_size` tokens; tokens that it lacks get −inf.

        If there is a `workspace` that no other runner holds, its buffers are used and passes are captured.
        """
        super().__init__()
        self._model, self._config = model, model.config.get_text_config()
        self.vocabulary_size = vocabulary_size
        embedding, outputs = model.get_input_embeddings(), output_size(model)
        self._shared_size = min(vocabulary_size, outputs)
        self._embedding_size = int(getattr(embedding, "num_embeddings", None) or outputs)
        self._attention = attention_of(model)
        layer_types = getattr(self._config, "layer_types", None) or []
        window = getattr(self._config, "sliding_window", None)
        if not getattr(self._config, "use_sliding_window", True):
            window = None
        self._windows: dict[str, int | None] = {} if window and not layer_types else {_FULL: None}
        if window and (not layer_types or _SLIDING in layer_types):
            self._windows[_SLIDING] = window
        self._layer_configs = dict(
            zip(layer_types or [_FULL], attention.layer_configs(self._config), strict=False)
        )
        self._workspace = workspace
        self._held: Workspace | None = None
        self.device = embedding.weight.device
        if self.device.type == "cpu":
            self.chunk = _CPU_CHUNK
        self._dtype = model.dtype
        self.position_bytes = position_bytes(model)
        self._cache_argument = {each: cache_argument(type(each)) for each in (model, model.base_model)}
        self._decoder = decoder_of(model)

    # ---- slots

    def _new_cache(self) -> KVCache:
        return KVCache()

    def admit(self, owners: list[Any], length: int) -> slice:
        """See `Runner.admit`; the first owners get the workspace, if it is free."""
        if not self.owners and self._workspace is not None and self._workspace.acquire():
            self._cache, self._held = self._workspace.cache, self._workspace
        return super().admit(owners, length)

    def clear(self) -> None:
        """Free all slots; free the buffers too, or return them to the workspace."""
        if self._held is not None:
            self._held.release()
            self._held = None
        super().clear()

    def _copy(self, other: ModelRunner, slots: slice) -> None:
        self.admit(other.owners[slots], other._cache.length)
        self._cache.copy(other._cache, slots)

    def growth(self, more: int, length: int) -> int:
        """See `Runner.growth`."""
        cache = self._cache
        if self._workspace is not None and not self._workspace.in_use:
            cache = self._workspace.cache
        return cache.growth(len(self.owners) + more, length, not self.owners) * self.position_bytes

    def reading_bytes(self, visible: int) -> int:
        """See `Runner.reading_bytes`: the widest layer's activations, and its mask."""
        if self._decoder is not None:
            return self._decoder.reading_bytes(visible)
        config = self._config
        inner = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
        widest = max(inner) if isinstance(inner, list) else inner
        sharing = max(attention.sharing(each) for each in self._layer_configs.values())
        return int((4 * widest + sharing * visible) * self._dtype.itemsize)

    # ---- passes

    def _logits(self, given: PassInputs, transient: bool) -> Tensor:
        inputs, held = self._inputs(given), self._held
        if given.slots is None and held is not None and held.graphs.enabled and _is_small(given.tokens):
            return self._replay(held.graphs, inputs, given.visible)
        return self._pair_logits(*inputs, slots=given.slots, visible=given.visible)

    def _read(self, given: PassInputs) -> None:
        self._run(*self._inputs(given), slots=given.slots, visible=given.visible, scores=False)

    def _inputs(self, given: PassInputs) -> Inputs:
        """A pass's tokens, positions, and the indices it writes at, [B, n] each.

        Token ids beyond the model's embedding become its last id. Padding is at position 0, and is written to the scratch position.
        """
        tokens, positions, valid = given.tokens, given.positions, given.valid
        if self._embedding_size < self.vocabulary_size:
            tokens = tokens.clamp(max=self._embedding_size - 1)
        if valid is None:
            return tokens, positions, positions
        index = torch.where(valid, positions, self._cache.length)
        return tokens, torch.where(valid, positions, 0), index

    def _pair_logits(self, *inputs: Tensor, slots: slice | None, visible: int) -> Tensor:
        """A pass's logits of the pair's vocabulary: padding of the model's vocabulary is cut, tokens that the model lacks have −inf."""
        logits = self._run(*inputs, slots=slots, visible=visible, scores=True)
        lacking = self.vocabulary_size - self._shared_size
        return functional.pad(logits, (0, lacking), value=-torch.inf) if lacking else logits

    def _run(self, *inputs: Tensor, slots: slice | None, visible: int, scores: bool) -> Any:
        """Run a pass. If `scores`, returns logits of the tokens that model and pair share. Inputs stay on the device, for captures."""
        tokens, positions, index = inputs
        slots = slice(0, len(tokens)) if slots is None else slots
        if self._decoder is not None:
            self._decoder.prepare(self._cache)
            hidden = self._decoder.read(tokens, positions, index, self._cache, slots, visible)
            return self._decoder.logits(hidden, self._shared_size) if scores else None
        visible = -(-visible // GRAIN) * GRAIN
        self._cache.write_to(slots, index, visible)
        model = self._model if scores else self._model.base_model
        with limited_to(chosen(self._model, tokens.numel())):
            output = model(
                input_ids=tokens,
                position_ids=positions,
                attention_mask=self._mask(positions, visible),
                use_cache=True,
                **{self._cache_argument[model]: self._cache},
            )
        return output.logits[..., : self._shared_size] if scores else None

    def _replay(self, graphs: Graphs, inputs: Inputs, visible: int) -> Tensor:
        """A pass over all slots, captured with slots and tokens rounded up to powers of two."""
        scratch = self._cache.length
        count, width = inputs[0].shape
        rows, columns = power(count), power(width)
        seen = min(max(_SHORTEST, power(visible)), scratch)
        padded = [
            functional.pad(values, (0, columns - width, 0, rows - count), value=value)
            for values, value in zip(inputs, (0, 0, scratch), strict=True)
        ]
        shape = rows, columns, seen, self.vocabulary_size
        logits = graphs.run(shape, partial(self._pair_logits, slots=None, visible=seen), padded)
        return logits[:count, :width]

    def _mask(self, positions: Tensor, visible: int) -> Tensor | dict[str, Tensor]:
        """The 4-D mask, or a mask for each of two types of layers: a query sees positions at or before its own, within the window."""
        masks = {kind: self._mask_of(kind, positions, visible) for kind in self._windows}
        return masks if len(masks) > 1 else masks.popitem()[1]

    def _mask_of(self, kind: str, positions: Tensor, visible: int) -> Tensor:
        window = self._windows[kind]
        if self._attention == attention.GROUPED_ATTENTION:
            key = self._cache.length, window
            if key not in self._cache.mask_bands:
                self._cache.mask_bands[key] = attention.mask_band(*key, self._dtype, positions.device)
            config = self._layer_configs.get(kind, self._config)
            return attention.grouped_mask(self._cache.mask_bands[key], positions, visible, config)
        seen, query = torch.arange(visible, device=positions.device), positions[:, None, :, None]
        mask = seen <= query
        if window is not None:
            mask &= seen > query - window
        if self._attention != "eager":
            return mask
        return torch.zeros(mask.shape, dtype=self._dtype, device=mask.device).masked_fill_(
            ~mask, torch.finfo(self._dtype).min
        )


class TorchModel(Model):
    """A transformers model as a `Model`."""

    def __init__(self, module: Any) -> None:
        """Wrap a model that is ready to run and that `ModelRunner` can run: see `models.servable`."""
        self._module, self.output_size = module, output_size(module)
        self.config, self.generation_config = module.config, module.generation_config
        weight = next(iter(module.parameters()))
        self.device, self.dtype = weight.device, weight.dtype
        self.precision = str(self.dtype).removeprefix("torch.")

    @property
    def gpu(self) -> torch.device | None:  # type: ignore[override]
        """See `Model`."""
        return single_gpu(self._module)

    def runner(self, vocabulary_size: int, *, apart: bool = False) -> ModelRunner:
        """See `Model`."""
        return ModelRunner(self._module, vocabulary_size, None if apart else workspace(self._module))

    def module(self) -> Any:
        """The model itself."""
        return self._module

    def free_memory(self) -> bool:
        """Free captured passes and the buffers they read; returns True if any were freed."""
        shared = workspace(self._module)
        return shared is not None and shared.free_memory()


def output_size(model: Any) -> int:
    """Number of logits that a causal language model gives, padding included."""
    head = model.get_output_embeddings()
    return int(getattr(head, "out_features", None) or model.config.get_text_config().vocab_size)


def position_bytes(model: Any) -> int:
    """Bytes of keys and values of one position, in all layers of a causal language model."""
    numbers = 0
    for config in attention.layer_configs(model.config.get_text_config()):
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        numbers += attention.key_heads(config) * size
    return int(2 * numbers * model.dtype.itemsize)


def _is_small(tokens: Tensor) -> bool:
    """Whether a pass over tokens [B, n] is so small that launching its kernels takes about as long as running them."""
    slots, width = tokens.shape
    return width <= _WIDEST and power(slots) * power(width) <= _LARGEST
