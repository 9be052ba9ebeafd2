"""Every causal language model of the installed transformers, tiny and random, made from its config class by one recipe."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import torch
from transformers import (
    CONFIG_MAPPING,
    AutoModelForCausalLM,
    GenerationConfig,
    PretrainedConfig,
    PreTrainedModel,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

VOCABULARY = 96
_LARGEST = 3_000_000
"""Parameters: what has more takes too long, and has sizes that the recipe does not know."""

_SIZES: dict[str, Any] = {
    **dict.fromkeys(("vocab_size", "vocab_size_per_layer_input"), VOCABULARY),
    **dict.fromkeys(
        (
            *(
                "hidden_size",
                "d_model",
                "n_embd",
                "dim",
                "embedding_size",
                "embed_dim",
                "word_embed_proj_dim",
            ),
            *("attention_hidden_size", "lru_width", "moe_intermediate_size", "expert_ffn_hidden_size"),
            *("shared_expert_intermediate_size", "shared_intermediate_size"),
        ),
        32,
    ),
    **dict.fromkeys(
        (
            *("intermediate_size", "ffn_dim", "d_ff", "d_inner", "inner_dim", "ffn_hidden_size", "n_inner"),
            *("decoder_ffn_dim", "encoder_ffn_dim", "dim_ff", "dff", "intermediate_size_mlp", "mamba_d_ssm"),
        ),
        64,
    ),
    **dict.fromkeys(
        (
            *("num_hidden_layers", "n_layer", "num_layers", "n_layers", "decoder_layers", "encoder_layers"),
            *(
                "num_decoder_layers",
                "num_encoder_layers",
                "full_attention_interval",
                "global_attn_every_n_layers",
            ),
            *("num_key_value_heads", "num_kv_heads", "swa_num_key_value_heads", "num_global_key_value_heads"),
            *("num_experts_per_tok", "moe_topk", "moe_k", "num_experts_per_token", "linear_num_key_heads"),
            *("index_n_heads", "n_mamba_heads", "type_vocab_size"),
        ),
        2,
    ),
    **dict.fromkeys(
        (
            *("num_attention_heads", "n_head", "n_heads", "num_heads", "decoder_attention_heads"),
            *("encoder_attention_heads", "num_decoder_attention_heads", "num_encoder_attention_heads"),
            *(
                "swa_num_attention_heads",
                "num_experts",
                "n_routed_experts",
                "num_local_experts",
                "moe_num_experts",
            ),
            *("linear_num_value_heads", "mamba_n_heads", "mamba_num_heads", "rotary_dim"),
        ),
        4,
    ),
    **dict.fromkeys(
        (
            *("head_dim", "attention_head_dim", "dim_head", "kv_channels", "d_kv", "d_head", "swa_head_dim"),
            *("global_head_dim", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "swa_v_head_dim"),
            *("index_head_dim", "linear_key_head_dim", "linear_value_head_dim", "mamba_d_state"),
            *("ssm_state_size", "state_size", "hidden_size_per_layer_input"),
            # Shorter than the longer prompt.
            *(
                "sliding_window",
                "attention_window_size",
                "window_size",
                "attention_chunk_size",
                "local_attention",
            ),
        ),
        8,
    ),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank", "mamba_d_head", "mamba_head_dim", "qk_head_dim"), 16),
    **dict.fromkeys(
        (
            *(
                "max_position_embeddings",
                "n_positions",
                "n_ctx",
                "max_seq_len",
                "seq_length",
                "context_length",
            ),
            "max_sequence_length",
        ),
        160,
    ),
    **dict.fromkeys(
        (
            *("n_group", "topk_group", "n_shared_experts", "num_shared_experts", "first_k_dense_replace"),
            *("mamba_n_groups", "mamba_ngroups", "num_mem_blocks", "bos_token_id", "decoder_start_token_id"),
        ),
        1,
    ),
    **dict.fromkeys(("pad_token_id", "num_kv_shared_layers"), 0),
    **dict.fromkeys(("attention_dropout", "dropout"), 0.0),
    **dict.fromkeys(("eos_token_id", "sep_token_id", "forced_eos_token_id", "forced_bos_token_id")),
    **dict.fromkeys(("image_size",), 16),
    **dict.fromkeys(("patch_size",), 8),
    "index_topk": 1024,
}
_EXTRA: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [1]},
    "dots3_note_text": {"num_key_value_heads": 4},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"]},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "mamba2": {"num_heads": 8, "head_dim": 8, "n_groups": 1},
    "modernbert-decoder": {"sep_token_id": 2, "cls_token_id": 2, "eos_token_id": 2},
    # Its own pass knows no window; only what its own cache has dropped is not seen.
    "moshi": {"sliding_window": 160},
    "reformer": {"axial_pos_embds": False, "is_decoder": True, "attn_layers": ["local", "lsh"]},
    "roc_bert": {
        **{"pronunciation_vocab_size": VOCABULARY, "shape_vocab_size": VOCABULARY},
        **{"pronunciation_embed_dim": 8, "shape_embed_dim": 8},
    },
    "xmod": {"languages": ["en"], "default_language": "en"},
    "zaya": {"num_experts_per_tok": 1},
}
_LISTS = ("layer_types", "layers_block_type", "mlp_layer_types")


def model_types() -> list[str]:
    """All types for which transformers has a causal language model."""
    return sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def _tiny_config(kind: str, config: type[PretrainedConfig]) -> Any:
    """A config with one layer of each type that the default has, and two at least."""
    named = {*inspect.signature(config.__init__).parameters, *getattr(config, "__dataclass_fields__", {})}
    aliases = config.attribute_map
    given = {name: value for name, value in _SIZES.items() if name in named | set(aliases)}
    for alias, name in aliases.items():
        if alias in given and name in given:
            del given[alias]
    for name, sub in config.sub_configs.items():
        if issubclass(sub, PretrainedConfig):
            given[name] = _tiny_config(sub.model_type, sub)
    try:
        default = config()
    except Exception:  # some need arguments
        default = None
    found = {name: getattr(default, name, None) for name in _LISTS if name in named and name not in aliases}
    types = {name: list(dict.fromkeys(value)) for name, value in found.items() if isinstance(value, list)}
    count = max([2, *map(len, types.values())])
    given |= {name: (value * count)[:count] for name, value in types.items()}
    given |= {name: count for name in ("num_hidden_layers", "n_layer", "num_layers") if name in given}
    if "qk_rope_head_dim" in given:  # latent attention
        given.pop("head_dim", None)
        given |= {"num_key_value_heads": 4} if "num_key_value_heads" in given else {}
    if "tie_word_embeddings" in named:
        given["tie_word_embeddings"] = False
    return config(**given | _EXTRA.get(kind, {}))


def tiny_architecture(kind: str, seed: int) -> PreTrainedModel:
    """A model of a type in float32; models of two seeds often choose the same token.

    Raises:
        ValueError: it would be large. Whatever else its classes raise.
    """
    config = _tiny_config(kind, CONFIG_MAPPING[kind])
    for each in (config, config.get_text_config(decoder=True)):
        for name in ("eos_token_id", "forced_eos_token_id"):
            if getattr(each, name, None) is not None:
                setattr(each, name, None)
    if hasattr(config, "is_decoder"):
        config.is_decoder = True
    with torch.device("meta"):
        shell = AutoModelForCausalLM.from_config(copy.deepcopy(config))
    if (size := sum(each.numel() for each in shell.parameters())) > _LARGEST:
        raise ValueError(f"{size} parameters")
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    common, own = torch.Generator().manual_seed(0), torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        if weight.dim() < 2:
            weight.data.add_(0.1 * torch.randn(weight.shape, generator=common))
            continue
        scale = 1.0 if "emb" in name or "wte" in name else weight.shape[-1] ** -0.5
        noise = 0.97 * torch.randn(weight.shape, generator=common) + 0.24 * torch.randn(
            weight.shape, generator=own
        )
        weight.data.copy_(scale * noise)
    model.generation_config = GenerationConfig(eos_token_id=None, pad_token_id=0, bos_token_id=1)
    return model.eval()
