"""Runs a decoder of the llama kind in eight kernels a layer, over the KV cache and a transformers model's weights.

Serves bfloat16 models of the Llama, Qwen2 and Qwen3 kinds on one GPU with bfloat16 tensor cores; other models keep
transformers' pass. The bits of a token's logits depend on its slot's tokens alone: neither on how many tokens are read at once
(draft-length invariance), nor on other slots (batch invariance).
"""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from specviz import environment
from specviz.runtime.cuda.workspace import single_gpu
from specviz.runtime.kv_cache import KVCache, power

log = logging.getLogger(__name__)

_KINDS = ("llama", "qwen2", "qwen3")
_TRIED = 12
"""Number of tokens at which a decoder's logits are compared with the model's."""
_APART = 0.2
"""Maximum RMS difference of logits, relative to their standard deviation. With random weights, bfloat16 rounding causes a third of this."""
_PART = 128
"""Positions that one program of `attend` reads."""
_QUERIES = 16
"""Queries of one program of `attend`."""
_MANY = 32_768
"""With this many outputs or more, wide blocks of a product fill a GPU."""
_FEW = 64
"""Up to this many tokens, a product is bound by reading weights, and narrow blocks let more of a GPU read."""


def _weights(layer: Any) -> SimpleNamespace:
    """A layer's weights, shared with the model's modules; `biases` and `head_norms` are None if the layer has none."""
    attention, inner = layer.self_attn, layer.mlp
    linears = attention.q_proj, attention.k_proj, attention.v_proj
    q_norm = getattr(attention, "q_norm", None)
    return SimpleNamespace(
        norm=layer.input_layernorm.weight,
        heads=tuple(each.weight for each in linears),
        biases=None if linears[0].bias is None else tuple(each.bias for each in linears),
        head_norms=None if q_norm is None else (q_norm.weight, attention.k_norm.weight),
        out=attention.o_proj.weight,
        inner_norm=layer.post_attention_layernorm.weight,
        gate=inner.gate_proj.weight,
        up=inner.up_proj.weight,
        down=inner.down_proj.weight,
    )


def fuse(model: PreTrainedModel) -> None:
    """Let a model's runners use a `Decoder`, if it can run the model and computes the same logits. Logs errors and differing logits."""
    if single_gpu(model) is None or environment.GPU_RUNNER.value():
        return
    try:
        if serves(model):
            decoder = Decoder(model)
            if not decoder.is_right(model):
                raise ValueError("its logits differ from the model's own")
            _decoders[model] = decoder
    except Exception as error:  # no Triton, no compiler for its launchers, an unknown GPU: only slower passes
        reason = str(error).partition("\n")[0] or type(error).__name__
        log.warning("a model's passes run kernel by kernel", extra={"fields": {"reason": reason}})


def decoder_of(model: nn.Module) -> Decoder | None:
    """The decoder that `fuse` made for a model; None if it made none, or the model has left its GPU."""
    decoder = _decoders.get(model)
    return decoder if decoder is not None and single_gpu(model) is not None else None


def serves(model: Any) -> bool:
    """Whether a `Decoder` can run a model that is on one GPU."""
    config = model.config.get_text_config()
    return (
        config.model_type in _KINDS
        and _is_plain(config)
        and all(map(_is_plain_layer, model.base_model.layers))
        and torch.cuda.get_device_capability(model.device) >= (8, 0)
    )


def _is_plain(config: Any) -> bool:
    """Whether the kernels support a config."""
    types = set(getattr(config, "layer_types", None) or ["full_attention"])
    turns = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    widths = config.hidden_size, config.intermediate_size, config.num_attention_heads * size
    return (
        config.hidden_act == "silu"
        and types == {"full_attention"}
        and turns in ("default", "llama3", "linear")
        and size in (32, 64, 128, 256)
        and not any(width % 32 for width in widths)
    )


def _is_plain_layer(layer: Any) -> bool:
    attention, inner = layer.self_attn, layer.mlp
    heads = [attention.q_proj, attention.k_proj, attention.v_proj]
    rest = [attention.o_proj, inner.gate_proj, inner.up_proj, inner.down_proj]
    return (
        all(type(each) is nn.Linear and each.weight.dtype == torch.bfloat16 for each in heads + rest)
        and all(each.weight.is_contiguous() for each in heads + rest)
        and len({each.bias is None for each in heads}) == 1
        and all(each.bias is None for each in rest)
    )


class Decoder:
    """The passes of one model, whose weights must not move."""

    def __init__(self, model: Any) -> None:
        """Wrap a model for which `serves` is true."""
        from specviz.runtime.cuda import kernels  # brings Triton, which torch's CPU builds lack

        self._kernels = kernels
        config = model.config.get_text_config()
        self._core, self._head = model.base_model, model.get_output_embeddings()
        self._layers = [_weights(layer) for layer in self._core.layers]
        self._hidden, self._inner = config.hidden_size, config.intermediate_size
        attention = self._core.layers[0].self_attn
        self._size, self._scale = attention.head_dim, attention.scaling
        self._heads, self._key_heads = config.num_attention_heads, config.num_key_value_heads
        self._epsilon = config.rms_norm_eps
        self._rotary: list[tuple[Tensor, Tensor]] = []
        """Cosines and sines by position. Outgrown tables stay, since captured passes may read them."""

    def reading_bytes(self, visible: int) -> int:
        """Bytes per token that a pass allocates, besides the KV cache."""
        width = self._heads * self._size
        halves = 2 * self._hidden + 2 * width + self._inner
        return 2 * halves + 4 * -(-visible // _PART) * (width + 2 * self._heads)

    def prepare(self, cache: KVCache) -> None:
        """Allocate a cache's buffers and the rotary tables for its positions: captured passes may not allocate."""
        weight = self._layers[0].heads[0]
        like = weight.new_empty(0, self._key_heads, 0, self._size)
        for number in range(len(self._layers)):
            cache.layer(number, like, like)
        if not self._rotary or len(self._rotary[-1][0]) <= cache.length:
            positions = torch.arange(power(cache.length + 1), device=weight.device)[None]
            like = torch.empty(0, dtype=torch.float32, device=weight.device)
            cosines, sines = self._core.rotary_emb(like, positions)
            half = self._size // 2
            self._rotary.append((cosines[0, :, :half].contiguous(), sines[0, :, :half].contiguous()))

    @torch.inference_mode()
    def is_right(self, model: Any) -> bool:
        """Whether this decoder's logits of a few tokens equal the model's up to rounding."""
        cache = KVCache()
        cache.reserve(1, _TRIED)
        self.prepare(cache)
        device = model.get_input_embeddings().weight.device
        positions = torch.arange(_TRIED, device=device)[None]
        tokens = (positions * 37 + 5) % model.config.get_text_config().vocab_size
        size = model.get_output_embeddings().out_features
        logits = self.logits(self.read(tokens, positions, positions, cache, slice(0, 1), _TRIED), size)
        expected = model(tokens).logits.float()
        finite = expected.isfinite()
        difference = torch.where(finite, logits - expected, 0).square().mean().sqrt()
        is_near = bool(difference <= _APART * expected[finite].std())
        return is_near and torch.equal(logits.isfinite(), finite)

    def logits(self, hidden: Tensor, vocabulary_size: int) -> Tensor:
        """Logits, float32 [B, n, vocabulary_size], of hidden states that `read` returned."""
        head, states = self._head, hidden.flatten(0, 1)
        if type(head) is not nn.Linear:  # a small vocabulary that was widened
            found: Tensor = head(self._core.norm(hidden))
            return found[..., :vocabulary_size].float()
        out = states.new_empty(len(states), vocabulary_size, dtype=torch.float32)
        self._product(self._normalized(states, self._core.norm.weight), head.weight, out, adds=False)
        return out.view(*hidden.shape[:2], -1)

    def read(
        self, tokens: Tensor, positions: Tensor, index: Tensor, cache: KVCache, slots: slice, visible: int
    ) -> Tensor:
        """Hidden states [B, n, hidden] before the final norm; keys and values are written into the cache. Only launches kernels.

        Args:
            tokens, positions: int64 [B, n]. If the pass is captured, they must keep their addresses.
            index: int64 [B, n], the index in its slot at which each token's key and value are written.
            slots: which B slots.
            visible: at least one more than the largest position.
        """
        kernels, (rows, columns) = self._kernels, tokens.shape
        count, width = rows * columns, self._heads * self._size
        hidden = self._core.embed_tokens(tokens).view(count, self._hidden)
        positions, index = positions.contiguous(), index.contiguous()
        parts = -(-visible // _PART)
        queries, mixed = (hidden.new_empty(count, width) for _ in range(2))
        inner = hidden.new_empty(count, self._inner)
        some = hidden.new_empty(parts, count, width, dtype=torch.float32)
        top, sums = (hidden.new_empty(parts, count, self._heads, dtype=torch.float32) for _ in range(2))
        sharing = self._heads // self._key_heads
        blocks = -(-columns * sharing // _QUERIES)
        shape = {"HEADS": self._heads, "SIZE": self._size}
        for layer, buffers in zip(self._layers, cache.buffers.values(), strict=True):
            keys, values = (buffer[slots] for buffer in buffers)
            steps = keys.stride(0), keys.stride(1)
            biases = layer.biases or layer.heads
            norms = layer.head_norms or (layer.norm, layer.norm)
            half = self._size // 2 if layer.head_norms or count > _FEW else max(16, self._size // 4)
            tiles = _tiles(half, count)
            heads = (self._heads + 2 * self._key_heads) * (self._size // 2 // half)
            kernels.project_heads[heads, _blocks(count, tiles["BT"])](
                *(self._normalized(hidden, layer.norm), *layer.heads, *biases, *norms, *self._rotary[-1]),
                *(positions, index, queries, keys, values, count, columns, self._epsilon, *steps),
                **shape,
                WIDTH=self._hidden,
                KEY_HEADS=self._key_heads,
                BIASED=layer.biases is not None,
                NORMED=layer.head_norms is not None,
                HALF=half,
                **tiles,
            )
            kernels.attend[rows * self._key_heads, blocks, parts](
                *(queries, keys, values, positions, some, top, sums, count, columns, self._scale, *steps),
                **shape,
                KEY_HEADS=self._key_heads,
                PART=_PART,
                BQ=_QUERIES,
            )
            kernels.join_parts[(count * self._heads,)](
                some, top, sums, positions, mixed, count, **shape, PART=_PART, num_warps=1
            )
            self._product(mixed, layer.out, hidden, adds=True)
            block = 32 if count <= _FEW else 64
            tiles = _tiles(block, count)
            normalized = self._normalized(hidden, layer.inner_norm)
            kernels.gated_product[_blocks(self._inner, block), _blocks(count, tiles["BT"])](
                *(normalized, layer.gate, layer.up, inner, count, self._inner),
                WIDTH=self._hidden,
                BN=block,
                **tiles,
            )
            self._product(inner, layer.down, hidden, adds=True)
        return hidden.view(rows, columns, -1)

    def _normalized(self, hidden: Tensor, weight: Tensor) -> Tensor:
        out = torch.empty_like(hidden)
        self._kernels.normalize[(len(hidden),)](
            hidden, weight, out, self._hidden, self._epsilon, BLOCK=power(self._hidden), num_warps=8
        )
        return out

    def _product(self, x: Tensor, weight: Tensor, out: Tensor, *, adds: bool) -> None:
        (count, width), outputs = x.shape, out.shape[1]
        block = 16 if count <= _FEW and outputs < _MANY else 64
        tiles = _tiles(block, count)
        self._kernels.product[_blocks(outputs, block), _blocks(count, tiles["BT"])](
            x, weight, out, count, outputs, WIDTH=width, ADDS=adds, BN=block, **tiles
        )


def _tiles(block: int, tokens: int) -> dict[str, int]:
    """Tile sizes and launch options of a product over `tokens` tokens, tuned on an H200; the product's bits do not depend on them."""
    columns = min(max(16, power(tokens)), 64 if block < 64 else 128)
    if block < 64:
        step, warps, stages = 256 if block < 32 else 128, 2, 4 if columns == 16 else 3
    else:
        step, warps, stages = 128 if columns == 16 else 64, 4 if columns < 128 else 8, 3
    return {"BK": step, "BT": columns, "num_warps": warps, "num_stages": stages}


def _blocks(size: int, block: int) -> int:
    return -(-size // block)


_decoders: WeakKeyDictionary[nn.Module, Decoder] = WeakKeyDictionary()
