"""The repositories of the stand-in hub: for two models of each architecture of the registry, real in all but size.

`recipes.json` has the traits of the published files, by family and by repository: model_type, sharing of keys, heads, rotary positions,
windows, biases, ids that end a text, dtype, how weights are divided into files, what is missing. They were taken from transformers'
config classes and from configs in public repositories; shards, ids that end a text and OPT's files were written from memory. Sizes are
small, and weights are random by a fixed seed.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import save_torch_state_dict
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
    *("o_proj", "out_proj", "attn.c_proj", "attention.dense"),
    *("down_proj", "fc2", "mlp.c_proj", "dense_4h_to_h"),
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
        words: its tokenizer.
        config: config.json, apart from ids and their number.
        ids: ids that config.json names, by their tokens.
        generation: generation_config.json, tokens in place of ids; None where it is missing.
        seed: of the weights.
        padding: ids of its model beyond the tokenizer's.
        shards: number of files of weights.
        pickled: whether weights are in pytorch_model.bin alone.
        bare: names of tensors without the prefix of the base model.
        gated: whether a licence must be accepted first.
    """

    words: Callable[[], Words]
    config: Mapping[str, Any]
    ids: Mapping[str, Any]
    generation: Mapping[str, Any] | None
    seed: int
    dtype: str
    padding: int = 0
    shards: int = 1
    pickled: bool = False
    bare: bool = False
    gated: bool = False

    @staticmethod
    def of(given: Mapping[str, Any]) -> Recipe:
        """A repository of `recipes.json`, whose fields complete those of its family."""
        name, own = given["family"], {key: it for key, it in given.items() if key != "family"}
        family = {key: it for key, it in words.RECIPES["families"][name].items() if key != "tokenizer"}
        for part in ("config", "generation"):
            if part in own:
                own[part] = family[part] | own[part]
        return Recipe(words=getattr(words, name), **family | own)


RECIPES = {name: Recipe.of(given) for name, given in words.RECIPES["repositories"].items()}


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
        size = sum(tensor.nbytes for tensor in tensors.values())
        save_torch_state_dict(tensors, folder, max_shard_size=int(size / (recipe.shards - 0.5)))


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
