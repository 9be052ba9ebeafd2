"""A pair: what two models and a tokenizer have in common, and which do not make one."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import specviz
from specviz.core.methods import METHODS
from specviz.engine.engine import Engine
from specviz.errors import PairError
from specviz.models.pair import pair_from_models, same_tokenizer
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


def test_the_vocabulary_reaches_to_the_last_id_of_a_tokenizer_with_gaps(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer(tmp_path)
    vocabulary, last = json.loads(tokenizer.backend_tokenizer.to_str()), len(tokenizer) + 20
    vocabulary["added_tokens"] += [vocabulary["added_tokens"][0] | {"id": last, "content": "<late>"}]
    vocabulary["model"]["vocab"] |= {"<late>": last}
    spaced = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(vocabulary)))
    assert spaced.convert_tokens_to_ids("<late>") == last
    model = tiny_model("llama", last + 9, 1, tmp_path / "m")
    assert pair_from_models(model, model, spaced).vocabulary_size == last + 1


def test_the_context_is_the_shorter_one_and_the_vocabulary_what_the_verifier_scores(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer(tmp_path)
    size = len(tokenizer) - 5
    drafter, verifier = (tiny_model("gpt2", size + more, 1, tmp_path / str(more)) for more in (9, 0))
    drafter.config.n_positions = 64
    pair = pair_from_models(drafter, verifier, tokenizer)
    assert (pair.context_length, pair.vocabulary_size) == (64, size)
    verifier.config.get_text_config = SimpleNamespace
    with pytest.raises(PairError, match="how many positions"):
        pair_from_models(drafter, verifier, tokenizer)


@pytest.mark.parametrize("configured", [None, 7, [7, 9], []])
def test_a_text_ends_where_the_verifiers_generation_config_says(configured: Any, tmp_path: Path) -> None:
    """Law 5: `generate` knows neither the tokenizer's end nor the drafter's."""
    pair = tiny_pair("llama", tmp_path)
    pair.verifier.generation_config.eos_token_id = configured
    pair.drafter.generation_config.eos_token_id = 11
    ends = pair_from_models(pair.drafter, pair.verifier, pair.tokenizer).eos_token_ids
    assert ends == set(configured if isinstance(configured, list) else {configured} - {None})


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


def with_added(tokenizer: Any, *pieces: str) -> Any:
    more = copy.deepcopy(tokenizer)
    more.add_tokens(list(pieces))
    return more


def test_either_tokenizer_may_have_added_tokens_and_both_only_the_same(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer(tmp_path / "t")
    more, other = with_added(tokenizer, "<tool>", "</tool>"), with_added(tokenizer, "<think>")
    assert same_tokenizer(tokenizer, more)
    assert same_tokenizer(more, tokenizer)
    assert not same_tokenizer(other, more)
    assert not same_tokenizer(more, other)


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma2"])
@pytest.mark.parametrize("method", ["speed", "verifier_only"])
def test_tokens_that_only_the_verifier_has_are_written(method: str, family: str, tmp_path: Path) -> None:
    """Laws 5 and 6: also an end that the drafter lacks ends the text."""
    tokenizer = tiny_tokenizer(tmp_path / "t")
    own = len(tokenizer)
    more = with_added(tokenizer, "<tool>", "</tool>", "<|over|>")
    drafter = tiny_model(family, own, 1, tmp_path / "d")
    verifier = tiny_model(family, len(more), 2, tmp_path / "v")
    head = verifier.get_output_embeddings().weight.data
    ids = torch.tensor([[5, 6, own, 7, own + 1, 8]])
    plain: Any = {"attention_mask": torch.ones_like(ids), "do_sample": False, "max_new_tokens": 24}
    written = verifier.generate(ids, **plain)[0, 6:].tolist()
    head[own], head[own + 2] = 1.01 * head[written[2]], 1.01 * head[written[12]]
    verifier.generation_config.eos_token_id, plain["pad_token_id"] = own + 2, 0
    wanted = verifier.generate(ids, **plain)[0, 6:].tolist()
    assert own in wanted
    pair = specviz.pair_from_models(drafter, verifier, more, drafter_tokenizer=tokenizer)
    asked = specviz.Request(
        token_ids=ids[0].tolist(), method=method, lenience=0.0, temperature=0.0, max_new_tokens=24, inspect=5
    )
    run = Engine(pair).generate([asked])[0]
    assert run.token_ids == wanted
    assert (run.stop_reason == "eos") == (wanted[-1] == own + 2)


@pytest.mark.parametrize("method", sorted(METHODS))
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_drafter_that_lacks_tokens_serves_every_method(
    method: str, temperature: float, tmp_path: Path
) -> None:
    """Laws 2 and 3 hold with q = 0 for tokens that the drafter lacks; those that it has beyond the verifier's are cut."""
    tokenizer = tiny_tokenizer(tmp_path / "t")
    own = len(tokenizer)
    more = with_added(tokenizer, *(f"<{index}>" for index in range(60)))
    verifier = tiny_model("llama", len(more), 2, tmp_path / "v")
    asked: dict[str, Any] = {"method": method, "temperature": temperature, "max_new_tokens": 20, "seed": 3}
    drafter = tiny_model("llama", own, 1, tmp_path / "d")
    pair = specviz.pair_from_models(drafter, verifier, more, drafter_tokenizer=tokenizer)
    engine = Engine(pair)
    requests = [
        specviz.Request(token_ids=[5, own + 3, 6, 7], draft_length=length, **asked) for length in (1, 2, 4)
    ]
    alone = [engine.generate([each])[0] for each in requests]
    assert len({tuple(run.token_ids) for run in [*alone, *engine.generate(requests)]}) == 1
    assert all(each < own for each in alone[0].token_ids) or method != "drafter_only"
    larger = specviz.pair_from_models(verifier, drafter, tokenizer, drafter_tokenizer=more)
    assert larger.vocabulary_size == own
    run = Engine(larger).generate([specviz.Request(token_ids=[5, 6, 7], **asked)])[0]
    assert all(each < own for each in run.token_ids)
