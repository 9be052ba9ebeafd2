"""A pair: what two models and a tokenizer have in common, and which do not make one."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, pre_tokenizers
from transformers import AutoModelForCausalLM, GPT2Config, PreTrainedTokenizerFast

import specviz
from specviz.engine.engine import Engine
from specviz.errors import PairError
from specviz.models.pair import pair_from_models, share_a_tokenizer
from tests.support.tiny import END, tiny_model, tiny_pair, tiny_tokenizer


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_two_models_make_a_pair_cut_to_the_tokenizers_ids(family: str, tmp_path: Path) -> None:
    pair = tiny_pair(family, tmp_path, drafter_padding=3, verifier_padding=11)
    ids = torch.tensor([[1, 2, 3]])
    widths = [model(ids).logits.shape[-1] for model in (pair.drafter, pair.verifier)]
    assert widths == [pair.vocabulary_size + 3, pair.vocabulary_size + 11]
    assert pair.vocabulary_size == len(pair.tokenizer)
    assert pair.context_length == 512
    assert pair.eos_token_ids == {pair.tokenizer.convert_tokens_to_ids(END)}
    assert pair.dtype == torch.float64
    assert pair.device == torch.device("cpu")
    assert not any(
        weight.requires_grad for weight in (*pair.drafter.parameters(), *pair.verifier.parameters())
    )


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


def test_suppressed_ids_that_the_pair_lacks_count_as_little_as_in_generate(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer(tmp_path)
    model = tiny_model("llama", len(tokenizer) + 9, 1, tmp_path / "m")
    model.generation_config.suppress_tokens = [-1, 7, len(tokenizer)]
    assert pair_from_models(model, model, tokenizer).suppressed_ids == {7}


def test_pass_times_are_measured_within_the_context(tmp_path: Path) -> None:
    """A table of learned positions has no further ones."""
    tokenizer = tiny_tokenizer(tmp_path)
    config = GPT2Config(vocab_size=len(tokenizer), n_embd=16, n_layer=1, n_head=2, n_positions=24)
    model = AutoModelForCausalLM.from_config(config).eval()
    pair = pair_from_models(model, model, tokenizer)
    assert max(count for count, _ in pair.pass_times.verifier) == 16


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
    assert share_a_tokenizer(tokenizer, more)
    assert share_a_tokenizer(more, tokenizer)
    assert not share_a_tokenizer(other, more)
    assert not share_a_tokenizer(more, other)


def test_a_drafter_may_lack_tokens_or_have_more(tmp_path: Path) -> None:
    """Laws 2 and 3 hold with q = 0 for tokens that the drafter lacks; those that it has beyond the verifier's are cut."""
    tokenizer = tiny_tokenizer(tmp_path / "t")
    own = len(tokenizer)
    more = with_added(tokenizer, *(f"<{index}>" for index in range(60)))
    small = tiny_model("llama", own, 1, tmp_path / "small")
    large = tiny_model("llama", len(more), 2, tmp_path / "large")
    engine = Engine(specviz.pair_from_models(small, large, more, drafter_tokenizer=tokenizer))
    asked = [
        specviz.Request(method=method, temperature=n % 2, token_ids=[5, own + 3, 6, 7], max_new_tokens=10)
        for n, method in enumerate(("speed", "cascade_tokenV3", "drafter_only", "verifier_only"))
    ]
    others = [replace(each, draft_length=length) for length in (1, 4) for each in asked]
    together = [run.token_ids for run in engine.generate([*asked, *others])]
    for number, each in enumerate(asked):
        alone = engine.generate([each])[0].token_ids
        assert all(ids == alone for ids in together[number :: len(asked)]), each.method
        assert all(token < own for token in alone) or each.method != "drafter_only"
    turned = specviz.pair_from_models(large, small, tokenizer, drafter_tokenizer=more)
    assert turned.vocabulary_size == own
    for run in Engine(turned).generate([replace(each, token_ids=[5, 6, 7]) for each in asked]):
        assert all(token < own for token in run.token_ids)
