"""A pair: what two models and a tokenizer have in common, and which do not make one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tokenizers import pre_tokenizers

from specviz.errors import PairError
from specviz.models.pair import pair_from_models
from tests.support.tiny import END, FAMILIES, tiny_model, tiny_pair, tiny_tokenizer


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_makes_a_pair_cut_to_the_tokenizers_ids(family: str, tmp_path: Path) -> None:
    pair = tiny_pair(family, tmp_path, drafter_padding=3, verifier_padding=11)
    ids = torch.tensor([[1, 2, 3]])
    widths = [model(ids).logits.shape[-1] for model in (pair.drafter, pair.verifier)]
    assert widths == [pair.vocabulary_size + 3, pair.vocabulary_size + 11]
    assert pair.vocabulary_size == len(pair.tokenizer)
    assert pair.context_length == 512
    assert pair.eos_token_ids == {pair.tokenizer.convert_tokens_to_ids(END)}
    assert pair.dtype == torch.float64
    assert pair.device == torch.device("cpu")
    for model in (pair.drafter, pair.verifier):
        assert not model.training
        assert not any(weight.requires_grad for weight in model.parameters())
        assert model.config._attn_implementation == ("eager" if family == "gemma2" else "sdpa")


def test_the_vocabulary_is_no_larger_than_the_smaller_model(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer(tmp_path)
    size = len(tokenizer) - 5
    drafter = tiny_model("llama", size, 1, tmp_path / "d")
    verifier = tiny_model("llama", size + 9, 2, tmp_path / "v")
    assert pair_from_models(drafter, verifier, tokenizer).vocabulary_size == size


def test_the_context_is_the_shorter_one(tmp_path: Path) -> None:
    pair = tiny_pair("gpt2", tmp_path)
    pair.drafter.config.n_positions = 64
    assert pair_from_models(pair.drafter, pair.verifier, pair.tokenizer).context_length == 64


def test_a_model_that_tells_no_context_length_is_refused(tmp_path: Path) -> None:
    pair = tiny_pair("llama", tmp_path)
    pair.verifier.config.get_text_config = SimpleNamespace
    with pytest.raises(PairError, match="how many positions"):
        pair_from_models(pair.drafter, pair.verifier, pair.tokenizer)


@pytest.mark.parametrize("configured", [None, 7, [7, 9]])
def test_a_text_ends_where_the_verifier_or_the_tokenizer_says(configured: Any, tmp_path: Path) -> None:
    pair = tiny_pair("llama", tmp_path)
    pair.verifier.generation_config.eos_token_id = configured
    ends = pair_from_models(pair.drafter, pair.verifier, pair.tokenizer).eos_token_ids
    own = {pair.tokenizer.eos_token_id}
    assert ends == own | set(configured if isinstance(configured, list) else {configured} - {None})


def test_a_pair_is_for_chat_if_its_tokenizer_has_a_template(tmp_path: Path) -> None:
    assert tiny_pair("llama", tmp_path / "chat", chat=True).is_chat
    assert not tiny_pair("llama", tmp_path / "base").is_chat


def test_tokenizers_with_other_ids_are_refused_by_name(tmp_path: Path) -> None:
    pair = tiny_pair("llama", tmp_path)
    other = tiny_tokenizer(tmp_path / "other", lines=("entirely different words make different merges",))
    with pytest.raises(PairError, match=r"Small and Large have different tokenizers.*share one"):
        pair_from_models(
            pair.drafter,
            pair.verifier,
            pair.tokenizer,
            drafter_tokenizer=other,
            drafter_name="Small",
            verifier_name="Large",
        )


def test_tokenizers_with_the_same_ids_that_split_otherwise_are_refused(tmp_path: Path) -> None:
    lines = ("12 34 56 12 34 56 12 34 56",)
    tokenizer, other = (tiny_tokenizer(tmp_path / name, lines=lines) for name in "ab")
    other.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    assert tokenizer.get_vocab() == other.get_vocab()
    model = tiny_model("llama", len(tokenizer), 1, tmp_path / "m")
    assert pair_from_models(model, model, tokenizer, drafter_tokenizer=tokenizer).key == "custom"
    with pytest.raises(PairError, match="different tokenizers"):
        pair_from_models(model, model, tokenizer, drafter_tokenizer=other)
