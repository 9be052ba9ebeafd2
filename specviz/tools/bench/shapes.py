"""Pairs with random weights at real models' shapes: measures the cost of a pair without downloading it.

Layers, widths, heads and vocabularies are those of the models' public configs; weights and tokenizer are not. Such a
pair writes nonsense, but reads as many bytes a round as the real one. The acceptance rate of random models grows with
the temperature, so that choosing a temperature chooses the acceptance rate. Knows no clock.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from specviz.engine.engine import Engine
from specviz.errors import PairError, RequestError, is_out_of_memory
from specviz.models.pair import ModelPair, pair_from_models
from specviz.progress import Progress
from specviz.runtime.model_runner import TorchModel
from specviz.runtime.runner import Model
from specviz.schema.settings import Request

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

END = "<|end|>"
_COLDEST, _HOTTEST = 0.02, 50.0
_ROUNDS = 3
"""Short runs of the search for a temperature; each is sampled at the temperature that the last one gave."""


_SIZES = (
    *("hidden_size", "num_hidden_layers", "num_attention_heads"),
    *("num_key_value_heads", "intermediate_size", "vocab_size"),
)


def _shape(family: str, sizes: Sequence[int], tied: bool, **more: Any) -> dict[str, Any]:
    more |= {"tie_word_embeddings": tied, "max_position_embeddings": 8192}
    return {"family": family, **dict(zip(_SIZES, sizes, strict=True)), **more}


_GEMMA2 = {"head_dim": 256, "query_pre_attn_scalar": 256, "sliding_window": 4096}

SHAPES: dict[str, dict[str, Any]] = {
    "smollm2-135m": _shape("llama", (576, 30, 9, 3, 1536, 49152), True),
    "smollm2-360m": _shape("llama", (960, 32, 15, 5, 2560, 49152), True),
    "smollm2-1.7b": _shape("llama", (2048, 24, 32, 32, 8192, 49152), True),
    "qwen2.5-0.5b": _shape("qwen2", (896, 24, 14, 2, 4864, 151936), True, rope_theta=1e6),
    "qwen2.5-1.5b": _shape("qwen2", (1536, 28, 12, 2, 8960, 151936), True, rope_theta=1e6),
    "qwen2.5-7b": _shape("qwen2", (3584, 28, 28, 4, 18944, 152064), False, rope_theta=1e6),
    "llama-3.2-1b": _shape("llama", (2048, 16, 32, 8, 8192, 128256), True, rope_theta=5e5),
    "llama-3.1-8b": _shape("llama", (4096, 32, 32, 8, 14336, 128256), False, rope_theta=5e5),
    "gemma-2-2b": _shape("gemma2", (2304, 26, 8, 4, 9216, 256000), True, **_GEMMA2),
    "gemma-2-9b": _shape("gemma2", (3584, 42, 16, 8, 14336, 256000), True, **_GEMMA2),
    "tiny-qwen2": _shape("qwen2", (64, 2, 4, 2, 128, 512), True),
    "tiny-llama": _shape("llama", (64, 2, 4, 2, 128, 512), True),
    "tiny-gemma2": _shape("gemma2", (64, 2, 4, 2, 128, 512), True, head_dim=16, sliding_window=64),
}
"""Shapes by name: the arguments of a transformers config, and its family; the tiny ones are for trying out."""


def shape_pair(drafter: str, verifier: str, device: torch.device, dtype: torch.dtype) -> ModelPair:
    """A pair of two shapes with seeded random weights, made on the device itself.

    Both get the smaller of the two vocabularies, so that every contender can verify one with the other (those of
    real pairs differ by padding).

    Raises:
        RequestError: no such shape.
        PairError: memory is too small.
    """
    for name in (drafter, verifier):
        if name not in SHAPES:
            raise RequestError(f"There is no shape {name!r}: known are {', '.join(SHAPES)}.")
    size = min(SHAPES[name]["vocab_size"] for name in (drafter, verifier))

    return pair_from_models(
        _random_model(drafter, size, 1, device, dtype),
        _random_model(verifier, size, 2, device, dtype),
        _tokenizer(size),
        key=f"{drafter} → {verifier}",
        title=f"random weights at the shapes of {drafter} → {verifier}",
        drafter_name=f"{drafter} (random)",
        verifier_name=f"{verifier} (random)",
    )


def tuned_twin(pair: ModelPair, tune: Callable[[Any], None]) -> ModelPair:
    """The pair with `tune` called on modules of its own, which share all weights."""

    def twin(model: PreTrainedModel) -> Model:
        shared: dict[int, Any] = {id(each): each for each in (*model.parameters(), *model.buffers())}
        copied = copy.deepcopy(model, shared)
        tune(copied)
        return TorchModel(copied)

    return replace(pair, drafter_model=twin(pair.drafter), verifier_model=twin(pair.verifier))


def _random_model(
    name: str, vocabulary_size: int, seed: int, device: torch.device, dtype: torch.dtype
) -> PreTrainedModel:
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes = {**SHAPES[name], "vocab_size": vocabulary_size}
    special = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    config = AutoConfig.for_model(sizes.pop("family"), **sizes, **special)
    torch.manual_seed(seed)
    try:
        with torch.device(device):
            model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=dtype)
    except Exception as error:
        if is_out_of_memory(error):
            raise PairError(f"The shape {name} does not fit into memory: choose a smaller one.") from error
        raise
    return model.eval()


def _tokenizer(size: int) -> PreTrainedTokenizerBase:
    """Encodes bytes; all other ids have a name only."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    pieces = [END, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    pieces += [f"<{number}>" for number in range(len(pieces), size)]
    tokenizer = Tokenizer(models.BPE(vocab={piece: i for i, piece in enumerate(pieces)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END)


def agreement(drafter: Tensor, verifier: Tensor, temperature: float) -> float:
    """Mean chance of acceptance, Σ min(q, p), over logits [n, V] of both models."""
    q, p = ((logits.double() / temperature).softmax(-1) for logits in (drafter, verifier))
    return float(torch.minimum(q, p).sum(-1).mean())


def temperature_for(drafter: Tensor, verifier: Tensor, acceptance: float) -> float:
    """The temperature at which `agreement` of logits [n, V] is `acceptance`, by bisection."""
    cold, hot = _COLDEST, _HOTTEST
    for _ in range(24):
        middle = (cold * hot) ** 0.5
        if agreement(drafter, verifier, middle) < acceptance:
            cold = middle
        else:
            hot = middle
    return (cold * hot) ** 0.5


def find_temperature(pair: ModelPair, acceptance: float, progress: Progress) -> float:
    """A temperature at which lossless speculative decoding accepts about `acceptance` of its draft tokens."""
    engine, temperature = Engine(pair), 1.0
    asked = Request(token_ids=list(range(1, 9)), max_new_tokens=24, return_logits=True)
    asked = replace(asked, method="speed", lenience=0.0, draft_length=4)
    for number in range(_ROUNDS):
        progress(number / _ROUNDS, f"Seeking a temperature: {temperature:.3g}")
        run = engine.generate(replace(asked, temperature=temperature))[0]
        temperature = round(temperature_for(run.drafter_logits, run.verifier_logits, acceptance), 3)
    return temperature
