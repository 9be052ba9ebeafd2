"""The repositories of the stand-in hub: one for every model that the registry names, real in all but size.

Every trait is that of the published files: model_type, sharing of keys, heads, rotary positions, windows, biases, ids that end a text,
dtype, how weights are divided into files, what is missing. Sizes are small, and weights are random by a fixed seed.

| repositories | trait | taken from |
|---|---|---|
| SmolLM2 | llama, 3 queries a key (135M, 360M) and 1 (1.7B), tied, rope_theta 1e5, bfloat16 | config printed in satyasundar/erav3-s13 README.md, entropix/models/smollm.py |
| SmolLM2 1.7B | rope_theta 130000; <\\|im_start\\|> 1, <\\|im_end\\|> 2 as bos, eos, pad | from memory |
| Qwen2.5 0.5B | qwen2, biases of q, k, v, 14 and 2 heads, tied, 151936 ids, rope_theta 1e6, window said and not used | rwth-i6/i6_experiments qwen2_configs.py |
| Qwen2.5 1.5B | 12 and 2 heads, tied | Qwen2.5's presets in several public repositories |
| Qwen2.5 7B | 28 and 4 heads, untied, 152064 ids, four shards | zyzshishui/slime scripts/models/qwen2.5-7B.sh; shards from memory |
| Qwen2.5 | repetition_penalty 1.1 (0.5B, 1.5B) and 1.05 (7B), temperature 0.7, top_p 0.8, top_k 20 | zlai-llm/zlai generate_config/qwen2.py |
| Qwen2.5 | two ids end a text in generation_config.json, one in config.json | from memory |
| Gemma 2 | 8 and 4 heads (2B), 16 and 8 (9B), head size other than hidden / heads, soft caps 50 and 30, window on every other layer | AI-Hypercomputer/maxtext hf_model_configs.py, transformers' Gemma2Config |
| Gemma 2 | ids 1 and <end_of_turn> end a text, cache_implementation "hybrid"; two shards and four | from memory |
| GPT-2 | 1024 positions, tied, float32; names without "transformer." and with the mask's buffers | transformers' GPT2Config; names from memory |
| OPT | pytorch_model.bin alone, float16, </s> as bos and eos | transformers' OPTConfig; files from memory |
| OPT 350M | word_embed_proj_dim half of hidden_size, norms after each block | a printed module in if001/alpaca-lora gomi.md |
| Pythia | gpt_neox, rotary_pct 0.25, parallel residual, untied, 50304 and 50688 ids, float16, no generation_config.json | transformers' GPTNeoXConfig, public Pythia-70M re-implementations; 50688 and files from memory |
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from tests.support.stand_in_hub import words
from tests.support.stand_in_hub.words import Words

_AGREEMENT = 0.9995
"""How much of every weight the models of a family have in common, as far as shapes go; 1 would make them one model."""
_WIDEST = 512
"""Above the sizes that differ within a family."""
_EMBEDDING, _SPREAD = 0.02, 2.5
"""Scales of token embeddings and of logits (nats)."""
_MAPS = {
    **dict.fromkeys(("o_proj", "out_proj", "attn.c_proj", "attention.dense"), 0.04),
    **dict.fromkeys(("q_proj", "k_proj", "c_attn", "query_key_value"), 2.0),
    "project_in": 1 / _EMBEDDING,  # nothing normalises what comes after it
    **dict.fromkeys(("down_proj", "fc2", "mlp.c_proj", "dense_4h_to_h"), 4.0),
}
"""Scales of inner maps, others 1. What the MLPs add outweighs the rest: it depends on the last token, where attention is nearly an
average, and it is not the token itself, which tied embeddings would otherwise repeat. What attention adds is small beside a token's
embedding: a drafter with fewer heads averages other values, and would agree on nothing."""
_ADDS = (
    "o_proj",
    "out_proj",
    "attn.c_proj",
    "attention.dense",
    "down_proj",
    "fc2",
    "mlp.c_proj",
    "dense_4h_to_h",
)
_LATER = 0.1
"""Factor of what layers from the third on add, which drafters have not: they would otherwise agree on no token."""
_POST_NORM = 0.3
"""Scale of Gemma's norm after attention, for the same reason."""
_ENDS = 1.3
"""Factor of the logits of ids that end a text, so that some texts end by themselves."""


@dataclass(frozen=True)
class Recipe:
    """How a repository is made.

    Attributes:
        vocabulary: number of ids of its model; those beyond the tokenizer's are padding.
        config: config.json, apart from ids and their number.
        ids: ids that config.json names, by their tokens.
        generation: generation_config.json, tokens in place of ids; None where it is missing.
        shards: number of files of weights.
        pickled: whether weights are in pytorch_model.bin alone.
        bare: names of tensors without the prefix of the base model.
        gated: whether a licence must be accepted first.
    """

    words: Callable[[], Words]
    padding: int
    seed: int
    config: Mapping[str, Any]
    ids: Mapping[str, Any]
    generation: Mapping[str, Any] | None = None
    dtype: str = "bfloat16"
    shards: int = 1
    pickled: bool = False
    bare: bool = False
    gated: bool = False
    more: Mapping[str, Any] = field(default_factory=dict)


_SMOLLM2_IDS = {"bos_token_id": "<|im_start|>", "eos_token_id": "<|im_end|>", "pad_token_id": "<|im_end|>"}
_QWEN_IDS = {"bos_token_id": "<|endoftext|>", "eos_token_id": "<|im_end|>"}
_GEMMA_IDS = {"bos_token_id": "<bos>", "eos_token_id": ["<eos>", "<end_of_turn>"], "pad_token_id": "<pad>"}
_GPT2_IDS = {"bos_token_id": "<|endoftext|>", "eos_token_id": "<|endoftext|>"}
_OPT_IDS = {"bos_token_id": "</s>", "eos_token_id": "</s>", "pad_token_id": "<pad>"}


def _smollm2(seed: int, heads: int, key_heads: int, theta: float, layers: int) -> Recipe:
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "hidden_act": "silu",
        "hidden_size": 192,
        "intermediate_size": 512,
        "max_position_embeddings": 8192,
        "mlp_bias": False,
        "num_attention_heads": heads,
        "num_hidden_layers": layers,
        "num_key_value_heads": key_heads,
        "pretraining_tp": 1,
        "rms_norm_eps": 1e-05,
        "rope_scaling": None,
        "rope_theta": theta,
        "tie_word_embeddings": True,
    }
    return Recipe(words.smollm2, 0, seed, config, _SMOLLM2_IDS, _SMOLLM2_IDS)


def _qwen(
    seed: int, hidden: int, heads: int, layers: int, tied: bool, padding: int, penalty: float, shards: int
) -> Recipe:
    config = {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": 256,
        "max_position_embeddings": 32768,
        "max_window_layers": layers,
        "num_attention_heads": heads,
        "num_hidden_layers": layers,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-06,
        "rope_theta": 1000000.0,
        "sliding_window": 32768,
        "use_sliding_window": False,
        "tie_word_embeddings": tied,
    }
    generation = {
        "bos_token_id": "<|endoftext|>",
        "pad_token_id": "<|endoftext|>",
        "eos_token_id": ["<|im_end|>", "<|endoftext|>"],
        "do_sample": True,
        "repetition_penalty": penalty,
        "temperature": 0.7,
        "top_p": 0.8,
        "top_k": 20,
    }
    return Recipe(words.qwen, padding, seed, config, _QWEN_IDS, generation, shards=shards)


def _gemma(seed: int, heads: int, layers: int, shards: int) -> Recipe:
    config = {
        "architectures": ["Gemma2ForCausalLM"],
        "model_type": "gemma2",
        "attention_bias": False,
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
        "cache_implementation": "hybrid",
        "head_dim": 24,
        "hidden_act": "gelu_pytorch_tanh",
        "hidden_activation": "gelu_pytorch_tanh",
        "hidden_size": 128,
        "intermediate_size": 512,
        "max_position_embeddings": 8192,
        "num_attention_heads": heads,
        "num_hidden_layers": layers,
        "num_key_value_heads": heads // 2,
        "query_pre_attn_scalar": 24,
        "rms_norm_eps": 1e-06,
        "rope_theta": 10000.0,
        "sliding_window": 16,
    }
    generation = {**_GEMMA_IDS, "cache_implementation": "hybrid"}
    return Recipe(words.gemma, 0, seed, config, _GEMMA_IDS, generation, shards=shards, gated=True)


def _gpt2(seed: int, heads: int, layers: int, bare: bool) -> Recipe:
    config = {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-05,
        "n_ctx": 1024,
        "n_embd": 128,
        "n_head": heads,
        "n_layer": layers,
        "n_positions": 1024,
        "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
    }
    return Recipe(
        words.gpt2,
        0,
        seed,
        config,
        _GPT2_IDS,
        {**_GPT2_IDS, "_from_model_config": True},
        "float32",
        bare=bare,
    )


def _opt(seed: int, layers: int, projected: bool) -> Recipe:
    config = {
        "architectures": ["OPTForCausalLM"],
        "model_type": "opt",
        "_remove_final_layer_norm": False,
        "activation_function": "relu",
        "do_layer_norm_before": not projected,
        "ffn_dim": 512,
        "hidden_size": 128,
        "max_position_embeddings": 2048,
        "num_attention_heads": 4,
        "num_hidden_layers": layers,
        "word_embed_proj_dim": 64 if projected else 128,
        "prefix": "</s>",
    }
    return Recipe(
        words.opt,
        7,
        seed,
        config,
        _OPT_IDS,
        {**_OPT_IDS, "_from_model_config": True},
        "float16",
        pickled=True,
    )


def _pythia(seed: int, layers: int, padding: int, shards: int) -> Recipe:
    config = {
        "architectures": ["GPTNeoXForCausalLM"],
        "model_type": "gpt_neox",
        "hidden_act": "gelu",
        "hidden_size": 128,
        "intermediate_size": 512,
        "layer_norm_eps": 1e-05,
        "max_position_embeddings": 2048,
        "num_attention_heads": 4,
        "num_hidden_layers": layers,
        "rotary_emb_base": 10000,
        "rotary_pct": 0.25,
        "tie_word_embeddings": False,
        "use_parallel_residual": True,
    }
    return Recipe(words.neox, padding, seed, config, _GPT2_IDS, None, "float16", shards=shards)


RECIPES: dict[str, Recipe] = {
    "HuggingFaceTB/SmolLM2-135M-Instruct": _smollm2(1, 6, 2, 100000, 2),
    "HuggingFaceTB/SmolLM2-360M-Instruct": _smollm2(2, 6, 2, 100000, 3),
    "HuggingFaceTB/SmolLM2-1.7B-Instruct": _smollm2(4, 6, 6, 130000, 3),
    "Qwen/Qwen2.5-0.5B-Instruct": _qwen(1, 448, 14, 2, True, 7, 1.1, 1),
    "Qwen/Qwen2.5-1.5B-Instruct": _qwen(2, 384, 12, 2, True, 7, 1.1, 1),
    "Qwen/Qwen2.5-7B-Instruct": _qwen(9, 448, 14, 2, False, 23, 1.05, 4),
    "google/gemma-2-2b-it": _gemma(1, 4, 2, 2),
    "google/gemma-2-9b-it": _gemma(2, 4, 4, 4),
    "openai-community/gpt2": _gpt2(1, 4, 2, True),
    "openai-community/gpt2-xl": _gpt2(2, 4, 4, True),
    "openai-community/gpt2-large": _gpt2(3, 4, 4, True),
    "distilbert/distilgpt2": _gpt2(4, 4, 2, False),
    "facebook/opt-125m": _opt(1, 2, False),
    "facebook/opt-350m": _opt(2, 3, True),
    "EleutherAI/pythia-70m": _pythia(1, 2, 7, 1),
    "EleutherAI/pythia-12b": _pythia(2, 4, 23, 3),
}


def write(repository: str, folder: Path) -> None:
    """Make one repository in an empty folder, the same bytes every time."""
    recipe = RECIPES[repository]
    told = _told(recipe.words)
    told.write(folder)
    size = told.size + recipe.padding
    config = {
        **recipe.config,
        "vocab_size": size,
        "torch_dtype": recipe.dtype,
        "transformers_version": "4.44.0",
    }
    (folder / "config.json").write_text(json.dumps(config | _ids(recipe.ids, told)), encoding="utf-8")
    if recipe.generation is not None:
        content = json.dumps(_ids(recipe.generation, told) | {"transformers_version": "4.44.0"})
        (folder / "generation_config.json").write_text(content, encoding="utf-8")
    tensors = _tensors(recipe, told, folder)
    if recipe.pickled:
        torch.save(tensors, folder / "pytorch_model.bin")
    else:
        _write_shards(tensors, recipe.shards, folder)


def commit(repository: str) -> str:
    """The id of a repository's one commit."""
    return hashlib.sha1(repository.encode()).hexdigest()


_told = cache(lambda make: make())


def _ids(named: Mapping[str, Any], told: Words) -> dict[str, Any]:
    """`named`, with ids in place of tokens."""

    def of(value: Any) -> Any:
        return told.id(value) if isinstance(value, str) else value

    ids = {key for key in named if key.endswith("_token_id")}
    return {
        key: ([of(each) for each in value] if isinstance(value, list) else of(value)) if key in ids else value
        for key, value in named.items()
    }


def _tensors(recipe: Recipe, told: Words, folder: Path) -> dict[str, Tensor]:
    """The weights by their published names, in the published dtype."""
    config = AutoConfig.from_pretrained(folder)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    ends = _ids(recipe.generation or recipe.ids, told)["eos_token_id"]
    _fill(model, recipe.seed, told.size, ends if isinstance(ends, list) else [ends])
    state = {name: tensor.to(getattr(torch, recipe.dtype)) for name, tensor in model.state_dict().items()}
    if model.get_output_embeddings().weight is model.get_input_embeddings().weight:
        state = {name: tensor for name, tensor in state.items() if not name.startswith("lm_head.")}
    if recipe.bare:
        state = {name.removeprefix("transformer."): tensor for name, tensor in state.items()}
        mask = torch.ones(1024, 1024).tril().view(1, 1, 1024, 1024).to(torch.uint8)[..., :8, :8]
        state |= {f"h.{layer}.attn.bias": mask.clone() for layer in range(config.n_layer)}
    return {name: tensor.contiguous().clone() for name, tensor in state.items()}


def _fill(model: Any, seed: int, known: int, ends: list[int]) -> None:
    """Overwrite all weights. Logits spread over a few nats; those of padding, which no tokenizer knows, are 0 and so never the highest."""
    config = model.config
    head, tokens = model.get_output_embeddings().weight, model.get_input_embeddings().weight
    width = head.shape[1]
    loudness = _SPREAD / (_EMBEDDING * width**0.5)
    last = {"norm.weight", "ln_f.weight", "final_layer_norm.weight", "project_out.weight"}
    projected = any(name.endswith("project_out.weight") for name, _ in model.named_parameters())
    for name, weight in model.named_parameters():
        is_words = weight is head or weight is tokens
        noise = _noise("words" if is_words else name, seed, weight)
        is_last = name.count("layers.") == 0 and any(name.endswith(each) for each in last)
        if is_words:
            weight.data = _EMBEDDING * noise
            weight.data[ends] *= _ENDS
            weight.data[known:] = 0
        elif weight.ndim == 1:
            is_scale = name.endswith("weight")
            base = loudness if is_last and not projected else 1.0
            is_gemma = config.model_type == "gemma2"
            if is_gemma and "post_attention" in name:
                base = _POST_NORM
            weight.data = 0.05 * noise + (base - is_gemma if is_scale else 0.0)
        elif "wpe" in name or "embed_positions" in name:
            weight.data = _EMBEDDING * noise
        else:
            kind = name.removesuffix(".weight")
            scale = (
                loudness if is_last else next((it for end, it in _MAPS.items() if kind.endswith(end)), 1.0)
            )
            is_later = any(f".{number}." in name for number in range(2, 9))
            if is_later and kind.endswith(_ADDS):
                scale *= _LATER
            weight.data = scale * noise / max(weight.shape) ** 0.5


def _noise(name: str, seed: int, like: Tensor) -> Tensor:
    """Standard normal numbers fixed by name and seed, nearly the same for every seed, and for every shape as far as it goes."""
    shape = [max(_WIDEST, size) for size in like.shape]

    def draw(number: int) -> Tensor:
        generator = torch.Generator().manual_seed(zlib.crc32(name.encode()) ^ (number * 7919))
        drawn = torch.randn(shape, generator=generator)
        return drawn[tuple(slice(size) for size in like.shape)]

    return _AGREEMENT * draw(0) + (1 - _AGREEMENT**2) ** 0.5 * draw(seed)


def _write_shards(tensors: Mapping[str, Tensor], count: int, folder: Path) -> None:
    """safetensors in `count` files, with their index where there are several."""
    if count == 1:
        save_file(dict(tensors), folder / "model.safetensors", metadata={"format": "pt"})
        return
    total = sum(each.nbytes for each in tensors.values())
    shards: list[dict[str, Tensor]] = [{} for _ in range(count)]
    passed = 0
    for name, tensor in tensors.items():
        shards[min(count - 1, passed * count // total)][name] = tensor
        passed += tensor.nbytes
    places = {}
    for number, shard in enumerate(shards, 1):
        file = f"model-{number:05d}-of-{count:05d}.safetensors"
        save_file(shard, folder / file, metadata={"format": "pt"})
        places |= dict.fromkeys(shard, file)
    index = {"metadata": {"total_size": total}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
