"""Pairs with random weights in the shapes of real models, to measure the cost of a pair without downloading it.

Layers, widths, heads and vocabularies are those of the models' public configs; weights and tokenizer are not. Such a
pair writes nonsense, but reads as many bytes per round as the real one. Its acceptance rate grows with the temperature:
for qwen2.5-0.5b → qwen2.5-7b it is 0.7 at temperature 1.738.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from specviz.errors import PairError, RequestError, is_out_of_memory
from specviz.models.modules import tune
from specviz.models.pair import ModelPair, pair_from_models

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_SIZES = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
)


def _shape(
    family: str, sizes: tuple[int, ...], vocabulary: int, rope_theta: float = 1e4, tied: bool = True
) -> dict[str, Any]:
    more = {"vocab_size": vocabulary, "tie_word_embeddings": tied, "max_position_embeddings": 8192}
    return {"family": family, **dict(zip(_SIZES, sizes, strict=True)), **more, "rope_theta": rope_theta}


SHAPES: dict[str, dict[str, Any]] = {
    "smollm2-135m": _shape("llama", (576, 30, 9, 3, 1536), 49152),
    "smollm2-360m": _shape("llama", (960, 32, 15, 5, 2560), 49152),
    "smollm2-1.7b": _shape("llama", (2048, 24, 32, 32, 8192), 49152),
    "qwen2.5-0.5b": _shape("qwen2", (896, 24, 14, 2, 4864), 151936, 1e6),
    "qwen2.5-1.5b": _shape("qwen2", (1536, 28, 12, 2, 8960), 151936, 1e6),
    "qwen2.5-7b": _shape("qwen2", (3584, 28, 28, 4, 18944), 152064, 1e6, tied=False),
    "llama-3.2-1b": _shape("llama", (2048, 16, 32, 8, 8192), 128256, 5e5),
    "llama-3.1-8b": _shape("llama", (4096, 32, 32, 8, 14336), 128256, 5e5, tied=False),
    "tiny": _shape("qwen2", (64, 2, 4, 2, 128), 512),
}
"""Shapes by name: a model family of transformers, and arguments of its config; "tiny" is for quick trials."""


def shape_pair(
    drafter: str, verifier: str, device: torch.device, dtype: torch.dtype, *, prepack: bool
) -> ModelPair:
    """A pair of two shapes with seeded random weights, made on the device itself; with the engine's fast passes if `prepack`.

    Both models get the smaller of the two vocabularies, so that every contender can run the pair (the vocabularies of
    real pairs differ by padding).

    Raises:
        RequestError: no such shape.
        PairError: there is not enough memory.
    """
    for name in (drafter, verifier):
        if name not in SHAPES:
            raise RequestError(f"There is no shape {name!r}: known are {', '.join(SHAPES)}.")
    size = min(SHAPES[name]["vocab_size"] for name in (drafter, verifier))
    return pair_from_models(
        _random_model(drafter, size, 1, device, dtype, prepack),
        _random_model(verifier, size, 2, device, dtype, prepack),
        _tokenizer(size),
        key=f"{drafter} → {verifier}",
        title=f"random weights at the shapes of {drafter} → {verifier}",
        drafter_name=f"{drafter} (random)",
        verifier_name=f"{verifier} (random)",
    )


def _random_model(
    name: str, vocabulary_size: int, seed: int, device: torch.device, dtype: torch.dtype, prepack: bool
) -> PreTrainedModel:
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes = {**SHAPES[name], "vocab_size": vocabulary_size}
    special = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    config = AutoConfig.for_model(sizes.pop("family"), **sizes, **special)
    torch.manual_seed(seed)
    try:
        with torch.device(device):
            model = AutoModelForCausalLM.from_config(config, dtype=dtype).eval()
        if prepack:
            tune(model)
        return model
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        raise PairError(f"The shape {name} does not fit into memory: choose a smaller one.") from error


def _tokenizer(size: int) -> PreTrainedTokenizerBase:
    """A tokenizer that encodes bytes. It never produces the other ids, which only have names."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    end = "<|end|>"
    pieces = [end, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    pieces += [f"<{number}>" for number in range(len(pieces), size)]
    tokenizer = Tokenizer(models.BPE(vocab={piece: i for i, piece in enumerate(pieces)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=end)
