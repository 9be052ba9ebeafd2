"""The pair that engines are audited on, so small that the verifier's law over the first tokens can be enumerated."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM
from transformers import PreTrainedTokenizerFast as Fast

from specviz.analysis.audit import Floats
from specviz.compat.transformers import quiet_transformers
from specviz.errors import PairError, RequestError
from specviz.models.pair import ModelPair, pair_from_models

PROMPT = (1, 2, 3)
"""Token ids that every sample continues."""
DRAFTER, VERIFIER = "drafter", "verifier"
_WORDS, _HIDDEN, _CONTEXT, _SPREAD = 8, 16, 64, 0.35
_MOST_SEQUENCES = 100_000


def prepare_pair(folder: Path) -> ModelPair:
    """The pair in `folder`/drafter and `folder`/verifier. Writes random checkpoints, always the same, where there are none.

    Raises:
        RequestError: the folder cannot be written.
        PairError: the folder has checkpoints that cannot be loaded.
    """
    with quiet_transformers:
        if not (folder / VERIFIER).exists():
            try:
                _write(folder)
            except OSError as error:
                raise RequestError("--models cannot be written there: name a folder of your own.") from error
        try:
            drafter, verifier = (
                AutoModelForCausalLM.from_pretrained(folder / name, dtype=torch.float32)
                for name in (DRAFTER, VERIFIER)
            )
            tokenizer = AutoTokenizer.from_pretrained(folder / VERIFIER)
        except (OSError, ValueError, KeyError) as error:
            raise PairError(
                "--models holds no pair that can be loaded: it needs checkpoints in drafter and verifier."
            ) from error
    names = {"drafter_name": str(folder / DRAFTER), "verifier_name": str(folder / VERIFIER)}
    return pair_from_models(drafter, verifier, tokenizer, key="audit", **names)


def _write(folder: Path) -> None:
    vocabulary = {f"w{number}": number for number in range(_WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        drafter, verifier = _model(1), _model(2)
    # The drafter is the verifier without its last layer, so that whole blocks are often accepted, and often not.
    drafter.load_state_dict(verifier.state_dict(), strict=False)
    for name, model in ((DRAFTER, drafter), (VERIFIER, verifier)):
        model.save_pretrained(folder / name)
        Fast(tokenizer_object=tokenizer, unk_token="w0").save_pretrained(folder / name)


def _model(layers: int) -> Any:
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=_WORDS,
            hidden_size=_HIDDEN,
            intermediate_size=2 * _HIDDEN,
            num_hidden_layers=layers,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=_CONTEXT,
            initializer_range=_SPREAD,
            bos_token_id=None,
            eos_token_id=None,
            pad_token_id=None,
        )
    )


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
