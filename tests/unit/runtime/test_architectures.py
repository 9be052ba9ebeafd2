"""Law 5 for every architecture of transformers: a text is what `generate` writes, or the model is refused in a sentence."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import pytest
import torch
from torch.nn import functional
from transformers import (
    CONFIG_MAPPING,
    AutoModelForCausalLM,
    GenerationConfig,
    PretrainedConfig,
    PreTrainedModel,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

import specviz
from specviz.errors import PairError, RequestError

VOCABULARY = 96
_LARGEST = 3_000_000
"""Parameters: what has more takes too long, and has sizes that the recipe does not know."""

_NAMES: dict[Any, str] = {
    VOCABULARY: "vocab_size vocab_size_per_layer_input",
    32: "hidden_size d_model n_embd dim embedding_size embed_dim word_embed_proj_dim attention_hidden_size lru_width "
    "moe_intermediate_size expert_ffn_hidden_size shared_expert_intermediate_size shared_intermediate_size",
    64: "intermediate_size ffn_dim d_ff d_inner inner_dim ffn_hidden_size n_inner decoder_ffn_dim encoder_ffn_dim dim_ff dff "
    "intermediate_size_mlp mamba_d_ssm",
    2: "num_hidden_layers n_layer num_layers n_layers decoder_layers encoder_layers num_decoder_layers num_encoder_layers "
    "full_attention_interval global_attn_every_n_layers num_key_value_heads num_kv_heads swa_num_key_value_heads "
    "num_global_key_value_heads num_experts_per_tok moe_topk moe_k num_experts_per_token linear_num_key_heads index_n_heads "
    "n_mamba_heads type_vocab_size",
    4: "num_attention_heads n_head n_heads num_heads decoder_attention_heads encoder_attention_heads num_decoder_attention_heads "
    "num_encoder_attention_heads swa_num_attention_heads num_experts n_routed_experts num_local_experts moe_num_experts "
    "linear_num_value_heads mamba_n_heads mamba_num_heads rotary_dim",
    # Windows are shorter than the longer prompt.
    8: "head_dim attention_head_dim dim_head kv_channels d_kv d_head swa_head_dim global_head_dim qk_rope_head_dim "
    "qk_nope_head_dim v_head_dim swa_v_head_dim index_head_dim linear_key_head_dim linear_value_head_dim mamba_d_state "
    "ssm_state_size state_size hidden_size_per_layer_input sliding_window attention_window_size window_size attention_chunk_size "
    "local_attention patch_size",
    16: "q_lora_rank kv_lora_rank mamba_d_head mamba_head_dim qk_head_dim image_size",
    160: "max_position_embeddings n_positions n_ctx max_seq_len seq_length context_length max_sequence_length",
    1: "n_group topk_group n_shared_experts num_shared_experts first_k_dense_replace mamba_n_groups mamba_ngroups "
    "num_mem_blocks bos_token_id decoder_start_token_id",
    0: "pad_token_id num_kv_shared_layers",
    None: "eos_token_id sep_token_id forced_eos_token_id forced_bos_token_id",
    1024: "index_topk",
}
_SIZES = {name: size for size, names in _NAMES.items() for name in names.split()}
_SIZES |= {"attention_dropout": 0.0, "dropout": 0.0}
_EXTRA: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [1]},
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
_NEW, _LENGTHS = 10, (14, 5)
NOT_MADE = {
    "blt", "cohere_compass_text", "dbrx", "dots3_note", "dots3_note_text", "fuyu", "gemma3", "gemma3n",
    "gemma4_assistant", "gemma4_unified", "gemma4_unified_assistant", "got_ocr2", "inkling2_loop_text",
    "inkling2_text", "moss_transcribe_diarize", "musicgen", "musicgen_melody", "phi4_multimodal",
    "qwen4_exp", "qwen4_exp_text",
}  # fmt: skip
"""Types that the recipe does not make: they need sizes it does not know, refuse its config, or need timm."""
REFUSED = {
    "axk2", "bailing_hybrid", "bamba", "bart", "bigbird_pegasus", "blenderbot", "blenderbot-small", "bloom",
    "cpmant", "deepseek_v32", "deepseek_v4", "dory", "falcon_h1", "falcon_mamba", "glm_moe_dsa", "gpt_neo",
    "granitemoehybrid", "hy_v4", "inkling_text", "jamba", "kimi_linear", "lara_mini", "lfm2_moe", "lfm3",
    "llama4", "llama4_text", "longcat_flash", "mamba", "mamba2", "marian", "mbart", "minimax", "mvp",
    "nemotron_h", "olmo_hybrid", "openai-gpt", "pegasus", "plbart", "prophetnet", "qwen3_5", "qwen3_5_moe",
    "qwen3_5_moe_text", "qwen3_5_text", "qwen3_next", "recurrent_gemma", "reformer", "roformer", "rwkv",
    "trocr", "whisper", "xlm", "xlnet", "xlstm", "zamba", "zamba2", "zaya",
}  # fmt: skip
"""Types that are refused as the recipe makes them."""


def _tiny_config(kind: str, config: type[PretrainedConfig], **fields: Any) -> Any:
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
    return config(**given | _EXTRA.get(kind, {}) | fields)


def tiny_architecture(kind: str, *seeds: int, **fields: Any) -> list[PreTrainedModel]:
    """Models of a type in float32, one for each seed, with `fields` in their config; two seeds often choose the same token.

    Raises:
        ValueError: it would be large. Whatever else its classes raise.
    """
    config = _tiny_config(kind, CONFIG_MAPPING[kind], **fields)
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
    first = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    first.generation_config = GenerationConfig(eos_token_id=None, pad_token_id=0, bos_token_id=1)
    models = [first, *(copy.deepcopy(first) for _ in seeds[1:])]
    for model, seed in zip(models, seeds, strict=False):
        common, own = torch.Generator().manual_seed(0), torch.Generator().manual_seed(seed)
        for name, weight in model.named_parameters():
            if weight.dim() < 2:
                weight.data.add_(0.1 * torch.randn(weight.shape, generator=common))
                continue
            scale = 1.0 if "emb" in name or "wte" in name else weight.shape[-1] ** -0.5
            drawn = [torch.randn(weight.shape, generator=each) for each in (common, own)]
            weight.data.copy_(scale * (0.97 * drawn[0] + 0.24 * drawn[1]))
    return [model.eval() for model in models]


def _prompt(length: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(length)
    return torch.randint(3, VOCABULARY, (1, length), generator=generator)


def outcome(kind: str) -> str:
    """ "right", "wrong", or the sentence of refusal, for two prompts in one batch."""
    verifier, drafter = tiny_architecture(kind, 1, 2)
    prompts = [_prompt(length) for length in _LENGTHS]
    ask = {"do_sample": False, "max_new_tokens": _NEW}
    missing = max(_LENGTHS) - min(_LENGTHS)
    ids = torch.cat([prompts[0], functional.pad(prompts[1], (missing, 0))])
    mask = torch.cat([torch.ones_like(prompts[0]), functional.pad(torch.ones_like(prompts[1]), (missing, 0))])
    cascade = {"drafter": drafter, "method": "speed", "lenience": 0.0, "draft_length": 5}
    try:
        sequences = verifier.generate(
            ids, attention_mask=mask, **ask, custom_generate=specviz.cascade_generate, **cascade
        )
    except (PairError, RequestError) as error:
        return str(error)
    wanted = [verifier.generate(each, **ask)[0, each.shape[1] :].tolist() for each in prompts]
    return "right" if sequences[:, max(_LENGTHS) :].tolist() == wanted else "wrong"


@pytest.mark.parametrize("kind", sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.keys() - NOT_MADE))
@pytest.mark.filterwarnings("ignore")
def test_an_architecture_writes_what_generate_writes_or_is_refused(kind: str) -> None:
    """Also of a later transformers: a new type is served, refused, or fails here until it is made or listed."""
    found = outcome(kind)
    assert found == "right" or found.startswith("Models of the type ")
    assert (found == "right") == (kind not in REFUSED), found


LONGROPE = {
    "original_max_position_embeddings": 64,
    "rope_parameters": {
        **{"rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 64},
        **{"short_factor": [1.0] * 4, "long_factor": [1.0, 4.0, 12.0, 32.0]},
    },
}
"""Of a Phi-3 whose frequencies change after 64 positions."""


@pytest.mark.parametrize("draft_length", [1, 6])
def test_longrope_is_exact_up_to_its_original_length_and_refused_beyond(draft_length: int) -> None:
    """Laws 2 and 5: transformers reads the whole text again where it passes that length, which a cache cannot."""
    verifier, drafter = tiny_architecture("phi3", 1, 2, **LONGROPE)
    prompt = torch.cat([_prompt(14)] * 4, 1)[:, :48]
    ask = {"do_sample": False, "attention_mask": torch.ones_like(prompt)}
    cascade = {
        **{"custom_generate": specviz.cascade_generate, "drafter": drafter, "method": "speed"},
        **{"lenience": 0.0, "draft_length": draft_length},
    }
    wanted = verifier.generate(prompt, max_new_tokens=16, **ask)
    assert torch.equal(verifier.generate(prompt, max_new_tokens=16, **ask, **cascade), wanted)
    with pytest.raises(RequestError, match="64"):
        verifier.generate(prompt, max_new_tokens=17, **ask, **cascade)
