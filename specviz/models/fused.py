"""Makes a checkpoint a model for fused passes on the CPU, if they can run it.

`_CONFIG`, `_ROTARY` and `_shapes` list what fused passes support. A checkpoint with anything else runs on torch, or is refused
there.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from specviz import environment
from specviz.models.checkpoint import Checkpoint
from specviz.models.small_vocabulary import SmallVocabulary
from specviz.runtime.memory import give_back_memory

_log = logging.getLogger(__name__)
_KINDS = ("llama", "mistral", "qwen2", "qwen3")
_ROTARY = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    "yarn": (
        *("factor", "original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow"),
        *("mscale", "mscale_all_dim", "truncate"),
    ),
}
"""Types of rotary positions, and the parameters of each besides rope_theta."""
_CONFIG = {
    # what a fused pass, or `_config_has`, reads
    *("model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "hidden_act"),
    *("num_attention_heads", "num_key_value_heads", "head_dim", "rms_norm_eps", "tie_word_embeddings"),
    *("max_position_embeddings", "rope_parameters", "rope_theta", "rope_scaling", "layer_types"),
    *("sliding_window", "use_sliding_window", "max_window_layers", "attention_bias", "mlp_bias"),
    # special ids: the generation config decides on these
    *(f"{name}_token_id" for name in ("bos", "eos", "pad", "unk", "sep", "cls", "mask", "decoder_start")),
    # for training, for other tasks, or for other programs
    *("attention_dropout", "initializer_range", "use_cache", "pretraining_tp", "chunk_size_feed_forward"),
    *("id2label", "label2id", "num_labels", "problem_type", "task_specific_params", "is_encoder_decoder"),
    *("output_attentions", "output_hidden_states", "return_dict", "architectures", "auto_map", "dtype"),
    *("torch_dtype", "transformers_version", "_name_or_path", "_model_name_or_path", "_commit_hash"),
    *("_attn_implementation", "is_llama_config", "rope_interleaved", "transformers.js_config"),
    *("unsloth_fixed", "unsloth_version"),
}
"""Fields of a config that are supported or change nothing; any other field must have its class's default."""
_FLOATS = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}


def is_possible(config: Any) -> bool:
    """Whether fused passes can run models of a config, on this processor and with the installed packages.

    Never if SPECVIZ_CPU_RUNNER is "torch".
    """
    if environment.CPU_RUNNER.value():
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
    """What in a config fused passes do not support, in a few words; "" if nothing."""
    if config.model_type not in _KINDS:
        return f"models of the kind {config.model_type} have no fused pass"
    usual = type(config)().to_dict()
    unknown = [
        name
        for name, value in config.to_dict().items()
        if name not in _CONFIG and value is not None and value != usual.get(name)
    ]
    if unknown:
        return f"{unknown[0]} in the config has no fused pass"
    types = getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers
    window = getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True)
    if window or types != ["full_attention"] * config.num_hidden_layers:
        return "sliding windows have no fused pass"
    if config.hidden_act not in ("silu", "swish"):
        return f"the activation {config.hidden_act} has no fused pass"
    if getattr(config, "attention_bias", False) or getattr(config, "mlp_bias", False):
        return "biases of all products have no fused pass"
    rotary = dict(config.rope_parameters)
    kind = rotary.get("rope_type")
    if kind not in _ROTARY or rotary.pop("partial_rotary_factor", 1) != 1:
        return f"rotary positions of type {kind} have no fused pass"
    if unknown := sorted(rotary.keys() - {"rope_type", "type", "rope_theta", *_ROTARY[kind]}):
        return f"rotary positions with {unknown[0]} have no fused pass"
    size, heads, key_heads = _head_size(config), config.num_attention_heads, config.num_key_value_heads
    if not all(isinstance(each, int) and each > 0 for each in (size, heads, key_heads)):
        return "head counts or sizes that are no numbers have no fused pass"
    sizes = (config.hidden_size, config.intermediate_size, heads * size)
    if size % 16 or any(each % 64 for each in sizes) or heads % key_heads:
        return f"sizes {sizes} are no multiples of 64"
    return ""


def _head_size(config: Any) -> int:
    return getattr(config, "head_dim", config.hidden_size // config.num_attention_heads)


def _shapes(config: Any) -> dict[str, tuple[int, ...]]:
    """Shapes of the tensors of a config's model, by name, except its output layer; transformers reads no others."""
    hidden, inner, size = config.hidden_size, config.intermediate_size, _head_size(config)
    rows = {"q": config.num_attention_heads * size}
    rows |= dict.fromkeys("kv", config.num_key_value_heads * size)
    layer = {f"self_attn.{name}_proj.weight": (count, hidden) for name, count in rows.items()}
    layer |= {"self_attn.o_proj.weight": (hidden, rows["q"]), "mlp.down_proj.weight": (hidden, inner)}
    layer |= dict.fromkeys(("mlp.gate_proj.weight", "mlp.up_proj.weight"), (inner, hidden))
    shapes: dict[str, tuple[int, ...]] = dict(layer)
    shapes |= dict.fromkeys(("input_layernorm.weight", "post_attention_layernorm.weight"), (hidden,))
    if config.model_type == "qwen2":
        shapes |= {f"self_attn.{name}_proj.bias": (count,) for name, count in rows.items()}
    if config.model_type == "qwen3":
        shapes |= dict.fromkeys(("self_attn.q_norm.weight", "self_attn.k_norm.weight"), (size,))
    numbers = range(config.num_hidden_layers)
    return {
        "model.embed_tokens.weight": (config.vocab_size, hidden),
        "model.norm.weight": (hidden,),
        **{f"model.layers.{number}.{name}": shape for number in numbers for name, shape in shapes.items()},
    }


def _known_tensors(checkpoint: Checkpoint) -> Mapping[str, torch.Tensor]:
    """The tensors that a checkpoint's model reads: without lm_head if the embedding is also the output layer.

    Raises:
        UnknownTensorsError: some are missing or do not match the config. transformers may know them by other names.
    """
    shapes, found = _shapes(checkpoint.config), checkpoint.tensors
    head, embedding = "lm_head.weight", "model.embed_tokens.weight"
    if not checkpoint.config.tie_word_embeddings:
        shapes[head] = shapes[embedding]
    elif head in found and not torch.equal(found[head], found.get(embedding, found[head][:0])):
        raise UnknownTensorsError("its output layer is tied, and another one")
    for name, shape in shapes.items():
        tensor = found.get(name)
        if tensor is None:
            raise UnknownTensorsError(f"there is no {name}")
        # Rows of a quantised tensor are bytes.
        if tensor.shape[:1] != shape[:1] or (name not in checkpoint.formats and tensor.shape != shape):
            raise UnknownTensorsError(f"{name} has the shape {tuple(tensor.shape)} instead of {shape}")
        if name not in checkpoint.formats and tensor.dtype not in _FLOATS:
            raise UnknownTensorsError(f"{name} is {tensor.dtype}")
    return {name: found[name] for name in shapes}


class UnknownTensorsError(ValueError):
    """The tensors are not those that fused passes expect from the config."""


def _rotary(config: Any) -> tuple[torch.Tensor, float]:
    """Inverse frequencies [head size / 2] of rotary positions, float32, and the factor of their cosines and sines.

    The same as in transformers' models; importing those would bring all modelling code.
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
        fast: activations take one byte, as in llama.cpp; otherwise they are exact.
    """
    from specviz.runtime.cpu.fused.decoder import Decoder, DecoderShape
    from specviz.runtime.cpu.fused.processor import dot_products, reading
    from specviz.runtime.cpu.fused.products import Arithmetic, Precision
    from specviz.runtime.cpu.fused.runner import FusedModel

    config: Any = checkpoint.config
    dots = dot_products()
    if dots is None:
        return None
    frequencies, rotary_scale = _rotary(config)
    heads = config.num_attention_heads, config.num_key_value_heads, _head_size(config)
    rotary = frequencies.numpy(), rotary_scale
    shape = DecoderShape(config.hidden_size, *heads, config.intermediate_size, config.rms_norm_eps, *rotary)
    try:
        checkpoint = replace(checkpoint, tensors=_known_tensors(checkpoint))
        parts = _Parts(checkpoint, shape)
        layers = [parts.layer(number) for number in range(config.num_hidden_layers)]
        embedding = parts.matrix("model.embed_tokens.weight")
        head = None if config.tie_word_embeddings else parts.matrix("lm_head.weight")
    except UnknownTensorsError as error:
        _log.info("%s: this model runs on torch", error)
        return None
    size = sum(each.nbytes for each in checkpoint.tensors.values())
    arithmetic = Arithmetic(dots, Precision.FAST if fast else Precision.EXACT, reading(size))
    norm = parts.vector("model.norm.weight")
    decoder = Decoder(shape, layers, embedding, norm, head, arithmetic)
    decoder.choose_threads()
    give_back_memory()  # arranging took almost as much memory as the weights
    kept, reads = (None, None) if vocabulary is None else (vocabulary.kept, vocabulary.reads.numpy())
    activations = "fast" if fast else "exact"
    formats = sorted(set(checkpoint.formats.values()))
    precision = f"{', '.join(formats)} weights, {activations} activations"
    if not formats:
        precision = layers[0].inputs.format.value
    return FusedModel(decoder, load, config, checkpoint.generation_config, precision, kept, reads)


class _Parts:
    """A checkpoint's tensors as the parts of a decoder."""

    def __init__(self, checkpoint: Checkpoint, shape: Any) -> None:
        self._checkpoint, self._shape = checkpoint, shape

    def matrix(self, *names: str, order: np.ndarray | None = None) -> Any:
        """One matrix, or several with their outputs concatenated; `order` reorders the outputs."""
        from specviz.runtime.cpu.fused.decoder import Weights
        from specviz.runtime.cpu.fused.products import Format

        tensors = [self._checkpoint.tensors[name] for name in names]
        kinds = {
            self._checkpoint.formats.get(name) or _FLOATS.get(it.dtype, str(it.dtype))
            for name, it in zip(names, tensors, strict=True)
        }
        if len(kinds) > 1:
            raise UnknownTensorsError(f"{', '.join(names)} have the formats {', '.join(sorted(kinds))}")
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
