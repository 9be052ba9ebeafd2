"""The pair that engines are audited on, so small that the verifier's law over the first tokens can be enumerated."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from specviz.analysis.audit import Floats
from specviz.compat.transformers import quiet_transformers
from specviz.errors import RequestError
from specviz.models.loading import load_pair
from specviz.models.pair import ModelPair
from specviz.models.registry import HubSource, PairSpec

PROMPT = (1, 2, 3)
"""Token ids that every sample continues."""
_SIZES: dict[str, Any] = {
    "vocab_size": 8, "hidden_size": 16, "intermediate_size": 32, "max_position_embeddings": 64,
    "num_attention_heads": 2, "num_key_value_heads": 2, "initializer_range": 0.35,
    "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
}  # fmt: skip
_MOST_SEQUENCES = 100_000


def prepare_pair(folder: Path) -> ModelPair:
    """The pair in `folder`/drafter and `folder`/verifier. If neither folder exists, writes random checkpoints, always the same.

    Raises:
        OSError: the folder cannot be written.
        PairError: the folder has checkpoints that cannot be loaded.
    """
    folders = folder / "drafter", folder / "verifier"
    if not any(each.exists() for each in folders):
        with quiet_transformers:
            _write(*folders)
    small, large = (str(each.resolve()) for each in folders)
    sources = HubSource(small), HubSource(large)
    spec = PairSpec("audit", "The audited pair", *sources, small, large, 0, 0, "")
    return load_pair(spec, "cpu", "float32", prepack=False)


def _write(*folders: Path) -> None:
    # No token is special, since servers leave special ones out of a text.
    words = Tokenizer(models.WordLevel({f"w{each}": each for each in range(8)}))
    words.pre_tokenizer = pre_tokenizers.Split(Regex("w[0-7]"), "removed", invert=True)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        drafter, verifier = (LlamaForCausalLM(LlamaConfig(num_hidden_layers=n, **_SIZES)) for n in (1, 2))
    # The drafter is the verifier without its last layer, so that whole blocks are often accepted, and often not.
    drafter.load_state_dict(verifier.state_dict(), strict=False)
    for folder, model in zip(folders, (drafter, verifier), strict=True):
        model.save_pretrained(folder)
        PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(folder)


def enumerate_law(pair: ModelPair, tokens: int, temperature: float) -> Floats:
    """Probabilities [V, …] of the verifier's first tokens, from transformers' own forward pass over every prefix.

    Raises:
        RequestError: there are too many sequences.
    """
    size = pair.vocabulary_size
    if size**tokens > _MOST_SEQUENCES:
        raise RequestError(f"There are {size**tokens:,} sequences to enumerate: choose fewer --tokens.")
    prefixes = torch.tensor(list(itertools.product(range(size), repeat=tokens - 1)), dtype=torch.long)
    ids = torch.cat([torch.tensor(PROMPT).expand(len(prefixes), -1), prefixes], dim=1)
    logits = pair.verifier(ids).logits[:, len(PROMPT) - 1 :, :size].double()
    following = torch.softmax(logits / temperature, dim=-1)
    law = torch.ones((), dtype=torch.float64)
    for position in range(tokens):
        after = following[:: size ** (tokens - 1 - position), position]  # one row for each prefix so far
        law = law[..., None] * after.reshape([size] * (position + 1))
    return law.numpy()
