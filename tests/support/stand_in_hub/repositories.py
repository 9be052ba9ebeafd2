"""The repositories of the stand-in hub: for two models of each architecture of the registry, real in all but size.

`recipes.json` has the traits of the published files, by family and by repository: model_type, sharing of keys, heads, rotary positions,
windows, biases, ids that end a text, dtype, how weights are divided into files, what is missing. They were taken from transformers'
config classes and from configs in public repositories; shards, ids that end a text and OPT's files were written from memory. Sizes are
small, weights are random by a fixed seed, and no output layer is tied: the text would be one token again and again.
"""

from __future__ import annotations

import hashlib
import json
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
from tests.support.tiny import fill


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
    fill(model, recipe.seed)
    model.get_output_embeddings().weight.data[told.size :] = (
        0  # padding, which no tokenizer knows, is never the highest
    )
    state = {name: tensor.to(getattr(torch, recipe.dtype)) for name, tensor in model.state_dict().items()}
    if recipe.bare:
        state = {name.removeprefix("transformer."): tensor for name, tensor in state.items()}
        mask = torch.ones(1024, 1024).tril().view(1, 1, 1024, 1024).to(torch.uint8)[..., :8, :8]
        state |= {f"h.{layer}.attn.bias": mask.clone() for layer in range(config.n_layer)}
    return {name: tensor.contiguous().clone() for name, tensor in state.items()}
