"""The runner of transformers models: on any device, of any architecture.

Knows one model, its KV cache and its masks; knows no method, no request and no randomness.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from specviz.compat.transformers import attention_of
from specviz.runtime import attention
from specviz.runtime.cpu.threads import chosen, limited_to
from specviz.runtime.cuda.decoder import decoder_of
from specviz.runtime.cuda.graphs import PLAIN, Graphs
from specviz.runtime.cuda.workspace import Workspace, single_gpu, workspace
from specviz.runtime.kv_cache import GRAIN, KVCache, power
from specviz.runtime.runner import Runner
from specviz.runtime.servable import GROUPED_ATTENTION, cache_argument, check, layer_configs

_SHORTEST = 256
"""Positions that a captured pass sees at least: fewer shapes to capture, hardly more to read."""
_WIDEST, _LARGEST = 16, 128
"""Tokens of a slot, and of all slots, in a captured pass. Launching kernels matters less in larger ones, which take much memory."""


class ModelRunner(Runner):
    """A runner of a transformers model."""

    def __init__(self, model: Any, vocabulary_size: int, workspace: Workspace | None = None) -> None:
        """Wrap `model`, whose logits become those of the pair's `vocabulary_size` tokens: cut, or −inf for tokens it lacks.

        With a `workspace` that is not in use, its buffers are used and passes are captured.
        """
        config = model.config.get_text_config()
        layer_types = set(getattr(config, "layer_types", None) or ())
        self._model = model
        self.vocabulary_size = vocabulary_size
        self._scored, self._read_ids = min(vocabulary_size, output_size(model)), input_size(model)
        self._window = getattr(config, "sliding_window", None)
        if not getattr(config, "use_sliding_window", True):
            self._window = None
        self._mixed = "sliding_attention" in layer_types
        self._always_sliding = self._window is not None and not layer_types
        self._config = config
        self._attention = attention_of(model)
        layers = layer_configs(config)
        self._layer_configs = dict(
            zip(getattr(config, "layer_types", None) or ["full_attention"], layers, strict=False)
        )
        super().__init__()
        self._workspace = workspace
        self._held: Workspace | None = None
        self._threads = chosen(model)
        self.device = model.get_input_embeddings().weight.device
        self.dtype = model.dtype
        self.position_bytes = position_bytes(model)
        self._cache_argument = {each: cache_argument(type(each)) for each in (model, model.base_model)}
        self._decoder = decoder_of(model)

    def _new_cache(self) -> KVCache:
        return KVCache()

    @property
    def _may_take_buffers(self) -> bool:  # type: ignore[override]
        return self._workspace is None

    def reserve(self, slots: int, length: int) -> None:
        """Allocate buffers ahead, where they outlive their owners (in a workspace). Only while there are no owners."""
        self._acquire()
        if self._held is not None:
            self._cache.reserve(slots, length, fresh=True)
        self._release_cache()

    def growth(self, more: int, length: int) -> int:
        """Bytes that admitting `more` owners would take, if the longest of all needs `length` positions."""
        cache = self._cache
        if self._workspace is not None and self._workspace.is_free_for(self):
            cache = self._workspace.cache
        return cache.growth(len(self.owners) + more, length, not self.owners) * self.position_bytes

    def reading_bytes(self, visible: int) -> int:
        """Bytes a prefill pass takes for each token: the widest layer's activations, and its mask."""
        if self._decoder is not None:
            return self._decoder.reading_bytes(visible)
        config = self._config
        inner = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
        widest = max(inner) if isinstance(inner, list) else inner
        sharing = max(attention.sharing(each) for each in self._layer_configs.values())
        return int((4 * widest + sharing * visible) * self.dtype.itemsize)

    def _acquire(self) -> None:
        """Use the workspace, if there is one and it is free."""
        if self._workspace is not None and self._workspace.acquire(self):
            self._cache, self._held = self._workspace.cache, self._workspace

    def _release_cache(self) -> None:
        """Free the buffers, or return them to the workspace."""
        if self._held is not None:
            self._held.release()
        self._cache, self._held = KVCache(), None

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor,
        *,
        visible: int,
        valid: Tensor | None = None,
        slots: slice | None = None,
        transient: bool = False,
    ) -> Tensor:
        """See `Runner.forward`."""
        tokens = self._readable(tokens)
        if (
            self._held is not None
            and slots is None
            and _is_small(*tokens.shape)
            and self._held.graphs.enabled
        ):
            return self._replay(self._held.graphs, tokens, positions, visible, valid)
        if self._decoder is not None:
            scored = partial(self._decoder.logits, vocabulary_size=self._scored)
            return self._of_the_pair(self._decode(scored, tokens, positions, visible, valid, slots))
        output = self._run(self._model, tokens, positions, visible, valid, slots)
        return self._of_the_pair(output.logits)

    def _readable(self, tokens: Tensor) -> Tensor:
        """Tokens as the model reads them: one that it lacks as its last one."""
        return tokens.clamp(max=self._read_ids - 1) if self._read_ids < self.vocabulary_size else tokens

    def _of_the_pair(self, logits: Tensor) -> Tensor:
        """Logits of the pair's tokens: without padding, and −inf for tokens that the model lacks."""
        logits = logits[..., : self._scored]
        lacking = self.vocabulary_size - self._scored
        return functional.pad(logits, (0, lacking), value=-torch.inf) if lacking else logits

    def _decode(
        self,
        decode: Callable[..., Tensor],
        tokens: Tensor,
        positions: Tensor,
        visible: int,
        valid: Tensor | None,
        slots: slice | None,
    ) -> Tensor:
        """A pass of the decoder that is not captured."""
        assert self._decoder is not None
        self._decoder.prepare(self._cache)
        index, positions = self._write_index(positions, valid)
        self.calls += 1
        slots = slice(0, len(self.owners)) if slots is None else slots
        return decode(tokens, positions, index, self._cache, slots, visible)

    @property
    def uncaptured(self) -> int:
        """Passes so far of shapes that are still to be captured: slower than the same will be."""
        return self._workspace.graphs.uncaptured if self._workspace is not None else 0

    def _replay(
        self, graphs: Graphs, tokens: Tensor, positions: Tensor, visible: int, valid: Tensor | None
    ) -> Tensor:
        """`forward` for all slots, as a captured pass over the next powers of two of slots and tokens."""
        scratch = self._cache.length
        index, positions = self._write_index(positions, valid)
        count, width = tokens.shape
        rows, columns = power(count), power(width)
        seen = min(max(_SHORTEST, power(visible)), scratch)
        margin = (0, columns - width, 0, rows - count)
        inputs = [
            functional.pad(values, margin, value=value)
            for values, value in ((tokens, 0), (positions, 0), (index, scratch))
        ]
        self.calls += 1
        shape = rows, columns, seen, self.vocabulary_size
        logits = graphs.run(shape, partial(self._pass, visible=seen), inputs)
        return logits[:count, :width]

    def warm_up(self, slots: int, length: int, widths: Sequence[int]) -> Iterator[None]:
        """Capture the passes over so many slots, `widths` tokens each and up to `length` positions; yields after each.

        Only while there are no owners; does nothing where passes are not captured.
        """
        owners: list[Any] = list(range(slots))
        self.admit(owners, length)
        try:
            for width, visible in product(widths, _views(length)) if self._held is not None else ():
                tokens = torch.zeros(slots, width, dtype=torch.long, device=self.device)
                positions = (visible - width + torch.arange(width, device=self.device)).expand(slots, -1)
                for _ in range(PLAIN + 1):
                    self.forward(tokens, positions, visible=visible)
                yield
        finally:
            for owner in owners:
                self.release(owner)

    def _pass(self, tokens: Tensor, positions: Tensor, index: Tensor, visible: int) -> Tensor:
        """Logits of a pass over the first slots, reading its inputs on the device alone, so that it can be captured."""
        slots = slice(0, len(tokens))
        if self._decoder is not None:
            self._decoder.prepare(self._cache)
            size = self._scored
            found = self._decoder.logits(tokens, positions, index, self._cache, slots, visible, size)
            return self._of_the_pair(found)
        self._cache.write_to(slots, index, visible)
        output = self._call(self._model, tokens, positions, visible)
        return self._of_the_pair(output.logits)

    def read(
        self,
        tokens: Tensor,
        positions: Tensor,
        *,
        visible: int,
        valid: Tensor | None = None,
        slots: slice | None = None,
    ) -> None:
        """See `Runner.read`."""
        tokens = self._readable(tokens)
        if self._decoder is not None:
            self._decode(self._decoder.read, tokens, positions, visible, valid, slots)
        else:
            self._run(self._model.base_model, tokens, positions, visible, valid, slots)

    def _run(
        self,
        model: Any,
        tokens: Tensor,
        positions: Tensor,
        visible: int,
        valid: Tensor | None,
        slots: slice | None,
    ) -> Any:
        visible = -(-visible // GRAIN) * GRAIN
        index, positions = self._write_index(positions, valid)
        self._cache.write_to(slice(0, len(self.owners)) if slots is None else slots, index, visible)
        self.calls += 1
        with limited_to(self._threads.of(tokens.numel())) if self._threads else nullcontext():
            return self._call(model, tokens, positions, visible)

    def _write_index(self, positions: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor]:
        """Where a pass writes, and its positions: padding goes to the scratch position, and counts as position 0."""
        if valid is None:
            return positions, positions
        return torch.where(valid, positions, self._cache.length), torch.where(valid, positions, 0)

    def _call(self, model: Any, tokens: Tensor, positions: Tensor, visible: int) -> Any:
        return model(
            input_ids=tokens,
            position_ids=positions,
            attention_mask=self._mask(positions, visible),
            use_cache=True,
            **{self._cache_argument[model]: self._cache},
        )

    def _mask(self, positions: Tensor, visible: int) -> Tensor | dict[str, Tensor]:
        """4-D mask(s): a query sees positions at or before its own, in sliding layers within the window."""
        if self._window is None or not (self._mixed or self._always_sliding):
            return self._one_mask(positions, visible, None, "full_attention")
        sliding = self._one_mask(positions, visible, self._window, "sliding_attention")
        if self._always_sliding:
            return sliding
        full = self._one_mask(positions, visible, None, "full_attention")
        return {"full_attention": full, "sliding_attention": sliding}

    def _one_mask(self, positions: Tensor, visible: int, window: int | None, layer_type: str) -> Tensor:
        if self._attention == GROUPED_ATTENTION:
            key = self._cache.length, window
            if key not in self._cache.mask_bands:
                self._cache.mask_bands[key] = attention.mask_band(*key, self.dtype, positions.device)
            config = self._layer_configs.get(layer_type, self._config)
            return attention.grouped_mask(self._cache.mask_bands[key], positions, visible, config)
        seen, query = torch.arange(visible, device=positions.device), positions[:, None, :, None]
        mask = seen <= query
        if window is not None:
            mask &= seen > query - window
        if self._attention != "eager":
            return mask
        return torch.zeros(mask.shape, dtype=self.dtype, device=mask.device).masked_fill_(
            ~mask, torch.finfo(self.dtype).min
        )


class TorchModel:
    """A transformers model as what a pair consists of; see `runner.Model`."""

    def __init__(self, module: Any) -> None:
        """Wrap a model that is ready to run.

        Raises:
            PairError: the runner does not serve it; see `servable.check`.
        """
        self._module = module
        self.config, self.generation_config = module.config, module.generation_config
        check(module, lambda: ModelRunner(module, self.output_size))

    @property
    def output_size(self) -> int:
        """Number of logits, padding included."""
        return output_size(self._module)

    @property
    def precision(self) -> str:
        """The dtype of its weights."""
        return str(self.dtype).removeprefix("torch.")

    @property
    def device(self) -> torch.device:
        """Where token ids go."""
        return next(iter(self._module.parameters())).device

    @property
    def dtype(self) -> torch.dtype:
        """Of weights and hidden states."""
        return next(iter(self._module.parameters())).dtype

    @property
    def gpu(self) -> torch.device | None:
        """The one GPU it is on; None elsewhere or on several devices."""
        return single_gpu(self._module)

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights that a pass over one token reads: all but embedding tables that are only indexed."""
        tables = {m.weight.data_ptr() for m in self._module.modules() if isinstance(m, nn.Embedding)}
        products = {m.weight.data_ptr() for m in self._module.modules() if isinstance(m, nn.Linear)}
        every = {weight.data_ptr(): weight.nbytes for weight in self._module.parameters()}
        return sum(size for pointer, size in every.items() if pointer not in tables - products)

    def runner(self, vocabulary_size: int, *, apart: bool = False, beside: bool = False) -> ModelRunner:
        """See `runner.Model`."""
        shared = None if apart else workspace(self._module)
        return ModelRunner(self._module, vocabulary_size, Workspace() if beside and shared else shared)

    def with_layers(self, layers: Sequence[int], load: Callable[[], Any]) -> TorchModel:
        """See `runner.Model`; loaded at once."""
        return TorchModel(load())

    def module(self) -> Any:
        """The model itself."""
        return self._module

    def prepare_drafting(self) -> None:
        """Nothing is compiled."""

    def free_memory(self) -> bool:
        """Free captured passes and the buffers they hold; returns True if any were freed."""
        kept = workspace(self._module)
        return kept is not None and kept.free_memory()


def output_size(model: Any) -> int:
    """Number of logits that a causal language model gives, padding included."""
    head = model.get_output_embeddings()
    return int(getattr(head, "out_features", None) or model.config.get_text_config().vocab_size)


def input_size(model: Any) -> int:
    """Number of ids that a language model reads, padding included."""
    embedding = model.get_input_embeddings()
    return int(getattr(embedding, "num_embeddings", None) or output_size(model))


def position_bytes(model: Any) -> int:
    """Bytes of keys and values of one position, in all layers of a causal language model."""
    numbers = 0
    for config in layer_configs(model.config.get_text_config()):
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        numbers += attention.key_heads(config) * size
    return int(2 * numbers * model.dtype.itemsize)


def _is_small(slots: int, width: int) -> bool:
    """Whether a pass is so small that launching its kernels takes about as long as running them."""
    return width <= _WIDEST and power(slots) * power(width) <= _LARGEST


def _views(length: int) -> list[int]:
    """Numbers of positions that captured passes see, up to `length`."""
    return [_SHORTEST << step for step in range(length.bit_length()) if _SHORTEST << step < length] + [length]
