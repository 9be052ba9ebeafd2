"""From a checkpoint to a model for fused passes on the CPU, where that is possible here. Knows checkpoints; runs nothing."""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from transformers import GenerationConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from specviz.models.checkpoint import Checkpoint
from specviz.models.small_vocabulary import SmallVocabulary
from specviz.runtime.memory import give_back_memory

_log = logging.getLogger(__name__)
_KINDS = ("llama", "mistral", "qwen2", "qwen3")
_ROTARY = ("default", "linear", "llama3", "yarn")
_FLOATS = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}


def is_possible(config: Any) -> bool:
    """Whether fused passes run here, by this processor and the installed packages, for models of such a config.

    Not where SPECVIZ_CPU_RUNNER is "torch".
    """
    if os.environ.get("SPECVIZ_CPU_RUNNER") == "torch":
        return False
    reason = _processor_lacks() or _config_has(config)
    if reason:
        _log.info("%s: this model runs on torch", reason)
    return not reason


def _processor_lacks() -> str:
    if importlib.util.find_spec("numba") is None:
        return "numba is not installed"
    try:
        from specviz.runtime.cpu.fused.processor import dot_products

        return "" if dot_products() else "the processor lacks AVX2"
    except Exception as error:  # whatever a broken installation raises
        return f"numba cannot be used ({type(error).__name__})"


def _config_has(config: Any) -> str:
    """What fused passes cannot do for such a config, in a few words; "" if nothing."""
    if config.model_type not in _KINDS:
        return f"models of the kind {config.model_type} have no fused pass"
    windows = getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True)
    types = set(getattr(config, "layer_types", None) or ())
    if windows or types - {"full_attention"}:
        return "sliding windows have no fused pass"
    if getattr(config, "hidden_act", "silu") not in ("silu", "swish"):
        return f"the activation {config.hidden_act} has no fused pass"
    rotary = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    if rotary not in _ROTARY:
        return f"rotary positions of type {rotary} have no fused pass"
    size = _head_size(config)
    sizes = (config.hidden_size, config.intermediate_size, config.num_attention_heads * size)
    if (
        size % 16
        or any(each % 64 for each in sizes)
        or config.num_attention_heads % config.num_key_value_heads
    ):
        return f"sizes {sizes} are no multiples of 64"
    return ""


def _head_size(config: Any) -> int:
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def _rotary(config: Any) -> tuple[torch.Tensor, float]:
    """Inverse frequencies [head size / 2] of rotary positions, float32, and the factor of their cosines and sines.

    Those of transformers' models, whose modules would bring all of its modelling code.
    """
    kind = config.rope_parameters["rope_type"]
    if kind != "default":
        frequencies, scale = ROPE_INIT_FUNCTIONS[kind](config)
        return frequencies.float(), float(scale)
    size = _head_size(config)
    return 1.0 / (config.rope_parameters["rope_theta"] ** (torch.arange(0, size, 2).float() / size)), 1.0


def fused_model(
    checkpoint: Checkpoint,
    load: Callable[[], Any],
    vocabulary: SmallVocabulary | None = None,
    *,
    fast: bool = False,
) -> Any:
    """A `FusedModel` of a checkpoint; None where its tensors have no fused pass.

    Args:
        load: makes the same model with transformers.
        vocabulary: of a drafter that knows only some tokens.
        fast: with activations of one byte, as llama.cpp does; otherwise exact.
    """
    from specviz.runtime.cpu.fused.decoder import Decoder, DecoderShape
    from specviz.runtime.cpu.fused.processor import dot_products, has_tiles, reading
    from specviz.runtime.cpu.fused.products import Arithmetic, Precision
    from specviz.runtime.cpu.fused.runner import FusedModel

    config: Any = checkpoint.config
    unknown = {
        name.rpartition(".")[0].rpartition(".")[2] for name in checkpoint.tensors if name.endswith(".bias")
    }
    dots = dot_products()
    if dots is None or unknown - {"q_proj", "k_proj", "v_proj"}:
        return None
    frequencies, rotary_scale = _rotary(config)
    shape = DecoderShape(
        hidden=config.hidden_size,
        heads=config.num_attention_heads,
        key_heads=config.num_key_value_heads,
        head_size=_head_size(config),
        inner=config.intermediate_size,
        epsilon=config.rms_norm_eps,
        frequencies=frequencies.numpy(),
        rotary_scale=rotary_scale,
    )
    parts = _Parts(checkpoint, shape)
    try:
        layers = [parts.layer(number) for number in range(config.num_hidden_layers)]
        embedding = parts.matrix("model.embed_tokens.weight")
        head = None if config.tie_word_embeddings else parts.matrix("lm_head.weight")
    except MixedFormatsError as error:
        _log.info("%s: this model runs on torch", error)
        return None
    size = sum(each.nbytes for each in checkpoint.tensors.values())
    arithmetic = Arithmetic(dots, Precision.FAST if fast else Precision.EXACT, has_tiles(), reading(size))
    norm = parts.vector("model.norm.weight")
    decoder = Decoder(shape, layers, embedding, norm, head, arithmetic)
    decoder.choose_threads()
    give_back_memory()  # what arranging took: almost as much as the weights
    kept, reads = (None, None) if vocabulary is None else (vocabulary.kept, vocabulary.reads.numpy())
    activations = "fast" if fast else "exact"
    formats = sorted(set(checkpoint.formats.values()))
    precision = (
        f"{', '.join(formats)} weights, {activations} activations"
        if formats
        else layers[0].inputs.format.value
    )
    generation = GenerationConfig.from_model_config(config)
    return FusedModel(decoder, load, config, generation, precision, kept, reads)


class MixedFormatsError(ValueError):
    """Matrices that one product reads have different formats, or one that no product reads."""


class _Parts:
    """A checkpoint's tensors as the parts of a decoder."""

    def __init__(self, checkpoint: Checkpoint, shape: Any) -> None:
        self._checkpoint, self._shape = checkpoint, shape

    def matrix(self, *names: str, order: np.ndarray | None = None) -> Any:
        """One matrix, or several with their outputs one after another, in another order if one is given."""
        from specviz.runtime.cpu.fused.decoder import Weights
        from specviz.runtime.cpu.fused.products import Format

        tensors = [self._checkpoint.tensors[name] for name in names]
        kinds = {
            self._checkpoint.formats.get(name) or _FLOATS.get(it.dtype, str(it.dtype))
            for name, it in zip(names, tensors, strict=True)
        }
        if len(kinds) > 1 or any(kind.startswith("torch.") for kind in kinds):
            raise MixedFormatsError(
                f"{names[0]} and what is read with it have the formats {', '.join(sorted(kinds))}"
            )
        parts = [each.contiguous().view(torch.uint8).numpy() for each in tensors]
        rows = np.concatenate(parts) if len(parts) > 1 else parts[0]
        return Weights(rows if order is None else rows[order], Format[kinds.pop()])

    def vector(self, name: str, order: np.ndarray | None = None) -> Any:
        """A vector as float32; None if the checkpoint has none of that name."""
        if name not in self._checkpoint.tensors:
            return None
        values = self._checkpoint.tensors[name].float().numpy()
        return values if order is None else values[order]

    def layer(self, number: int) -> Any:
        """A layer's weights, with queries and keys ordered for the fused pass."""
        from specviz.runtime.cpu.fused.decoder import LayerWeights
        from specviz.runtime.cpu.fused.layout import adjacent_pairs

        shape, prefix = self._shape, f"model.layers.{number}"
        size, heads, key_heads = shape.head_size, shape.heads, shape.key_heads
        rotated = adjacent_pairs(heads + key_heads, size)
        order = np.concatenate([rotated, np.arange(len(rotated), len(rotated) + key_heads * size)])
        names = [f"{prefix}.self_attn.{each}_proj" for each in "qkv"]
        biases = [self.vector(f"{name}.bias") for name in names]
        has_biases = all(each is not None for each in biases)
        inner = adjacent_pairs(1, size)
        return LayerWeights(
            attention_norm=self.vector(f"{prefix}.input_layernorm.weight"),
            inputs=self.matrix(*(f"{name}.weight" for name in names), order=order),
            output=self.matrix(f"{prefix}.self_attn.o_proj.weight"),
            mlp_norm=self.vector(f"{prefix}.post_attention_layernorm.weight"),
            gate_and_up=self.matrix(f"{prefix}.mlp.gate_proj.weight", f"{prefix}.mlp.up_proj.weight"),
            down=self.matrix(f"{prefix}.mlp.down_proj.weight"),
            input_bias=np.concatenate(biases)[order] if has_biases else None,
            query_norm=self.vector(f"{prefix}.self_attn.q_norm.weight", inner),
            key_norm=self.vector(f"{prefix}.self_attn.k_norm.weight", inner),
        )
