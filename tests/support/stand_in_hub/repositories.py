"""The repositories of the stand-in hub: for two models of each architecture of the registry, real in all but size.

`recipes.json` has the traits of the published files, by family and by repository, whose fields complete those of its family:

- `config`: config.json, apart from ids and their number; `ids`: ids that config.json names, by their tokens;
- `generation`: generation_config.json, tokens in place of ids; null where it is missing;
- `tokenizer`: tokenizer_config.json; `padding`: ids of the model beyond the tokenizer's;
- `seed` and `dtype` of the weights, and the number of their files, `shards`;
- `pickled`: weights are in pytorch_model.bin alone; `bare`: names of tensors lack the prefix of the base model;
- `gated`: a licence must be accepted first.

They were taken from transformers' config classes and from configs in public repositories; shards, ids that end a text and OPT's files were
written from memory. Sizes are small, weights are random, and no output layer is tied: the text would be one token again and again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
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


def _recipe(given: dict[str, Any]) -> dict[str, Any]:
    family = words.RECIPES["families"][given["family"]]
    parts = {part: family[part] | given[part] for part in ("config", "generation") if part in given}
    return {"padding": 0, "shards": 1, **family, **given, **parts}


RECIPES = {name: _recipe(given) for name, given in words.RECIPES["repositories"].items()}


def write(repository: str, folder: Path) -> None:
    """Make one repository in an empty folder, the same bytes every time."""
    recipe = RECIPES[repository]
    told = _told(recipe["family"])
    told.write(folder)
    fields = {"vocab_size": told.size + recipe["padding"], "torch_dtype": recipe["dtype"]}
    config = recipe["config"] | fields | _ids(recipe["ids"], told)
    for name, content in (("config", config), ("generation_config", _ids(recipe["generation"] or {}, told))):
        if content:
            text = json.dumps(content | {"transformers_version": "4.44.0"})
            (folder / f"{name}.json").write_text(text, encoding="utf-8")
    tensors = _tensors(recipe, told, folder)
    if recipe.get("pickled"):
        torch.save(tensors, folder / "pytorch_model.bin")
    else:
        size = sum(tensor.nbytes for tensor in tensors.values())
        save_torch_state_dict(tensors, folder, max_shard_size=int(size / (recipe["shards"] - 0.5)))


def commit(repository: str) -> str:
    """The id of a repository's one commit."""
    return hashlib.sha1(repository.encode()).hexdigest()


@cache
def _told(family: str) -> Words:
    made: Words = getattr(words, family)()
    return made


def _ids(named: Mapping[str, Any], told: Words) -> dict[str, Any]:
    """`named`, with ids in place of tokens."""

    def of(value: Any) -> Any:
        return told.id(value) if isinstance(value, str) else value

    ids = {key for key in named if key.endswith("_token_id")}
    return {
        key: ([of(each) for each in value] if isinstance(value, list) else of(value)) if key in ids else value
        for key, value in named.items()
    }


def _tensors(recipe: Mapping[str, Any], told: Words, folder: Path) -> dict[str, Tensor]:
    """The weights by their published names, in the published dtype."""
    config = AutoConfig.from_pretrained(folder)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    fill(model, recipe["seed"])
    # Padding, which no tokenizer knows, is never the highest.
    model.get_output_embeddings().weight.data[told.size :] = 0
    dtype = getattr(torch, recipe["dtype"])
    state = {name: tensor.to(dtype) for name, tensor in model.state_dict().items()}
    if recipe.get("bare"):
        state = {name.removeprefix("transformer."): tensor for name, tensor in state.items()}
        mask = torch.ones(1024, 1024).tril().view(1, 1, 1024, 1024).to(torch.uint8)[..., :8, :8]
        state |= {f"h.{layer}.attn.bias": mask.clone() for layer in range(config.n_layer)}
    return {name: tensor.contiguous().clone() for name, tensor in state.items()}
