"""Tiny random checkpoints, real in all but size: written to disk and read back through `from_pretrained`.

Logits spread over a few nats, so that neither greedy nor sampled text is trivial. Two models of different seeds
agree often but not always.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from specviz.compat.transformers import quiet_transformers
from specviz.engine.pair import Pair, pair_from_models

Pairs = Callable[..., Pair]
"""A function that gives a tiny pair of a family."""
FAMILIES = ("llama", "qwen2", "qwen3", "gemma2", "gemma3", "gpt2", "opt", "gpt-neox")
END = "<|end|>"
WINDOW = 8
"""Positions that sliding layers see; shorter than a test's text."""

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)

_LINES = (
    "The quick brown fox jumps over the lazy dog, and the dog does not mind.",
    "A small drafter proposes; a large verifier scores and decides what to keep.",
    "def add(a, b):\n    return a + b\n\nprint(add(12, 345))",
    "naïve café, 日本語, русский, 🎉",
)

_HIDDEN, _HEADS, _CONTEXT = 32, 4, 512
_AGREEMENT = 0.97  # how much of every weight two seeds have in common; 1 would make them one model
_TOKENS, _INNER, _SPREAD = 1.0, 0.5, 2.5  # scales of token embeddings, inner maps, and logits (in nats)


def tiny_model(
    family: str,
    vocabulary_size: int,
    seed: int,
    directory: Path,
    *,
    layers: int = 2,
    dtype: torch.dtype = torch.float64,
    eos_token_id: int | list[int] | None = None,
    loud_from: int | None = None,
) -> Any:
    """A random model of one of `FAMILIES`, saved to `directory` and loaded from there.

    Its first ids score the same whatever `vocabulary_size` is. Ids from `loud_from` on (padding) score far higher
    than the others, so that code which fails to cut them off draws nothing else.
    """
    config = _config(family, vocabulary_size, layers)
    config.eos_token_id = eos_token_id
    model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    fill(model, seed)
    if loud_from is not None:
        model.get_output_embeddings().weight.data[loud_from:] *= 10
    with quiet_transformers:
        model.save_pretrained(directory)
        return AutoModelForCausalLM.from_pretrained(directory, dtype=dtype).eval()


def byte_level(special: Sequence[str], lines: Sequence[str] = _LINES, size: int = 300) -> Tokenizer:
    """Byte-level BPE trained on a few lines; `special` tokens have the first ids."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=[*special], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer


def tiny_tokenizer(directory: Path, *, chat: bool = False, lines: tuple[str, ...] = _LINES) -> Any:
    """A byte-level BPE tokenizer trained on a few lines, with one special token that ends a text."""
    wrapped = PreTrainedTokenizerFast(tokenizer_object=byte_level([END], lines), eos_token=END)
    if chat:
        wrapped.chat_template = CHAT_TEMPLATE
    wrapped.save_pretrained(directory)
    return AutoTokenizer.from_pretrained(directory)


def tiny_pair(
    family: str,
    directory: Path,
    *,
    drafter_padding: int = 3,
    verifier_padding: int = 11,
    chat: bool = False,
    dtype: torch.dtype = torch.float64,
) -> Pair:
    """A pair of one family and one tokenizer; the checkpoints lie in `directory`/drafter and /verifier.

    Both vocabularies are padded beyond the tokenizer's ids, each by its own amount; the padding scores high.
    """
    tokenizer = tiny_tokenizer(directory / "verifier", chat=chat)
    tokenizer.save_pretrained(directory / "drafter")
    real = len(tokenizer)
    shared: dict[str, Any] = {"dtype": dtype, "eos_token_id": tokenizer.eos_token_id, "loud_from": real}
    drafter = tiny_model(family, real + drafter_padding, 1, directory / "drafter", layers=1, **shared)
    verifier = tiny_model(family, real + verifier_padding, 2, directory / "verifier", **shared)
    return pair_from_models(drafter, verifier, tokenizer, key=f"tiny-{family}")


def _config(family: str, vocabulary_size: int, layers: int) -> Any:
    """The smallest config of a family that still has all of its traits."""
    names = ("hidden_size", "num_attention_heads", "num_hidden_layers", "max_position_embeddings")
    if family == "gpt2":
        names = ("n_embd", "n_head", "n_layer", "n_positions")
    sizes: dict[str, Any] = dict(zip(names, (_HIDDEN, _HEADS, layers, _CONTEXT), strict=True))
    if family == "opt":
        sizes |= {"ffn_dim": 2 * _HIDDEN, "word_embed_proj_dim": _HIDDEN // 2}  # opt-350m projects in and out
    elif family != "gpt2":
        sizes["intermediate_size"] = 2 * _HIDDEN
    if family in ("llama", "qwen2", "qwen3", "gemma2", "gemma3"):
        sizes |= {"num_key_value_heads": _HEADS // 2}
    if family in ("qwen3", "gemma2", "gemma3"):
        sizes["head_dim"] = _HIDDEN // _HEADS
    if family in ("qwen2", "gemma2", "gemma3"):
        kinds = ("sliding_attention", "full_attention")
        sizes |= {"sliding_window": WINDOW, "layer_types": [kinds[i % 2] for i in range(layers)]}
    if family == "qwen2":
        sizes |= {"use_sliding_window": True, "max_window_layers": 0}
    # Random tied embeddings do little but repeat the last token; OPT's projections between them prevent that.
    tied = {"tie_word_embeddings": family == "opt"}
    special = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    kind = {"gemma3": "gemma3_text", "gpt-neox": "gpt_neox"}.get(family, family)
    return AutoConfig.for_model(kind, vocab_size=vocabulary_size, **sizes, **tied, **special)


def fill(model: Any, seed: int) -> None:
    """Overwrite all weights: each is a mixture of noise that all seeds share and noise of this seed."""
    head = model.get_output_embeddings().weight
    for name, weight in model.named_parameters():
        noise = _AGREEMENT * _noise(name, 0, weight) + (1 - _AGREEMENT**2) ** 0.5 * _noise(name, seed, weight)
        if weight.ndim < 2:
            weight.data += 0.1 * noise
        elif weight is head:
            weight.data = _SPREAD * noise / weight.shape[-1] ** 0.5
        else:
            is_embedding = "embed" in name or "wte" in name
            weight.data = noise * (_TOKENS if is_embedding else _INNER / max(weight.shape) ** 0.5)


def _noise(name: str, seed: int, like: torch.Tensor) -> torch.Tensor:
    """Standard normal numbers fixed by name and seed; further rows leave the first ones unchanged."""
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()) ^ (seed * 7919))
    return torch.randn(like.shape, generator=generator, dtype=torch.float64).to(like.dtype)
