"""The repositories of the stand-in hub: for two models of each architecture of the registry, real in all but size.

`recipes.json` has the traits of the published files, by family and by repository, whose fields complete those of its family:

- `config`: config.json, apart from ids and their number; `ids`: ids that config.json names, by their tokens;
- `generation`: generation_config.json, tokens in place of ids; null where it is missing;
- `tokens`: special tokens with ids `before` or `after` those of the text, and the one that comes `first` in every text;
- `tokenizer`: tokenizer_config.json; `as_lists`: it is published as vocab.json and merges.txt, without tokenizer.json;
- `padding`: ids of the model beyond the tokenizer's;
- `seed` and `dtype` of the weights, and the number of their files, `shards`;
- `pickled`: weights are in pytorch_model.bin alone; `bare`: names of tensors lack the prefix of the base model;
- `gated`: a licence must be accepted first.

They were taken from transformers' config classes and from configs in public repositories; shards, ids that end a text and OPT's files were
written from memory. Sizes are small, weights are random, and no output layer is tied: the text would be one token again and again. All
tokenizers are byte-level; tests/unit/models/test_decoding.py has other pipelines.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import save_torch_state_dict
from tokenizers import Tokenizer, processors
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from tests.support.tiny import byte_level, fill

_TRAITS: dict[str, Any] = json.loads(Path(__file__).with_name("recipes.json").read_text("utf-8"))


def _recipe(given: dict[str, Any]) -> dict[str, Any]:
    family = _TRAITS["families"][given["family"]]
    parts = {part: family[part] | given[part] for part in ("config", "generation") if part in given}
    return {"padding": 0, "shards": 1, **family, **given, **parts}


RECIPES = {name: _recipe(given) for name, given in _TRAITS["repositories"].items()}


def write(repository: str, folder: Path) -> None:
    """Make one repository in an empty folder, the same bytes every time."""
    recipe = RECIPES[repository]
    tokenizer = _tokenizer(recipe["family"])
    size = tokenizer.get_vocab_size()
    fields = {"vocab_size": size + recipe["padding"], "torch_dtype": recipe["dtype"]}
    files = {
        "config": recipe["config"] | fields | _ids(recipe["ids"], tokenizer),
        "generation_config": _ids(recipe["generation"] or {}, tokenizer),
        "tokenizer_config": recipe["tokenizer"],
    }
    for name, content in files.items():
        if content:
            (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    if recipe.get("as_lists"):
        tokenizer.model.save(str(folder))
    else:
        tokenizer.save(str(folder / "tokenizer.json"))
    tensors = _tensors(recipe, size, folder)
    if recipe.get("pickled"):
        torch.save(tensors, folder / "pytorch_model.bin")
    else:
        total = sum(tensor.nbytes for tensor in tensors.values())
        save_torch_state_dict(tensors, folder, max_shard_size=int(total / (recipe["shards"] - 0.5)))


def commit(repository: str) -> str:
    """The id of a repository's one commit."""
    return hashlib.sha1(repository.encode()).hexdigest()


@cache
def _tokenizer(family: str) -> Tokenizer:
    tokens = _TRAITS["families"][family]["tokens"]
    tokenizer = byte_level(tokens.get("before", []), size=420)
    tokenizer.add_special_tokens(tokens.get("after", []))
    if first := tokens.get("first"):
        ids = [(first, tokenizer.token_to_id(first))]
        tokenizer.post_processor = processors.TemplateProcessing(single=f"{first} $A", special_tokens=ids)
    return tokenizer


def _ids(named: dict[str, Any], tokenizer: Tokenizer) -> dict[str, Any]:
    """`named`, with ids in place of tokens."""

    def of(value: Any) -> Any:
        return [of(each) for each in value] if isinstance(value, list) else tokenizer.token_to_id(value)

    return {key: of(value) if key.endswith("_token_id") else value for key, value in named.items()}


def _tensors(recipe: dict[str, Any], real: int, folder: Path) -> dict[str, Tensor]:
    """The weights by their published names, in the published dtype."""
    config = AutoConfig.from_pretrained(folder)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    fill(model, recipe["seed"])
    # Padding, which no tokenizer knows, is never the highest.
    model.get_output_embeddings().weight.data[real:] = 0
    dtype = getattr(torch, recipe["dtype"])
    state = {name: tensor.to(dtype) for name, tensor in model.state_dict().items()}
    if recipe.get("bare"):
        state = {name.removeprefix("transformer."): tensor for name, tensor in state.items()}
        mask = torch.ones(1024, 1024).tril().view(1, 1, 1024, 1024).to(torch.uint8)[..., :8, :8]
        state |= {f"h.{layer}.attn.bias": mask.clone() for layer in range(config.n_layer)}
    return {name: tensor.contiguous().clone() for name, tensor in state.items()}
