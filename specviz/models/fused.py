"""Turns a checkpoint into a model that runs fused passes on the CPU, if they support it.

`_CONFIG`, `_ROTARY` and `_Tensors` define what fused passes support. Any other checkpoint is given to the torch runner, which may
refuse it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from specviz import environment
from specviz.core.backend import compiled_backend
from specviz.models.checkpoint import QUANTISED, Checkpoint
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
"""Types of rotary positions, and the parameters that each may have besides rope_theta."""
_CONFIG = {
    # what a fused pass, or `_is_served`, reads
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
"""Fields of a config that are supported or change nothing; any other field must be None or have its class's default."""
_FLOATS = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}


def is_possible(config: Any) -> bool:
    """Whether fused passes can run models of a config, on this processor and with the installed packages.

    False if SPECVIZ_CPU_RUNNER is "torch".
    """
    if environment.CPU_RUNNER.value():
        return False
    try:
        from specviz.runtime.cpu.fused.processor import dot_products

        has_instructions = dot_products() is not None
    except Exception:  # numba is missing, or broken in whatever way
        has_instructions = False
    possible = has_instructions and _is_served(config)
    if not possible:
        _log.info("a model of the kind %s runs on torch", config.model_type)
    return possible


def _is_served(config: Any) -> bool:
    """Whether fused passes support everything that a config asks for."""
    if config.model_type not in _KINDS:
        return False
    usual = type(config)().to_dict()
    given = {name: value for name, value in config.to_dict().items() if name not in _CONFIG}
    full = ["full_attention"] * config.num_hidden_layers
    rotary = dict(config.rope_parameters)
    kind, turned = rotary.pop("rope_type", None), rotary.pop("partial_rotary_factor", 1)
    size, heads, key_heads = _head_size(config), config.num_attention_heads, config.num_key_value_heads
    return (
        all(value is None or value == usual.get(name) for name, value in given.items())
        and (getattr(config, "layer_types", None) or full) == full
        and not (getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True))
        and config.hidden_act in ("silu", "swish")
        and not (getattr(config, "attention_bias", False) or getattr(config, "mlp_bias", False))
        and kind in _ROTARY
        and turned == 1
        and rotary.keys() <= {"type", "rope_theta", *_ROTARY[kind]}
        and all(isinstance(each, int) and each > 0 for each in (size, heads, key_heads))
        and not any(each % 64 for each in (config.hidden_size, config.intermediate_size, heads * size))
        and not size % 16
        and not heads % key_heads
    )


def _head_size(config: Any) -> int:
    return getattr(config, "head_dim", config.hidden_size // config.num_attention_heads)


class UnknownTensorsError(ValueError):
    """The tensors are not those that fused passes expect from the config."""


def _rotary(config: Any) -> tuple[np.ndarray, float]:
    """Inverse frequencies of rotary positions, float32 [head size / 2], and the factor by which cosines and sines are multiplied.

    The kind "default" is computed here: in transformers it is part of the modelling code, which is slow to import.
    """
    kind = config.rope_parameters["rope_type"]
    if kind != "default":
        frequencies, scale = ROPE_INIT_FUNCTIONS[kind](config)
        return frequencies.float().numpy(), float(scale)
    size = _head_size(config)
    exponents = torch.arange(0, size, 2).float() / size
    return (1.0 / config.rope_parameters["rope_theta"] ** exponents).numpy(), 1.0


def fused_model(
    checkpoint: Checkpoint,
    load: Callable[[], Any],
    vocabulary: SmallVocabulary | None = None,
    *,
    fast: bool = False,
) -> Any:
    """A `FusedModel` of a checkpoint; None if fused passes do not support its tensors or this processor.

    Args:
        load: loads the same model with transformers.
        vocabulary: the drafter's small vocabulary, if it has one. A vocabulary that does not match the config raises ValueError.
        fast: whether activations take one byte, as in llama.cpp; otherwise they are exact.
    """
    from specviz.runtime.cpu.fused import functions
    from specviz.runtime.cpu.fused.decoder import Decoder, DecoderShape
    from specviz.runtime.cpu.fused.processor import dot_products, reading
    from specviz.runtime.cpu.fused.products import Arithmetic, Precision
    from specviz.runtime.cpu.fused.runner import FusedModel

    config: Any = checkpoint.config
    if vocabulary is not None:
        vocabulary.check(config.vocab_size)
    dots = dot_products()
    if dots is None:
        return None
    heads = config.num_attention_heads, config.num_key_value_heads, _head_size(config)
    rotary = _rotary(config)
    shape = DecoderShape(config.hidden_size, *heads, config.intermediate_size, config.rms_norm_eps, *rotary)
    try:
        tensors = _Tensors(checkpoint)
        layers = [tensors.layer(number) for number in range(config.num_hidden_layers)]
        embedding, head = tensors.embedding_and_head()
        norm = tensors.vector("model.norm.weight", config.hidden_size)
    except UnknownTensorsError as error:
        _log.info("%s: this model runs on torch", error)
        return None
    size = sum(each.nbytes for each in checkpoint.tensors.values())
    arithmetic = Arithmetic(dots, Precision.FAST if fast else Precision.EXACT, reading(size))
    decoder = Decoder(shape, layers, embedding, norm, head, arithmetic)
    decoder.choose_threads()
    if compiled_backend() is not None:
        functions.draft()  # compiled now, so that the first round takes no longer than others
    give_back_memory()  # arranging took almost as much memory as the weights
    kept, reads = (None, None) if vocabulary is None else (vocabulary.kept, vocabulary.reads.numpy())
    precision = layers[0].inputs.format.value
    if formats := sorted(set(checkpoint.formats.values())):
        precision = f"{', '.join(formats)} weights, {'fast' if fast else 'exact'} activations"
    return FusedModel(decoder, load, config, checkpoint.generation_config, precision, kept, reads)


class _Tensors:
    """Reads a checkpoint's tensors as the weights of a decoder. Tensors that no method reads are ignored, as in transformers.

    Every method raises UnknownTensorsError if a tensor is missing or does not match the config; transformers may find it by another name.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint, self._config = checkpoint, checkpoint.config

    def _find(self, name: str, *shape: int) -> tuple[torch.Tensor, str]:
        """The tensor `name` and its format. Dequantised, the tensor must have the shape `shape`."""
        tensor, kind = self._checkpoint.tensors.get(name), self._checkpoint.formats.get(name, "")
        is_quantised = kind in QUANTISED and len(shape) == 2
        if is_quantised:
            from specviz.runtime.cpu.fused.layout import ROW_BYTES
            from specviz.runtime.cpu.fused.products import Format

            shape = shape[0], int(shape[1] * ROW_BYTES[Format[kind]])
        dtypes = {torch.uint8} if is_quantised else _FLOATS.keys()
        if tensor is None or tensor.shape != shape or tensor.dtype not in dtypes:
            raise UnknownTensorsError(f"{name} is not as fused passes read it")
        return tensor, kind if is_quantised else _FLOATS[tensor.dtype]

    def vector(self, name: str, size: int, order: Any = slice(None)) -> Any:
        """A vector as float32; `order` reorders it."""
        return self._find(name, size)[0].float().numpy()[order]

    def matrix(self, inputs: int, outputs: Mapping[str, int], order: np.ndarray | None = None) -> Any:
        """One or more tensors, concatenated. `outputs` maps a tensor's name to its number of outputs; `order` reorders all outputs."""
        from specviz.runtime.cpu.fused.decoder import Weights
        from specviz.runtime.cpu.fused.products import Format

        found = [self._find(name, count, inputs) for name, count in outputs.items()]
        kinds = {kind for _, kind in found}
        if len(kinds) > 1:
            raise UnknownTensorsError(f"{', '.join(outputs)} have the formats {', '.join(sorted(kinds))}")
        parts = [tensor.contiguous().view(torch.uint8).numpy() for tensor, _ in found]
        rows = np.concatenate(parts) if len(parts) > 1 else parts[0]
        return Weights(rows if order is None else rows[order], Format[kinds.pop()])

    def embedding_and_head(self) -> tuple[Any, Any]:
        """The token embedding and the output layer; the output layer is None if it is tied to the embedding."""
        hidden, size, tensors = self._config.hidden_size, self._config.vocab_size, self._checkpoint.tensors
        embedding, head = "model.embed_tokens.weight", "lm_head.weight"
        found = self.matrix(hidden, {embedding: size})
        if not self._config.tie_word_embeddings:
            return found, self.matrix(hidden, {head: size})
        if head in tensors and not torch.equal(tensors[head], tensors[embedding]):
            raise UnknownTensorsError("its output layer is tied, but differs from the embedding")
        return found, None

    def layer(self, number: int) -> Any:
        """The weights of layer `number`, with the outputs for queries and keys in the fused pass's order."""
        from specviz.runtime.cpu.fused.decoder import LayerWeights
        from specviz.runtime.cpu.fused.layout import adjacent_pairs

        config, size, prefix = self._config, _head_size(self._config), f"model.layers.{number}"
        hidden, inner = config.hidden_size, config.intermediate_size
        heads, key_heads = config.num_attention_heads, config.num_key_value_heads
        rotated = adjacent_pairs(heads + key_heads, size)
        order = np.concatenate([rotated, np.arange(len(rotated), len(rotated) + key_heads * size)])
        counts = {"q": heads, "k": key_heads, "v": key_heads}
        rows = {f"{prefix}.self_attn.{name}_proj": count * size for name, count in counts.items()}
        biases, norms = None, [None, None]
        if config.model_type == "qwen2":
            biases = np.concatenate([self.vector(f"{name}.bias", count) for name, count in rows.items()])[
                order
            ]
        if config.model_type == "qwen3":
            pairs = adjacent_pairs(1, size)
            norms = [self.vector(f"{prefix}.self_attn.{name}_norm.weight", size, pairs) for name in "qk"]
        return LayerWeights(
            attention_norm=self.vector(f"{prefix}.input_layernorm.weight", hidden),
            inputs=self.matrix(hidden, {f"{name}.weight": count for name, count in rows.items()}, order),
            output=self.matrix(heads * size, {f"{prefix}.self_attn.o_proj.weight": hidden}),
            mlp_norm=self.vector(f"{prefix}.post_attention_layernorm.weight", hidden),
            gate_and_up=self.matrix(
                hidden, {f"{prefix}.mlp.{name}_proj.weight": inner for name in ("gate", "up")}
            ),
            down=self.matrix(inner, {f"{prefix}.mlp.down_proj.weight": hidden}),
            input_bias=biases,
            query_norm=norms[0],
            key_norm=norms[1],
        )
