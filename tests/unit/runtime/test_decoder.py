"""A decoder's kernels, interpreted on the CPU: the same model as transformers', whatever is read at once.

In float32: the interpreter has no bfloat16, and its sums no order. What a token's bits depend on, a GPU must show (tests/gpu).
"""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from specviz.models.small_vocabulary import SmallVocabulary
from specviz.runtime import model_runner
from specviz.runtime.cuda import decoder as module
from specviz.runtime.cuda.decoder import Decoder
from specviz.runtime.kv_cache import KVCache
from specviz.runtime.model_runner import ModelRunner

SIZE = 101
"""Tokens of the vocabulary: no multiple of any block."""
NEAR = {"rtol": 0, "atol": 2e-5}
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="Triton is for Linux alone"),
    pytest.mark.skipif(
        "TRITON_INTERPRET" not in os.environ, reason="there is a GPU: tests/gpu run the kernels on it"
    ),
]


def model_of(family: str, **sizes: Any) -> Any:
    """A small model whose norms and biases are not those of a new one."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        family,
        **{"hidden_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
        | {"intermediate_size": 160, "vocab_size": SIZE, "head_dim": 32, "pad_token_id": None}
        | sizes,
    )
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * (0.3 if weight.dim() == 1 else 0.05))
    return model.requires_grad_(False)


def prepared(model: Any, slots: int = 2, length: int = 200) -> tuple[Decoder, KVCache]:
    decoder, cache = Decoder(model), KVCache()
    cache.reserve(slots, length)
    decoder.prepare(cache)
    return decoder, cache


def logits(
    decoder: Decoder, cache: KVCache, tokens: Tensor, start: int, slots: slice, visible: int
) -> Tensor:
    positions = (start + torch.arange(tokens.shape[1])).expand(len(tokens), -1)
    return decoder.logits(decoder.read(tokens, positions, positions, cache, slots, visible), SIZE)


@pytest.mark.parametrize("family", ["qwen2", "qwen3"])
def test_kernels_are_the_model(family: str) -> None:
    """Biases and norms of heads; a prompt of two slots at once, then some tokens of one, then one of both."""
    model = model_of(family, num_hidden_layers=1)
    tokens = torch.randint(SIZE, (2, 9))
    wanted = model(tokens).logits
    decoder, cache = prepared(model)
    found = logits(decoder, cache, tokens[:, :5], 0, slice(0, 2), 5)
    torch.testing.assert_close(found, wanted[:, :5], **NEAR)
    found = logits(decoder, cache, tokens[1:, 5:8], 5, slice(1, 2), 64)
    torch.testing.assert_close(found, wanted[1:, 5:8], **NEAR)
    logits(decoder, cache, tokens[:1, 5:8], 5, slice(0, 1), 8)
    found = logits(decoder, cache, tokens[:, 8:], 8, slice(0, 2), 150)
    torch.testing.assert_close(found, wanted[:, 8:], **NEAR)


def test_attention_in_several_parts_is_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries that see one part, two and three; a slot's later positions, written before, are not seen."""
    monkeypatch.setattr(module, "_PART", 16)
    model = model_of("llama", num_hidden_layers=1)
    tokens = torch.randint(SIZE, (1, 37))
    wanted = model(tokens).logits
    decoder, cache = prepared(model, 1)
    torch.testing.assert_close(logits(decoder, cache, tokens, 0, slice(0, 1), 37), wanted, **NEAR)
    torch.testing.assert_close(
        logits(decoder, cache, tokens[:, 14:17], 14, slice(0, 1), 48), wanted[:, 14:17], **NEAR
    )


def test_padding_goes_to_the_scratch_position() -> None:
    """A row's last token is padding: it is written where no one reads, and the others are as without it."""
    model = model_of("qwen2", num_hidden_layers=1)
    tokens = torch.randint(SIZE, (2, 4))
    wanted = model(tokens).logits
    decoder, cache = prepared(model)
    positions = torch.tensor([[0, 1, 2, 3], [0, 1, 2, 0]])
    index = torch.tensor([[0, 1, 2, 3], [0, 1, 2, cache.length]])
    found = decoder.logits(decoder.read(tokens, positions, index, cache, slice(0, 2), 4), SIZE)
    torch.testing.assert_close(found[0], wanted[0], **NEAR)
    torch.testing.assert_close(found[1, :3], wanted[1, :3], **NEAR)
    assert not cache.buffers[0][0][1, :, 3 : cache.length].any()


def test_a_small_vocabulary_keeps_its_own_output_layer() -> None:
    model = model_of("llama", vocab_size=60, num_hidden_layers=1)
    known = SmallVocabulary.of(torch.arange(SIZE, 0, -1), 60, [0], torch.rand(SIZE, 8))
    known.widen(model)
    tokens = torch.randint(SIZE, (1, 3))
    decoder, cache = prepared(model, 1)
    found = logits(decoder, cache, tokens, 0, slice(0, 1), 3)
    torch.testing.assert_close(found, model(tokens).logits, **NEAR)
    assert found.isneginf().any()


def test_tokens_that_the_model_lacks_are_never_likely(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law 1 with q = 0 there: a runner asks a decoder for the model's own outputs alone."""
    model = model_of("llama", num_hidden_layers=1)
    monkeypatch.setattr(model_runner, "decoder_of", Decoder)
    runner = ModelRunner(model, SIZE + 4)
    tokens, positions = torch.tensor([[5, SIZE + 2, 7]]), torch.arange(3)[None]
    runner.admit([object()], 3)
    found = runner.forward(tokens, positions, visible=3)
    torch.testing.assert_close(found[..., :SIZE], model(tokens.clamp(max=SIZE - 1)).logits, **NEAR)
    assert found.shape[-1] == SIZE + 4
    assert found[..., SIZE:].isneginf().all()


def test_a_decoder_that_is_wrong_is_seen() -> None:
    model = model_of("llama", num_hidden_layers=1)
    decoder = Decoder(model)
    assert decoder.is_right(model)
    decoder._scale *= 3
    assert not decoder.is_right(model)


@pytest.mark.parametrize(
    ("family", "sizes"),
    [
        ("qwen2", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 0}),
        ("llama", {"hidden_act": "gelu"}),
        ("llama", {"attention_bias": True}),
        ("llama", {"head_dim": 24}),
        ("llama", {}),  # in float32
    ],
)
def test_what_the_kernels_lack_is_left_to_transformers(family: str, sizes: dict[str, Any]) -> None:
    model = model_of(family, **sizes)
    assert not module.serves(model.bfloat16() if sizes else model)
